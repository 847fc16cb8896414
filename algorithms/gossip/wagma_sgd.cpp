#include "algorithms/gossip/wagma_sgd.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "algorithms/local_sgd/round_prediction.hpp"
#include "workers/base/units.hpp"
#include "workers/server.hpp"
#include "workers/worker.hpp"

namespace syncopate {

namespace {

// The server of WAGMA-SGD: it holds everybody's newest model, and forms the means of a round's groups once somebody has
// arrived at it.
class GroupAverages {
 public:
  GroupAverages(Server& server, const WagmaOptions& options);

  // A model that a worker brings to a round (who is late is answered at once), or its last one, or its farewell.
  void take(const Message& message);
  // Begins the next round if somebody has arrived at it, a global one once all have, and answers these.
  void begin_if_due();
  void publish_last();

 private:
  struct OfWorker {
    ModelStatePtr newest{};
    Step round{};                                  // that it has arrived at last
    Message::Kind brought = Message::Kind::model;  // with last_model and farewell it has ended
  };
  struct Mean {
    ModelStatePtr model{};
    int members = 0;
  };
  bool is_global(Step round) const;
  Rank group_of(Rank worker, Step round) const { return is_global(round) ? Rank{0} : groups_.group_of(worker, round); }
  void form_means(Step round);
  void reply(Rank to, bool in_time) const;
  ModelStatePtr mean_of(std::vector<WeightedState>& models) const;

  Server& server_;
  const WagmaOptions& options_;
  RotatingGroups groups_;
  ByRank<OfWorker> workers_;
  int here_;                                    // workers that have not ended
  Step begun_{};                                // the newest round that has
  std::vector<Rank> waiting_;                   // at the next one
  std::map<Step, std::map<Rank, Mean>> means_;  // by round and group, as far back as somebody has still to come
};

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

// Rounds are numbered by the steps before them, on all workers alike.
void average_in_group(Worker& worker) {
  const Rank server{worker.size()};
  worker.send(server, Message::of_model(worker.step(), worker.model()));
  const auto mean = worker.receive({.from = server});
  if (!mean) return;
  const double own = mean->numbers.front();
  if (own < 1)
    worker.set_model(own > 0 ? worker.combine({{1 - own, mean->model}, {own, worker.model()}}) : mean->model);
}

}  // namespace

void WagmaSgd::run(Worker& worker) const {
  const bool averages_first = options_.order == WagmaOptions::Order::average_first;
  while (worker.budget_left()) {
    LostWithState<bool> has_state(worker, true);
    const Gradient gradient = worker.compute_step_gradient() / worker.micro_batches();
    if (!*has_state) worker.set_model(worker.model(), StatePolicy::reset);
    if (averages_first && worker.step() > Step{0}) average_in_group(worker);
    worker.descend(gradient);
    worker.report_steps();
    if (!worker.budget_left()) break;
    if (!averages_first) average_in_group(worker);
    worker.publish(OwnModel{.evaluated = options_.evaluated});
  }
  const bool others_go_on = worker.budget_left(Judged::by_others);
  Message last = Message::farewell();
  if (!others_go_on)
    last = Message::of_last_model(worker.step(), worker.publish(OwnModel{.evaluated = options_.evaluated}));
  last.step = worker.step();
  worker.send(Rank{worker.size()}, std::move(last));
}

void WagmaSgd::serve(Server& server) const {
  GroupAverages averages(server, options_);
  while (const auto first = server.receive_until_all_left()) {
    averages.take(*first);
    while (const auto another = server.receive(server.now())) averages.take(*another);
    averages.begin_if_due();
  }
  averages.publish_last();
}

// All take their own steps and two messages with each, and all wait for the slowest sum of these where a round is
// global; without global rounds, at the end.
Forecast WagmaSgd::forecast(const PredictionInput& input) const {
  const double message_s = input.message_s();
  const auto round_of = [=](Step length, double computing_s, double error_s) {
    const auto steps = static_cast<double>(length.value());
    return RoundTime{
        .time_s = computing_s + 2 * steps * message_s, .communication_s = 2 * steps * message_s, .error_s = error_s};
  };
  const auto by_normal = [=, &input](Step length) -> std::optional<RoundTime> {
    return round_of(length, expected_slowest_sum(input.times, static_cast<double>(length.value())), 0);
  };
  const auto by_drawn = [=, &input](Step length) -> std::optional<RoundTime> {
    const auto drawn = sample_rounds(input.times, length.value());
    if (!drawn) return input.times.has_variance ? by_normal(length) : std::nullopt;
    return round_of(length, drawn->time_s.mean, drawn->time_s.error);
  };
  const auto rounds =
      options_.global_every > Step{0} ? make_constant_period(options_.global_every) : make_swap_period(Step{0});
  return predict_rounds(*rounds, {"slowest normal sum", by_normal, "slowest sampled sum", by_drawn}, input);
}

// After the last step there is no round; all send their last model.
std::optional<Communicated> WagmaSgd::communication(const CommunicationInput& input) const {
  const Bytes::Rep model = input.parameter_bytes.value();
  const Bytes::Rep of_worker = (input.steps.value() - 1) * (2 * model + 8) + model;
  return Communicated{input.steps.value(), Bytes{input.workers * of_worker}};
}

std::unique_ptr<Algorithm> make_wagma_sgd(Settings& settings, const AlgorithmContext& context) {
  using Divisor = WagmaOptions::Divisor;
  using Order = WagmaOptions::Order;
  constexpr std::int64_t most_steps = 1'000'000'000;
  WagmaOptions options;
  const std::size_t faults = settings.faults_so_far();
  options.group_size = static_cast<int>(
      settings.integer({"group_size", "How many workers average together in a round (S); it divides their number."}, 2,
                       Stated(std::max(context.workers, 2), "workers")));
  if (settings.faults_so_far() == faults && !context.are_divided_by(options.group_size))
    settings.fault(
        "group_size",
        fmt::format("must divide the number of workers, {}: groups of a round are equally large", context.workers));
  options.global_every =
      settings.integer({"global_every", "Every how many steps all wait for all and average (tau); 0: never.", "steps"},
                       0, most_steps, options.global_every.value());
  options.divisor = settings.choice(
      {"divisor",
       "By what the sum of S models is divided: S in time and S + 1 late (paper), or always S + 1 (released)."},
      {{"paper", Divisor::paper}, {"released", Divisor::released}}, options.divisor);
  options.order = settings.choice(
      {"order", "Whether models are averaged after the step, or before it, its gradient being taken before both."},
      {{"step-first", Order::step_first}, {"average-first", Order::average_first}}, options.order);
  options.evaluated = read_own_models(settings);
  return std::make_unique<WagmaSgd>(options);
}

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
