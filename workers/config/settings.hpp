// A typed, checking view of one table of an experiment file. Every part of Syncopate (an algorithm,
// a delay process, a model) reads its own keys through this class; what was read, with defaults
// filled in, becomes the resolved configuration; what nobody read is an unknown key. The same calls say what there is
// to read, where nothing is written.
//
// Faults do not throw: they are collected (file:line:column: key = found; must be ...; did you mean
// ...?) and the default, or the lower bound, is returned, so that one pass reports all of them.
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

// Faults of a configuration: collected, so that one pass reports all of them.
class FaultList {
 public:
  // The same fault at the same place counts once; the command line is one place.
  void add(const SourcePlace& place, std::string text);
  void add(const FaultList& others);
  // Those that are not known yet, of keys that begin with `prefix` under another name: what is known by `prefix` there
  // is called `name` here. Where a key of what is written has a fault under another name already, these are not told.
  void add(const FaultList& others, const std::string& prefix, const std::string& name);

  // Adds to each fault's text what `reason` says of it.
  void explain(const std::function<std::string(const std::string& text)>& reason);

  bool empty() const { return faults_.empty(); }
  std::size_t size() const { return faults_.size(); }

  // One fault per line, "place: text"; those of the file in the order of its lines, then the command line's. Of very
  // many the first ones, and how many more there are.
  std::string report() const;

 private:
  struct Fault {
    SourcePlace place;
    std::string text;
    auto operator<=>(const Fault&) const = default;
  };
  std::vector<Fault> faults_;  // in the order in which they were found
  std::set<Fault> known_;
};

// How a reader declares a key: at the one place that reads it stand its name, what it means, its unit, its range and
// its default. Messages, `syncopate list` and the reference of the experiment file are all made from there.
// What is said of a key; valid during the call that it is passed to.
struct Key {
  Key(const char* name) : name(name) {}         // NOLINT: where the key has been described before
  Key(const std::string& name) : name(name) {}  // NOLINT
  Key(std::string_view name) : name(name) {}    // NOLINT
  Key(std::string_view name, std::string_view sentence, std::string_view unit = {}, std::string_view left_out = {})
      : name(name), sentence(sentence), unit(unit), left_out(left_out) {}

  std::string_view name;
  std::string_view sentence{};  // what it means, on one line
  std::string_view unit{};      // "s", "bytes", ...; empty: a plain number
  std::string_view left_out{};  // what holds without it, of a key that may be left out and has no default
};

// A closed or open interval a number must lie in.
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

// A bound or a default. One that follows from other keys has words for the reference, where no number can stand:
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

// A key of an experiment file that somebody asked for, be it written or not.
struct KnownKey {
  std::string path;                  // as in an override: "delays.0.scale"; of a table that is not there, its own
  std::vector<std::string> choices;  // the words that it takes, where it takes one of several
};

class SettingsDocument;  // the parsed file, its faults, and what was read from it

class Settings {
 public:
  // Each reader takes the key, described, and either a default or nothing, which makes the key required.
  // `inf` is allowed for a number whose range has no upper bound.
  double number(const Key& key, Range range, const std::optional<Stated<double>>& fallback = {});
  std::int64_t integer(const Key& key, const Stated<std::int64_t>& low, const Stated<std::int64_t>& high,
                       const std::optional<Stated<std::int64_t>>& fallback = {});
  bool flag(const Key& key, std::optional<bool> fallback = {});
  std::string text(const Key& key, const std::optional<Stated<std::string>>& fallback = {});
  std::vector<double> numbers(const Key& key, Range range, const std::optional<std::vector<double>>& fallback = {});
  std::vector<std::int64_t> integers(const Key& key, const Stated<std::int64_t>& low, const Stated<std::int64_t>& high,
                                     const std::optional<std::vector<std::int64_t>>& fallback = {});
  std::vector<std::string> texts(const Key& key, const std::optional<std::vector<std::string>>& fallback = {});

  // A key that may be left out and has no default.
  std::optional<double> optional_number(const Key& key, Range range);
  std::optional<std::int64_t> optional_integer(const Key& key, const Stated<std::int64_t>& low,
                                               const Stated<std::int64_t>& high);
  std::optional<bool> optional_flag(const Key& key);

