// The automatic threshold: all workers record their micro-batches for some steps, share what they have, and
// each finds the same tau in it by the same search.
// Source:  Giladi et al. 2023, "DropCompute", automatic selection of tau; its reference code.
// Shapes:  what is shared: (N, I, M) times of I steps.   Units: seconds.
// Cost:    I steps without a threshold, one all-gather of N (I M + 1) numbers, one search per process.
// Differs: T^c is measured from the last worker's arrival at the all-reduce to the next step's start, by the
//          clock that enforces tau; the reference code takes device times for the search and another clock for
//          tau. search = "s-eff" (Eq. 6; default) or "reference". The cap on the drop rate is not in either.
// Checks:  the threshold equals that of the search on the same delays; predicted and realised drop rates agree.
#pragma once

#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/threshold_search.hpp"

namespace syncopate {

struct AutomaticThresholdOptions {
  SpeedupForm form = SpeedupForm::effective;
  Step warmup_steps{6};        // first steps, which are not recorded
  Step calibration_steps{44};  // I; both as in the reference code
  std::optional<double> maximum_drop_rate{};
};
std::shared_ptr<const DropThreshold> make_automatic_threshold(const AutomaticThresholdOptions& options);

// Keys: search, warmup_steps, calibration_steps, maximum_drop_rate.
std::shared_ptr<const DropThreshold> read_automatic_threshold(Settings& settings, const DropThresholdContext& context);

}  // namespace syncopate
