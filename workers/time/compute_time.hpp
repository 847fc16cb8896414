// The time of a micro-batch: base time x persistent factor of the worker + added delays. The base time is either one
// number or comes from a process such as a trace.
// Units: seconds outside, integer nanoseconds inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "workers/base/random.hpp"
#include "workers/base/units.hpp"
#include "workers/data/sampler.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// Mean and variance of a worker's step time over its steps. Both may be infinite.
struct StepLaw {
  double mean_s = 0;
  double variance_s2 = 0;
};

// A source of added delay. The delays of several sources add up.
class DelayProcess {
 public:
  virtual ~DelayProcess() = default;

  // added_s[i] += the delay of micro-batch first + i, in seconds. `stream` identifies the worker and step, and only
  // this process uses it. The process has no state, so a delay does not depend on the order of calls. Called from one
  // thread. Throws RunFailure for durations that are missing in a trace.
  virtual void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const = 0;
  // add() for each stream in `rows`; added_s contains one row of delays after another.
  virtual void add_rows(const RandomRows& rows, std::uint32_t first, std::span<double> added_s) const {
    const std::size_t length = added_s.size() / rows.count;
    for (std::size_t row = 0; row < rows.count; ++row) add(rows[row], first, added_s.subspan(row * length, length));
  }

  // Mean, variance and infimum of one delay in seconds, for predictions, checks and tests. Mean and variance may be
  // +infinity, the infimum -infinity. The defaults mean that variance and infimum are unknown.
  virtual double mean_s() const = 0;
  virtual double variance_s2() const { return std::numeric_limits<double>::quiet_NaN(); }
  virtual double minimum_s() const { return -std::numeric_limits<double>::infinity(); }

  // Mean and variance of a step's total delay, over the steps of a long run of this worker with this seed. A delay that
  // is drawn once for the whole run is part of the mean. The stream's step is ignored.
  virtual StepLaw step_law(const RandomStream& /*stream*/, int micro_batches) const {
    return {micro_batches * mean_s(), micro_batches * variance_s2()};
  }

  // The infimum over this worker's micro-batches.
  virtual double shortest_s(Rank /*worker*/) const { return minimum_s(); }

  // Whether delays depend on the samples. The stream then identifies the samples, which may belong to another worker or
  // step.
  virtual bool follows_samples() const { return false; }
  // Whether delays come from a recording, which may end. If so, nothing may be drawn ahead.
  virtual bool can_run_out() const { return false; }
};

// Durations of at least longest_duration count as infinite. With one of them, the sum is at least longest_duration.
Duration sum_of(std::span<const Duration> durations);

class ComputeTime {
 public:
  // Requirements: base_s > 0; worker_factors: empty (all 1) or one per worker, each > 0; delays: at most 255, none
  // null. Delay i draws from stream i.
  ComputeTime(std::uint64_t seed, double base_s, std::vector<double> worker_factors,
              std::vector<std::shared_ptr<const DelayProcess>> delays);
  // With base times from a process, such as a trace, which must not be null.
  ComputeTime(std::uint64_t seed, std::shared_ptr<const DelayProcess> base, std::vector<double> worker_factors,
              std::vector<std::shared_ptr<const DelayProcess>> delays);

  // out[i] = duration of micro-batch first + i of this worker's step, rounded to the nearest nanosecond. Infinity
  // becomes longest_duration. A negative sum (a normal delay can be negative) becomes 1 ns. Throws RunFailure for
  // durations that are missing in a trace.
  void durations(Rank worker, Step step, std::uint32_t first, std::span<Duration> out) const {
    durations({.worker = worker, .step = step}, first, out);
  }

  // Durations of one step of `count` consecutive workers, or of `count` consecutive steps of one worker, row after row.
  // One call for all rows is much cheaper than one call per row.
  struct Steps {
    Rank worker{};
    Step step{};
    RandomRows::Along along = RandomRows::Along::workers;
    std::size_t count = 1;
  };
  void durations(const Steps& steps, std::uint32_t first, std::span<Duration> out) const;

  // Whether the base or a delay comes from a recording, which may end. If so, nothing may be drawn ahead.
  bool can_run_out() const;

  // Whether the base depends on a micro-batch's samples. The functions above assume that each micro-batch has its own
  // samples. `duration` combines the base of `samples` with the factor and delays of `slot`.
  bool follows_samples() const { return base_ && base_->follows_samples(); }
  Duration duration(const MicroBatch& slot, const MicroBatch& samples) const;

