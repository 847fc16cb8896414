// A cluster's compute times, drawn before a run, for formulas about sums of delays whose distribution is unknown.
// Units:   seconds. A step is M micro-batches of one worker.
// Cost:    at most a million draws, or 16 steps of each drawn worker if these need more, spread over the whole run.
//          With more than 4,096 workers only a sample of them is drawn, at least one from each group of similar
//          workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/theory/paper_formulas.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

// A measured micro-batch. ContentCost has a cost for each of the first three fields.
struct TimedLengths {
  double tokens = 0;
  double padded_tokens = 0;
  double squares = 0;
  double seconds = 0;
};

struct LengthFit {
  ContentCost cost;               // each at least 0
  double r_squared = 1;           // share of the times' variance that the fit explains; 1 if the times are equal
  double largest_residual_s = 0;  // |time - fit|
  double typical_residual_s = 0;  // root mean square of time - fit
  int points = 0;
};

// How the timed micro-batches were computed. This limits the lengths that a fit may use together.
enum class Computed {
  own,              // tokens or padded tokens, but not together
  padded,           // padded tokens, but not tokens
  padded_and_asked  // tokens and padded tokens, also together
};

// Fits measured times by lengths with least squares. Costs that would be negative are left out, and so are costs that
// the lengths cannot separate from other costs; the rest is fitted again.
LengthFit fit_lengths(std::span<const TimedLengths> timed, Computed computed = Computed::own);

// Largest number of drawn steps per worker. They are steps of the run itself.
inline constexpr std::int64_t most_sampled_steps = 512;

struct SampledMean {
  double mean = 0;
  double error = 0;
};
SampledMean mean_of(std::span<const double> values);

struct SampledTimes {
  int workers = 0;
  int micro_batches = 0;
  double shortest_s = 0;  // lower bound for all micro-batches
  // False if the declared variance of a step is infinite. Then even sums of many steps are not normal.
  bool has_variance = true;
  // The distribution of a micro-batch's time. It is the one that the delays declare, or the sample's if they declare
  // none or the sample contradicts it. The deviation is that of a step divided by sqrt(M). So it is right for sums of M
  // micro-batches even if a step's micro-batches depend on each other.
  MicroBatchLaw law{};
  std::vector<double> steps{};                // all drawn steps, ascending
  std::vector<double> step_times{};           // in the order [worker][step] if all workers were drawn; otherwise empty
  std::vector<Duration> micro_batch_times{};  // [worker][step][micro-batch]; empty if there are too many
  // One distribution per worker, by rank, or per group if not all workers were drawn. Empty: all workers have `law`,
  // because their means differ by no more than chance.
  struct LawOfWorkers {
    MicroBatchLaw law{};
    int workers = 1;
  };
  std::vector<LawOfWorkers> laws{};
  // E[T], the mean of the slowest worker's step, and its standard error. Empty if not all workers were drawn.
  std::optional<double> slowest_s{};
  double slowest_error_s = 0;

  bool alike() const { return laws.empty(); }
  // Number of drawn steps per worker if all workers were drawn; otherwise 0.
  std::size_t drawn_steps() const { return step_times.size() / static_cast<std::size_t>(workers); }
};

// Returns step_times and micro_batch_times of the steps for which `chosen` is true. All workers must have been drawn.
SampledTimes choose_steps(const SampledTimes& times, const std::function<bool(std::size_t step)>& chosen);

// `planned`: number of steps of the run, over which the sample is spread; nullopt: the sample contains the first steps.
SampledTimes sample_times(const ComputeTime& compute_time, int workers, int micro_batches, std::optional<Step> planned);

// The mean over all workers of a function of their distributions.
double mean_over_workers(const SampledTimes& times, const std::function<double(const MicroBatchLaw&)>& of_one);

// E[max] over all workers of the total time of `steps` steps, by the central limit theorem.
double expected_slowest_sum(const SampledTimes& times, double steps = 1);

// The mean over the drawn steps of the k-th fastest worker's time, and its standard error. Workers may differ and
// depend on each other. All workers must have been drawn.
SampledMean sampled_order_statistic(const SampledTimes& times, int k);

// Workers with the same declared distribution, and those of them that are drawn. A cluster of many workers usually has
// few distributions: some workers are always slower, some have a delay.
struct WorkerGroup {
  int workers = 1;
  StepLaw declared{};         // distribution of a worker's step
  std::vector<Rank> drawn{};  // sampled workers, at least one
};

// If there are at most `most` workers, returns one group per worker, by rank. Otherwise workers with equal declared
// distributions form a group, and the groups share `most` draws in proportion to their sizes. If there are more than
// `most` distributions, the slowest keep their own groups, and the others are merged with neighbours.
std::vector<WorkerGroup> group_workers(const ComputeTime& compute_time, int workers, int micro_batches, int most);

// The slowest worker's total time of a round of `steps` steps, as a mean over rounds of drawn steps. For sums that are
// far from normal. Empty if too few steps, or not all workers, were drawn.
// Differs: the steps of a round are spread over the run. So steps that depend on each other, as in bursts, are treated
//          as independent. The formula by the central limit theorem treats them so, too.
std::optional<SampledMean> sampled_slowest_sum(const SampledTimes& times, Step steps);

// The effect of a threshold on the drawn steps. Micro-batches that end after the threshold are lost.
struct CutSteps {
  SampledMean time_s;  // time until the slowest worker has finished or stopped
  // Share of the micro-batches that are kept. The error is at least the share of one drawn micro-batch: an event that
  // does not occur in n draws can still have a probability of 3 / n.
  SampledMean kept{.mean = 1};
};
// `threshold_s` counts from the start of a step; infinite: nothing is cut. Empty if too few steps, or not all workers,
// were drawn, or if there were too many micro-batches to keep their times.
std::optional<CutSteps> sample_cut_steps(const SampledTimes& times, double threshold_s);

}  // namespace syncopate
