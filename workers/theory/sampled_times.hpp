// A cluster's compute times, drawn ahead of a run: what formulas go by where an experiment file composes delays
// whose law nobody has written down.
// Units:   seconds. A step is M micro-batches of one worker.
// Cost:    about a million draws at most, spread over the workers and over the whole run.
#pragma once

#include <optional>
#include <vector>

#include "workers/delays/compute_time.hpp"
#include "workers/theory/drop_compute_theory.hpp"
#include "workers/theory/order_statistics.hpp"
#include "workers/units.hpp"

namespace syncopate {

struct SampledTimes {
  // Of a micro-batch. The deviation is that of a step over sqrt(M), so that sums of M have the right one even
  // where the micro-batches of a step go together.
  MicroBatchLaw law{};
  std::vector<double> steps{};  // ascending: all that were drawn
  // One law per worker where their means differ by more than chance would have it (persistent slow workers); empty:
  // they are alike, and `law` is that of each.
  std::vector<MicroBatchLaw> laws{};
  // E[T] and its standard error: the mean of the slowest worker's step. None where not all workers were drawn.
  std::optional<double> slowest_s{};
  double slowest_error_s = 0;

  bool alike() const { return laws.empty(); }
};

// `planned`: steps of the run, over which the sample is spread; none: its first ones.
SampledTimes sample_times(const ComputeTime& compute_time, int workers, int micro_batches, std::optional<Step> planned);

// E[max] over N workers of the sum of `steps` steps, by the central limit: exact for normal times.
double expected_slowest_sum(const SampledTimes& times, int workers, int micro_batches, double steps = 1);

}  // namespace syncopate
