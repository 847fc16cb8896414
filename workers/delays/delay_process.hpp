// One source of added delay. Processes compose by addition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "workers/random/random_rows.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

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

}  // namespace syncopate
