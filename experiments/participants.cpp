#include "experiments/participants.hpp"

#include <algorithm>

namespace syncopate {

Participants participants(const Experiment& experiment) {
  Participants result;
  for (const Run& run : experiment.runs) {
    result.workers = std::max(result.workers, run.workers);
    result.any_server |= run.algorithm->has_server();
  }
  return result;
}

}  // namespace syncopate
