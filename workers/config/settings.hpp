// Settings is a typed view of one table of an experiment file that checks what is read. Every part of Syncopate (an
// algorithm, a delay process, a model) reads its own keys through Settings. The values that were read, including
// defaults, form the resolved configuration. Written keys that no part has read are reported as unknown. Run on an
// empty document, the same calls list all keys that exist.
//
// Faults do not throw. They are collected (file:line:column: key = found; must be ...; did you mean ...?), and the
// reading function returns the default or the lower bound instead. Therefore one pass reports all faults.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "workers/config/toml.hpp"

namespace syncopate {

class FaultList {
 public:
  // Adds a fault, unless the same one is listed at the same place. The whole command line counts as one place.
  void add(const SourcePlace& place, std::string text);
  void add(const FaultList& others);
  // Adds the faults of `others`. Replaces the beginning of a key: the first one of a pair in `names` by the second one.
  // Leaves out faults that are already listed, and faults of keys for which a fault is listed under another name.
  void add(const FaultList& others, std::initializer_list<std::pair<std::string, std::string>> names);

  // Appends reason(key) to each fault that reads "<key> is missing; ...". `key`: the parts of the key.
  void explain_missing(const std::function<std::string(const std::vector<std::string>& key)>& reason);

  bool empty() const { return faults_.empty(); }
  std::size_t size() const { return faults_.size(); }

  // Returns one line per fault: "place: text", or "place: origin: text" for a value set by a patch. The file's faults
  // come first, sorted by line, then those of the command line. A long list ends with the number of faults left out.
  std::string report() const;

 private:
  struct Fault {
    SourcePlace place;
    std::string text;
    auto operator<=>(const Fault&) const = default;
  };
  std::vector<Fault> faults_;  // in the order of discovery
  std::set<Fault> known_;
};

// A key's name, meaning and unit. They are declared where the key is read, together with its range and default.
// Messages, `syncopate list` and the reference of experiment files are generated from them. A Key is valid only during
// the call to which it is passed.
struct Key {
  Key(const char* name) : name(name) {}         // NOLINT: for a key that is described elsewhere
  Key(const std::string& name) : name(name) {}  // NOLINT
  Key(std::string_view name) : name(name) {}    // NOLINT
  Key(std::string_view name, std::string_view sentence, std::string_view unit = {}, std::string_view left_out = {})
      : name(name), sentence(sentence), unit(unit), left_out(left_out) {}

  std::string_view name;
  std::string_view sentence{};  // its meaning, on one line
  std::string_view unit{};      // "s", "bytes", ...; empty: a plain number
  std::string_view left_out{};  // for an optional key without a default: the meaning of leaving it out
};

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;  // true: the bound itself is not allowed
  bool high_open = false;

  static constexpr Range any() { return {}; }
  static constexpr Range at_least(double low) { return {.low = low}; }
  static constexpr Range positive() { return {.low = 0, .low_open = true}; }
  static constexpr Range between(double low, double high) { return {.low = low, .high = high}; }
  static constexpr Range below_one() { return {.low = 0, .high = 1, .high_open = true}; }  // from 0
  static constexpr Range finite_from_zero() { return {.low = 0, .high_open = true}; }
  static constexpr Range finite_positive() { return {.low = 0, .low_open = true, .high_open = true}; }
};

// A bound or a default. If it depends on other keys, `words` describe it in the reference:
// Stated(workers - 1, "workers - 1").
template <typename Value>
struct Stated {
  template <std::convertible_to<Value> From>
  Stated(From&& value, std::string_view words = {})  // NOLINT: implicit, because most values are plain
      : value(static_cast<Value>(std::forward<From>(value))), words(words) {}

  Value value;
  std::string_view words;
};
template <std::integral From>
Stated(From, std::string_view) -> Stated<std::int64_t>;
template <std::floating_point From>
Stated(From, std::string_view) -> Stated<double>;
Stated(std::string, std::string_view)->Stated<std::string>;

// A word that a key with a choice accepts, and its value.
template <typename Value>
struct Named {
  std::string_view name;
  Value value;
  std::string_view sentence{};
};
struct Alternative {
  std::string_view name;
  std::string_view sentence{};
};

// A key of an experiment file that was requested from Settings, whether it is written or not.
struct KnownKey {
  std::string path;                  // as in an override: "delays.0.scale"; for an absent table: the table's path
  std::vector<std::string> choices;  // the accepted words, for a choice
};

class SettingsDocument;  // the parsed file, its faults, and the record of what was read from it

