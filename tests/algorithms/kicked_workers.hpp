// A training that shows how models are mixed. Worker i has only one gradient that is not zero: step 0 moves its model
// from 0 to the unit vector e_i. From then on the components of a model are the shares of the workers' models in it.
#pragma once

#include <memory>
#include <vector>

#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {

class KickObjective : public Objective {
 public:
  explicit KickObjective(int workers) : workers_(static_cast<std::size_t>(workers)) {}
  std::size_t parameters() const override { return workers_; }
  std::size_t weights() const override { return workers_; }
  std::vector<float> initial_parameters(std::uint64_t) const override { return std::vector<float>(workers_); }
  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> micro_batches) const override {
    auto values = std::make_shared<std::vector<float>>(workers_);
    for (const MicroBatch& micro_batch : micro_batches)
      if (micro_batch.step == Step{0}) (*values)[static_cast<std::size_t>(micro_batch.worker.value)] -= 1;
    PartialGradient result;
    result.segments.push_back({.offset = 0, .size = workers_, .data = values->data(), .owner = values});
    return result;
  }
  std::int64_t chunk_samples() const override { return 64; }
  std::int64_t samples_per_micro_batch() const override { return 1; }
  std::int64_t steps_per_epoch() const override { return 0; }
  std::int64_t evaluation_samples(Split) const override { return 1; }
  EvaluationSums evaluate(const float*, const float*, Split, std::int64_t, std::int64_t) const override {
    return {.loss = 0, .correct = 0, .samples = 1};
  }
  bool has_accuracy() const override { return false; }

 private:
  std::size_t workers_;
};

// Runs another algorithm and keeps every worker's last model.
class WithLastModels : public Algorithm {
 public:
  WithLastModels(const Algorithm& algorithm, int workers)
      : models(static_cast<std::size_t>(workers)), algorithm_(algorithm) {}

  void run(Worker& worker) const override {
    algorithm_.run(worker);
    worker.distance(worker.model(), worker.model());  // waits for the arithmetic
    const auto values = worker.model()->parameters->value.span();
    models[static_cast<std::size_t>(worker.rank().value)].assign(values.begin(), values.end());
  }

  void serve(Server& server) const override { algorithm_.serve(server); }
  Traits traits() const override { return algorithm_.traits(); }

  mutable std::vector<std::vector<float>> models;

 private:
  const Algorithm& algorithm_;
};

struct KickedRun {
  SimulatedRun::Outcome outcome;           // its parameters are the mean that is published at the end
  std::vector<std::vector<float>> models;  // [worker][component]
};

inline KickedRun run_kicked(SimulatedRun setup, const Algorithm& algorithm) {
  setup.objective = std::make_shared<KickObjective>(setup.workers);
  setup.rate = 1;
  const WithLastModels recorded(algorithm, setup.workers);
  KickedRun run{.outcome = setup.run(recorded), .models = {}};
  run.models = recorded.models;
  return run;
}

}  // namespace syncopate
