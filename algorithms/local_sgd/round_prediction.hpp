// What rounds of local steps take, by sums of steps that are taken as normal.
// Source:  expected maxima of normal sums (workers/theory/order_statistics.hpp); Giladi et al. 2023, Eq. 5, for what a
//          threshold keeps.
// Units:   seconds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/prediction.hpp"

namespace syncopate {

// One round of so many local steps, and its communication.
struct RoundTime {
  double time_s = 0;
  double communication_s = 0;  // of it
  double kept = 1;             // share of the micro-batches
};
using TimeOfRound = std::function<RoundTime(Step length)>;

// Why there is none.
inline constexpr const char* rounds_are_unknown =
    "how long its rounds are follows from how the run goes, or they are too long or too many";

// Rounds as long as the rule makes them over the whole run. None where the rounds cannot be told beforehand.
std::vector<Prediction> predict_rounds(const SyncPeriod& period, const std::string& formula, const TimeOfRound& round,
                                       const PredictionInput& input);
// Each waits for the slowest sum of its steps, and for an average.
std::vector<Prediction> predict_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                       const PredictionInput& input);

// Groups of `group_size` consecutive workers, the last may be smaller, average after each `group_period` steps, all
// at the round's end. Maxima within a group have their own mean and deviation, their sums are taken as normal again:
// exact for one group, for groups of one, and for rounds of one group period.
RoundTime round_in_groups(Step length, int group_size, Step group_period, const AveragePolicy& policy,
                          const PredictionInput& input);

// All stop at the threshold, counted from the round's start.
RoundTime round_until(double threshold_s, Step length, const AveragePolicy& policy, const PredictionInput& input);
// Each local step stops at the threshold, counted from its own start: the sums are of min(threshold, step). Their law
// is skewed where many steps are cut, so that the maximum is a few thousandths too long.
RoundTime round_of_steps_until(double threshold_s, Step length, const AveragePolicy& policy,
                               const PredictionInput& input);

}  // namespace syncopate
