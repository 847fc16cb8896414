#include "algorithms/gossip/rotating_groups.hpp"

namespace syncopate {

RotatingGroups::RotatingGroups(int workers, int size) : size_(size), strides_({1}) {
  while (workers % (strides_.back() * size * size) == 0 && strides_.back() * size < workers)
    strides_.push_back(strides_.back() * size);
  if (strides_.back() * size < workers) strides_.push_back(workers / size);
}

Rank RotatingGroups::group_of(Rank worker, Step round) const {
  const int digit = worker.value / stride(round) % size_;
  return Rank{worker.value - digit * stride(round)};
}

std::vector<Rank> RotatingGroups::members(Rank group, Step round) const {
  std::vector<Rank> members;
  for (int digit = 0; digit < size_; ++digit) members.emplace_back(group.value + digit * stride(round));
  return members;
}

}  // namespace syncopate
