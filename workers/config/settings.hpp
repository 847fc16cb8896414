// A typed, checking view of one table of an experiment file. Every part of Syncopate (an algorithm, a delay process, a
// model) reads its own keys through Settings. The values that were read, with defaults filled in, become the resolved
// configuration. Keys that no part has read are unknown keys. Without a written document the same calls list all keys.
//
// Faults do not throw: they are collected (file:line:column: key = found; must be ...; did you mean ...?), and readers
// return the default, or the lower bound. So one pass reports all of them.
#pragma once

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

// Faults of a configuration.
class FaultList {
 public:
  // The same fault at the same place counts once; the command line is one place.
  void add(const SourcePlace& place, std::string text);
  void add(const FaultList& others);
  // The same with `name` in place of a prefix of keys. Leaves out known faults, and faults of keys that already have
  // one under another name.
  void add(const FaultList& others, const std::string& prefix, const std::string& name);

  // Appends reason(text) to each fault's text.
  void explain(const std::function<std::string(const std::string& text)>& reason);

  bool empty() const { return faults_.empty(); }
  std::size_t size() const { return faults_.size(); }

  // One fault per line: "place: text", or "place: origin: text" for a value set by a patch. First the file's faults by
  // line, then the command line's. A long list ends with the number of faults left out.
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

// A key's name, meaning and unit, declared where it is read, with its range and default. Messages, `syncopate list` and
// the reference of the experiment file are generated from these. Valid during the call that it is passed to.
struct Key {
  Key(const char* name) : name(name) {}         // NOLINT: for a key that has already been described
  Key(const std::string& name) : name(name) {}  // NOLINT
  Key(std::string_view name) : name(name) {}    // NOLINT
  Key(std::string_view name, std::string_view sentence, std::string_view unit = {}, std::string_view left_out = {})
      : name(name), sentence(sentence), unit(unit), left_out(left_out) {}

  std::string_view name;
  std::string_view sentence{};  // its meaning, on one line
  std::string_view unit{};      // "s", "bytes", ...; empty: a plain number
  std::string_view left_out{};  // for an optional key without a default: what holds without it
};

// The interval that a number must lie in.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;  // true: the bound itself is not allowed
  bool high_open = false;

  static constexpr Range any() { return {}; }
  static constexpr Range at_least(double low) { return {.low = low}; }
  static constexpr Range positive() { return {.low = 0, .low_open = true}; }
  static constexpr Range between(double low, double high) { return {.low = low, .high = high}; }
};

// A bound or a default. One that depends on other keys has words for the reference:
// Stated(workers - 1, "workers - 1").
template <typename Value>
struct Stated {
  template <std::convertible_to<Value> From>
  Stated(From&& value, std::string_view words = {})  // NOLINT: most are plain values
      : value(static_cast<Value>(std::forward<From>(value))), words(words) {}

  Value value;
  std::string_view words;
};
template <std::integral From>
Stated(From, std::string_view) -> Stated<std::int64_t>;
template <std::floating_point From>
Stated(From, std::string_view) -> Stated<double>;
Stated(std::string, std::string_view)->Stated<std::string>;

// One of the words that a choice takes.
template <typename Value>
struct Named {
  std::string_view name;
  Value value;
};
struct Alternative {
  std::string_view name;
  std::string_view sentence{};
};

// A key of an experiment file that a reader has requested, written or not.
struct KnownKey {
  std::string path;                  // as in an override: "delays.0.scale"; for an absent table, the table's
  std::vector<std::string> choices;  // the words of a choice
};

class SettingsDocument;  // the parsed file, its faults, and what was read from it

class Settings {
 public:
  // Keys without a fallback are required. A number without an upper bound can be `inf`.
  double number(const Key& key, Range range, const std::optional<Stated<double>>& fallback = {});
  std::int64_t integer(const Key& key, const Stated<std::int64_t>& low, const Stated<std::int64_t>& high,
                       const std::optional<Stated<std::int64_t>>& fallback = {});
  bool flag(const Key& key, std::optional<bool> fallback = {});
  std::string text(const Key& key, const std::optional<Stated<std::string>>& fallback = {});
  std::vector<double> numbers(const Key& key, Range range, const std::optional<std::vector<double>>& fallback = {});
  std::vector<std::int64_t> integers(const Key& key, const Stated<std::int64_t>& low, const Stated<std::int64_t>& high,
                                     const std::optional<std::vector<std::int64_t>>& fallback = {});
  std::vector<std::string> texts(const Key& key, const std::optional<std::vector<std::string>>& fallback = {});

