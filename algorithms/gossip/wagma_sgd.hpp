// WAGMA-SGD: after each step a worker's model is averaged with those of its group, and the groups change from round to
// round. Nobody waits: the first worker that arrives at a round begins it for all, and late workers take part with the
// model that they sent last. Every tau steps, in a global round, all wait for each other and average all models.
// Source:  Li et al. 2021, "Breaking (Global) Barriers in Parallel Stochastic Optimization With Wait-Avoiding Group
//          Averaging" (arXiv 2005.00124): the abstract; the authors' code, Shigangli/WAGMA-SGD.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per round and worker a model up and a mean with one number down; at the end a model up.
// Differs: we have not read the paper's algorithm. The sum W of a group's S models has older models of late workers.
//          With `divisor` = "paper" (default; our understanding, not established) a worker in time takes the mean
//          W / S, a late one (W + own model) / (S + 1). With "released", as in the code, every worker takes
//          (W + own model) / (S + 1), so that its model counts twice if it is in time.
//          `order` = "step-first" (the default, not established; with one group of all workers it is Local SGD with
//          H = 1): workers average after the step. "average-first", as in the code: they average and then step along a
//          gradient taken before, with weight decay and norms at the average.
//          In the code, communication threads answer while a worker computes. Here they are replaced by one server that
//          holds all workers' newest models. It moves 2 P floats per worker and round, whereas recursive doubling in a
//          group sends log2(S) P and a ring 2 (S - 1) / S P. With shared links all messages pass the server's link:
//          times are those of this server, not of the code. A worker is in time if it has arrived when the server
//          begins the round. A round averages the whole model; in the code it averages one tensor. It is not
//          established which missed sums a late worker gets; here it gets the sum of the round at which it arrives.
//          Groups are by digits of base S; if log2 S does not divide log2 N, the code's groups leave some workers
//          separate until a global round. The code has S = 8 of 64 workers, and a global round after every 10 others
//          (global_every = 11, the default).
//          A worker that has left is in no group, and nobody waits for it. Its last model is in the final mean if it
//          has used up its budget, but not if only its data are used up. A worker alone in its group keeps its model. A
//          worker that is down is in its groups with its last model, and the next global round waits for it. A worker
//          that loses its state asks the server for the last global mean, or the initial model, and begins its step
//          again with fresh momentum; otherwise momentum stays with its worker.
// Checks:  one group of all workers, in time, is Local SGD with H = 1, and so are global rounds in every step; equal
//          models do not change with either divisor; after log_S N rounds every worker's model has reached all others;
//          hand-worked timelines and a recursion in double precision.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct WagmaOptions {
  enum class Divisor { paper, released };
  enum class Order { step_first, average_first };
  int group_size = 2;     // S
  Step global_every{11};  // tau; 0: never
  Divisor divisor = Divisor::paper;
  Order order = Order::step_first;
  IndividualModels evaluated = IndividualModels::mean;
};

// Groups of S workers that change from round to round: the ranks of a group differ in one digit of base S, and the
// digits take turns. If N and S are powers of two, these are the groups of a butterfly. Nothing is stored per worker.
// Checks:  for any S that divides N each worker is in one group; if N is a power of S every model has reached every
//          worker, directly or through others, once all digits have had their turn; masks of the butterfly.
class RotatingGroups {
 public:
  // `size` must divide the number of workers. If that number is not a power of `size`, the last turn groups ranks that
  // are N / S apart.
  RotatingGroups(int workers, int size) : size_(size), strides_({1}) {
    while (workers % (strides_.back() * size * size) == 0 && strides_.back() * size < workers)
      strides_.push_back(strides_.back() * size);
    if (strides_.back() * size < workers) strides_.push_back(workers / size);
  }

  int turns() const { return static_cast<int>(strides_.size()); }  // rounds after which the groups repeat

  // Returns the lowest rank of the worker's group, which identifies the group; rounds are counted from 1.
  Rank group_of(Rank worker, Step round) const {
    const int digit = worker.value / stride(round) % size_;
    return Rank{worker.value - digit * stride(round)};
  }

 private:
  int stride(Step round) const { return strides_[static_cast<std::size_t>((round.value() - 1) % turns())]; }

  int size_;
  std::vector<int> strides_;  // distance between a group's members, by turn
};

class WagmaSgd : public Algorithm {
 public:
  explicit WagmaSgd(const WagmaOptions& options) : options_(options) {}

  void run(Worker& worker) const override {
    const bool averages_first = options_.order == WagmaOptions::Order::average_first;
    while (worker.budget_left()) {
      ResetOnOutage<bool> has_state(worker, true);
      const Gradient gradient = worker.compute_step_gradient() / worker.micro_batches();
      if (!*has_state) worker.set_model(worker.model(), StatePolicy::reset);
      if (averages_first && worker.step() > Step{0}) average_in_group(worker);
      worker.descend(gradient);
      worker.report_steps();
      if (!worker.budget_left()) break;
      if (!averages_first) average_in_group(worker);
      worker.publish(WorkerModel{.evaluated = options_.evaluated});
    }
    const bool others_go_on = worker.budget_left(BudgetView::others);
    Message last = Message::farewell();
    if (!others_go_on)
      last = Message::of_last_model(worker.step(), worker.publish(WorkerModel{.evaluated = options_.evaluated}));
    last.step = worker.step();
    worker.send(worker.server(), std::move(last));
  }

  void serve(Server& server) const override {
    GroupAverages averages(server, options_);
    while (const auto first = server.receive_until_all_left()) {
      averages.take(*first);
      while (const auto another = server.receive(server.now())) averages.take(*another);
      averages.begin_if_due();
    }
    averages.publish_last();
  }

