// A cluster's compute times, drawn ahead of a run: what formulas go by where an experiment file composes delays
// whose law nobody has written down.
// Units:   seconds. A step is M micro-batches of one worker.
// Cost:    about a million draws at most, spread over the workers and over the whole run. Of more than 4,096 workers
//          some are drawn: of each group that differs from the others at least one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/theory/order_statistics.hpp"
#include "workers/theory/paper_formulas.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

// How a micro-batch's time depends on the lengths in it, from times that were measured: least squares, without negative
// costs.
// A micro-batch; the first three as in ContentCost.
struct TimedLengths {
  double tokens = 0;
  double padded_tokens = 0;
  double squares = 0;
  double seconds = 0;
};

struct LengthFit {
  // Each at least 0.
  ContentCost cost;
  double r_squared = 1;           // share of the times' variance that the line explains; 1 where they have none
  double largest_residual_s = 0;  // |time - line|
  double typical_residual_s = 0;  // root of the mean square
  int points = 0;
};

// How micro-batches were computed, and so what can cost time.
enum class Computed {
  own,              // by tokens or by padded tokens, not by both
  padded,           // by padded tokens, of which the others are no part
  padded_and_asked  // by both: what is asked for is their own
};

// Of one or more micro-batches. A cost that would come out negative is left out, and the others are fitted anew; so is
// one that the lengths do not tell from the others.
LengthFit fit_lengths(std::span<const TimedLengths> timed, Computed computed = Computed::own);

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

// Which workers are sampled, and which others each represents. A cluster of many workers has few laws as a rule: some
// are slower for good, some are concerned by a delay. However few they are, a sample must have one of them.
// Units:   seconds.
// Workers of one law, as far as their delays declare it.
struct WorkerGroup {
  int workers = 1;
  StepLaw declared{};         // of a step of any of them
  std::vector<Rank> drawn{};  // at least one
};

// A group for each worker, by rank, where they are at most `most`. Otherwise those with equal declared laws are a
// group, and share `most` draws by their number. Of more laws than `most` the slowest ones are kept apart, and the
// others make groups of neighbours.
std::vector<WorkerGroup> group_workers(const ComputeTime& compute_time, int workers, int micro_batches, int most);

// Mean and variance over the workers of all parts: within them, and between.
struct LawOfPart {
  StepLaw law{};
  int workers = 1;
};
StepLaw together(const std::vector<LawOfPart>& parts);

// Rounds put together from steps that were drawn: what they take, and what a threshold leaves of them, where no law of
// their sums is known or the sums are far from normal.
// Units:   seconds.
// Cost:    one pass over the drawn micro-batches.
// Differs: the steps of a round are taken as they were drawn, spread over the run: steps that go together in time, as
//          in bursts, are taken as independent, as by the central limit.
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

// When a server that waits for K of its workers' trials has them: by drawn steps, where each worker does one trial
// after the other from the same moment on, and gives up a step that is longer than a limit.
// Units:   seconds.
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
