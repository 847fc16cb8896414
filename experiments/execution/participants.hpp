// Who takes part in an experiment's runs, for those who must start that many processes.
#pragma once

#include "experiments/sections/experiment.hpp"

namespace syncopate {

struct Participants {
  int workers = 0;  // the most that a run has
  int servers = 0;  // likewise
};

Participants participants(const Experiment& experiment);

}  // namespace syncopate
