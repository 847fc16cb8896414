// What has arrived and has not been received, in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace syncopate {

// Most are empty most of the time: one that is takes half a cache line and no memory beside it.
template <typename Item>
class Inbox {
 public:
  bool empty() const { return read_ == items_.size(); }
  void put(Item* item) { items_.push_back(item); }

  // The first that fits; null if none does.
  template <typename Fits>
  Item* take_first(const Fits& fits) {
    const auto begin = items_.begin() + static_cast<std::ptrdiff_t>(read_);
    const auto first = std::find_if(begin, items_.end(), fits);
    if (first == items_.end()) return nullptr;
    Item* item = *first;
    if (first == begin)
      ++read_;
    else
      items_.erase(first);
    if (empty()) {
      items_.clear();
      read_ = 0;
    }
    return item;
  }

 private:
  std::vector<Item*> items_;
  std::size_t read_ = 0;  // those before it have been taken
};

}  // namespace syncopate
