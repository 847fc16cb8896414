// DropCompute inside Local SGD: a worker that is late by its threshold takes no more local steps and joins the
// average with the model it has.
// Source:  Giladi et al. 2023 (DropCompute on top of Local SGD: its clock and weights are not in the text).
// Shapes:  gradient, parameters: (P,) flat float32.   Units: threshold_s in seconds.
// Cost:    one all-reduce of P floats per period; at most H M gradients per worker.
// Differs: clock = "period" (default): one threshold for the whole period; "step": one for each local step. What
//          is there of a step that is cut short is used, divided by M, and counts as a step. weights = "equal"
//          (default: the plain mean), "steps", or "samples", as FedAvg's. The synchronous steps of a
//          post-local period are DropCompute's. All of this is this project's reading. The threshold is fixed: neither
//          found automatically nor adaptive.
// Checks:  threshold = inf equals Local SGD bit for bit; times and drops of the tabulated toy experiment.
#pragma once

#include "algorithms/local_sgd/state_policy.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/method/algorithm.hpp"

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

  void run(Worker& worker) const override;
  Traits traits() const override {
    return {.publishes_rounds = true,
            .exchanged_whole = "workers have taken unequal numbers of steps, and may count by them"};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  std::shared_ptr<const SyncPeriod> period_;
  DropLocalOptions options_;
};

std::unique_ptr<Algorithm> make_drop_local_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
