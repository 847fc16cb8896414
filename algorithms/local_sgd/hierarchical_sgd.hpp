// Hierarchical Local SGD: models are averaged often within groups of workers, and over all groups less often.
// Source:  Lin et al. 2020, "Don't Use Large Mini-Batches, Use Local SGD" (hierarchical Local SGD).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats within each group per group period, one over all workers per period.
// Differs: the outer period counts steps and follows any rule of sync_period.hpp; a group's round that it cuts short
//          ends with the average over all. Groups are workers of consecutive ranks; their size need not divide N: the
//          last is then smaller. Both averages use the same network.
// Checks:  one group of all workers equals Local SGD with the group period, groups of one that with the period.
#pragma once

#include <limits>

#include "algorithms/local_sgd/local_sgd.hpp"

namespace syncopate {

struct HierarchicalOptions {
  int group_size = 1;
  Step group_period{1};                      // local steps between a group's averages
  std::shared_ptr<const SyncPeriod> period;  // local steps between the averages of all
  StatePolicies policies{};                  // of both averages
};

class HierarchicalSgd : public Algorithm {
 public:
  explicit HierarchicalSgd(HierarchicalOptions options) : options_(std::move(options)) {}

  void run(Worker& worker) const override {
    train_together(worker, options_.period->synchronous_steps(), options_.policies);
    const Step group_period = options_.group_period;
    const double weight = options_.policies.model_weight();
    while (worker.budget_left()) {
      Step left = options_.period->at(worker.step(), worker.learning_rate(), worker.steps_left());
      while (left > group_period) {
        take_local_steps(worker, group_period);
        const bool goes_on = worker.average_model(
            {.policy = options_.policies.average, .weight = weight, .group_size = options_.group_size});
        left = goes_on ? left - group_period : 0;
      }
      take_local_steps(worker, left);
      worker.average_model({.policy = options_.policies.average, .weight = weight});
      publish(worker, options_.policies);
    }
  }

  Traits traits() const override {
    return {.follows_clock = false,
            .publishes_rounds = true,
            .exchanged_whole = "averages of groups and of all would each need a residual of their own"};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    return communicated_in_groups(*options_.period, {options_.group_size, options_.group_period},
                                  options_.policies.average, input);
  }

 private:
  HierarchicalOptions options_;
};

inline std::unique_ptr<Algorithm> make_hierarchical_sgd(Settings& settings, const AlgorithmContext& context) {
  HierarchicalOptions options;
  options.group_size = static_cast<int>(settings.integer(
      {"group_size", "How many workers of consecutive ranks form a group."}, 1, Stated(context.workers, "workers")));
  options.group_period = settings.integer({"group_period", "Local steps between a group's averages.", "steps"}, 1,
                                          std::numeric_limits<Step::Rep>::max());
  options.period = read_sync_period(settings, context);
  options.policies = read_state_policies(settings, context);
  return std::make_unique<HierarchicalSgd>(std::move(options));
}

}  // namespace syncopate
