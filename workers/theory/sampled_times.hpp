// A cluster's compute times, drawn ahead of a run: what formulas go by where an experiment file composes delays
// whose law nobody has written down.
// Units:   seconds. A step is M micro-batches of one worker.
// Cost:    about a million draws at most, spread over the workers and over the whole run. Of more than 4,096 workers
//          some are drawn: of each group that differs from the others at least one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "workers/delays/compute_time.hpp"
#include "workers/theory/drop_compute_theory.hpp"
#include "workers/theory/order_statistics.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// Of each worker; they are steps of the run itself.
inline constexpr std::int64_t most_sampled_steps = 512;

// A mean over what was drawn, and its standard error.
struct SampledMean {
  double mean = 0;
  double error = 0;
};
SampledMean mean_of(std::span<const double> values);

struct SampledTimes {
  int workers = 0;
  int micro_batches = 0;
  double shortest_s = 0;  // no worker's micro-batch is shorter
  // Whether a step has a variance, as far as the delays declare it: without one, sums are not normal however long.
  bool has_variance = true;
  // Of a micro-batch: as the delays declare it, or the sample's where they do not or the sample contradicts them. The
  // deviation is that of a step over sqrt(M), so that sums of M have the right one even where the micro-batches of a
  // step go together.
  MicroBatchLaw law{};
  std::vector<double> steps{};                // ascending: all that were drawn
  std::vector<double> step_times{};           // the same as [worker][step], where all workers were drawn; else empty
  std::vector<Duration> micro_batch_times{};  // [worker][step][micro-batch] of these; empty where they are too many
  // Where workers' means differ by more than chance would have it (persistent slow workers), the law of each by rank;
  // where not all were drawn, of each group of them. Empty: they are alike, and `law` is that of each.
  struct LawOfWorkers {
    MicroBatchLaw law{};
    int workers = 1;
  };
  std::vector<LawOfWorkers> laws{};
  // E[T] and its standard error: the mean of the slowest worker's step. None where not all workers were drawn.
  std::optional<double> slowest_s{};
  double slowest_error_s = 0;

  bool alike() const { return laws.empty(); }
  // Of each worker, where all were drawn; else 0.
  std::size_t drawn_steps() const { return step_times.size() / static_cast<std::size_t>(workers); }
};

// Of the drawn steps those that are `chosen`: their times alone, without a law. Only where all workers were drawn.
SampledTimes choose_steps(const SampledTimes& times, const std::function<bool(std::size_t step)>& chosen);

// `planned`: steps of the run, over which the sample is spread; none: its first ones.
SampledTimes sample_times(const ComputeTime& compute_time, int workers, int micro_batches, std::optional<Step> planned);

// What `steps` steps take each of the workers, by the central limit: exact for normal times.
std::vector<NormalTime> normal_sums(const SampledTimes& times, double steps);
// Of `count` workers from `first` on; if they differ, only where all workers were drawn.
std::vector<NormalTime> normal_sums(const SampledTimes& times, double steps, int first, int count);

// The mean over all workers of what depends on a worker's law.
double mean_over_workers(const SampledTimes& times, const std::function<double(const MicroBatchLaw&)>& of_one);

// E[max] over all workers of the sum of `steps` steps, by the central limit.
double expected_slowest_sum(const SampledTimes& times, double steps = 1);

// Eq. 5 over all workers: the share of the micro-batches of `steps` steps that a worker has done by `threshold_s`.
double expected_share_done(const SampledTimes& times, Step steps, double threshold_s);

// The mean over the drawn steps of the k-th fastest worker's, and its standard error: workers may be unlike, and depend
// on each other. Only where all workers were drawn.
SampledMean sampled_order_statistic(const SampledTimes& times, int k);

}  // namespace syncopate
