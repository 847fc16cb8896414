// How long a micro-batch takes:  base time x persistent factor of the worker + added delays. The base time
// is one number, or a trace's, micro-batch by micro-batch.
// Units: seconds outside, integer nanoseconds inside. A micro-batch without a declared time is an
// error when the model is built, never a zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "workers/base/random.hpp"
#include "workers/base/units.hpp"
#include "workers/data/sampler.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// One source of added delay. Processes compose by addition.
// What a worker's step comes to, from step to step. Either may be infinite.
struct StepLaw {
  double mean_s = 0;
  double variance_s2 = 0;
};

class DelayProcess {
 public:
  virtual ~DelayProcess() = default;

  // added_s[i] += the delay of micro-batch first + i, in seconds; `stream` addresses the worker and
  // step and belongs to this process alone. Called from one thread; const and stateless, so that a
  // delay is the same whoever asks, and in any order. Throws RunFailure for what a trace does not have.
  virtual void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const = 0;
  // The same for as many micro-batches of each row; added_s holds row after row.
  virtual void add_rows(const RandomRows& rows, std::uint32_t first, std::span<double> added_s) const;

  // Mean, variance and infimum of one delay in seconds, for predictions, checks and tests. The mean may be
  // +infinity, as the variance, and the infimum -infinity. Where a process does not say, nothing is known.
  virtual double mean_s() const = 0;
  virtual double variance_s2() const { return std::numeric_limits<double>::quiet_NaN(); }
  virtual double minimum_s() const { return -std::numeric_limits<double>::infinity(); }

  // The law of the sum over the micro-batches of one of this worker's steps, over the steps of a long run
  // with this seed: what is drawn once for the run is part of the mean. The stream's step means nothing.
  virtual StepLaw step_law(const RandomStream& stream, int micro_batches) const {
    static_cast<void>(stream);
    return {micro_batches * mean_s(), micro_batches * variance_s2()};
  }

  // The infimum over this worker's micro-batches.
  virtual double shortest_s(Rank worker) const {
    static_cast<void>(worker);
    return minimum_s();
  }

  // How many delays from `first` on are there to be asked for, at least 1 and at most `most`.
  virtual std::size_t known_ahead(const RandomStream& stream, std::uint32_t first, std::size_t most) const {
    static_cast<void>(stream), static_cast<void>(first);
    return most;
  }
  // Whether what it gives depends on the samples that are computed: it is then asked for these, which may be another
  // worker's or another step's than those whose turn it is.
  virtual bool follows_samples() const { return false; }
  // Whether the recording can end; nothing may then be drawn ahead.
  virtual bool can_run_out() const { return false; }
};

inline void DelayProcess::add_rows(const RandomRows& rows, std::uint32_t first, std::span<double> added_s) const {
  const std::size_t length = added_s.size() / rows.count;
  for (std::size_t row = 0; row < rows.count; ++row) add(rows[row], first, added_s.subspan(row * length, length));
}

// No less than longest_duration where one of them is infinite.
Duration sum_of(std::span<const Duration> durations);

class ComputeTime {
 public:
  // base_s > 0; worker_factors: empty (all 1) or one factor per worker, each > 0; delays: none null,
  // at most 255, number i of the list draws from stream i. Throws std::invalid_argument otherwise.
  ComputeTime(std::uint64_t seed, double base_s, std::vector<double> worker_factors,
              std::vector<std::shared_ptr<const DelayProcess>> delays);
  // The same with base times that a process gives, such as those of a trace; it is not null.
  ComputeTime(std::uint64_t seed, std::shared_ptr<const DelayProcess> base, std::vector<double> worker_factors,
              std::vector<std::shared_ptr<const DelayProcess>> delays);

  // out[i] = duration of micro-batch first + i of this worker's step, rounded to the nearest
  // nanosecond; infinity becomes longest_duration. A negative sum (a normal delay may be negative) is
  // raised to 1 ns: a micro-batch always takes time.
  // Throws RunFailure for what a trace does not have.
  void durations(Rank worker, Step step, std::uint32_t first, std::span<Duration> out) const;

  // The same for as many micro-batches of each of several steps, row after row, which is much cheaper: equal steps
  // of `count` consecutive workers, or consecutive steps of one worker.
  struct Steps {
    Rank worker{};
    Step step{};
    RandomRows::Along along = RandomRows::Along::workers;
    std::size_t count = 1;
  };
  void durations(const Steps& steps, std::uint32_t first, std::span<Duration> out) const;

