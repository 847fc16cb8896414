// Distributions of durations for statistical tests of methods, added to a base time of a nanosecond or a second.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <numbers>
#include <string>

#include "workers/time/compute_time.hpp"

namespace syncopate {

class DurationLaw : public DelayProcess {
 public:
  // Returns the duration in seconds for two uniform numbers.
  using Law = std::function<double(double, double)>;
  explicit DurationLaw(Law law) : law_(std::move(law)) {}
  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
    for (std::size_t i = 0; i < added_s.size(); ++i) {
      const auto number = 2 * (first + static_cast<std::uint32_t>(i));
      added_s[i] += law_(stream.uniform(number), stream.uniform(number + 1));
    }
  }
  double mean_s() const override { return 0; }

 private:
  Law law_;
};

// A standard normal number from two uniform numbers, by the Box-Muller transform.
inline double standard_normal(double u, double v) {
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

inline std::shared_ptr<const DelayProcess> exponential_law() {
  return std::make_shared<DurationLaw>([](double u, double) { return -std::log(u); });
}
// 0.67 + an exponential number of rate 3: mean 1.
inline std::shared_ptr<const DelayProcess> shifted_exponential_law() {
  return std::make_shared<DurationLaw>([](double u, double) { return 0.67 - std::log(u) / 3; });
}
// Log-normal (0, 0.5): median 1.
inline std::shared_ptr<const DelayProcess> lognormal_law() {
  return std::make_shared<DurationLaw>([](double u, double v) { return std::exp(0.5 * standard_normal(u, v)); });
}
// 1 plus one per cent of noise.
inline std::shared_ptr<const DelayProcess> near_constant_law() {
  return std::make_shared<DurationLaw>([](double u, double v) { return 1 + 0.01 * standard_normal(u, v); });
}

}  // namespace syncopate
