#include "algorithms/gossip/pushes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace syncopate {

void Pushes::send() {
  begun_at_ = worker_.step();
  const Step exchange = sent_;
  ++sent_;
  double& weight = (*weight_).value;
  const double whole = weight;
  for (const auto& [receiver, share] : links_.receivers(exchange)) {
    if (gossip_.has_stopped(receiver)) continue;
    weight -= whole * share;
    worker_.send(receiver, Message::of_model(exchange, worker_.model(), {whole * share}));
  }
}

void Pushes::check_weight(double least) {
  const auto has_left = [this](const Neighbour& link) { return gossip_.has_stopped(link.worker); };
  const auto have_left = [&](const std::vector<Neighbour>& links) { return std::ranges::all_of(links, has_left); };
  if (weight() >= least || !std::ranges::all_of(links_.senders_by_turn(), have_left)) return;
  worker_.fail(
      fmt::format("worker {} has a weight of {:.2g} left and could only diverge: those who send to it have left",
                  worker_.rank().value, weight()));
}

void Pushes::take(const Message& message) {
  const Source source{message.step, message.from};
  taken_.insert(source);
  (*received_)[source] = {message.numbers.front(), message.model};
}

void Pushes::take_what_has_come() {
  for (const auto& message : gossip_.receive_what_has_come()) take(*message);
}

void Pushes::take_before(Step exchange) {
  for (; next_ < exchange; ++next_)
    for (const Neighbour& link : links_.senders(next_))
      while (taken_.erase({next_, link.worker}) == 0) {
        const auto message = gossip_.receive_from(link.worker);
        if (!message) break;  // it has stopped
        take(*message);
      }
}

bool Pushes::has(Step exchange) const {
  return exchange < next_ || std::ranges::all_of(links_.senders(exchange), [&](const Neighbour& link) {
           return taken_.contains({exchange, link.worker}) || gossip_.has_stopped(link.worker);
         });
}

void Pushes::mix_before(Step exchange) {
  std::vector<WeightedState> terms = {{weight(), worker_.model()}};
  auto& received = *received_;
  while (!received.empty() && received.begin()->first.first < exchange)
    terms.push_back(std::move(received.extract(received.begin()).mapped()));
  if (terms.size() == 1) return;
  const WeightedState mean = gossip_.mean(std::move(terms));
  worker_.set_model(mean.state);
  (*weight_).value = mean.weight;
}

void Pushes::mix_all() {
  const auto& received = *received_;
  if (!received.empty()) mix_before(received.rbegin()->first.first + 1);
}

}  // namespace syncopate
