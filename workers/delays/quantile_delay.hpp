// A delay drawn by inverse distribution function: shift + scale x quantile(u).
#pragma once

#include <memory>

#include "workers/delays/compute_time.hpp"
#include "workers/delays/quantile_table.hpp"

namespace syncopate {

class QuantileDelay final : public DelayProcess {
 public:
  QuantileDelay(std::shared_ptr<const QuantileTable> standard, double shift_s, double scale_s, double mean_s);

  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override;
  double mean_s() const override { return mean_s_; }

 private:
  std::shared_ptr<const QuantileTable> standard_;  // of the distribution before shift and scale
  double shift_s_;
  double scale_s_;
  double mean_s_;
};

}  // namespace syncopate