  // Optional keys without a default.
  std::optional<double> optional_number(const Key& key, Range range);
  std::optional<std::int64_t> optional_integer(const Key& key, const Stated<std::int64_t>& low,
                                               const Stated<std::int64_t>& high);
  std::optional<bool> optional_flag(const Key& key);

  // Reads one word of a table and returns the value beside it. An unknown word is a fault that names the nearest word;
  // it gives the fallback, or nothing. `fallback_words` describe a fallback that depends on other keys.
  template <typename Value>
  Value choice(const Key& key, std::initializer_list<Named<std::type_identity_t<Value>>> table, Value fallback,
               std::string_view fallback_words = {});
  template <typename Value>
  std::optional<Value> choice(const Key& key, std::initializer_list<Named<Value>> table);
  // The same for the rows of a registry, which have a `name` and a `sentence`.
  template <typename Rows>
  auto row(const Key& key, const Rows& rows, std::string_view fallback = {}) -> decltype(std::data(rows));

  // An existing file, looked up in the experiment file's folder, then in the working directory. The resolved
  // configuration has the absolute path. Empty after a fault.
  std::filesystem::path file(const Key& key);
  // The same for a directory. Anything else may be in its place, which the reader must refuse. Empty if nothing is
  // there.
  std::filesystem::path directory(const Key& key);

  // The written keys, in their order, for tables whose keys are names.
  std::vector<std::string> keys() const;

  // Whether the key is written. The key becomes known and need not be read. Describe it here if it is not always read.
  bool has(const Key& key) const;

  // Whether the key's value is a table, for keys that take a number or a table.
  bool has_table(const Key& key) const;

  // Reports "must be left out: <reason>" if the key is written. The key belongs only to other files and is not
  // described.
  void refuse(std::string_view key, std::string_view reason);

  // The value if it is a string, for keys that take a number or a word.
  std::optional<std::string> word(std::string_view key) const;

  // Leaves a value that was read out of the resolved configuration, because its default has no effect here but would
  // have one if written.
  void leave_out(std::string_view key);

  // A sub-table; an absent one reads as empty: its defaults apply, and its required keys are faults.
  Settings section(const Key& key);
  // An array of tables; absent: none.
  std::vector<Settings> sections(const Key& key);

  // Makes a table known and copies it as written, for parts that no Settings reads. Without a sentence it is not
  // described: it must not be given here.
  void keep_as_written(const Key& key);

  // Reports a fault that concerns several keys or that readers cannot detect: "<place>: <key> = <found>; <message>".
  // The place is the key's, or the table's if the key is absent.
  void fault(std::string_view key, std::string_view message);

  // "<place>: <key> = <found>" as in a fault, for faults that are found later.
  std::string written(std::string_view key) const;

  // The number of faults so far in the whole document. If it has grown while values were read, skip checks of these
  // values: the consequence of a fault is not a fault of its own.
  std::size_t faults_so_far() const;

 private:
  friend class SettingsDocument;
  struct Node;

  // The index of the word in the table; after a fault the fallback.
  std::optional<std::size_t> place_of_word(const Key& key, std::span<const Alternative> words,
                                           std::optional<std::size_t> fallback, std::string_view fallback_words = {});

  // Reads a path and returns the places to look for it, with the written name last; empty after a fault.
  std::vector<std::filesystem::path> places_of_path(const Key& key, const char* takes);

  std::shared_ptr<Node> node_;
};

