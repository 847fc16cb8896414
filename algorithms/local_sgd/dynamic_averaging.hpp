// Dynamic averaging: models are averaged only when they are far from a reference, the last average of all models.
// Source:  Kamp et al. 2018, "Efficient Decentralized Deep Learning by Dynamic Model Averaging": our reading of the
//          protocol and its coordinator.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: threshold in squared units of the parameters.
// Cost:    checks = "own": per average a model up and down for each averaged worker, and a message without values for
//          each request of the coordinator; at the end a model from each worker. "gathered": per check an all-gather of
//          two numbers per worker, and per average an all-reduce of P floats. In both a check reads P floats.
// Differs: "own" (default): every `check_every` steps a worker sends its model to the coordinator, a server, if its
//          squared distance from the reference is above the threshold (a violation). The coordinator requests models of
//          random workers until the mean of the collected models is within the threshold; these workers continue from
//          that mean. Once all models are collected, or there have been as many violations as workers since the last
//          average of all models, all are averaged, and the result is the new reference. Every average of all models
//          resets the count of violations; it is not confirmed whether the paper does so if the models were collected
//          by requests.
//          In the paper all workers take their steps at the same time; here a worker answers a request at its next
//          check, so that models may be of different steps. Moments stay with their workers. The mean of all last
//          models is the result of the run. "gathered" (ours): all models are averaged if their mean squared distance
//          from the reference, which bounds their variance, is above the threshold; every check waits for the slowest.
// Checks:  with the threshold 0 it equals Local SGD with the period of the checks, and with inf one-shot averaging; a
//          hand-worked round of partial averages; "gathered": the steps of the averages against a computation in double
//          precision.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

struct DynamicOptions {
  enum class Checks { own, gathered };
  double threshold = 0;  // Delta
  Step check_every{1};   // b
  Checks checks = Checks::own;
  StatePolicies policies{};  // only for Checks::gathered
};

class DynamicAveraging : public Algorithm {
 public:
  explicit DynamicAveraging(const DynamicOptions& options) : options_(options) {}

  void run(Worker& worker) const override {
    if (is_gathered()) return average_by_gathered_distances(worker, options_);
    ModelStatePtr reference = worker.model();
    while (worker.budget_left()) {
      worker.descend(worker.compute_step_gradient() / worker.micro_batches());
      if (worker.step().value() % options_.check_every.value() == 0) check(worker, reference);
      worker.report_steps();
      if (worker.budget_left()) worker.publish(WorkerModel());
    }
    worker.send(worker.server(), Message::of_last_model(worker.step(), worker.publish(WorkerModel())));
  }

  void serve(Server& server) const override { ModelCoordinator(server, options_.threshold).run(); }
  Traits traits() const override {
    return {.servers = is_gathered() ? 0 : 1,
            .follows_values = true,
            .follows_clock = !is_gathered(),
            .publishes_rounds = is_gathered(),
            .held = {.models = 2.5, .moments = 1.5},
            .exchanged_whole = "workers send whole models, and which of them do depends on their distances"};
  }

 private:
  // Whether all models are still near their last average and no worker's budget has ended. All workers get the same
  // result, since it depends on gathered numbers.
  static bool stays_apart(Worker& worker, const ModelStatePtr& last, double threshold) {
    const double distance = worker.distance(worker.model(), last);
    const std::array mine = {distance * distance, worker.budget_left(BudgetView::local) ? 0.0 : 1.0};
    return *worker.all_gather(mine, [&](std::span<const double> all) {
      double sum = 0, ended = 0;
      for (std::size_t i = 0; i < all.size(); i += mine.size()) {
        sum += all[i];
        ended += all[i + 1];
      }
      return sum / worker.size() <= threshold && ended == 0;  // false for NaN, which the average then shows
    });
  }

  static void average_by_gathered_distances(Worker& worker, const DynamicOptions& options) {
    while (worker.budget_left()) {
      const ModelStatePtr last = worker.model();
      do take_local_steps(worker, options.check_every);
      while (stays_apart(worker, last, options.threshold));
      worker.average_model({.policy = options.policies.average});
      publish(worker, options.policies);
    }
  }

  // The number in a message with a model is 1 or 0. To the coordinator: whether the model is too far from the reference
  // (otherwise it only answers a request). From the coordinator: whether the model is the mean of all models.
  class ModelCoordinator {
   public:
    ModelCoordinator(Server& server, double threshold)
        : server_(server), threshold_(threshold), reference_(server.model()) {}

