// A small cluster on which tests compare a method's formulas with its simulation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {

// A normal delay of 0.5 +- 0.2 s, added to 1 s. It is far enough from 0 to remain normal.
inline const auto noise = normal_delay(0.5, 0.2);

struct PredictedRun {
  int workers = 16;
  int micro_batches = 4;
  std::vector<double> factors{};
  std::vector<std::shared_ptr<const DelayProcess>> delays = {noise};
  int steps = 2000;
  double network_s = 0.5;
  std::shared_ptr<const NetworkModel> network{};  // replaces the fixed cost
  int moments = 0;                                // vectors of the optimizer's state
  std::uint64_t seed = 1;                         // seed of the delays
  double base_s = 1;                              // time of a micro-batch without delays

  template <typename Question>
  auto with_input(const Question& question) const {
    const ComputeTime compute_time(seed, base_s, factors, delays);
    const SampledTimes times = sample_times(compute_time, workers, micro_batches, Step{steps});
    const auto fixed = make_fixed_network(network_s);
    const LearningRate rate(LearningRate::Options{.peak = 0.1});
    return question(PredictionInput{.workers = workers,
                                    .micro_batches = micro_batches,
                                    .times = times,
                                    .network = network ? *network : *fixed,
                                    .parameter_bytes = Bytes{16},
                                    .moments = moments,
                                    .budget = {.steps = steps},
                                    .learning_rate = rate});
  }
  std::vector<Prediction> predict(const Algorithm& algorithm) const;
  std::string why_not_predicted(const Algorithm& algorithm) const;

  struct Simulated {
    double step_s;
    double drop_rate;
    double error_s;          // standard error of step_s, for methods whose rounds are independent
    double communication_s;  // a step's communication, as booked by the accounts, averaged over all workers
    double kept;             // share of the micro-batches of all steps
  };
  Simulated simulate(const Algorithm& algorithm) const;
};

}  // namespace syncopate