  Traits traits() const override {
    return {
        .servers = 1,
        .held = {.models = 4, .moments = 2},
        .exchanged_whole =
            "compression sends differences from a model that all workers share, and averages of changing groups leave "
            "no such model"};
  }

  // After the last step there is no round, but each worker sends its last model.
  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    const Bytes::Rep model = input.parameter_bytes.value();
    const Bytes::Rep of_worker = (input.steps.value() - 1) * (2 * model + 8) + model;
    return Communicated{input.steps.value(), Bytes{input.workers * of_worker}};
  }

 private:
  // The server's state: all workers' newest models, and the means of the groups of each round that has begun.
  class GroupAverages {
   public:
    GroupAverages(Server& server, const WagmaOptions& options)
        : server_(server),
          options_(options),
          groups_(server.size(), options.group_size),
          workers_(server.size(), {.newest = server.model()}),
          here_(server.size()) {}

    // Handles a worker's message: its model for a round, which is answered at once if it is late, its last model, or
    // its farewell.
    void take(const Message& message) {
      server_.record_steps(message.from, message.step);
      workers_[message.from] = {.newest = message.model, .round = message.step, .brought = message.kind};
      if (message.kind != Message::Kind::model)
        --here_;
      else if (message.step <= begun_)
        reply(message.from, false);
      else
        waiting_.push_back(message.from);
    }

    // Begins the next round if a worker has arrived at it (at a global round: if all have), and answers these workers.
    // A waiting worker is always at the next round, since no worker continues from a round before it has taken place.
    void begin_if_due() {
      if (waiting_.empty() || (is_global(begun_ + 1) && std::ssize(waiting_) < here_)) return;
      form_means(++begun_);
      for (const Rank worker : std::exchange(waiting_, {})) reply(worker, true);
    }

    void publish_last() {
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

   private:
    struct OfWorker {
      ModelStatePtr newest{};
      Step round{};                                  // the newest round at which the worker has arrived
      Message::Kind brought = Message::Kind::model;  // by its last message; another kind: the worker has ended
    };
    struct Mean {
      ModelStatePtr model{};
      int members = 0;
    };

    bool is_global(Step round) const {
      return options_.global_every > Step{0} && round.value() % options_.global_every.value() == 0;
    }

    Rank group_of(Rank worker, Step round) const {
      return is_global(round) ? Rank{0} : groups_.group_of(worker, round);
    }

    void form_means(Step round) {
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

    // Sends a worker its group's mean, and the weight with which it mixes in its own model.
    void reply(Rank to, bool in_time) const {
      const Step round = workers_[to].round;
      const Mean& mean = means_.at(round).at(group_of(to, round));
      const bool counts_own = !is_global(round) && (!in_time || options_.divisor == WagmaOptions::Divisor::released);
      const double own_weight = mean.members == 1 ? 1 : counts_own ? 1.0 / (mean.members + 1) : 0;
      server_.send(to, Message::of_model(server_.step(), mean.model, {own_weight}));
    }

    ModelStatePtr mean_of(std::vector<WeightedState>& models) const {
      for (WeightedState& one : models) one.weight = 1.0 / static_cast<double>(models.size());
      return server_.combine(models);
    }

    Server& server_;
    const WagmaOptions& options_;
    RotatingGroups groups_;
    ByRank<OfWorker> workers_;
    int here_;                   // workers that have not ended
    Step begun_{};               // the newest round that has begun
    std::vector<Rank> waiting_;  // workers at the next round
    // By round and group, back to the oldest round at which a worker has not arrived yet.
    std::map<Step, std::map<Rank, Mean>> means_;
  };

  // A round's number is the number of steps before it, which is the same for all workers.
  static void average_in_group(Worker& worker) {
    worker.send(worker.server(), Message::of_model(worker.step(), worker.model()));
    const auto mean = worker.receive({.from = worker.server()});
    if (!mean) return;
    const double own = mean->numbers.front();
    if (own < 1)
      worker.set_model(own > 0 ? worker.combine({{1 - own, mean->model}, {own, worker.model()}}) : mean->model);
  }

  WagmaOptions options_;
};

inline std::unique_ptr<Algorithm> make_wagma_sgd(Settings& settings, const AlgorithmContext& context) {
  using Divisor = WagmaOptions::Divisor;
  using Order = WagmaOptions::Order;
  constexpr std::int64_t most_steps = 1'000'000'000;
  WagmaOptions options;
  const std::size_t faults = settings.faults_so_far();
  options.group_size = static_cast<int>(settings.integer(
      {"group_size", "How many workers average together in a round (S); must divide the number of workers."}, 2,
      Stated(std::max(context.workers, 2), "workers")));
  if (settings.faults_so_far() == faults && !context.are_divided_by(options.group_size))
    settings.fault("group_size",
                   fmt::format("must divide the number of workers, {}: groups have equal sizes", context.workers));
  options.global_every =
      settings.integer({"global_every", "Number of steps after which all workers average (tau); 0: never.", "steps"}, 0,
                       most_steps, options.global_every.value());
  options.divisor = settings.choice(
      {"divisor", "Divisor of a sum of S models: S, for late workers S + 1 (paper); always S + 1 (the authors' code)."},
      {{"paper", Divisor::paper}, {"released", Divisor::released}}, options.divisor);
  options.order = settings.choice(
      {"order", "Whether models are averaged after the step, or between the step's gradient and the step."},
      {{"step-first", Order::step_first}, {"average-first", Order::average_first}}, options.order);
  options.evaluated = read_individual_models(settings);
  return std::make_unique<WagmaSgd>(options);
}

}  // namespace syncopate
