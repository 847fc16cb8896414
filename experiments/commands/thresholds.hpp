// `syncopate thresholds`: what DropCompute's thresholds would have done to a recorded run.
// Source:  Giladi et al. 2023, Eq. 6 and Figure 3c; the reference code's search.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/commands/recorded_times.hpp"

namespace syncopate {

struct ThresholdsOptions {
  std::string source;                         // see read_recorded_times
  std::optional<double> serial_s{};           // T^c; none: the recorded one, or 0
  std::optional<double> maximum_drop_rate{};  // of the best ones
  std::string json;                           // files to write, if not empty
  std::string csv;
};

// The reference code's grid of thresholds, judged in each of the three ways.
struct ThresholdReport {
  std::string source;
  RecordedTimes recorded;  // without its times
  double serial_s = 0;     // T^c
  double step_s = 0;       // E[T]: the slowest worker's, without T^c
  double worker_s = 0;     // E[T_n]: of a worker
  bool is_equal = false;   // all micro-batches take equally long
  struct Way {
    const char* name;  // as the key `search` of the automatic threshold has it
    const char* sentence;
    std::vector<ThresholdEffect> effects;  // by threshold
    ThresholdEffect best;                  // of the search; an infinite threshold: none gains anything
    LargestDropper dropper_of_best{};
  };
  std::vector<Way> ways;                 // throughput, s-eff, reference
  std::vector<LargestDropper> droppers;  // by threshold
};

// Throws ConfigurationFault where the source cannot be read, and Interrupted.
ThresholdReport report_thresholds(const ThresholdsOptions& options);

std::string threshold_table(const ThresholdReport& report);
std::string thresholds_json(const ThresholdReport& report);
// threshold_s,drop_rate,step_speedup,effective_speedup_throughput,effective_speedup_s_eff,effective_speedup_reference,
// largest_worker_share
std::string thresholds_csv(const ThresholdReport& report);

}  // namespace syncopate
