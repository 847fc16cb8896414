// The earliest of very many events first. A heap of a million events takes a miss of the cache at each of its ten
// levels for each event. Here those that are far away lie unsorted in buckets by time, which get finer the closer they
// are (a radix heap), and only the next few are sorted: memory is gone through in order, and who comes next is known.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "workers/simulated/event_heap.hpp"

namespace syncopate {

// An Event has its time, `std::uint64_t ticks() const`, and a strict order in which time comes first,
// `bool before(const Event&) const`.
template <typename Event>
class EventQueue {
 public:
  bool empty() const { return size_ == 0; }

  void push(const Event& event) {
    ++size_;
    if (event.ticks() <= sorted_until_)
      inserted_.push(event);
    else
      put(event);
  }

  // Of a queue that is not empty; so also pop.
  const Event& first() {
    if (next_.empty() && inserted_.empty()) sort_next();
    return inserted_is_first() ? inserted_.first() : next_.back();
  }

  Event pop() {
    if (next_.empty() && inserted_.empty()) sort_next();
    --size_;
    if (inserted_is_first()) return inserted_.pop();
    const Event event = next_.back();
    next_.pop_back();
    return event;
  }

  // The next events, in reverse order; without those that have been pushed since these were sorted.
  std::span<const Event> next() const { return next_; }

 private:
  using Bucket = std::vector<Event>;
  static constexpr std::size_t most_sorted = 64;        // at a time, unless more have the same time
  static constexpr std::size_t most_kept_room = 4'096;  // of a bucket that is empty
  static constexpr int digit_bits = 4, digits = 16, levels = 64 / digit_bits;

  // Of two that are not both empty.
  bool inserted_is_first() const {
    return next_.empty() || (!inserted_.empty() && inserted_.first().before(next_.back()));
  }

  // A time's level is its highest digit that differs from `sorted_until_`: all events of a level come before those of a
  // higher one, and within a level those with a smaller digit come first.
  void put(const Event& event) {
    const std::uint64_t ticks = event.ticks();
    const int level = (std::bit_width((ticks ^ sorted_until_) | 1) - 1) / digit_bits;
    const int digit = static_cast<int>(ticks >> (digit_bits * level)) & (digits - 1);
    buckets_[level][digit].push_back(event);
    filled_[level] |= 1u << digit;
    filled_levels_ |= 1u << level;
  }

  Bucket& take_first_bucket(int level) {
    const int digit = std::countr_zero(filled_[level]);
    filled_[level] &= filled_[level] - 1;
    if (filled_[level] == 0) filled_levels_ &= ~(1u << level);
    return buckets_[level][digit];
  }

  static void empty(Bucket& bucket) {
    bucket.clear();
    if (bucket.capacity() > most_kept_room) bucket.shrink_to_fit();
  }

  // Sorts the first bucket; one that has too many for that is divided among those of lower levels before.
  void sort_next() {
    int level = std::countr_zero(filled_levels_);
    for (;; level = std::countr_zero(filled_levels_)) {
      Bucket& bucket = take_first_bucket(level);
      if (bucket.size() <= most_sorted || level == 0) {
        next_.assign(bucket.begin(), bucket.end());
        empty(bucket);
        break;
      }
      const auto earlier = [](const Event& a, const Event& b) { return a.ticks() < b.ticks(); };
      sorted_until_ = std::min_element(bucket.begin(), bucket.end(), earlier)->ticks();
      for (const Event& event : bucket) put(event);
      empty(bucket);
    }
    std::sort(next_.begin(), next_.end(), [](const Event& a, const Event& b) { return b.before(a); });
    sorted_until_ = next_.front().ticks();
  }

  std::size_t size_ = 0;
  std::uint64_t sorted_until_ = 0;  // what is in buckets is later, or is put at the lowest level
  std::vector<Event> next_;         // the first is at the end
  EventHeap<Event> inserted_;       // pushed since, and not after the last of next_
  std::array<std::array<Bucket, digits>, levels> buckets_;
  std::array<std::uint32_t, levels> filled_{};  // one bit for each bucket
  std::uint32_t filled_levels_ = 0;
};

}  // namespace syncopate