    void run() {
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

   private:
    void take(const Message& message) {
      server_.record_steps(message.from, message.step);
      asked_.erase(message.from);
      latest_step_ = std::max(latest_step_, message.step);
      const bool has_ended = message.kind == Message::Kind::last_model;
      (has_ended ? last_ : together_)[message.from] = message.model;
      if (!has_ended && message.numbers.front() == 1) ++violations_;
    }

    // If all models are collected, or the mean of the collected ones is near the reference, sends the mean to their
    // workers. If not, requests another model, or all models if there have been as many violations as workers.
    void settle() {
      if (together_.empty() || !asked_.empty()) return;
      const int working = server_.size() - static_cast<int>(last_.size());
      const ModelStatePtr mean = mean_of(together_);
      if (std::ssize(together_) == working) {
        reference_ = mean;
        violations_ = 0;
        return send(mean, true);
      }
      if (violations_ >= working) {
        for (int worker = 0; worker < server_.size(); ++worker) ask(Rank{worker});
        return;
      }
      const double distance = server_.distance(mean, reference_);
      if (distance * distance <= threshold_) return send(mean, false);
      ask(next_to_ask());
    }

    void ask(Rank worker) {
      if (together_.contains(worker) || last_.contains(worker)) return;
      asked_.insert(worker);
      server_.send(worker, Message::note(server_.step()));
    }

    // Draws one of the workers that are not collected and have not ended.
    Rank next_to_ask() {
      std::vector<Rank> others;
      for (int worker = 0; worker < server_.size(); ++worker)
        if (!together_.contains(Rank{worker}) && !last_.contains(Rank{worker})) others.emplace_back(worker);
      ++asked_so_far_;
      const auto place = static_cast<std::size_t>(server_.uniform(asked_so_far_) * static_cast<double>(others.size()));
      return others[place];
    }

    void send(const ModelStatePtr& mean, bool is_of_all) {
      for (const auto& [worker, model] : std::exchange(together_, {}))
        server_.send(worker, Message::of_model(server_.step(), mean, {is_of_all ? 1.0 : 0.0}));
    }

    ModelStatePtr mean_of(const std::map<Rank, ModelStatePtr>& models) const {
      std::vector<WeightedState> terms;
      for (const auto& [worker, model] : models) terms.push_back({1, model});
      return weighted_mean(server_, std::move(terms)).state;
    }

    Server& server_;
    double threshold_;
    ModelStatePtr reference_;
    std::map<Rank, ModelStatePtr> together_;  // collected models (the balancing set); their workers wait for the mean
    std::set<Rank> asked_;                    // workers with a request that they have not answered yet
    std::map<Rank, ModelStatePtr> last_;      // last models of workers that have ended
    int violations_ = 0;                      // since the last average of all models
    Step asked_so_far_{};
    Step latest_step_{};  // the largest step number of a message so far
  };

  bool is_gathered() const { return options_.checks == DynamicOptions::Checks::gathered; }

  // If the worker's model is too far from the reference, or the coordinator has requested it, sends it and waits for
  // the mean that replaces it. The model also answers a request that is in flight when the worker sends it.
  void check(Worker& worker, ModelStatePtr& reference) const {
    const bool is_asked = worker.receive({.from = worker.server(), .until = worker.now()}) != nullptr;
    const double distance = worker.distance(worker.model(), reference);
    const bool violates = !(distance * distance <= options_.threshold);  // true for NaN, so that averages show it
    if (!is_asked && !violates) return;
    worker.send(worker.server(), Message::of_model(worker.step(), worker.model(), {violates ? 1.0 : 0.0}));
    ReceivedMessage mean = worker.receive({.from = worker.server()});
    while (mean && !mean->has_model()) mean = worker.receive({.from = worker.server()});
    if (!mean) return;
    worker.set_model(mean->model);
    if (mean->numbers.front() == 1) reference = mean->model;
  }

  DynamicOptions options_;
};

inline std::unique_ptr<Algorithm> make_dynamic_averaging(Settings& settings, const AlgorithmContext& context) {
  if (context.time_only)
    settings.fault("algorithm", "needs a model: it measures distances between the workers' parameters");
  if (!context.budget_ends_alone)
    settings.fault("algorithm",
                   "needs a budget in steps, epochs, seconds or samples: models that stay near each other are never "
                   "sent, so a budget in bytes would never end");
  DynamicOptions options;
  options.threshold = settings.number(
      {"threshold", "Squared distance from the last average beyond which models are averaged."}, Range::at_least(0));
  options.check_every = settings.integer({"check_every", "Steps between checks of the distances.", "steps"}, 1,
                                         std::numeric_limits<Step::Rep>::max());
  using Checks = DynamicOptions::Checks;
  options.checks = settings.choice(
      {"checks", "What a check compares with the threshold: each worker's own distance, or the gathered mean of all."},
      {{"own", Checks::own}, {"gathered", Checks::gathered}}, options.checks);
  options.policies = read_state_policies(settings);
  const bool is_usual =
      options.policies.average == AveragePolicy{} && options.policies.recalibration_micro_batches == 0;
  if (options.checks == Checks::own && !is_usual)
    settings.fault(
        "checks",
        "must be \"gathered\" unless moments are kept and BatchNorm statistics averaged: with \"own\" workers send "
        "their models only");
  return std::make_unique<DynamicAveraging>(options);
}

}  // namespace syncopate