class Settings {
 public:
  // Each function returns the key's value. A key without a fallback is required. Numbers without upper bound can be
  // `inf`.
  double number(const Key& key, Range range, const std::optional<Stated<double>>& fallback = {});
  std::int64_t integer(const Key& key, const Stated<std::int64_t>& low, const Stated<std::int64_t>& high,
                       const std::optional<Stated<std::int64_t>>& fallback = {});
  bool flag(const Key& key, std::optional<bool> fallback = {});
  std::string text(const Key& key, const std::optional<Stated<std::string>>& fallback = {});
  std::vector<double> numbers(const Key& key, Range range, const std::optional<std::vector<double>>& fallback = {});
  std::vector<std::int64_t> integers(const Key& key, const Stated<std::int64_t>& low, const Stated<std::int64_t>& high,
                                     const std::optional<std::vector<std::int64_t>>& fallback = {});
  std::vector<std::string> texts(const Key& key, const std::optional<std::vector<std::string>>& fallback = {});

  // Optional keys without a default: nullopt if they are not written.
  std::optional<double> optional_number(const Key& key, Range range);
  std::optional<std::int64_t> optional_integer(const Key& key, const Stated<std::int64_t>& low,
                                               const Stated<std::int64_t>& high);
  std::optional<bool> optional_flag(const Key& key);

  // Reads a word and returns its value in `table`. An unknown word is a fault whose message names the nearest word; the
  // result is then the fallback, or nullopt. `fallback_words` describe a fallback that depends on other keys.
  template <typename Value>
  Value choice(const Key& key, std::initializer_list<Named<std::type_identity_t<Value>>> table, Value fallback,
               std::string_view fallback_words = {});
  template <typename Value>
  std::optional<Value> choice(const Key& key, std::initializer_list<Named<Value>> table);
  // Reads a word and returns a pointer to the row of a registry with this `name` (rows have a `name` and a `sentence`);
  // null after a fault if there is no fallback.
  template <typename Rows>
  auto row(const Key& key, const Rows& rows, std::string_view fallback = {}, std::string_view fallback_words = {})
      -> decltype(std::data(rows));

  // Returns the path of an existing file, which is looked up first in the experiment file's folder, then in the working
  // directory. The resolved configuration contains the absolute path. Empty after a fault.
  // `names` are the words that could be written instead of a path; a fault suggests the nearest of them.
  std::filesystem::path file(const Key& key, std::span<const std::string> names = {});
  // Like `file`, but for a directory. If the path exists but is not a directory, returns it nevertheless; the caller
  // must reject it. Empty if nothing exists at the path.
  std::filesystem::path directory(const Key& key);

  // Returns the written keys in their order, for tables whose keys are names chosen by the user.
  std::vector<std::string> keys() const;

  // Whether the key is written. After this call the key is known: it is not reported as unknown even if it is not read.
  // Pass a description if the key is not always read.
  bool has(const Key& key) const;

  // Whether the key's value is a table, for keys that accept a number or a table.
  bool has_table(const Key& key) const;

  // Reports "must be left out: <reason>" if the key is written. Used for keys that exist only in other configurations;
  // they are not described here.
  void refuse(std::string_view key, std::string_view reason);

  // Returns the value if it is a string, for keys that accept a number or a word.
  std::optional<std::string> word(std::string_view key) const;

  // Leaves a read value out of the resolved configuration, for defaults that have no effect unless they are written.
  void leave_out(std::string_view key);

  // Leaves a read table out of the resolved configuration, unless the file contains it.
  void leave_out_unwritten_table(std::string_view key);

  // Returns a sub-table. An absent one is read like an empty one: defaults apply, missing required keys are faults.
  Settings section(const Key& key);
  // Returns the tables of an array of tables; an empty list if it is absent.
  std::vector<Settings> sections(const Key& key);

  // Makes a table known and copies it to the resolved configuration as it is written, for tables that are not read
  // through Settings. The reference does not list a key without a sentence: its table is a fault where it stands.
  void keep_as_written(const Key& key);

  // Reports a fault that concerns several keys or that the reading functions cannot detect: "<place>: <key> = <found>;
  // <message>". The place is the key's, or the table's if the key is absent. An empty key means the whole table.
  void fault(std::string_view key, std::string_view message);

  // Returns "<place>: <key> = <found>", the beginning of a fault's message, for faults that are found later.
  std::string written(std::string_view key) const;

  // Returns the place of the key's value or, if the key is absent, the table's place, for faults that are found later.
  SourcePlace place(std::string_view key) const;

  // The number of faults so far in the whole document. If the number has grown while you read some values, skip further
  // checks of these, which would report consequences of the same fault.
  std::size_t faults_so_far() const;

 private:
  friend class SettingsDocument;
  struct Node;

