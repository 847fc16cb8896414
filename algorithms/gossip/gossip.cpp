#include "algorithms/gossip/gossip.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

ReceivedMessage Gossip::receive_from(Rank from, Worker::CalledFrom at) {
  if (from == worker_.rank() || last_.contains(from)) return nullptr;
  return unless_last(worker_.receive({.from = from}, at));
}

std::vector<ReceivedMessage> Gossip::receive_what_has_come(Worker::CalledFrom at) {
  std::vector<ReceivedMessage> messages;
  while (auto message = worker_.receive({.until = worker_.now()}, at))
    if (auto usual = unless_last(std::move(message))) messages.push_back(std::move(usual));
  return messages;
}

ReceivedMessage Gossip::unless_last(ReceivedMessage message) {
  const bool is_usual = message && message->kind == Message::Kind::model;
  if (is_usual) declare_newest(message->model);
  if (!message || is_usual) return message;
  last_[message->from] = std::move(*message);
  return nullptr;
}

void Gossip::stop(std::span<const Rank> listeners, const Ending& how, Worker::CalledFrom at) {
  const bool leaves = worker_.budget_left(BudgetView::others);  // it stops early, because its own data are used up
  Message own = Message::farewell();
  if (!leaves)
    own = Message::of_last_model(
        worker_.step(), worker_.publish(WorkerModel{.weight = how.weight, .evaluated = evaluated_}), {how.weight});
  if (worker_.rank() != Rank{0}) {
    if (!worker_.has_left(Rank{0})) worker_.send(Rank{0}, std::move(own), at);
    return;
  }
  if (leaves) return worker_.publish();
  if (how.others_may_wait || worker_.steps_left() > Step{0})  // otherwise all have done their last step; none waits
    for (const Rank listener : listeners)
      if (!has_stopped(listener)) worker_.send(listener, Message::farewell(), at);
  publish_mean(std::move(own), at);
}

void Gossip::publish_mean(Message own, Worker::CalledFrom at) {
  while (auto message = worker_.receive(next_message, at)) unless_last(std::move(message));
  last_[worker_.rank()] = std::move(own);
  std::erase_if(last_, [](const auto& entry) { return !entry.second.has_model(); });
  Publication publication{.own = {.evaluated = evaluated_}};
  for (const auto& [rank, message] : last_) {
    publication.own.models.push_back({message.numbers.front(), message.model});
    publication.step = std::max(publication.step, message.step);
  }
  publication.model = mean(publication.own.models).state;
  worker_.publish(std::move(publication));
}

WeightedState Gossip::mean(std::vector<WeightedState> terms) const {
  double total = 0;
  for (const WeightedState& term : terms) total += term.weight;
  for (WeightedState& term : terms) term.weight /= total;
  return {total, worker_.combine(terms)};
}

IndividualModels read_individual_models(Settings& settings) {
  return settings.choice(
      {"evaluated", "Whether the average of all models is evaluated, or each worker's own, averaging the results."},
      {{"average", IndividualModels::mean}, {"own", IndividualModels::each}}, IndividualModels::mean);
}

}  // namespace syncopate
