// The earliest of some events first: a heap in which each has four followers, so that it is half as deep as a binary
// one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace syncopate {

// An Event is small and has a strict order, `bool before(const Event&) const`.
template <typename Event>
class EventHeap {
  static_assert(std::is_trivially_copyable_v<Event>);

 public:
  bool empty() const { return heap_.empty(); }
  // Of a heap that is not empty.
  const Event& first() const { return heap_.front(); }

  void push(const Event& event) {
    std::size_t hole = heap_.size();
    heap_.push_back(event);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / followers;
      if (!event.before(heap_[parent])) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = event;
  }

  // Of a heap that is not empty.
  Event pop() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return first;
  }

 private:
  static constexpr std::size_t followers = 4;

  // Puts the event in the place of the first.
  void sink(const Event& event) {
    std::size_t hole = 0;
    for (std::size_t child = 1; child < heap_.size(); child = followers * hole + 1) {
      const std::size_t end = std::min(child + followers, heap_.size());
      for (std::size_t other = child + 1; other < end; ++other)
        if (heap_[other].before(heap_[child])) child = other;
      if (!heap_[child].before(event)) break;
      heap_[hole] = heap_[child];
      hole = child;
    }
    heap_[hole] = event;
  }

  std::vector<Event> heap_;
};

}  // namespace syncopate
