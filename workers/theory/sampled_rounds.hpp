// Rounds put together from steps that were drawn: what they take, and what a threshold leaves of them, where no law of
// their sums is known or the sums are far from normal.
// Units:   seconds.
// Cost:    one pass over the drawn micro-batches.
// Differs: the steps of a round are taken as they were drawn, spread over the run: steps that go together in time, as
//          in bursts, are taken as independent, as by the central limit.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "workers/theory/sampled_times.hpp"

namespace syncopate {

// Where workers stop, counted from the start of each step, and of the round. A micro-batch that ends later is lost.
struct Limits {
  double step_s = std::numeric_limits<double>::infinity();
  double round_s = std::numeric_limits<double>::infinity();
};

struct SampledRounds {
  SampledMean time_s;  // of a round: until its slowest worker is done or has stopped
  // Share of the micro-batches. Its error is at least one in those drawn: a loss that none of n draws shows may still
  // have a probability of 3 / n.
  SampledMean kept{.mean = 1};
};

// Rounds of `period` steps. None where too few of them were drawn to say anything, or not all workers were.
std::optional<SampledRounds> sample_rounds(const SampledTimes& times, std::int64_t period, const Limits& limits = {});

// The same for rounds that take longer or shorter than their slowest worker. `time_s` gives the time of the round that
// begins with drawn step `first`.
std::optional<SampledMean> sample_rounds(const SampledTimes& times, std::int64_t period,
                                         const std::function<double(std::size_t first)>& time_s);

// How long workers communicate on average between two models, the second `next_s` after the first: who is done with its
// drawn step `step` by then sends a gradient, and waits for a model, which are under way for `messages_s` together; one
// that is done too late for that communicates for the rest, and who is not done computes.
double awaited_messages(const SampledTimes& times, std::size_t step, double next_s, double messages_s);

// The longest sum of `count` drawn steps from `first` on, over workers begin .. end - 1.
double slowest_sum(const SampledTimes& times, int begin, int end, std::size_t first, std::size_t count);

}  // namespace syncopate
