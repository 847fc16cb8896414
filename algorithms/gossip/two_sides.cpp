#include "algorithms/gossip/two_sides.hpp"

#include <algorithm>
#include <utility>

#include "workers/units/by_rank.hpp"

namespace syncopate {

int TwoSides::partners(Rank worker) const {
  if (!lists_.empty()) return static_cast<int>(lists_[at(worker)].partners.size());
  return worker.value % 2 == 1 ? (workers_ + 1) / 2 : workers_ / 2;
}

Rank TwoSides::partner(Rank worker, int number) const {
  if (!lists_.empty()) return lists_[at(worker)].partners[static_cast<std::size_t>(number)];
  return Rank{2 * number + 1 - worker.value % 2};
}

std::vector<Rank> TwoSides::all_partners(Rank worker) const {
  std::vector<Rank> all;
  for (int number = 0; number < partners(worker); ++number) all.push_back(partner(worker, number));
  return all;
}

// From rank 0 on neighbours are of the other side, whichever way a link goes.
std::optional<TwoSides> TwoSides::of(const GossipGraph& graph) {
  TwoSides sides(graph.workers());
  std::vector<Listed>& lists = sides.lists_;
  lists.resize(static_cast<std::size_t>(graph.workers()));
  for (const Rank worker : Ranks(graph.workers()))
    for (const Rank other : graph.all_receivers(worker)) {
      lists[at(worker)].partners.push_back(other);
      lists[at(other)].partners.push_back(worker);
    }
  for (auto& [is_active, partners] : lists) {
    std::ranges::sort(partners);
    partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
  }
  std::vector<char> is_placed(lists.size());
  std::vector<Rank> next = {Rank{0}};
  is_placed[0] = true;
  while (!next.empty()) {
    const Listed& worker = lists[at(next.back())];
    next.pop_back();
    for (const Rank partner : worker.partners) {
      if (std::exchange(is_placed[at(partner)], true)) {
        if (lists[at(partner)].is_active == worker.is_active) return std::nullopt;
        continue;
      }
      lists[at(partner)].is_active = !worker.is_active;
      next.push_back(partner);
    }
  }
  return sides;
}

}  // namespace syncopate
