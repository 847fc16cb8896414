// Branch, train, merge: synchronous SGD for some steps, then all workers train alone, and merge once at the end.
// Source:  Li et al. 2022, "Branch-Train-Merge"; without seed steps Wortsman et al. 2022, "LoFi".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per seed step; at the end one more, or N - 1 models to worker 0.
// Differs: workers draw from shards of the same data instead of domains of their own, and an ensemble weighs its
//          members equally: the mean of their predicted probabilities. It keeps each member's BatchNorm statistics.
//          A moving average (`average`) takes in the merge; of an ensemble there is none.
// Checks:  as many seed steps as the budget has equal synchronous SGD; LoFi equals Local SGD with one round;
//          an ensemble of equal models predicts what the model does; bytes of both ways to merge.
#pragma once

#include "algorithms/local_sgd/state_policy.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

enum class Merge { average, ensemble };

class BranchTrainMerge : public Algorithm {
 public:
  BranchTrainMerge(Step seed_steps, Merge merge, const StatePolicies& policies)
      : seed_steps_(seed_steps), merge_(merge), policies_(policies) {}

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.follows_clock = false,
            .settles_after = seed_steps_,
            .publishes_rounds = true,
            .exchanged_whole = "models are averaged once, at the end, and what a worker did not send would be lost"};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  void publish_ensemble(Worker& worker) const;

  Step seed_steps_;
  Merge merge_;
  StatePolicies policies_;
};

std::unique_ptr<Algorithm> make_branch_train_merge(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
