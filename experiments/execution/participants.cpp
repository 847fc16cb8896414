#include "experiments/execution/participants.hpp"

#include <algorithm>

namespace syncopate {

Participants participants(const Experiment& experiment) {
  Participants result;
  for (const Run& run : experiment.runs) {
    result.workers = std::max(result.workers, run.cluster.workers);
    result.servers = std::max<int>(result.servers, run.algorithm->traits().servers);
  }
  return result;
}

}  // namespace syncopate
