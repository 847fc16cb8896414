// Local SGD: each worker takes H steps on its own, then the parameters of all are averaged.
// Source:  Lin et al. 2020 (Local and post-local SGD); Gu et al. 2024 (H by the quadratic rule).
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per H steps (more if moments are averaged too).
// Differs: post-local SGD and SWAP begin as synchronous SGD: one model and one optimizer state, from which all take
//          their first local step. SWAP's second phase has a batch, an order of the data and a learning rate of its own
//          where `local_phase` says so; `buffers = "recalibrate"` estimates BatchNorm statistics anew at its end, as
//          there. The last average always falls on the last step; the reference code leaves a constant
//          period's remainder un-averaged. Momentum stays with its worker (as there) unless chosen.
//          `weights = "samples"` weighs models by their workers' samples, as FedAvg does; synchronous steps before the
//          rounds have gradients of equal weight all the same.
//          A moving average (`average`) takes in each round's model, the last one too.
// Checks:  H = 1 with plain SGD equals synchronous SGD, as does post-local SGD before its switch with any optimizer;
//          rounds match the golden sequences of the rule.
#pragma once

#include "algorithms/local_sgd/local_phase.hpp"
#include "algorithms/local_sgd/round_prediction.hpp"
#include "algorithms/local_sgd/state_policy.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class LocalSgd : public Algorithm {
 public:
  LocalSgd(std::shared_ptr<const SyncPeriod> period, const StatePolicies& policies, const LocalPhase& phase = {})
      : period_(std::move(period)), policies_(policies), phase_(phase) {}

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.follows_clock = false,
            .settles_after = period_->synchronous_steps(),
            .same_course_from = 0,
            .judges_alone = true,
            .publishes_rounds = true,
            .takes_data_in_turn = phase_.sampling == LocalPhase::Sampling::shards,
            .averages_models = true,
            .averages_moments = policies_.average.averaged_vectors(2) > 1};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  std::shared_ptr<const SyncPeriod> period_;
  StatePolicies policies_;
  LocalPhase phase_;  // after the synchronous steps
};

// What the methods of this family have in common.
// Synchronous SGD until so many steps are done: all then have one model and one optimizer state.
void train_together(Worker& worker, Step until, const StatePolicies& policies);
// Takes `count` steps on this worker alone, fewer where the budget or its own data end.
void take_local_steps(Worker& worker, Step count);
// Reads the table `period`; never null.
std::shared_ptr<const SyncPeriod> read_sync_period(Settings& settings, const AlgorithmContext& context);

std::unique_ptr<Algorithm> make_local_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
