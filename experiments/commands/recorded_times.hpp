// Micro-batch times that were recorded without a threshold: of a trace, or of a run that has left its durations.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "workers/theory/threshold_effects.hpp"

namespace syncopate {

struct RecordedTimes {
  std::vector<double> times;  // (N, I, M): workers, whole steps, micro-batches, in seconds
  int workers = 1;
  int steps = 1;                   // I, in which nobody lacks a micro-batch
  int micro_batches = 1;           // M, the most of a step
  int left_out = 0;                // steps in which somebody lacks one
  std::optional<double> serial_s;  // T^c, where steps.csv tells it
  std::string why_no_serial_s;     // else

  MicroBatchTimes view() const { return {times, workers, steps, micro_batches}; }
};

// `source`: a CSV file with worker, step, micro_batch, duration_s, plain or compressed, or a run's directory with its
// durations.csv.gz. T^c is what a step of steps.csv takes beyond its slowest worker's micro-batches, on average over
// the whole steps, as in DropCompute's reference code, and not below 0. Throws ConfigurationFault, which names the file
// and, for what stands in it, the line.
RecordedTimes read_recorded_times(const std::filesystem::path& source);

}  // namespace syncopate
