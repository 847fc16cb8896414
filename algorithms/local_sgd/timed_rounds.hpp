// Rounds of local steps that end by time: with the first step of a worker that ends at least so many seconds after the
// last synchronisation, on its own clock. Nobody is interrupted.
// Source:  Cheng et al. 2025, "EDiT": A-EDiT.
// Units:   seconds.
// Cost:    a round takes the time, the longest rest of a step that is then under way, and its communication. A worker
//          whose steps take c s makes ceil(time / c) of them, where they are constant.
// Differs: see edit.hpp.
// Checks:  the closed form of constant steps; the simulated cluster.
#pragma once

#include <cstdint>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct TimedRounds {
  enum class CountedFrom {
    end,      // of the last synchronisation
    arrival,  // this worker's at it, so that what it has waited there is part of the time
  };
  Duration length = longest_duration;  // tau_time
  CountedFrom counted_from = CountedFrom::end;
  std::int64_t minimum_steps = 1;  // of all workers together; with fewer the synchronisation is put off by another time
  Step warmup_steps{};             // of synchronous SGD before the first round
};

// What a synchronisation costs.
struct SynchronisationCosts {
  double meeting_s = 0;  // to find out what all have done, also where it is put off
  double average_s = 0;
};

// By drawn steps, whose rounds follow one another as in a run; none where they are too few for that. Steps are the
// fastest worker's of each round, and what the others are behind is not kept. A round that the budget cuts short is
// taken as a whole.
Forecast predict_timed_rounds(const TimedRounds& rounds, const SynchronisationCosts& costs,
                              const PredictionInput& input);

// Whether the time that ends rounds is written, `sync_seconds`. Reads it, counted_from, minimum_steps and warmup_steps;
// without it these others are faults.
bool read_timed_rounds(Settings& settings, TimedRounds& rounds, const WorkInBudget& work);

}  // namespace syncopate
