// Recorded durations: a row for each micro-batch of each step of each worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "workers/delays/delay_process.hpp"
#include "workers/delays/trace_stretch.hpp"

namespace syncopate {

class Trace {
 public:
  // What a file holds, compressed or not: comma-separated worker, step, micro_batch, duration_s, in any order, all from
  // 0; other columns are passed over. Without the column micro_batch each step has one micro-batch. Every worker and
  // every step has a row, no row stands twice, but rows may be missing. Throws FileFault, which names `file` and the
  // line.
  Trace(std::string file, std::string_view content);

  const std::string& file() const { return file_; }
  int workers() const { return workers_; }
  Step steps() const { return steps_; }
  int micro_batches() const { return micro_batches_; }  // the most that a step has

  // One after the other from `first` on, as far as rows are there, and at most `most`.
  std::span<const double> durations_s(int worker, Step step, std::uint32_t first, std::size_t most) const;

  // Over all rows, and of one worker's.
  double mean_s() const { return law_.mean_s; }
  double variance_s2() const { return law_.variance_s2; }
  double minimum_s() const;
  double minimum_s(int worker) const { return minima_s_[static_cast<std::size_t>(worker)]; }

  // Over the worker's steps that have at least so many micro-batches from 0 on; not a number if there are none.
  StepLaw step_law(int worker, int micro_batches) const;

 private:
  // Small, for there are many; a file of most_text_bytes has no more lines than `line` can count.
  struct Row {
    std::int32_t worker, step, micro_batch;
    std::uint32_t line;
    double duration_s;
  };
  std::size_t step_of(int worker, Step step) const {
    return static_cast<std::size_t>(worker * steps_.value() + step.value());
  }

  std::string file_;
  int workers_ = 0;
  Step steps_{};
  int micro_batches_ = 0;
  std::vector<std::size_t> begin_;  // of each worker's steps in the two below, and the end
  std::vector<std::uint32_t> numbers_;
  std::vector<double> durations_s_;
  StepLaw law_;
  std::vector<double> minima_s_;  // per worker
};

// What comes after a trace's last step.
enum class TraceEnd {
  error,  // a run that asks for more fails
  stop,   // the run ends there: its budget is cut; whoever asks for more fails
  wrap,   // it starts again
};

struct TraceReplay {
  double scale = 1;  // >= 0
  double shift_s = 0;
  TraceEnd end = TraceEnd::error;
  std::vector<int> rows_of{};  // [worker]: the worker of the trace that it follows; empty: that of its own number
  std::optional<TraceStretch> stretch{};  // the two above mean nothing then
};

// scale x the recorded duration + shift_s. What is not there throws RunFailure, which names worker, step and
// micro-batch and says what to do.
std::shared_ptr<const DelayProcess> trace_delay(std::shared_ptr<const Trace> trace, TraceReplay replay);

}  // namespace syncopate
