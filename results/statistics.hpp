// Mean and sample standard deviation over seeds.
#pragma once

#include <cstddef>
#include <span>

namespace syncopate {

struct Statistics {
  std::size_t n = 0;
  double mean = 0;  // NaN without values
  double std = 0;   // sample standard deviation, divisor n - 1; 0 for a single value, NaN without values
};

// One pass (Welford 1962), so that nearly equal large values lose no digits.
Statistics statistics(std::span<const double> values);

}  // namespace syncopate