  // How many micro-batches from `first` on can be asked for together without asking for more than a trace
  // has; at least 1, at most `most`. For those who ask ahead of what they need.
  std::size_t known_ahead(Rank worker, Step step, std::uint32_t first, std::size_t most) const;

  // Whether there are ends to what can be asked for.
  bool can_run_out() const;

  // Whether the base goes by what is in a micro-batch. The durations above are those of micro-batches that have their
  // own samples; `duration` is that of others': the base of these, and the worker, its factor and the delays of `slot`.
  bool follows_samples() const { return base_ && base_->follows_samples(); }
  Duration duration(const MicroBatch& slot, const MicroBatch& samples) const;

  // The declared part, base x factor, and the added part of one micro-batch, for clusters that
  // compute for real and only inject what is added (a negative delay cannot be injected: 0). Where the base is a
  // process, its mean stands for it.
  Duration base(Rank worker) const;
  double factor(Rank worker) const {
    return worker_factors_.empty() ? 1.0 : worker_factors_.at(static_cast<std::size_t>(worker.value));
  }
  Duration added(Rank worker, Step step, std::uint32_t index) const;

  // No micro-batch of this worker is shorter, in seconds: the infimum of its duration.
  double shortest(Rank worker) const;

  // Mean and variance, from step to step, of the sum over a step's micro-batches (see DelayProcess::step_law).
  StepLaw step_law(Rank worker, int micro_batches) const;

  std::uint64_t seed() const { return seed_; }

  // Whether the expected duration of a micro-batch exists: without it, neither does that of the slowest of many.
  bool has_finite_mean() const;

 private:
  void check() const;
  double declared(Rank worker) const;  // seconds without added delays; 0 where the base is a process
  RandomStream stream(std::size_t position, Rank worker, Step step) const {
    return {seed_, Purpose::delay, static_cast<std::uint8_t>(position), worker, step};
  }
  RandomRows rows(std::size_t position, const Steps& steps) const {
    return {stream(position, steps.worker, steps.step), steps.along, steps.count};
  }
  void few_durations(const Steps& steps, std::uint32_t first, std::span<Duration> out) const;
  void add_base(const Steps& steps, std::uint32_t first, std::span<double> sums_s) const;
  void add_delays(const Steps& steps, std::uint32_t first, std::span<double> sums_s) const;

  std::uint64_t seed_;
  double base_s_;
  std::shared_ptr<const DelayProcess> base_;  // null: base_s_
  std::vector<double> worker_factors_;
  std::vector<std::shared_ptr<const DelayProcess>> delays_;
};

// Base times that follow what is in a micro-batch: the natural variance of computation.
// Source:  Giladi et al. 2023 motivate DropCompute by sequences of unequal lengths; a transformer's layer costs
//          24 s h^2 + 4 s^2 h operations for a sequence of s tokens at width h.
// Units:   seconds, tokens.
// What a micro-batch of sequences of lengths l_1 ... l_B takes, L being the longest:
//   base_s + per_token_s (l_1 + ... + l_B) + per_padded_token_s B L + per_squared_length_s (l_1^2 + ... + l_B^2)
// Where shorter sequences are padded to the longest, squares are those of L: B L^2.
struct ContentCost {
  double base_s = 0;  // each >= 0, and one of them above
  double per_token_s = 0;
  double per_padded_token_s = 0;
  double per_squared_length_s = 0;
  bool pads = false;
};

double seconds_of(const ContentCost& cost, std::span<const std::int32_t> lengths);

// As the base of a ComputeTime. Means and variances are those of the micro-batches, and of the steps, of the first
// epoch (of the first 200,000 micro-batches of a longer one): sums over what is really there, without a formula. The
// shortest is a bound: as few samples as there may be, all as short as the shortest.
std::shared_ptr<const DelayProcess> content_time(const ContentCost& cost, std::shared_ptr<const BatchLengths> lengths);

// What the keys of a delay, and all other durations of an experiment, may be: finite, so that every mean and every sum
// of delays is finite, and so short that the clock, which ends after 292 years, goes on.
inline constexpr double longest_delay = 1e9;  // in seconds or micro-batches; 1e9 s are 32 years

inline constexpr int most_workers = 1 << 24;  // beyond what one machine simulates

// The unit of what the key `unit` says: seconds, or times of a micro-batch without delay.
inline constexpr const char* of_unit = "its `unit`";

