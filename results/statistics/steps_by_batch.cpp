#include "results/statistics/steps_by_batch.hpp"

#include <algorithm>
#include <cstddef>

namespace syncopate {

std::optional<StepsByBatch> steps_by_batch(std::span<const MeasuredNoise> measured, Step steps, double batch) {
  if (measured.empty() || measured.front().step >= steps) return {};
  StepsByBatch result;
  for (std::size_t i = 0; i < measured.size() && measured[i].step < steps; ++i) {
    const Step begin = i == 0 ? Step{0} : measured[i].step;  // what is measured first holds also before
    const Step end = i + 1 < measured.size() ? std::min(measured[i + 1].step, steps) : steps;
    const auto count = static_cast<double>((end - begin).value());
    const double noise = measured[i].scale;
    const double whole = count / (1 + noise / batch);
    result.least += whole;
    result.times_batch += whole * noise;
    result.mean_noise_scale += count * noise / static_cast<double>(steps.value());
  }
  return result;
}

}  // namespace syncopate
