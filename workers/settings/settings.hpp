// A typed, checking view of one table of an experiment file. Every part of Syncopate (an algorithm,
// a delay process, a model) reads its own keys through this class; what was read, with defaults
// filled in, becomes the resolved configuration; what nobody read is an unknown key.
//
// Faults do not throw: they are collected (file:line:column: key = found; must be ...; did you mean
// ...?) and the default, or the lower bound, is returned, so that one pass reports all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace syncopate {

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

class SettingsDocument;  // the parsed file, its faults, and what was read from it

class Settings {
 public:
  // Each reader takes the key and either a default or nothing, which makes the key required.
  // `inf` is allowed for a number whose range has no upper bound.
  double number(std::string_view key, Range range, std::optional<double> fallback = {});
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high,
                       std::optional<std::int64_t> fallback = {});
  bool flag(std::string_view key, std::optional<bool> fallback = {});
  std::string text(std::string_view key, std::optional<std::string> fallback = {});
  // One of `names`; an unknown one is a fault that names the nearest. Returned is then the default, or "".
  std::string choice(std::string_view key, std::span<const std::string_view> names,
                     std::optional<std::string> fallback = {});
  std::vector<double> numbers(std::string_view key, Range range, std::optional<std::vector<double>> fallback = {});
  std::vector<std::int64_t> integers(std::string_view key, std::int64_t low, std::int64_t high,
                                     std::optional<std::vector<std::int64_t>> fallback = {});

  // The path of an existing file that the key names: relative to the experiment file's folder, or else to the
  // working directory. Resolved to an absolute one, which is found from everywhere. Empty after a fault.
  std::filesystem::path file(std::string_view key);
  // The same for a directory, or for what is there in its place, which the reader refuses. Empty where there is
  // nothing.
  std::filesystem::path directory(std::string_view key);

  // The keys that are written, in their order, for tables whose keys are names.
  std::vector<std::string> keys() const;

  // Whether the key is written. A key that was asked about is known and need not be read.
  bool has(std::string_view key) const;

  // The value where it is written as a string, for keys that take a number or a word.
  std::optional<std::string> word(std::string_view key) const;

  // Leaves a value that was read out of the resolved configuration, because its default means nothing here
  // and would mean something once it is written.
  void leave_out(std::string_view key);

  // A sub-table; an absent one reads as empty, so that its defaults apply and its required keys are faults.
  Settings section(std::string_view key);
  // An array of tables; absent: none.
  std::vector<Settings> sections(std::string_view key);

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
  std::shared_ptr<Node> node_;
};

}  // namespace syncopate
