// Dynamic averaging: models are averaged only when they have moved far enough from a reference, their last average.
// Source:  Kamp et al. 2018, "Efficient Decentralized Deep Learning by Dynamic Model Averaging": our reading of the
//          protocol and its coordinator.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: threshold in squared units of the parameters.
// Cost:    checks = "own": P floats read per check; a model each way for every worker whose model is averaged, of those
//          that the coordinator asks a message of latency alone; at the end a model of each worker. "gathered": two
//          numbers per worker all-gathered per check, one all-reduce of P floats per average.
// Differs: "own" (default): each worker looks at the squared distance of its own model from the reference, every
//          `check_every` steps, and sends it to the coordinator, a server, if it is above the threshold. That puts
//          workers together, the next one drawn at random, until their mean is within it: they go on from that mean.
//          Once all are together, or there have been as many violations as workers since the last time, all are
//          averaged, and that is the new reference. Violations are counted from the last such average on, however it
//          came about; whether the paper counts on where all were together by asking is not confirmed. There all
//          workers take their steps in time with each other; here a worker that is asked answers after its next check,
//          so unequal workers' models are of different steps. Moments stay with their workers. All send their last
//          model; their mean ends the run. "gathered" (this project's): all look at the mean squared distance, which
//          bounds the variance of the models, and all are averaged if it is above the threshold; every check waits for
//          the slowest.
// Checks:  threshold 0 equals Local SGD with the period of the checks, inf one-shot averaging; a hand-worked round of
//          partial averages; "gathered": the steps of the averages against a computation in double precision.
#pragma once

#include "algorithms/local_sgd/rounds.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct DynamicOptions {
  enum class Checks { own, gathered };
  double threshold = 0;  // Delta
  Step check_every{1};   // b
  Checks checks = Checks::own;
  StatePolicies policies{};  // gathered
};

class DynamicAveraging : public Algorithm {
 public:
  explicit DynamicAveraging(const DynamicOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = is_gathered() ? 0 : 1,
            .follows_values = true,
            .follows_clock = !is_gathered(),
            .publishes_rounds = is_gathered(),
            .exchanged_whole = "workers send whole models, of whom and when depends on how far they are apart"};
  }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("when models are averaged follows from how far they have moved");
  }

 private:
  bool is_gathered() const { return options_.checks == DynamicOptions::Checks::gathered; }
  void check(Worker& worker, ModelStatePtr& reference) const;

  DynamicOptions options_;
};

std::unique_ptr<Algorithm> make_dynamic_averaging(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
