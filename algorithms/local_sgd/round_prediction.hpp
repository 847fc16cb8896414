// What rounds of local steps take: by sums of steps that are taken as normal, and, where these miss what is drawn or
// have no variance, by sums of drawn steps.
// Source:  expected maxima of normal sums (workers/theory/order_statistics.hpp); Giladi et al. 2023, Eq. 5, for what a
//          threshold keeps.
// Units:   seconds.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/method/communication.hpp"
#include "algorithms/method/prediction.hpp"
#include "workers/theory/sampled_rounds.hpp"

namespace syncopate {

// One round of so many local steps, and its communication.
struct RoundTime {
  double time_s = 0;
  double communication_s = 0;  // of it
  double average_s = 0;        // of that, after the last local step
  double kept = 1;             // share of the micro-batches
  double error_s = 0;          // standard errors, of what is sampled
  double kept_error = 0;
};
// None where the time of a round of that length is unknown.
using TimeOfRound = std::function<std::optional<RoundTime>(Step length)>;

// What a method's rounds take, by normal sums and by drawn steps, with the formulas' names.
struct RoundFormulas {
  std::string of_normal_sums;
  TimeOfRound by_normal_sums;
  std::string of_sampled_sums;
  TimeOfRound by_sampled_sums;
  // Of the round that ends after so many steps, beside what rounds of its length take; empty: nothing.
  std::function<double(Step done)> further_communication_s{};
};

// Rounds as long as the rule makes them over the whole run. None where their lengths are not known beforehand.
Forecast predict_rounds(const SyncPeriod& period, const RoundFormulas& formulas, const PredictionInput& input);
// Each waits for the slowest sum of its steps, and for an average.
Forecast predict_rounds(const SyncPeriod& period, const AveragePolicy& policy, const PredictionInput& input);

// What the rule's rounds over the whole run communicate: an average each, before it gradients at every synchronous
// step.
Communicated communicated_in_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                    const CommunicationInput& input);

// Groups of `group_size` consecutive workers, the last may be smaller, average after each `group_period` steps, all
// at the round's end. Maxima within a group have their own mean and deviation, their sums are taken as normal again:
// exact for one group, for groups of one, and for rounds of one group period.
struct Groups {
  int size;
  Step period;
};
RoundFormulas rounds_in_groups(const Groups& groups, const AveragePolicy& policy, const PredictionInput& input);
// The same with the groups' averages.
Communicated communicated_in_groups(const SyncPeriod& period, const Groups& groups, const AveragePolicy& policy,
                                    const CommunicationInput& input);

// All stop at the threshold, counted from the round's start, or each local step from its own. The sums are then of
// min(threshold, step): their law is skewed where many steps are cut, so that normal sums' maximum is a few thousandths
// too long.
RoundFormulas rounds_until(const Limits& limits, const AveragePolicy& policy, const PredictionInput& input);

}  // namespace syncopate