  // The two parts of a micro-batch's time: declared (base x factor) and added. Clusters that compute for real inject
  // only the added part (0 for a negative delay). If the base is a process, base() uses its mean.
  Duration base(Rank worker) const;
  double factor(Rank worker) const {
    return worker_factors_.empty() ? 1.0 : worker_factors_.at(static_cast<std::size_t>(worker.value));
  }
  Duration added(Rank worker, Step step, std::uint32_t index) const;

  // The infimum over this worker's micro-batches, in seconds.
  double shortest(Rank worker) const;

  // Mean and variance, over the steps, of the sum over a step's micro-batches (see DelayProcess::step_law).
  StepLaw step_law(Rank worker, int micro_batches) const;

  std::uint64_t seed() const { return seed_; }

  // Whether the expected duration of a micro-batch is finite. If not, the slowest of many has no finite mean either.
  bool has_finite_mean() const;

 private:
  double declared(Rank worker) const { return base_s_ * factor(worker); }  // without delays; 0 if base_ exists
  RandomStream stream(std::size_t position, Rank worker, Step step) const {
    return {seed_, Purpose::delay, static_cast<std::uint8_t>(position), worker, step};
  }
  // `rows`: the random streams of the base or of the first delay, one per step.
  void few_durations(const RandomRows& rows, std::uint32_t first, std::span<Duration> out) const;
  void add_base(const RandomRows& rows, std::uint32_t first, std::span<double> sums_s) const;
  void add_delays(RandomRows rows, std::uint32_t first, std::span<double> sums_s) const;

  std::uint64_t seed_;
  double base_s_;
  std::shared_ptr<const DelayProcess> base_;  // null: the base is base_s_
  std::vector<double> worker_factors_;
  std::vector<std::shared_ptr<const DelayProcess>> delays_;
};

// Base times that depend on the content of a micro-batch, to model the natural variance of computation. With
// sequences of lengths l_1 ... l_B, the longest of length L, a micro-batch takes
//   base_s + per_token_s (l_1 + ... + l_B) + per_padded_token_s B L + per_squared_length_s (l_1^2 + ... + l_B^2).
// If shorter sequences are padded to the longest, the last sum is B L^2.
// Source:  Giladi et al. 2023 motivate DropCompute by sequences of different lengths. A transformer layer of width h
//          takes 24 s h^2 + 4 s^2 h operations for a sequence of s tokens.
// Units:   seconds, tokens.
struct ContentCost {
  double base_s = 0;  // each cost >= 0, at least one above 0
  double per_token_s = 0;
  double per_padded_token_s = 0;
  double per_squared_length_s = 0;
  bool pads = false;
};

// The costs with their names in files.
inline constexpr std::pair<const char*, double ContentCost::*> content_costs[] = {
    {"base_s", &ContentCost::base_s},
    {"per_token_s", &ContentCost::per_token_s},
    {"per_padded_token_s", &ContentCost::per_padded_token_s},
    {"per_squared_length_s", &ContentCost::per_squared_length_s}};

double seconds_of(const ContentCost& cost, std::span<const std::int32_t> lengths);

// Creates a base for ComputeTime. Means and variances are computed from the first epoch (or its first 200,000
// micro-batches). The infimum is a lower bound, computed from the fewest samples and the shortest length.
std::shared_ptr<const DelayProcess> content_time(const ContentCost& cost, std::shared_ptr<const BatchLengths> lengths);

// The largest delay or other duration that an experiment file may give. With this bound all means and sums stay finite
// and within the clock's 292 years.
inline constexpr double longest_delay = 1e9;  // in seconds or micro-batches; 1e9 s are 32 years

inline constexpr int most_workers = 1 << 24;  // more than any machine can simulate

