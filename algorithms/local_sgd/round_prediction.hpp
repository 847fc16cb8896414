// Predicted times of rounds of local steps: by sums of steps that are taken as normal, and, where these miss the drawn
// steps or have no variance, by sums of drawn steps.
// Source:  expected maxima of normal sums (workers/theory/order_statistics.hpp); Giladi et al. 2023, Eq. 5, for what a
//          threshold keeps.
// Units:   seconds.
#pragma once

#include <functional>

#include "algorithms/local_sgd/rounds.hpp"
#include "workers/theory/sampled_times.hpp"

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

// The times of a method's rounds, by normal sums and by drawn steps, with the formulas' names.
struct RoundFormulas {
  std::string of_normal_sums;
  TimeOfRound by_normal_sums;
  std::string of_sampled_sums;
  TimeOfRound by_sampled_sums;
  // More than a round of its length takes, of the round that ends after so many steps; empty: nothing.
  std::function<double(Step done)> further_communication_s{};
};

// Rounds as long as the rule makes them over the whole run. None where their lengths are not known beforehand.
Forecast predict_rounds(const SyncPeriod& period, const RoundFormulas& formulas, const PredictionInput& input);
// Each waits for the slowest sum of its steps, and for an average.
Forecast predict_rounds(const SyncPeriod& period, const AveragePolicy& policy, const PredictionInput& input);

// The communication of the rule's rounds over the whole run: an average each, before it gradients at every synchronous
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

// Rounds whose averages are one round late.
// Source:  the recursion of a worker's clock: its round ends at e_i = t_i + (its H steps); the next one begins at
//          t_i' = max(e_i, max_j t_j + A), where all have begun the average that is under way, and A is what it takes.
//          Drawn steps are put into it. Without spread a round takes max(H c of the slowest, A).
// Differs: there is no formula by laws: what a worker makes up for in the next round depends on all the rounds before.
//          It lies between max(E[slowest worker's round], A), where A leaves room for a late worker's jitter, and
//          E[max(the slowest round, A)]. Drawn steps repeat where the run is longer.
// Checks:  whole runs of the methods, exactly where all steps are drawn; the closed form; the two bounds.
Forecast predict_overlapped_rounds(const SyncPeriod& period, const AveragePolicy& policy, const PredictionInput& input);

// Rounds in which fragments of the model are averaged one after the other, while workers compute.
// Source:  the recursion of the workers' clocks, into which drawn steps are put. Average k starts at s_k, when the last
//          worker has come to its turn, and ends at e_k = max(s_k, e_{k-1}) + A_k, since those of the same workers go
//          one after another; a worker that comes to its end before e_k waits until then. Without spread H steps take
//          H c + P max(0, A - tau c) where tau <= H / P, and about max(H c, P A) where tau is longer.
// Differs: no formula by laws, as with all averages that overlap. BatchNorm statistics are left out.
// Checks:  whole runs, exactly where all steps are drawn; the closed forms.
Forecast predict_fragments(const SyncPeriod& period, const Fragments& fragments, Step delay,
                           const AveragePolicy& policy, const PredictionInput& input);

}  // namespace syncopate
