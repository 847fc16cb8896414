// When those wake who wait for a time, or for something that may come before: one time each. A wait that something else
// has ended leaves its time behind until it comes, or until the next wait's replaces it where it stands, so that work
// which is cancelled and begun anew costs no further place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "workers/units/by_rank.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct Timer {
  Time at;
  std::uint64_t number;  // of two at one time the smaller one comes first
  Rank rank;

  bool before(const Timer& other) const { return at != other.at ? at < other.at : number < other.number; }
};

// A heap in which each timer has four followers, as in EventQueue, and is found by its rank.
class Timers {
 public:
  explicit Timers(int participants) : participants_(participants) {}

  bool empty() const { return heap_.empty(); }
  // Of those that are not empty.
  const Timer& first() const { return heap_.front(); }
  // The first, and behind it the few among which the second one is.
  std::span<const Timer> next_few() const { return {heap_.data(), std::min(heap_.size(), followers + 1)}; }

  // In place of the one that this rank has, if it has one.
  void set(const Timer& timer) {
    if (places_.empty()) places_ = ByRank<std::uint32_t>(participants_, none);
    std::size_t place = places_[timer.rank];
    if (place == none) {
      place = heap_.size();
      heap_.push_back(timer);
      rise(place, timer);
    } else if (timer.before(heap_[place])) {
      rise(place, timer);
    } else {
      sink(place, timer);
    }
  }

  Timer pop() {
    const Timer first = heap_.front();
    const Timer last = heap_.back();
    heap_.pop_back();
    places_[first.rank] = none;
    if (!heap_.empty()) sink(0, last);
    return first;
  }

 private:
  static constexpr std::size_t followers = 4;
  static constexpr std::uint32_t none = 0xffffffff;

  void put(std::size_t place, const Timer& timer) {
    heap_[place] = timer;
    places_[timer.rank] = static_cast<std::uint32_t>(place);
  }

  void rise(std::size_t hole, const Timer& timer) {
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / followers;
      if (!timer.before(heap_[parent])) break;
      put(hole, heap_[parent]);
      hole = parent;
    }
    put(hole, timer);
  }

  void sink(std::size_t hole, const Timer& timer) {
    for (std::size_t child = followers * hole + 1; child < heap_.size(); child = followers * hole + 1) {
      const std::size_t end = std::min(child + followers, heap_.size());
      for (std::size_t other = child + 1; other < end; ++other)
        if (heap_[other].before(heap_[child])) child = other;
      if (!heap_[child].before(timer)) break;
      put(hole, heap_[child]);
      hole = child;
    }
    put(hole, timer);
  }

  int participants_;
  std::vector<Timer> heap_;
  ByRank<std::uint32_t> places_;  // in the heap; empty until there is one
};

}  // namespace syncopate
