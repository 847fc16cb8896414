// A cluster's compute times, drawn before a run, for formulas about composed delays whose law is unknown.
// Units:   seconds. A step is M micro-batches of one worker.
// Cost:    about a million draws at most, spread over the workers and over the whole run. Of more than 4,096 workers a
//          sample is drawn, with at least one of each group that differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/theory/order_statistics.hpp"
#include "workers/theory/paper_formulas.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

// A measured micro-batch; the first three as in ContentCost.
struct TimedLengths {
  double tokens = 0;
  double padded_tokens = 0;
  double squares = 0;
  double seconds = 0;
};

struct LengthFit {
  ContentCost cost;               // each at least 0
  double r_squared = 1;           // share of the times' variance that the line explains; 1 without variance
  double largest_residual_s = 0;  // |time - line|
  double typical_residual_s = 0;  // root of the mean square
  int points = 0;
};

// How micro-batches were computed, and so which lengths can cost time.
enum class Computed {
  own,              // tokens or padded tokens, not both
  padded,           // only padded tokens
  padded_and_asked  // both
};

// Least squares of measured times by lengths. Costs that would be negative, or that the lengths cannot separate from
// others, are left out, and the rest is fitted again.
LengthFit fit_lengths(std::span<const TimedLengths> timed, Computed computed = Computed::own);

// Per worker; they are steps of the run itself.
inline constexpr std::int64_t most_sampled_steps = 512;

// A mean over a sample, and its standard error.
struct SampledMean {
  double mean = 0;
  double error = 0;
};
SampledMean mean_of(std::span<const double> values);

struct SampledTimes {
  int workers = 0;
  int micro_batches = 0;
  double shortest_s = 0;     // lower bound of all micro-batches
  bool has_variance = true;  // false if the declared variance of a step is infinite: then even long sums are not normal
  // The law of a micro-batch: as the delays declare it, or the sample's if they declare none or the sample contradicts
  // them. The deviation is that of a step over sqrt(M), so that it is right for sums of M even if a step's
  // micro-batches depend on each other.
  MicroBatchLaw law{};
  std::vector<double> steps{};                // all drawn, ascending
  std::vector<double> step_times{};           // the same as [worker][step] if all workers were drawn; else empty
  std::vector<Duration> micro_batch_times{};  // [worker][step][micro-batch] of these; empty if they are too many
  // If workers' means differ by more than chance (persistent slow workers): the law of each by rank, or of each group
  // if not all were drawn. Empty: `law` is that of every worker.
  struct LawOfWorkers {
    MicroBatchLaw law{};
    int workers = 1;
  };
  std::vector<LawOfWorkers> laws{};
  // E[T] and its standard error: the mean of the slowest worker's step. None if not all workers were drawn.
  std::optional<double> slowest_s{};
  double slowest_error_s = 0;

  bool alike() const { return laws.empty(); }
  // Per worker if all were drawn; else 0.
  std::size_t drawn_steps() const { return step_times.size() / static_cast<std::size_t>(workers); }
};

// The times of the drawn steps for which `chosen` is true, without a law. Needs all workers drawn.
SampledTimes choose_steps(const SampledTimes& times, const std::function<bool(std::size_t step)>& chosen);

// `planned`: steps of the run, over which the sample is spread; none: it has the first ones.
SampledTimes sample_times(const ComputeTime& compute_time, int workers, int micro_batches, std::optional<Step> planned);

// The mean of a function of the law over all workers.
double mean_over_workers(const SampledTimes& times, const std::function<double(const MicroBatchLaw&)>& of_one);

// E[max] over all workers of the sum of `steps` steps, by the central limit.
double expected_slowest_sum(const SampledTimes& times, double steps = 1);

// The mean over the drawn steps of the k-th fastest worker's, and its standard error. Workers can differ, and depend on
// each other. Needs all workers drawn.
SampledMean sampled_order_statistic(const SampledTimes& times, int k);

// Workers with one declared law, and those among them that are sampled. A cluster of many workers usually has few laws:
// some workers are always slower, some have a delay.
struct WorkerGroup {
  int workers = 1;
  StepLaw declared{};         // of a step of any of them
  std::vector<Rank> drawn{};  // at least one
};

// A group for each worker, by rank, if there are at most `most`. Otherwise workers with equal declared laws are a
// group, and the groups share `most` draws by their sizes. If there are more laws than `most`, the slowest ones stay
// apart, and the others make groups of neighbours.
std::vector<WorkerGroup> group_workers(const ComputeTime& compute_time, int workers, int micro_batches, int most);

// Mean and variance over the workers of all parts: within them, and between.
struct LawOfPart {
  StepLaw law{};
  int workers = 1;
};
StepLaw together(const std::vector<LawOfPart>& parts);

// The mean over rounds of drawn steps of the slowest worker's sum of `steps` steps, for sums that are far from normal.
// None if too few steps were drawn, or not all workers.
// Differs: a round's steps are spread over the run. So steps that depend on each other, as in bursts, count as
//          independent, as in the central limit.
std::optional<SampledMean> sampled_slowest_sum(const SampledTimes& times, Step steps);

// What a threshold leaves of drawn steps; a micro-batch that ends later is lost.
struct CutSteps {
  SampledMean time_s;  // until the slowest worker is done or has stopped
  // Share of the micro-batches. Its error is at least one in those drawn: a loss that none of n draws shows can still
  // have a probability of 3 / n.
  SampledMean kept{.mean = 1};
};
// `threshold_s` counts from a step's start; infinite: nothing is cut. None if too few steps were drawn, or not all
// workers, or their micro-batches were too many to keep.
std::optional<CutSteps> sample_cut_steps(const SampledTimes& times, double threshold_s);

}  // namespace syncopate
