#include "algorithms/gossip/pair_exchanges.hpp"

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

void PairExchanges::begin_step() {
  mixed_ = worker_.model();
  if (is_active_ && !asked_) ask();
}

void PairExchanges::ask() {
  const auto partner = draw_partner();
  if (!partner) return;
  asked_ = {*partner, worker_.step(), mixed_};
  worker_.send(*partner, Message::of_model(worker_.step(), mixed_));
}

// In the place of one that has stopped the next one that has not.
std::optional<Rank> PairExchanges::draw_partner() const {
  const int count = sides_.partners(worker_.rank());
  const int drawn = std::min(static_cast<int>(worker_.uniform(worker_.step()) * count), count - 1);
  for (int passed = 0; passed < count; ++passed) {
    const Rank partner = sides_.partner(worker_.rank(), (drawn + passed) % count);
    if (!gossip_.has_stopped(partner)) return partner;
  }
  return std::nullopt;
}

void PairExchanges::take_what_has_come() {
  for (const auto& message : gossip_.receive_what_has_come()) meet(*message);
  if (asked_ && gossip_.has_stopped(asked_->partner)) await_answer();  // which may have come before its end
}

void PairExchanges::wait_for_older_than(Step steps) {
  if (asked_ && worker_.step() - asked_->step >= steps) await_answer();
}

void PairExchanges::await_answer() {
  if (const auto message = gossip_.receive_from(asked_->partner)) return meet(*message);
  asked_.reset();  // it has stopped without one
}

// Moments and, with steps taken since it asked, an active worker's BatchNorm statistics are its own: a difference of
// variances might be none.
void PairExchanges::meet(const Message& message) {
  if (!is_active_) {
    worker_.send(message.from, Message::of_model(worker_.step(), mixed_));
    mixed_ = worker_.combine({{0.5, mixed_}, {0.5, message.model}});
    return;
  }
  const Asked asked = *std::exchange(asked_, std::nullopt);
  mixed_ = asked.sent == mixed_ ? worker_.combine({{0.5, mixed_}, {0.5, message.model}})
                                : worker_.combine({{1, mixed_}, {0.5, message.model}, {-0.5, asked.sent}}, mixed_);
}

void PairExchanges::end() {
  mixed_ = worker_.model();
  take_what_has_come();
  if (asked_) await_answer();
  worker_.set_model(mixed_);
}

}  // namespace syncopate
