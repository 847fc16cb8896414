// Finds what equal inputs have given before, for as long as somebody holds it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace syncopate {

template <typename Value>
class Memo {
 public:
  // Ids of the inputs, which no others ever share, with their weights (finite).
  using Key = std::vector<std::pair<std::uint64_t, double>>;

  // Null if nobody holds it any more.
  std::shared_ptr<Value> find(const Key& key) const {
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : found->second.lock();
  }

  void remember(Key key, const std::shared_ptr<Value>& value) {
    // Forgets what has gone once that may be half of it: a constant cost per value.
    if (known_.size() >= prune_at_) {
      std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
      prune_at_ = std::max(smallest_, 2 * known_.size());
    }
    known_.insert_or_assign(std::move(key), value);
  }

  std::size_t size() const { return known_.size(); }

 private:
  static constexpr std::size_t smallest_ = 64;
  std::map<Key, std::weak_ptr<Value>> known_;
  std::size_t prune_at_ = smallest_;
};

}  // namespace syncopate
