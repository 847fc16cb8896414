// How many rounds a rule makes, and the coefficient, or the H, with which it makes as many as are asked for: equal
// communication of unlike rules.
// Method:  the rule itself is walked along the run's schedule, as it is when it runs; the number of rounds falls as
//          coefficient or H grows, so a bisection finds where it passes the one asked for.
// Units:   rounds are averages over all workers, those of gradients before a `switch_step` too, so that the share of
//          rounds in steps is the communication in multiples of synchronous SGD's.
// Checks:  ceil(T / H) of a constant period; the golden sequences' own coefficients; monotony.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "algorithms/local_sgd/sync_period.hpp"
#include "workers/training/learning_rate.hpp"

namespace syncopate {

// Over so many steps at these rates; counted no further than `at_most`.
std::int64_t count_rounds(const SyncPeriod& period, const LearningRate& rate, Step steps,
                          std::int64_t at_most = std::numeric_limits<std::int64_t>::max());

// What makes the number of rounds that is nearest to the one asked for: of two that are as near, the fewer rounds.
// Where a rate rises, so that rounds need not fall with the coefficient, it is the nearest that the search meets.
template <typename Value>
struct SolvedRounds {
  Value value{};
  std::int64_t rounds = 0;  // that it makes
};

// The number has as few digits as make that many rounds. `scale`, above 0, is where the search begins.
SolvedRounds<double> solve_coefficient(
    std::int64_t rounds, double scale,
    const std::function<std::int64_t(double coefficient, std::int64_t at_most)>& rounds_with);
// Among 1 ... `longest`; the shortest period that makes that many.
SolvedRounds<Step> solve_period(std::int64_t rounds, Step longest,
                                const std::function<std::int64_t(Step period, std::int64_t at_most)>& rounds_with);

}  // namespace syncopate
