// One value for each participant, indexed by rank.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "workers/units/units.hpp"

namespace syncopate {

// for (const Rank worker : Ranks(n)): 0 .. n-1.
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

  // In the order of the ranks.
  const std::vector<T>& values() const { return values_; }

 private:
  std::vector<T> values_;
};

}  // namespace syncopate
