#include "algorithms/local_sgd/model_coordinator.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace syncopate {

void ModelCoordinator::run() {
  while (const auto message = server_.receive_until_all_left()) {
    take(*message);
    while (const auto another = server_.receive(server_.now())) take(*another);
    settle();
  }
  Publication publication{.step = latest_step_};
  for (const auto& [worker, model] : last_) publication.own.models.push_back({1, model});
  server_.set_model(mean_of(last_));
  publication.model = server_.model();
  server_.publish(std::move(publication));
}

void ModelCoordinator::take(const Message& message) {
  server_.note_steps(message.from, message.step);
  asked_.erase(message.from);
  latest_step_ = std::max(latest_step_, message.step);
  const bool has_ended = message.kind == Message::Kind::last_model;
  (has_ended ? last_ : together_)[message.from] = message.model;
  if (!has_ended && message.numbers.front() == as_number(CoordinatorNews::violation)) ++violations_;
}

// Where the models that are here have a mean near the reference, or are all, they are replaced by it; else another one
// is asked for.
void ModelCoordinator::settle() {
  if (together_.empty() || !asked_.empty()) return;
  const int working = server_.size() - static_cast<int>(last_.size());
  const bool are_all = std::ssize(together_) == working;
  const ModelStatePtr mean = mean_of(together_);
  if (are_all) {
    reference_ = mean;
    violations_ = 0;
    return send(mean, CoordinatorNews::reference);
  }
  if (violations_ >= working) {
    for (int worker = 0; worker < server_.size(); ++worker) ask(Rank{worker});
    return;
  }
  const double distance = server_.distance(mean, reference_);
  if (distance * distance <= threshold_) return send(mean, CoordinatorNews::partial);
  ask(next_to_ask());
}

void ModelCoordinator::ask(Rank worker) {
  if (together_.contains(worker) || last_.contains(worker)) return;
  asked_.insert(worker);
  server_.send(worker, Message::note(server_.step()));
}

// Drawn from those that are neither here nor have ended.
Rank ModelCoordinator::next_to_ask() {
  std::vector<Rank> others;
  for (int worker = 0; worker < server_.size(); ++worker)
    if (!together_.contains(Rank{worker}) && !last_.contains(Rank{worker})) others.emplace_back(worker);
  ++asked_so_far_;
  const auto place = static_cast<std::size_t>(server_.uniform(asked_so_far_) * static_cast<double>(others.size()));
  return others[place];
}

void ModelCoordinator::send(const ModelStatePtr& mean, CoordinatorNews news) {
  for (const auto& [worker, model] : std::exchange(together_, {}))
    server_.send(worker, Message::of_model(server_.step(), mean, {as_number(news)}));
}

ModelStatePtr ModelCoordinator::mean_of(const std::map<Rank, ModelStatePtr>& models) const {
  std::vector<WeightedState> terms;
  for (const auto& [worker, model] : models) terms.push_back({1.0 / static_cast<double>(models.size()), model});
  return server_.combine(terms);
}

}  // namespace syncopate
