// What has arrived and has not been received, in order.
#pragma once

namespace syncopate {

// Most are empty most of the time. Items are linked in a ring by their member `next`: one pointer, and no memory
// beside the items.
template <typename Item>
class Inbox {
 public:
  bool empty() const { return !last_; }

  void put(Item* item) {
    item->next = last_ ? last_->next : item;
    if (last_) last_->next = item;
    last_ = item;
  }

  // The first that fits; null if none does.
  template <typename Fits>
  Item* take_first(const Fits& fits) {
    if (empty()) return nullptr;
    Item* before = last_;
    do {
      Item* const item = before->next;
      if (fits(item)) {
        take_after(before);
        return item;
      }
      before = item;
    } while (before != last_);
    return nullptr;
  }

 private:
  void take_after(Item* before) {
    Item* const item = before->next;
    before->next = item->next;
    if (item == last_) last_ = item == before ? nullptr : before;
  }

  Item* last_ = nullptr;  // whose next is the first
};

}  // namespace syncopate