// What lies between a worker's micro-batches where delays are sleeps of its program, as those that the reference code
// of DropCompute injects: the time after a micro-batch, in which its gradient is there already.
// - A sleep follows the micro-batch. A deadline cuts it: what has been computed counts. After a step's last
//   micro-batch the worker sleeps once the collective is over, so that its step's clock does not see it.
// - Trailing work is what the computation leaves running, such as what a device has queued: the next micro-batch and
//   a collective wait for it. It goes on during the sleep, which hides it, and no deadline stops it.
// Source:  Giladi et al. 2023, "DropCompute", reference code (deepspeed-bert), for the sleeps; the trailing work is
//          what its run log needs (results/reference/dropcompute_run.md).
// Units:   seconds outside, integer nanoseconds inside.
class Pauses {
 public:
  // trailing_s >= 0 and finite; sleeps: none null; number i of them draws from stream first_stream + i, at most 255.
  // Throws std::invalid_argument otherwise.
  Pauses(std::uint64_t seed, double trailing_s, std::vector<std::shared_ptr<const DelayProcess>> sleeps,
         std::size_t first_stream = 0);

  Duration trailing() const { return trailing_; }

  // The sleep after this micro-batch; a negative draw is none. Throws RunFailure for what a trace does not have.
  Duration sleep(Rank worker, Step step, std::uint32_t index) const;

 private:
  std::uint64_t seed_;
  Duration trailing_;
  std::vector<std::shared_ptr<const DelayProcess>> sleeps_;
  std::size_t first_stream_;
};

// When computing stops: deadlines, and what becomes of the micro-batch that one meets.
// What becomes of a micro-batch that is running when the deadline passes.
// Source: Giladi et al. 2023, Algorithm 1, and the two trainers of its reference repository (dropcompute); `layer` is
// what the paper leaves to future work.
enum class Preempt {
  discard,     // stops at the deadline and is lost (Algorithm 1 of the paper; the default)
  microbatch,  // finishes and counts; only the next one is not started (reference code, BERT-Large)
  backward,    // finishes if its backward pass has begun, else is lost after its forward pass (BERT-1.5B)
  layer,       // stops at the deadline: the tensors count whose gradients exist by then
};

// Preempt::layer. A micro-batch is its forward pass, for `forward_share` of its duration, and then its backward pass,
// which goes through the model's tensors from the last to the first (BackwardOrder, workers/training/gradient.hpp),
// each for a part of the time by its number of elements. That is an approximation, since only a run on the machine in
// question could tell: convolutions take longer than dense layers of as many elements, and embeddings less; and how
// long layers without parameters take is not looked at.
// - A tensor counts if its part ends at the deadline or before it. All have ended: the micro-batch is a whole one.
// - Else it is one that has been dropped, though the gradients of its last tensors are part of the sum. It stands in no
//   count of kept micro-batches, samples or losses, gives no normalisation statistics (as one that Preempt::backward
//   throws away after its forward pass), and its time is booked as discarded.
// - Time passes as with Preempt::discard, but for what ends exactly at the deadline. Without a model nothing is left of
//   it.
// - Under MPI it is the time that counts too: a measured backward pass, which LibTorch does not stop, runs to its end,
//   and what was done by the deadline follows from its duration.

struct Deadline {
  Deadline(Time at = never, Preempt preempt = Preempt::discard, double forward_share = 1.0 / 3)  // NOLINT
      : at(at), preempt(preempt), forward_share(forward_share) {}
  // The arrival of a message, at once if one is there already: how a server cancels late work.
  static Deadline until_message() {
    Deadline deadline;
    deadline.at_message = true;
    return deadline;
  }
  // That, or this time, whichever is first.
  static Deadline until_message_or(Time at) {
    Deadline deadline(at);
    deadline.at_message = true;
    return deadline;
  }
  Time at;
  Preempt preempt;
  double forward_share;     // of a micro-batch's duration, for Preempt::backward and Preempt::layer
  bool at_message = false;  // what is in flight is lost then, whatever `preempt` says, and has been dropped
};

// When a micro-batch that starts at `start` and would take `duration` ends, and whether it counts.
// Strictness as in the sources: discard keeps what ends before the deadline; the code's checks stop
// what is past it, and layer does what they do.
struct MicroBatchEnd {
  Time at;
  bool kept;
};
MicroBatchEnd end_of_micro_batch(Time start, Duration duration, const Deadline& deadline);
// The part of a micro-batch's duration that is its forward pass, for Preempt::backward and Preempt::layer.
Duration forward_pass(Duration duration, const Deadline& deadline);
// Preempt::layer: the share of its backward pass that a micro-batch of `duration` has behind it after so much work, in
// [0, 1]. Of the other kinds, and until a message: 0.
double backward_share(Duration worked, Duration duration, const Deadline& deadline);

}  // namespace syncopate
