// The automatic threshold: all workers record their micro-batches for some steps, share what they have, and each finds
// the same tau in it by the same search.
// Source:  Giladi et al. 2023, "DropCompute", automatic selection of tau; its reference code.
// Shapes:  what is shared: (N, I, M) times of I steps.   Units: seconds.
// Cost:    I steps without a threshold, one all-gather of N (I M + 1) numbers, one search per process.
// Differs: the search sees the clock that enforces tau, which runs from the step's start, so that what it predicts
//          comes true; T^c is what a step takes besides. The reference code takes the times of a timer around each
//          micro-batch for the search and the step's clock for tau: calibration_clock = "micro-batch". The threshold
//          holds from the step after the last one that was measured, by default from step index 50 on. The reference
//          code measures the same steps, 6 to 49, searches during step 50 and drops from step 51 on. search =
//          "throughput" (default), "s-eff" (Eq. 6) or "reference": see threshold_search.hpp. The cap on the drop rate
//          is in neither paper nor code.
// Checks:  the threshold equals that of the search on the same delays; predicted and realised drop rates agree.
#pragma once

#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/threshold_search.hpp"

namespace syncopate {

struct AutomaticThresholdOptions {
  // What the search takes for the micro-batches' times.
  enum class Clock {
    step,         // their ends by the clock that enforces tau; all that a step holds counts
    micro_batch,  // each one's by a timer of its own: not what lies between or runs on behind them
  };
  SpeedupForm form = SpeedupForm::throughput;
  Step warmup_steps{6};        // first steps, which are not recorded
  Step calibration_steps{44};  // I; both as in the reference code
  std::optional<double> maximum_drop_rate{};
  Clock clock = Clock::step;
};
std::shared_ptr<const DropThreshold> make_automatic_threshold(const AutomaticThresholdOptions& options);

// Keys: search, warmup_steps, calibration_steps, maximum_drop_rate, calibration_clock.
std::shared_ptr<const DropThreshold> read_automatic_threshold(Settings& settings, const DropThresholdContext& context);

}  // namespace syncopate
