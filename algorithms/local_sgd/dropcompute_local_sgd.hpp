// DropCompute inside Local SGD: a worker that is late by its threshold takes no more local steps and joins the average
// with the model it has.
// Source:  Giladi et al. 2023 (DropCompute on top of Local SGD: its clock and weights are not in the text).
// Shapes:  gradient, parameters: (P,) flat float32.   Units: threshold_s in seconds.
// Cost:    one all-reduce of P floats per period; at most H M gradients per worker.
// Differs: our reading. clock = "period" (default): one threshold for the whole period; "step": one for each local
//          step. The gradients of a step that is cut short are used, divided by M, and count as a step. weights =
//          "equal" (default: the plain mean), "steps", or "samples", as FedAvg's. The synchronous steps of a post-local
//          period are DropCompute's. The threshold is fixed.
// Checks:  threshold = inf equals Local SGD bit for bit; times and drops of the tabulated toy experiment.
#pragma once

#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"

namespace syncopate {

struct DropLocalOptions {
  enum class Clock { period, step };
  enum class Weights { equal, steps, samples };
  Duration threshold = longest_duration;  // from the period's or the step's start
  Clock clock = Clock::period;
  Weights weights = Weights::equal;
  StatePolicies state{};
};

class DropLocalSgd : public Algorithm {
 public:
  DropLocalSgd(std::shared_ptr<const SyncPeriod> period, const DropLocalOptions& options)
      : period_(std::move(period)), options_(options) {}

  void run(Worker& worker) const override {
    drop_together(worker, period_->synchronous_steps(), options_);
    while (worker.budget_left()) {
      const Step period = period_->at(worker.step(), worker.learning_rate(), worker.steps_left());
      Time deadline = later(worker.now(), options_.threshold);
      ResetOnOutage<Step> taken(worker);
      Step passed{};
      while (passed < period && worker.budget_left(BudgetView::local)) {
        if (options_.clock == DropLocalOptions::Clock::step) deadline = later(worker.now(), options_.threshold);
        const Gradient sum = compute_until(worker, deadline);
        const bool stops = options_.clock == DropLocalOptions::Clock::period && worker.now() >= deadline;
        const bool nothing = sum.micro_batches() == 0;
        nothing ? worker.skip_steps(1) : worker.descend(sum / worker.micro_batches());
        ++passed;
        if (!nothing) ++*taken;
        if (!stops) continue;
        if (period < endless) worker.skip_steps(period - passed);
        break;
      }
      const bool by_steps = options_.weights == DropLocalOptions::Weights::steps;
      const double weight = by_steps ? static_cast<double>((*taken).value()) : options_.state.model_weight();
      worker.average_model({.policy = options_.state.average, .weight = weight});
      publish(worker, options_.state);
    }
  }

  Traits traits() const override {
    return {.publishes_rounds = true,
            .exchanged_whole = "workers have taken unequal numbers of steps, and may count by them"};
  }

  // Who is late passes over steps, and takes part in the average.
  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    return communicated_in_rounds(*period_, options_.state.average, input);
  }

 private:
  // A round that lasts until the budget of seconds or samples is used up has no steps to pass over.
  static constexpr Step endless = 1'000'000'000'000;

  // The micro-batches of one local step that end before the deadline.
  static Gradient compute_until(Worker& worker, Time deadline) {
    Gradient sum;
    for (int m = 0; m < worker.micro_batches(); ++m) {
      const auto gradient = worker.compute_gradient(deadline);
      if (!gradient) break;
      sum += *gradient;
    }
    return sum;
  }

  // DropCompute itself, before local steps begin.
  static void drop_together(Worker& worker, Step until, const DropLocalOptions& options) {
    while (worker.step() < until && worker.budget_left()) {
      Gradient sum = compute_until(worker, later(worker.now(), options.threshold));
      worker.all_reduce_sum(sum);
      worker.descend(sum / (worker.size() * worker.micro_batches()));
      publish(worker, options.state);
    }
  }

  std::shared_ptr<const SyncPeriod> period_;
  DropLocalOptions options_;
};

inline std::unique_ptr<Algorithm> make_drop_local_sgd(Settings& settings, const AlgorithmContext& context) {
  using Clock = DropLocalOptions::Clock;
  using Weights = DropLocalOptions::Weights;
  auto period = read_sync_period(settings, context);
  DropLocalOptions options;
  options.threshold = from_seconds(
      settings.number({"threshold_s", "After what time a worker takes no more local steps.", "s"}, Range::positive()));
  check_threshold(settings, options.threshold, context.shortest_micro_batch_s);
  options.clock = settings.choice({"clock", "Whether the threshold is that of a whole period or of each local step."},
                                  {{"period", Clock::period}, {"step", Clock::step}}, options.clock);
  options.weights = settings.choice(
      {"weights",
       "How models count in the average: alike, by their steps, or by their workers' training samples (FedAvg)."},
      {{"equal", Weights::equal}, {"steps", Weights::steps}, {"samples", Weights::samples}}, options.weights);
  options.state = read_state_policies(settings);
  if (options.weights == Weights::samples) options.state.weights = ModelWeights::samples;
  check_model_weights(settings, context.divides_data, options.state);
  return std::make_unique<DropLocalSgd>(std::move(period), options);
}

}  // namespace syncopate