  // One of the words of a table, as the value that stands beside it. An unknown word is a fault that names the nearest;
  // returned is then the default, or nothing. A default that follows from other keys has words.
  template <typename Value>
  Value choice(const Key& key, std::initializer_list<Named<std::type_identity_t<Value>>> table, Value fallback,
               std::string_view fallback_words = {});
  template <typename Value>
  std::optional<Value> choice(const Key& key, std::initializer_list<Named<Value>> table);
  // The same for the rows of a registry, which have a `name` and a `sentence`.
  template <typename Rows>
  auto row(const Key& key, const Rows& rows, std::string_view fallback = {}) -> decltype(std::data(rows));

  // The path of an existing file that the key names: relative to the experiment file's folder, or else to the
  // working directory. Resolved to an absolute one, which is found from everywhere. Empty after a fault.
  std::filesystem::path file(const Key& key);
  // The same for a directory, or for what is there in its place, which the reader refuses. Empty where there is
  // nothing.
  std::filesystem::path directory(const Key& key);

  // The keys that are written, in their order, for tables whose keys are names.
  std::vector<std::string> keys() const;

  // Whether the key is written. A key that was asked about is known and need not be read; one that is not read
  // everywhere is described here.
  bool has(const Key& key) const;

  // Whether a table is written there, for keys that take a number or a table. Read as the one or the other.
  bool has_table(const Key& key) const;

  // A fault "must be left out: <reason>" where the key is written, which means something in other files alone. It is not
  // described.
  void refuse(std::string_view key, std::string_view reason);

  // The value where it is written as a string, for keys that take a number or a word.
  std::optional<std::string> word(std::string_view key) const;

  // Leaves a value that was read out of the resolved configuration, because its default means nothing here
  // and would mean something once it is written.
  void leave_out(std::string_view key);

  // A sub-table; an absent one reads as empty, so that its defaults apply and its required keys are faults.
  Settings section(const Key& key);
  // An array of tables; absent: none.
  std::vector<Settings> sections(const Key& key);

  // Makes a table known and copies it as it is written; for parts that no Settings reads. Without a sentence it is not
  // described: it must not be given here.
  void keep_as_written(const Key& key);

  // Reports a fault that concerns several keys or needs knowledge the readers lack, at the key's place
  // (at the table's, if the key is absent): "<place>: <key> = <found>; <message>".
  void fault(std::string_view key, std::string_view message);

  // "<place>: <key> = <found>" as in a fault, for what is found out later.
  std::string written(std::string_view key) const;

  // Faults found so far in the whole document. A check that depends on values is left out where this has
  // grown while they were read: what follows from a fault is no fault of its own.
  std::size_t faults_so_far() const;

 private:
  friend class SettingsDocument;
  struct Node;

  // Where the word stands in the table; the default's place, or nothing, after a fault.
  std::optional<std::size_t> place_of_word(const Key& key, std::span<const Alternative> words,
                                           std::optional<std::size_t> fallback, std::string_view fallback_words = {});

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

// What there is to read: all keys that a reader would take, found by letting it read where nothing is written.
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

// One document while it is read through Settings: it owns what was written, the faults found, and the
// record of what was read. Settings taken from it are valid as long as it lives.
// Reads and parses a TOML file. Throws TomlSyntaxFault, also for a file that cannot be read:
// "file: what is wrong".
TomlNode load_toml(const std::string& file);

// Applies "key=value" overrides, and "~key", which removes a key, in their order; one that cannot be applied is a fault
// of the command line.
void apply_overrides(TomlNode& root, std::span<const std::string> overrides, FaultList& faults);

class Exploration;

class SettingsDocument {
 public:
  explicit SettingsDocument(TomlNode root);
  // One in which nothing is written, and whose reader is told what the exploration says.
  explicit SettingsDocument(Exploration& exploration);
  ~SettingsDocument();
  SettingsDocument(const SettingsDocument&) = delete;
  SettingsDocument& operator=(const SettingsDocument&) = delete;

  Settings root();

  const FaultList& faults() const { return faults_; }  // so far

  // All faults and the keys nobody asked for. Call it when everything has been read.
  const FaultList& check();

  // What was read, with defaults, as a document that reads back to itself.
  TomlNode resolved() const;

  // All keys that the document may have beside those that are tables here.
  std::vector<KnownKey> known_keys() const;

  // What was described while it was explored, in the order in which it was read.
  std::vector<KeyDescription> descriptions() const;

 private:
  TomlNode written_;
  FaultList faults_;
  Settings root_;
};

}  // namespace syncopate
