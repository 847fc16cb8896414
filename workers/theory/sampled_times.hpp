// A cluster's compute times, drawn before a run, for formulas about sums of delays whose distribution is unknown.
// Units:   seconds. A step is M micro-batches of one worker.
// Cost:    at most about a million draws, spread over the workers and over the whole run. If there are more than 4,096
//          workers, a sample of them is drawn, with at least one from each group that differs.
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

// A measured micro-batch. The first three fields are quantities that ContentCost has costs for.
struct TimedLengths {
  double tokens = 0;
  double padded_tokens = 0;
  double squares = 0;
  double seconds = 0;
};

struct LengthFit {
  ContentCost cost;               // each at least 0
  double r_squared = 1;           // share of the times' variance that the fit explains; 1 if there is no variance
  double largest_residual_s = 0;  // |time - fit|
  double typical_residual_s = 0;  // root mean square of time - fit
  int points = 0;
};

// How micro-batches were computed, which decides which lengths may have a cost.
enum class Computed {
  own,              // tokens or padded tokens, not both
  padded,           // only padded tokens
  padded_and_asked  // both
};

// Fits measured times by lengths with least squares. Costs that would be negative, or that the lengths cannot separate
// from other costs, are left out, and the rest is fitted again.
LengthFit fit_lengths(std::span<const TimedLengths> timed, Computed computed = Computed::own);

// Number of sampled steps per worker. They are steps of the run itself.
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
  double shortest_s = 0;  // lower bound for all micro-batches
  // False if the declared variance of a step is infinite: then not even long sums are normal.
  bool has_variance = true;
  // The distribution of a micro-batch: the one that the delays declare, or that of the sample if the delays declare
  // none or the sample contradicts them. The deviation is that of a step divided by sqrt(M), so it is right for sums of
  // M even if a step's micro-batches depend on each other.
  MicroBatchLaw law{};
  std::vector<double> steps{};                // all drawn steps, ascending
  std::vector<double> step_times{};           // the same as [worker][step] if all workers were drawn; otherwise empty
  std::vector<Duration> micro_batch_times{};  // the steps' times, [worker][step][micro-batch]; empty if there are too
                                              // many
  // If workers' means differ by more than chance (persistent slow workers): the distribution of each worker by rank, or
  // of each group if not all workers were drawn. Empty: all workers have `law`.
  struct LawOfWorkers {
    MicroBatchLaw law{};
    int workers = 1;
  };
  std::vector<LawOfWorkers> laws{};
  // E[T] and its standard error: the mean of the slowest worker's step. Empty if not all workers were drawn.
  std::optional<double> slowest_s{};
  double slowest_error_s = 0;

  bool alike() const { return laws.empty(); }
  // Number of drawn steps per worker if all workers were drawn; otherwise 0.
  std::size_t drawn_steps() const { return step_times.size() / static_cast<std::size_t>(workers); }
};

// Returns only the drawn steps for which `chosen` is true, without a distribution. All workers must have been drawn.
SampledTimes choose_steps(const SampledTimes& times, const std::function<bool(std::size_t step)>& chosen);

// `planned`: steps of the run, over which the sample is spread; nullopt: the sample contains the first steps.
SampledTimes sample_times(const ComputeTime& compute_time, int workers, int micro_batches, std::optional<Step> planned);

// The mean over all workers of a function of their distributions.
double mean_over_workers(const SampledTimes& times, const std::function<double(const MicroBatchLaw&)>& of_one);

// E[max] over all workers of the sum of `steps` steps, by the central limit theorem.
double expected_slowest_sum(const SampledTimes& times, double steps = 1);

// The mean over the drawn steps of the k-th fastest worker's time, and its standard error. Workers may differ and
// depend on each other. All workers must have been drawn.
SampledMean sampled_order_statistic(const SampledTimes& times, int k);

// Workers with the same declared distribution, and the sampled ones among them. A cluster of many workers usually has
// few distributions: some workers are always slower, some have a delay.
struct WorkerGroup {
  int workers = 1;
  StepLaw declared{};         // distribution of their steps
  std::vector<Rank> drawn{};  // sampled workers, at least one
};

// If there are at most `most` workers, returns one group per worker, by rank. Otherwise workers with equal declared
// distributions form a group, and the groups share `most` draws in proportion to their sizes. If there are more than
// `most` distributions, the slowest remain separate, and the others form groups of neighbours.
std::vector<WorkerGroup> group_workers(const ComputeTime& compute_time, int workers, int micro_batches, int most);

// Mean and variance over the workers of all parts: within the parts and between them.
struct LawOfPart {
  StepLaw law{};
  int workers = 1;
};
StepLaw together(const std::vector<LawOfPart>& parts);

// The mean, over rounds of drawn steps, of the slowest worker's sum of `steps` steps, for sums that are far from
// normal. Empty if too few steps, or not all workers, were drawn.
// Differs: the steps of a round are spread over the run. So steps that depend on each other, as in bursts, are treated
//          as independent, as in the central limit theorem.
std::optional<SampledMean> sampled_slowest_sum(const SampledTimes& times, Step steps);

// What remains of the drawn steps under a threshold. Micro-batches that end later are lost.
struct CutSteps {
  SampledMean time_s;  // until the slowest worker has finished or stopped
  // Share of the micro-batches that are kept. Its error is at least one drawn micro-batch: a loss that none of n draws
  // shows can still have a probability of 3 / n.
  SampledMean kept{.mean = 1};
};
// `threshold_s` counts from the start of a step; infinite: nothing is cut. Empty if too few steps, or not all workers,
// were drawn, or if their micro-batches were too many to store.
std::optional<CutSteps> sample_cut_steps(const SampledTimes& times, double threshold_s);

}  // namespace syncopate