template <typename Value>
Value Settings::choice(const Key& key, std::initializer_list<Named<std::type_identity_t<Value>>> table, Value fallback,
                       std::string_view fallback_words) {
  std::vector<Alternative> words;
  std::optional<std::size_t> usual;
  for (const auto& [name, value] : table) {
    if (value == fallback && !usual) usual = words.size();
    words.push_back({name});
  }
  const auto place = place_of_word(key, words, usual, fallback_words);
  return place ? std::data(table)[*place].value : fallback;
}

template <typename Value>
std::optional<Value> Settings::choice(const Key& key, std::initializer_list<Named<Value>> table) {
  std::vector<Alternative> words;
  for (const auto& named : table) words.push_back({named.name});
  const auto place = place_of_word(key, words, {});
  return place ? std::optional(std::data(table)[*place].value) : std::nullopt;
}

template <typename Rows>
auto Settings::row(const Key& key, const Rows& rows, std::string_view fallback) -> decltype(std::data(rows)) {
  std::vector<Alternative> words;
  std::optional<std::size_t> usual;
  for (const auto& one : rows) {
    if (!fallback.empty() && one.name == fallback) usual = words.size();
    words.push_back({one.name, one.sentence});
  }
  const auto place = place_of_word(key, words, usual);
  return place ? std::data(rows) + *place : nullptr;
}

// Whether a key is written, as words of a Condition.
inline constexpr const char* present = "present";
inline constexpr const char* absent = "absent";

// A key exists if another key is one of these words.
struct Condition {
  std::string key;  // path of a choice; with a question mark, "average?": whether it is written
  std::vector<std::string> words;
  auto operator<=>(const Condition&) const = default;
};

struct KeyDescription {
  enum class Kind { value, table, array_of_tables };
  std::string path;                       // "cluster.workers"; the entries of an array have no numbers: "delays.kind"
  std::string takes;                      // "a number above 0", "one of ..."
  std::string unit{};                     // empty: a plain number, or not a number
  std::optional<std::string> fallback{};  // the default as TOML, or in words
  std::string left_out{};                 // meaning of leaving it out, if it has no default
  bool required = false;                  // false without a default: optional
  std::vector<std::pair<std::string, std::string>> words{};  // words of a choice, with their sentences if they have any
  std::string sentence{};
  // All conditions of one of these lists hold; empty: the key always exists.
  std::vector<std::vector<Condition>> conditions{};

  Kind kind = Kind::value;

  bool is_table() const { return kind != Kind::value; }
  bool operator==(const KeyDescription&) const = default;
};

// All keys of a reader, in the order in which it reads them; those with conditions come after those without. Runs the
// reader many times, as if nothing were written. It tries each word of each choice once, and answers each question
// whether a key is written once with yes; all other answers are the defaults. A key that needs two unusual answers to
// questions that do not depend on each other is not found. `fixed` answers always hold and do not count as conditions.
std::vector<KeyDescription> describe(const std::function<void(Settings&)>& read,
                                     const std::map<std::string, std::string>& fixed = {});

// Reads and parses a TOML file. Throws TomlSyntaxFault, "file: what is wrong", also for a file that cannot be read.
TomlNode load_toml(const std::string& file);

class Exploration;

// One document while it is read through Settings. It owns the written tables, the faults, and the record of what was
// read. Settings from it are valid as long as it lives.
class SettingsDocument {
 public:
  explicit SettingsDocument(TomlNode root);
  // A document with nothing written; the exploration answers its reader's questions.
  explicit SettingsDocument(Exploration& exploration);
  ~SettingsDocument();
  SettingsDocument(const SettingsDocument&) = delete;
  SettingsDocument& operator=(const SettingsDocument&) = delete;

  Settings root();

  const FaultList& faults() const { return faults_; }  // so far

  // All faults, including unknown keys. Call it after everything has been read.
  const FaultList& check();

  // The values that were read, with defaults, as a document that reads back to itself.
  TomlNode resolved() const;

  // All keys that the document can have, except those that are tables here.
  std::vector<KnownKey> known_keys() const;

  // The keys described while the document was explored, in reading order.
  std::vector<KeyDescription> descriptions() const;

 private:
  TomlNode written_;
  FaultList faults_;
  Settings root_;
};

}  // namespace syncopate
