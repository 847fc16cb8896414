#include "algorithms/gossip/group_averages.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

GroupAverages::GroupAverages(Server& server, const WagmaOptions& options)
    : server_(server),
      options_(options),
      groups_(server.size(), options.group_size),
      workers_(server.size(), {.newest = server.model()}),
      here_(server.size()) {}

void GroupAverages::take(const Message& message) {
  server_.note_steps(message.from, message.step);
  workers_[message.from] = {.newest = message.model, .round = message.step, .brought = message.kind};
  if (message.kind != Message::Kind::model)
    --here_;
  else if (message.step <= begun_)
    reply(message.from, false);
  else
    waiting_.push_back(message.from);
}

// Who waits is at the next round: nobody goes on from one before it has taken place.
void GroupAverages::begin_if_due() {
  if (waiting_.empty() || (is_global(begun_ + 1) && std::ssize(waiting_) < here_)) return;
  form_means(++begun_);
  for (const Rank worker : std::exchange(waiting_, {})) reply(worker, true);
}

bool GroupAverages::is_global(Step round) const {
  return options_.global_every > Step{0} && round.value() % options_.global_every.value() == 0;
}

void GroupAverages::form_means(Step round) {
  std::map<Rank, std::vector<WeightedState>> models;
  Step oldest = round;
  for (const Rank worker : Ranks(server_.size())) {
    if (workers_[worker].brought != Message::Kind::model) continue;
    models[group_of(worker, round)].push_back({1, workers_[worker].newest});
    oldest = std::min(oldest, workers_[worker].round);
  }
  means_.erase(means_.begin(), means_.lower_bound(oldest));
  for (auto& [group, terms] : models) means_[round][group] = {mean_of(terms), static_cast<int>(terms.size())};
  if (is_global(round)) server_.set_model(means_[round][Rank{0}].model);
}

// The group's mean, and the weight of the worker's own model beside it.
void GroupAverages::reply(Rank to, bool in_time) const {
  const Step round = workers_[to].round;
  const Mean& mean = means_.at(round).at(group_of(to, round));
  const bool counts_own = !is_global(round) && (!in_time || options_.divisor == WagmaOptions::Divisor::released);
  const double own_weight = mean.members == 1 ? 1 : counts_own ? 1.0 / (mean.members + 1) : 0;
  server_.send(to, Message::of_model(server_.step(), mean.model, {own_weight}));
}

void GroupAverages::publish_last() {
  Publication publication{.own = {.evaluated = options_.evaluated}};
  std::vector<WeightedState>& models = publication.own.models;
  for (const OfWorker& worker : workers_) {
    if (worker.brought != Message::Kind::last_model) continue;
    models.push_back({1, worker.newest});
    publication.step = std::max(publication.step, worker.round);
  }
  if (models.empty()) return server_.publish();
  server_.set_model(mean_of(models));
  publication.model = server_.model();
  server_.publish(std::move(publication));
}

ModelStatePtr GroupAverages::mean_of(std::vector<WeightedState>& models) const {
  for (WeightedState& one : models) one.weight = 1.0 / static_cast<double>(models.size());
  return server_.combine(models);
}

}  // namespace syncopate
