// Units. Times are integer nanoseconds in the program, and seconds in its files and messages. Ranks, steps and bytes
// have distinct types, so that they cannot be confused.
#pragma once

#include <chrono>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncopate {

using Duration = std::chrono::nanoseconds;

// The clock a worker sees: virtual on the simulated cluster; under MPI, wall time since the common start.
struct ClusterClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<ClusterClock>;
  static constexpr bool is_steady = true;
};
using Time = ClusterClock::time_point;

inline constexpr Time start_time{};
inline constexpr Time never = Time::max();

constexpr double to_seconds(Duration duration) { return static_cast<double>(duration.count()) * 1e-9; }
constexpr double to_seconds(Time time) { return to_seconds(time.time_since_epoch()); }

// Rounds to the nearest nanosecond. Longer durations than longest_duration (146 years) become longest_duration. This is
// half of the clock's range, so that a time plus one duration does not overflow. Throws std::invalid_argument for NaN
// and for negative values.
inline constexpr Duration longest_duration{Duration::max() / 2};
inline Duration from_seconds(double seconds) {
  if (!(seconds >= 0)) throw std::invalid_argument("a duration must be at least 0 s, found " + std::to_string(seconds));
  const double nanoseconds = seconds * 1e9;
  if (nanoseconds >= static_cast<double>(longest_duration.count())) return longest_duration;
  return Duration{static_cast<Duration::rep>(std::llround(nanoseconds))};
}

// Returns time + duration, or `never` if the sum would overflow.
constexpr Time later(Time time, Duration duration) { return time > never - duration ? never : time + duration; }

// An integer with a unit. Only counts of the same unit can be added or subtracted.
template <typename Tag>
class Count {
 public:
  using Rep = std::int64_t;
  constexpr Count() = default;
  constexpr Count(Rep value) : value_(value) {}  // NOLINT: literals read naturally, as in `Step s = 0`
  constexpr Rep value() const { return value_; }
  constexpr auto operator<=>(const Count&) const = default;
  constexpr Count& operator++() {
    ++value_;
    return *this;
  }
  constexpr Count& operator+=(Count other) {
    value_ += other.value_;
    return *this;
  }
  constexpr Count& operator-=(Count other) {
    value_ -= other.value_;
    return *this;
  }
  friend constexpr Count operator+(Count a, Count b) { return a += b; }
  friend constexpr Count operator-(Count a, Count b) { return a -= b; }

 private:
  Rep value_ = 0;
};

using Step = Count<struct StepTag>;    // optimizer steps
using Bytes = Count<struct BytesTag>;  // bytes on the network

// A participant's number: 0 to N-1 for the N workers, N and above for servers.
struct Rank {
  constexpr Rank() = default;
  constexpr explicit Rank(int rank) : value(rank) {}
  constexpr auto operator<=>(const Rank&) const = default;
  int value = 0;
};

// A range of ranks: `for (const Rank worker : Ranks(n))` iterates over ranks 0 to n-1.
class Ranks {
 public:
  explicit constexpr Ranks(int count) : first_(0), end_(count) {}
  constexpr Ranks(Rank first, int count) : first_(first.value), end_(first.value + count) {}

  class Iterator {
   public:
    explicit constexpr Iterator(int rank) : rank_(rank) {}
    constexpr Rank operator*() const { return Rank{rank_}; }
    constexpr Iterator& operator++() {
      ++rank_;
      return *this;
    }
    constexpr bool operator==(const Iterator&) const = default;

   private:
    int rank_;
  };
  constexpr Iterator begin() const { return Iterator(first_); }
  constexpr Iterator end() const { return Iterator(end_); }

 private:
  int first_;
  int end_;
};

// One value for each participant, indexed by rank.
template <typename T>
class ByRank {
 public:
  ByRank() = default;
  explicit ByRank(int count) : values_(static_cast<std::size_t>(count)) {}
  ByRank(int count, const T& value) : values_(static_cast<std::size_t>(count), value) {}
  ByRank(std::initializer_list<T> values) : values_(values) {}

  typename std::vector<T>::reference operator[](Rank rank) { return values_[static_cast<std::size_t>(rank.value)]; }
  typename std::vector<T>::const_reference operator[](Rank rank) const {
    return values_[static_cast<std::size_t>(rank.value)];
  }

  int size() const { return static_cast<int>(values_.size()); }
  bool empty() const { return values_.empty(); }
  void assign(int count, const T& value) { values_.assign(static_cast<std::size_t>(count), value); }
  void clear() { values_.clear(); }

  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  std::vector<T> values_;
};

// A line of a source file. Replaces std::source_location, which clang 14 lacks with GCC 12's library.
class SourceLine {
 public:
  constexpr SourceLine() = default;
  // Returns the line of the call. If `current()` is a default argument, that is the line that omits the argument.
  static constexpr SourceLine current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }

  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }

 private:
  constexpr SourceLine(const char* file, unsigned line) : file_(file), line_(line) {}

  const char* file_ = "";
  unsigned line_ = 0;
};

}  // namespace syncopate
