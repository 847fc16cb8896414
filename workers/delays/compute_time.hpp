// How long a micro-batch takes:  base time x persistent factor of the worker + added delays.
// Units: seconds outside, integer nanoseconds inside. A micro-batch without a declared time is an
// error when the model is built, never a zero.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "workers/random.hpp"
#include "workers/units.hpp"

namespace syncopate {

// One source of added delay. Processes compose by addition.
class DelayProcess {
 public:
  virtual ~DelayProcess() = default;

  // added_s[i] += the delay of micro-batch first + i, in seconds; `stream` addresses the worker and
  // step and belongs to this process alone. Called from one thread; const and stateless, so that a
  // delay is the same whoever asks, and in any order.
  virtual void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const = 0;

  // E[delay] of one micro-batch in seconds, for predictions and tests.
  virtual double mean_s() const = 0;
};

class ComputeTime {
 public:
  // base_s > 0; worker_factors: empty (all 1) or one factor per worker, each > 0; delays: none null,
  // at most 255, number i of the list draws from stream i. Throws std::invalid_argument otherwise.
  ComputeTime(std::uint64_t seed, double base_s, std::vector<double> worker_factors,
              std::vector<std::shared_ptr<const DelayProcess>> delays);

  // out[i] = duration of micro-batch first + i of this worker's step, rounded to the nearest
  // nanosecond; infinity becomes longest_duration. A negative sum (a normal delay may be negative) is
  // raised to 1 ns: a micro-batch always takes time.
  void durations(Rank worker, Step step, std::uint32_t first, std::span<Duration> out) const;

  // The declared part, base x factor, and the added part of one micro-batch, for clusters that
  // compute for real and only inject what is added (a negative delay cannot be injected: 0).
  Duration base(Rank worker) const;
  double factor(Rank worker) const {
    return worker_factors_.empty() ? 1.0 : worker_factors_.at(static_cast<std::size_t>(worker.value));
  }
  Duration added(Rank worker, Step step, std::uint32_t index) const;

  std::uint64_t seed() const { return seed_; }

  // Whether the expected duration of a micro-batch exists: without it, neither does that of the slowest of many.
  bool has_finite_mean() const;

 private:
  double declared(Rank worker) const;  // seconds without added delays
  void add_delays(Rank worker, Step step, std::uint32_t first, std::span<double> sums_s) const;

  std::uint64_t seed_;
  double base_s_;
  std::vector<double> worker_factors_;
  std::vector<std::shared_ptr<const DelayProcess>> delays_;
};

}  // namespace syncopate
