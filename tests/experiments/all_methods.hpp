// The small experiment with random delays, and with methods of several families.
#pragma once

#include <string>

#include "tests/experiments/experiment_file.hpp"

namespace syncopate {

inline constexpr const char* delayed = R"(
[[delays]]
kind = "exponential"
mean = 0.005
)";
inline constexpr const char* others = R"(
[[methods]]
label = "backup"
algorithm = "backup-workers"
backups = 1
[[methods]]
label = "local"
algorithm = "local-sgd"
period = { rule = "constant", steps = 5 }
moments = "average"
[[methods]]
label = "async"
algorithm = "async-sgd"
[[methods]]
label = "dynamic"
algorithm = "dynamic-averaging"
threshold = 0.1
check_every = 4
)";

struct AllMethods : ExperimentFile {
  // The small experiment with delays, a network by bytes on whose links nobody waits, as formulas have it, momentum and more methods.
  Experiment all_methods(Overrides overrides = {}) {
    write(std::string(small) + others + delayed);
    overrides.insert(overrides.end(),
                     {"network.kind=ring", "network.latency_s=1e-4", "network.bandwidth_bytes_per_s=1e7",
                      "network.contention=false", "training.optimizer.momentum=0.9"});
    return load(overrides);
  }
};

}  // namespace syncopate
