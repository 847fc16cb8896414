#include "results/run/run.hpp"

#include <algorithm>

namespace syncopate {

std::optional<Step> planned_steps(const Run& run) {
  std::optional<Step> planned = run.budget.steps;
  if (run.budget.samples) {
    const std::int64_t per_step = static_cast<std::int64_t>(run.cluster.workers) * run.cluster.micro_batches *
                                  run.training.samples_per_micro_batch;
    const Step by_samples = std::max<std::int64_t>(1, *run.budget.samples / per_step);
    planned = planned ? std::min(*planned, by_samples) : by_samples;
  }
  return planned;
}

}  // namespace syncopate
