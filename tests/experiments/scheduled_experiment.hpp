// A time-only experiment with periods that depend on the learning rate. A step takes 0.1 s, and each round adds 1 s.
#pragma once

#include <fmt/format.h>

#include <string>

namespace syncopate {

// The experiment without its methods.
inline std::string scheduled_experiment(int workers, int steps) {
  return fmt::format(R"(
name = "scheduled"
seeds = [1]
[cluster]
workers = {}
micro_batch_s = 0.1
[network]
kind = "fixed"
latency_s = 1.0
[training]
model = "none"
parameters = 1000
micro_batch_size = 8
[training.learning_rate]
schedule = "cosine"
peak = 0.1
final = 1e-4
total_steps = {}
[budget]
steps = {}
)",
                     workers, steps, steps);
}

}  // namespace syncopate
