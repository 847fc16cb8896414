// The calendar of the simulated cluster: queues of events and timers, and inboxes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <span>
#include <vector>

#include "workers/base/units.hpp"

namespace syncopate {

// A radix heap for very many events, the earliest first. An ordinary heap of a million events costs each event a cache
// miss at each of ten levels. Here distant events lie unsorted in buckets by time, and buckets become finer as their
// time comes closer. Only the next few events are sorted, so memory is read in order and the next events are known. An
// Event has its time, `std::uint64_t ticks() const`, and an order by time first, `bool before(const Event&) const`.
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

  // Call first() and pop() only if there is an event.
  const Event& first() {
    if (next_.empty() && inserted_.empty()) sort_next();
    return inserted_is_first() ? inserted_.top() : next_.back();
  }

  Event pop() {
    if (next_.empty() && inserted_.empty()) sort_next();
    --size_;
    const bool is_inserted = inserted_is_first();
    const Event event = is_inserted ? inserted_.top() : next_.back();
    if (is_inserted)
      inserted_.pop();
    else
      next_.pop_back();
    return event;
  }

  // The next events in reverse order, without those that were pushed after `next_` was sorted.
  std::span<const Event> next() const { return next_; }

 private:
  using Bucket = std::vector<Event>;
  struct Later {
    bool operator()(const Event& a, const Event& b) const { return b.before(a); }
  };
  static constexpr std::size_t most_sorted = 64;  // number of events sorted at once, unless more have the same time
  static constexpr std::size_t most_kept_room = 4'096;  // capacity that an empty bucket keeps
  static constexpr int digit_bits = 4, digits = 16, levels = 64 / digit_bits;

  // Call it only if `next_` or `inserted_` has an event.
  bool inserted_is_first() const {
    return next_.empty() || (!inserted_.empty() && inserted_.top().before(next_.back()));
  }

  // A time's level is its highest digit that differs from `sorted_until_`. Events of a lower level come before those of
  // a higher one, and within a level events with a smaller digit come first.
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

  // Sorts the first bucket into `next_`. A bucket that is too large is first distributed over buckets of lower levels.
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
    std::sort(next_.begin(), next_.end(), Later());
    sorted_until_ = next_.front().ticks();
  }

  std::size_t size_ = 0;
  std::uint64_t sorted_until_ = 0;  // last sorted time; events in buckets are later, or at the lowest level
  std::vector<Event> next_;         // in reverse order: the first event is at the end
  // Events pushed after the last sort, with times up to sorted_until_.
  std::priority_queue<Event, std::vector<Event>, Later> inserted_;
  std::array<std::array<Bucket, digits>, levels> buckets_;
  std::array<std::uint32_t, levels> filled_{};  // one bit for each bucket that has events
  std::uint32_t filled_levels_ = 0;
};

// Items that have arrived and have not been received, in order. Most inboxes are empty most of the time. Items form a
// linked ring through their member `next`, so an inbox is one pointer and needs no other memory.
template <typename Item>
class Inbox {
 public:
  bool empty() const { return !last_; }

  void put(Item* item) {
    item->next = last_ ? last_->next : item;
    if (last_) last_->next = item;
    last_ = item;
  }

  // Removes and returns the first item for which `fits` returns true; null if no item fits.
  template <typename Fits>
  Item* take_first(const Fits& fits) {
    if (empty()) return nullptr;
    Item* before = last_;
    do {
      Item* const item = before->next;
      if (fits(item)) {
        before->next = item->next;
        if (item == last_) last_ = item == before ? nullptr : before;
        return item;
      }
      before = item;
    } while (before != last_);
    return nullptr;
  }

 private:
  Item* last_ = nullptr;  // last_->next is the first item
};

// The time at which a waiting participant wakes. If something earlier ends its wait, the timer stays until that time
// comes or the participant's next wait replaces the timer. So a participant never has more than one.
struct Timer {
  Time at;
  std::uint64_t number;  // orders timers with the same time
  Rank rank;

  bool before(const Timer& other) const { return at != other.at ? at < other.at : number < other.number; }
};

// A heap of timers with one timer per rank, found by rank. Each timer has four children in the heap, which is then half
// as deep as a binary one.
class Timers {
 public:
  explicit Timers(int participants) : places_(participants, none) {}

  bool empty() const { return heap_.empty(); }
  // Call first() and pop() only if there is a timer.
  const Timer& first() const { return heap_.front(); }
  // The heap's first five entries: the first timer and its four children. The second timer is one of the children.
  std::span<const Timer> next_few() const { return {heap_.data(), std::min(heap_.size(), children + 1)}; }

  // Replaces this rank's timer, if it has one.
  void set(const Timer& timer) {
    if (const std::size_t place = places_[timer.rank]; place == none) {
      heap_.push_back(timer);
      rise(heap_.size() - 1, timer);
    } else if (timer.before(heap_[place])) {
      rise(place, timer);
    } else {
      sink(place, timer);
    }
  }

  Timer pop() {
    const Timer first = heap_.front(), last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(0, last);
    places_[first.rank] = none;
    return first;
  }

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  static constexpr std::size_t children = 4;

  void put(std::size_t place, const Timer& timer) {
    heap_[place] = timer;
    places_[timer.rank] = static_cast<std::uint32_t>(place);
  }

  void rise(std::size_t hole, const Timer& timer) {
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / children;
      if (!timer.before(heap_[parent])) break;
      put(hole, heap_[parent]);
      hole = parent;
    }
    put(hole, timer);
  }

  void sink(std::size_t hole, const Timer& timer) {
    for (std::size_t child = children * hole + 1; child < heap_.size(); child = children * hole + 1) {
      const std::size_t end = std::min(child + children, heap_.size());
      for (std::size_t other = child + 1; other < end; ++other)
        if (heap_[other].before(heap_[child])) child = other;
      if (!heap_[child].before(timer)) break;
      put(hole, heap_[child]);
      hole = child;
    }
    put(hole, timer);
  }

  std::vector<Timer> heap_;
  ByRank<std::uint32_t> places_;  // each rank's index in the heap
};

}  // namespace syncopate
