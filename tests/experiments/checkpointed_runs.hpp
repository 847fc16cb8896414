// Experiments for tests that stop a run at a checkpoint, and a text with all results of a run.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "experiments/execution/checkpointing.hpp"
#include "results/summary.hpp"
#include "tests/experiments/held_by_workers.hpp"
#include "tests/experiments/run_results.hpp"

namespace syncopate::checkpointed {

// Four workers of different speed; all recordings are switched on.
inline const std::string cluster = R"(name = "checkpoints"
[cluster]
workers = 4
micro_batches = 2
micro_batch_s = 1.0
worker_factors = [1, 1.3, 1.1, 1.8]
[network]
kind = "fixed"
latency_s = 0.1
[[delays]]
kind = "exponential"
mean = 0.5
[budget]
steps = 12
[recording]
trace = true
durations = true
arrivals = true
samples = true
parameters = true
)";

inline const std::string linear = held::linear_training(320) + held::measurements;

struct Stopped : std::runtime_error {
  Stopped() : std::runtime_error("stopped by the test") {}
};

inline std::string all_of(const syncopate::Run& run, Outcome outcome) {
  outcome.host_s = 0;
  std::string text = results_text(run, outcome);
  if (outcome.timeline) text += trace_events(*outcome.timeline, run, "simulated");
  if (outcome.durations) text += durations_csv(*outcome.durations);
  if (outcome.arrivals) text += arrivals_csv(*outcome.arrivals);
  for (const auto& buffers : outcome.recording.buffers)
    for (const float value : buffers) text += fmt::format("{} ", value);
  return text + to_json(summarise(run, outcome));
}

}  // namespace syncopate::checkpointed
