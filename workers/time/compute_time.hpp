// How long a micro-batch takes:  base time x persistent factor of the worker + added delays. The base time
// is one number, or a trace's, micro-batch by micro-batch.
// Units: seconds outside, integer nanoseconds inside. A micro-batch without a declared time is an
// error when the model is built, never a zero.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "workers/delays/delay_process.hpp"
#include "workers/random/random.hpp"
#include "workers/training/objective.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

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

}  // namespace syncopate
