// How a reader declares a key: at the one place that reads it stand its name, what it means, its unit, its range and
// its default. Messages, `syncopate list` and the reference of the experiment file are all made from there.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace syncopate {

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

}  // namespace syncopate