  // Returns the index of the written word in `words`; the fallback if the key is absent or wrong.
  std::optional<std::size_t> place_of_word(const Key& key, std::span<const Alternative> words,
                                           std::optional<std::size_t> fallback, std::string_view fallback_words);

  // Reads a path and returns the places where to look for it; the last one is the path as written. Empty after a fault.
  std::vector<std::filesystem::path> places_of_path(const Key& key, const char* takes);

  std::shared_ptr<Node> node_;
};

template <typename Value>
Value Settings::choice(const Key& key, std::initializer_list<Named<std::type_identity_t<Value>>> table, Value fallback,
                       std::string_view fallback_words) {
  const auto* const usual = std::ranges::find(table, fallback, &Named<Value>::value);
  const auto* const found = row(key, table, usual == table.end() ? "" : usual->name, fallback_words);
  return found ? found->value : fallback;
}

template <typename Value>
std::optional<Value> Settings::choice(const Key& key, std::initializer_list<Named<Value>> table) {
  const auto* const found = row(key, table);
  return found ? std::optional(found->value) : std::nullopt;
}

template <typename Rows>
auto Settings::row(const Key& key, const Rows& rows, std::string_view fallback, std::string_view fallback_words)
    -> decltype(std::data(rows)) {
  std::vector<Alternative> words;
  std::optional<std::size_t> usual;
  for (const auto& one : rows) {
    if (!fallback.empty() && one.name == fallback) usual = words.size();
    words.push_back({one.name, one.sentence});
  }
  const auto place = place_of_word(key, words, usual, fallback_words);
  return place ? std::data(rows) + *place : nullptr;
}

// Words of a Condition on whether a key is written.
inline constexpr const char* present = "present";
inline constexpr const char* absent = "absent";

// A condition for the existence of a key: another key has one of these words as its value.
struct Condition {
  std::string key;  // path of a choice; with a question mark ("average?"): whether this key is written
  std::vector<std::string> words;
  auto operator<=>(const Condition&) const = default;
};

struct KeyDescription {
  enum class Kind { value, table, array_of_tables };
  std::string path;                       // "cluster.workers"; without the numbers of array entries: "delays.kind"
  std::string takes;                      // "a number above 0", "one of ..."
  std::string unit{};                     // empty for plain numbers and for other types
  std::optional<std::string> fallback{};  // the default as TOML, or in words
  std::string left_out{};                 // meaning of an omitted key that has no default
  bool required = false;                  // false and no default: the key is optional
  std::vector<std::pair<std::string, std::string>> words{};  // words of a choice, with their sentences if they have any
  std::string sentence{};
  // The key exists if all conditions of at least one of these lists hold. Empty: the key always exists.
  std::vector<std::vector<Condition>> conditions{};

  Kind kind = Kind::value;

  bool is_table() const { return kind != Kind::value; }
  bool operator==(const KeyDescription&) const = default;
};

// Returns all keys that the function `read` can read, in reading order; keys with conditions come after keys without.
// Runs `read` many times on an empty document. Each word of each choice is tried once, and each question whether a key
// is written is answered once with yes; all other answers are the defaults. Therefore a key is not found if it needs
// non-default answers to two questions that do not depend on each other. Answers in `fixed` are always given; they are
// no conditions.
std::vector<KeyDescription> describe(const std::function<void(Settings&)>& read,
                                     const std::map<std::string, std::string>& fixed = {});

// Reads and parses a TOML file. Throws TomlSyntaxFault ("file: what is wrong") if the file cannot be read or parsed.
TomlNode load_toml(const std::string& file);

class Exploration;

// A document that is read through Settings. It owns the written tables, the faults, and the record of what was read.
// Its Settings are valid as long as it exists.
class SettingsDocument {
 public:
  explicit SettingsDocument(TomlNode root);
  // An empty document. The exploration says which word a choice has and which keys are written.
  explicit SettingsDocument(Exploration& exploration);
  ~SettingsDocument();
  SettingsDocument(const SettingsDocument&) = delete;
  SettingsDocument& operator=(const SettingsDocument&) = delete;

  Settings root();

  const FaultList& faults() const { return faults_; }  // those found so far

  // Returns all faults, including unknown keys. Call it after everything has been read.
  const FaultList& check();

  // Returns the values that were read, with defaults, as a document. Reading that document yields the same document.
  TomlNode resolved() const;

  // Returns all keys that the document can contain, except those whose values in it are tables.
  std::vector<KnownKey> known_keys() const;

  // Returns the keys described while the document was explored, in reading order.
  std::vector<KeyDescription> descriptions() const;

 private:
  TomlNode written_;
  FaultList faults_;
  Settings root_;
};

}  // namespace syncopate
