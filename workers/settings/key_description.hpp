// What there is to read: all keys that a reader would take, found by letting it read where nothing is written.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "workers/settings/settings.hpp"

namespace syncopate {

// A word of a choice, or one of two words about a key: present, absent.
struct Answer {
  std::string key;   // its path; of a question about presence with a question mark, "average?"
  std::string word;  // what stands there
  auto operator<=>(const Answer&) const = default;
};
inline constexpr const char* present = "present";
inline constexpr const char* absent = "absent";

// What keys are read depends on what others say. A key is there where all of these hold.
struct Condition {
  std::string key;                 // as that of an Answer
  std::vector<std::string> words;  // one of them
  auto operator<=>(const Condition&) const = default;
};

struct KeyDescription {
  enum class Kind { value, table, array_of_tables };
  std::string path;                       // "cluster.workers"; the entries of an array have no numbers: "delays.kind"
  std::string takes;                      // "a number above 0", "one of ..."
  std::string unit{};                     // empty: a plain number, or none
  std::optional<std::string> fallback{};  // the default as TOML, or in words
  std::string left_out{};                 // what holds without it, where there is no default
  bool required = false;                  // otherwise, without a default, it may be left out
  std::vector<std::pair<std::string, std::string>> words{};  // of a choice, with their sentences, if they have any
  std::string sentence{};
  std::vector<std::vector<Condition>> conditions{};  // any of these lists holds; none: always there

  Kind kind = Kind::value;

  bool is_table() const { return kind != Kind::value; }
  bool operator==(const KeyDescription&) const = default;
};

// All keys of a reader, in the order in which it reads them, those of each condition after those that are always there.
// It reads as if nothing were written, again and again: each word of each choice that it meets is tried once, and each
// question whether a key is written is answered once with yes, the others being as usual. A key that exists only where
// two questions that do not follow from each other are both answered unusually is not found. `fixed` holds everywhere,
// and is no condition of what is found.
std::vector<KeyDescription> describe(const std::function<void(Settings&)>& read,
                                     const std::map<std::string, std::string>& fixed = {});

}  // namespace syncopate
