// How many backup workers are best: fewer gradients per step cost more steps, but each step waits for fewer.
// Source:  Chen et al. 2016, section 3.1 (time to converge = steps needed x expected time of the N-th arrival).
// Units:   step times in the unit of the law.
#pragma once

#include <functional>

#include "workers/theory/order_statistics.hpp"

namespace syncopate {

// Steps to converge when N gradients make a step.
using StepsNeeded = std::function<double(int quorum)>;

// The straight line through two measured points, as in the paper.
StepsNeeded steps_on_a_line(int quorum_a, double steps_a, int quorum_b, double steps_b);

struct BestQuorum {
  int quorum = 0;         // N; the rest of the machines are backups
  double step_time = 0;   // expected time of the N-th arrival
  double total_time = 0;  // steps needed x (step_time + communication)
};

// The best N in lowest..machines. Each step's late work is cancelled, or its expected time would be longer.
BestQuorum best_quorum(int machines, int lowest, const Quantile& worker_time, const StepsNeeded& steps,
                       double communication = 0);

}  // namespace syncopate
