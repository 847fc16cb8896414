// A typed, checking view of one table of an experiment file. Every part of Syncopate (an algorithm,
// a delay process, a model) reads its own keys through this class; what was read, with defaults
// filled in, becomes the resolved configuration; what nobody read is an unknown key. The same calls say what there is
// to read, where nothing is written: see key_description.hpp.
//
// Faults do not throw: they are collected (file:line:column: key = found; must be ...; did you mean
// ...?) and the default, or the lower bound, is returned, so that one pass reports all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "workers/settings/key.hpp"

namespace syncopate {

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

}  // namespace syncopate
