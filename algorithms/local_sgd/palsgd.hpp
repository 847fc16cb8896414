// Pseudo-asynchronous Local SGD (PALSGD): at each local step a worker either trains or, with probability p, is pulled
// towards the model of the last synchronisation, which costs neither a gradient nor communication. After H steps an
// outer optimizer steps along the average, as in DiLoCo.
// Source:  Naganuma et al. 2025, "Pseudo-Asynchronous Local SGD: Robust and Efficient Data-Parallel Training"; the
//          rules after its authors' code.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps; one more vector of P floats per worker. A pulled step takes no time.
// Differs: theta <- theta - (eta / p) lambda (theta - Theta) pulls all tensors; the code pulls only the first of each
//          group of the optimizer; whether the published runs did is not established. Each worker draws for itself
//          (`draws = "own"`); in the code all draw alike ("shared"). A pulled step's samples are left out of this
//          epoch, and count as dropped, so that a run of equal steps sees 1 - p of the samples: compare at equal
//          samples or time. The outer model is the one that all have stored, not the newest. A pull does not touch the
//          inner optimizer's moments. Here the first local step may be a pull, and each round has H steps; in the code
//          the first one always trains, and the first round is a step shorter. The code averages moments in its
//          synchronous steps; here they are equal anyway, since all step along one sum.
// Checks:  p = 0 equals DiLoCo bit for bit; lambda = 0 DiLoCo that skips steps; the recursion in double precision; the
//          mean round and its spread against the binomial law.
#pragma once


#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"

namespace syncopate {

struct PullOptions {
  double probability = 0.2;  // p, in [0, 1)
  double strength = 0.5;     // lambda
  Drawn draws = Drawn::alone;
};

class PalSgd : public Algorithm {
 public:
  PalSgd(std::shared_ptr<const SyncPeriod> period, std::shared_ptr<const OuterOptimizer> outer, const PullOptions& pull,
         const StatePolicies& policies = {})
      : period_(std::move(period)), outer_(std::move(outer)), pull_(pull), policies_(policies) {}

  void run(Worker& worker) const override {
    train_together(worker, period_->synchronous_steps(), policies_);
    const StepOptions own_step{.rate_factor = 1 / (1 - pull_.probability)};
    ModelStatePtr momentum;
    while (worker.budget_left()) {
      const ModelStatePtr outer = worker.model();
      const Step period = period_->at(worker.step(), worker.learning_rate(), worker.steps_left());
      MeanRate rate;
      for (Step taken{}; taken < period && worker.budget_left(BudgetView::local); ++taken) {
        rate.add(worker.learning_rate());
        if (is_pulled(worker)) {
          const double part = worker.learning_rate() / pull_.probability * pull_.strength;
          worker.set_model(worker.combine({{1 - part, worker.model()}, {part, outer}}, worker.model()));
          worker.skip_steps(1);
        } else {
          worker.descend(worker.compute_step_gradient() / worker.micro_batches(), own_step);
        }
      }
      worker.average_model({.policy = policies_.average, .weight = policies_.model_weight(), .from = outer});
      worker.set_model(
          outer_->step(worker, {.last = outer, .average = worker.model(), .inner_rate = rate.value()}, momentum));
      publish(worker, policies_);
    }
  }

  Traits traits() const override {
    return {.follows_clock = false,
            .judges_budget_locally = true,
            .publishes_rounds = true,
            .averages_models = true,
            .averages_moments = policies_.average.averaged_vectors(2) > 1};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    return communicated_in_rounds(*period_, policies_.average, input);
  }

 private:
  bool is_pulled(const Worker& worker) const {
    return pull_.probability > 0 && worker.uniform(worker.step(), pull_.draws) < pull_.probability;
  }

  std::shared_ptr<const SyncPeriod> period_;
  std::shared_ptr<const OuterOptimizer> outer_;
  PullOptions pull_;
  StatePolicies policies_;
};

inline std::unique_ptr<Algorithm> make_palsgd(Settings& settings, const AlgorithmContext& context) {
  PullOptions pull;
  auto period = read_sync_period(settings, context);
  auto outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  pull.probability =
      settings.number({"pull_probability", "That a local step is a pull towards the last outer model (p)."},
                      Range{.low = 0, .high = 1, .high_open = true}, pull.probability);
  pull.strength =
      settings.number({"pull_strength", "Of a pull, in rates: it goes eta / p times this of the way (lambda)."},
                      Range::at_least(0), pull.strength);
  pull.draws = settings.choice({"draws", "Whether each worker draws for itself, or all are pulled in the same steps."},
                               {{"own", Drawn::alone}, {"shared", Drawn::together}}, pull.draws);
  return std::make_unique<PalSgd>(std::move(period), std::move(outer), pull, read_state_policies(settings, context));
}

}  // namespace syncopate
