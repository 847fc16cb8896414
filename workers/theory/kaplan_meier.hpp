// Quantiles of times of which some were cut off.
// Source:  Kaplan and Meier 1958, "Nonparametric Estimation from Incomplete Observations".
#pragma once

#include <vector>

namespace syncopate {

struct CensoredTime {
  double seconds = 0;
  bool at_least = false;  // it was cut off then, and is only known to be longer
};

// The first time that no more than 1 - quantile exceed; times are at least one. The share that takes longer than t is
// the product, over all times up to t that are known exactly, of 1 - 1 / (how many took at least as long). Where too
// many were cut off to tell, it lies above the longest by the share that is in excess.
double kaplan_meier_quantile(std::vector<CensoredTime> times, double quantile);

}  // namespace syncopate