// Pauses between a worker's micro-batches, for delays that are sleeps in the training program, as in the reference code
// of DropCompute. During a pause the gradient of the preceding micro-batch already exists.
// - A sleep follows the micro-batch. A deadline cuts the sleep short, and the micro-batch counts. After a step's last
//   micro-batch the worker sleeps only after the collective, outside of its step's clock.
// - Trailing work is work that a computation leaves running, such as a device's queue. The next micro-batch and the
//   next collective wait for it. It runs during the sleep, which hides it, and no deadline stops it.
// Source:  sleeps: Giladi et al. 2023, "DropCompute", reference code (deepspeed-bert). Trailing work: not in that code,
//          but needed to fit the times in its run log (results/reference/dropcompute_run.md).
// Units:   seconds outside, integer nanoseconds inside.
class Pauses {
 public:
  // Requirements: trailing_s >= 0; sleeps: none null. Sleep i draws from stream first_stream + i, which is below 255.
  Pauses(std::uint64_t seed, double trailing_s, std::vector<std::shared_ptr<const DelayProcess>> sleeps,
         std::size_t first_stream = 0);

  Duration trailing() const { return trailing_; }

  // The sleep after this micro-batch; a negative draw counts as 0. Throws RunFailure for durations missing in a trace.
  Duration sleep(Rank worker, Step step, std::uint32_t index) const;

 private:
  std::uint64_t seed_;
  Duration trailing_;
  std::vector<std::shared_ptr<const DelayProcess>> sleeps_;
  std::size_t first_stream_;
};

// The fate of a micro-batch that is running at the deadline.
// Source:  Giladi et al. 2023, Algorithm 1, and the two trainers of its reference repository (dropcompute). The paper
//          leaves `layer` to future work.
enum class Preempt {
  discard,     // it stops at the deadline and is lost (Algorithm 1 of the paper; the default)
  microbatch,  // it finishes and counts; only the next one is not started (reference code, BERT-Large)
  backward,    // it finishes if its backward pass has begun; otherwise it is lost after its forward pass (BERT-1.5B)
  layer,       // it stops at the deadline; tensors count if their gradients exist by then
};

// Preempt::layer: a micro-batch consists of its forward pass, for `forward_share` of its duration, followed by its
// backward pass. The backward pass goes through the model's tensors from the last to the first (BackwardOrder,
// workers/training/gradient.hpp), and each tensor takes time in proportion to its number of elements. This is an
// approximation. In fact convolutions take longer than dense layers with the same number of elements, embeddings take
// less time, and layers without parameters take time, too. Only measurements on the real machine could improve it.
// - A tensor counts if its part ends at the deadline or before. If all tensors count, the micro-batch is complete.
// - Otherwise the micro-batch counts as dropped, although the gradients of its last tensors are part of the sum. It is
//   not counted among kept micro-batches, samples or losses, and gives no normalisation statistics (as if
//   Preempt::backward had discarded it after its forward pass). Its time is booked as discarded.
// - Time passes as with Preempt::discard, except that work which ends exactly at the deadline counts. In time-only runs
//   no tensors count.
// - Under MPI the deadline is applied afterwards: LibTorch cannot stop a measured backward pass, so it runs to its end,
//   and its duration determines what was done by the deadline.

struct Deadline {
  Deadline(Time at = never, Preempt preempt = Preempt::discard, double forward_share = 1.0 / 3)  // NOLINT
      : at(at), preempt(preempt), forward_share(forward_share) {}
  // Stops work when a message arrives, or now if one has already arrived, but not later than `at`. Servers use it to
  // cancel late work.
  static Deadline until_message(Time at = never) {
    Deadline deadline(at);
    deadline.at_message = true;
    return deadline;
  }
  Time at;
  Preempt preempt;
  double forward_share;     // share of a micro-batch's duration, for Preempt::backward and Preempt::layer
  bool at_message = false;  // work in progress is then lost and dropped, whatever the value of `preempt`
};

// The end of a micro-batch that starts at `start` and would take `duration`, and whether it counts. Exactly at the
// deadline, the kinds differ, as in their sources: `discard` drops a micro-batch that ends then, and `layer` keeps it.
// `microbatch` still starts a micro-batch, and `backward` also starts a backward pass.
struct MicroBatchEnd {
  Time at;
  bool kept;
};
MicroBatchEnd end_of_micro_batch(Time start, Duration duration, const Deadline& deadline);
// The duration of the forward pass, for Preempt::backward and Preempt::layer.
Duration forward_pass(Duration duration, const Deadline& deadline);
// Preempt::layer: the share of the backward pass, in [0, 1], that a micro-batch of `duration` has done after working
// for `worked`. 0 for the other kinds, and for deadlines by message.
double backward_share(Duration worked, Duration duration, const Deadline& deadline);

}  // namespace syncopate
