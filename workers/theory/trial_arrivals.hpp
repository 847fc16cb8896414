// When a server that waits for K of its workers' trials has them: by drawn steps, where each worker does one trial
// after the other from the same moment on, and gives up a step that is longer than a limit.
// Units:   seconds.
#pragma once

#include <cstddef>
#include <optional>

#include "workers/theory/sampled_times.hpp"

namespace syncopate {

// What trials end with at the server: a gradient by the limit, else a note.
struct TrialEnds {
  double limit_s = 0;
  double gradient_s = 0;
  double note_s = 0;
};

struct SampledUpdates {
  SampledMean time_s;
  SampledMean kept;
};

// Updates that begin with a step of all workers and end with the K-th arrival, or the first gradient if that is later,
// of rounds of no more drawn steps of each worker than it takes to know all of these. kept: the share of gradients
// among the K. None where too few steps were drawn.
std::optional<SampledUpdates> sample_updates(const SampledTimes& times, const TrialEnds& ends, std::size_t gradients);

}  // namespace syncopate
