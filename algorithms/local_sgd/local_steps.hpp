// The kinds of a worker's local steps: train, train until a time is over (DropCompute), train with a term that holds
// the model near the round's first one (FedProx), or be pulled back (PALSGD).
// Source:  the cards of local_sgd.hpp, dropcompute_local_sgd.hpp, fedprox.hpp and palsgd.hpp.
// Units:   steps are optimizer steps; a skipped step counts as one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "algorithms/local_sgd/rounds.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class LocalSteps {
 public:
  explicit LocalSteps(Worker& worker) : worker_(worker), taken_(worker) {}
  virtual ~LocalSteps() = default;

  virtual void begin_round() { *taken_ = Step{}; }
  // Calls `see` with the mean gradient of each later step, before the step along it. Must be a kind of step that trains.
  void watch(std::function<void(Gradient&)> see) { see_ = std::move(see); }
  // Takes or skips one step. Returns whether the worker takes further steps in this round.
  virtual bool take() = 0;
  // The number of steps taken in this round; 0 for kinds of steps that never stop.
  Step taken() { return *taken_; }
  // The model at which the round began, for kinds of steps that also move the model without descending: a compressed
  // average sends the differences to it. Null for other kinds.
  const ModelStatePtr& began_at() const { return began_at_; }

 protected:
  Worker& worker_;             // must outlive this object
  ResetOnOutage<Step> taken_;  // counted by kinds of steps that may stop
  ModelStatePtr began_at_{};
  std::function<void(Gradient&)> see_{};
};

// Takes `count` steps, or fewer if the budget or the worker's data end. Calls `after_step` with the learning rate of
// each. If the steps stop, skips the rest, unless `count` means "until a budget of seconds or samples is used up".
template <typename AfterStep>
void take_steps(Worker& worker, LocalSteps& steps, Step count, const AfterStep& after_step) {
  constexpr Step endless = 1'000'000'000'000;
  for (Step passed{}; passed < count && worker.budget_left(BudgetView::local);) {
    const double rate = worker.learning_rate();
    const bool goes_on = steps.take();
    after_step(rate);
    ++passed;
    if (goes_on) continue;
    if (count < endless) worker.skip_steps(count - passed);
    return;
  }
}

// A kind of steps.
struct StepRule {
  // Begins a worker's steps. The worker and this rule must outlive the result.
  std::function<std::unique_ptr<LocalSteps>(Worker& worker)> begin{};
  Traits traits{};        // those that follow from these steps
  bool may_stop = false;  // whether a worker may stop before the round's last step, by its own clock
  // For steps along the worker's own gradients: how they differ from synchronous steps. None for other kinds.
  std::optional<LocalPhase> phase{};
  // Takes steps of synchronous SGD, or of this kind's variant of it, before the first round, up to step `until`.
  std::function<void(Worker& worker, Step until, const StatePolicies& policies)> train_together =
      syncopate::train_together;

  // The learning-rate schedule of a phase of `steps` local steps; none: the run's schedule continues.
  std::optional<LearningRate> learning_rate_over(Step steps) const {
    return phase ? phase->learning_rate_over(steps) : std::nullopt;
  }
};

StepRule make_training_steps(const LocalPhase& phase = {});

// DropCompute: a late worker skips its remaining steps and joins the average with its current model.
struct DropOptions {
  enum class Clock { period, step };
  Duration threshold = longest_duration;  // counted from the start of the round or the step (`clock`)
  Clock clock = Clock::period;
};
StepRule make_dropping_steps(const DropOptions& options);

// PALSGD: a step trains, or, with probability p, pulls the model back towards the model at which the round began.
struct PullOptions {
  double probability = 0.2;  // p, in [0, 1)
  double strength = 0.5;     // lambda
  Drawn draws = Drawn::alone;
};
StepRule make_pulling_steps(const PullOptions& options);

// FedProx: each step along the worker's own gradient is followed by one back towards the round's first model:
// w <- w' - eta mu (w - Theta), where w' is the model after the step from w.
StepRule make_proximal_steps(double mu);

// The steps of another kind, but each worker stops after its own number of steps in a round, by rank.
StepRule limit_steps(const StepRule& steps, std::vector<Step> of_workers);
// Reads the key `steps_of_workers`; empty if it is left out.
std::vector<Step> read_steps_of_workers(Settings& settings, const AlgorithmContext& context);

// Counts local steps by a plan that all workers share, for methods whose averages start and end while workers train.
// When a budget of seconds ends, workers may have taken different numbers of steps, but must still start and finish the
// same averages. So averages start and end at planned steps, and the plan advances even if a worker takes no steps.
class PlannedSteps {
 public:
  explicit PlannedSteps(Worker& worker) : worker_(worker), planned_(worker.step()) {}

  Step planned() const { return planned_; }
  // Whether the budget has steps for another round.
  bool steps_left() const { return worker_.steps_left() > behind(); }
  // The length of the round that begins now, by the period's rule, as if the worker had taken all planned steps.
  Step round(const SyncPeriod& period) const {
    return period.at(planned_, worker_.learning_rate(behind()), worker_.steps_left() - behind());
  }
  // Advances the plan to step `planned`, and takes the worker's steps up to there (take_steps).
  template <typename AfterStep>
  void take_until(Step planned, LocalSteps& steps, const AfterStep& after_step) {
    take_steps(worker_, steps, planned - planned_, after_step);
    planned_ = planned;
  }

 private:
  Step behind() const { return planned_ - worker_.step(); }

  Worker& worker_;  // must outlive this object
  Step planned_;
};

// Read the keys of these kinds of steps from the method's table, or from its table `steps`. `prefix` is put before the
// names of the first two keys.
StepRule read_dropping_steps(Settings& settings, const AlgorithmContext& context);
StepRule read_proximal_steps(Settings& settings, const AlgorithmContext& context);
StepRule read_pulling_steps(Settings& settings, std::string_view prefix);

// Reads the table `steps`. Without this table workers step along their own gradients, as the table `local_phase` says.
StepRule read_steps(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
