#include "workers/training/model_state.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "workers/training/course_log.hpp"

namespace syncopate {

CellPtr filled_cell(std::span<const float> values) {
  auto cell = new_cell();
  cell->value = FlatVector(values.size());
  std::copy(values.begin(), values.end(), cell->value.data());
  return cell;
}

std::uint64_t new_state_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

MomentAges ages_of(const ModelState& state) { return {state.moments[0].age, state.moments[1].age}; }

MomentAges age_of_mean(std::span<const MomentAges> ages, std::span<const double> weights,
                       std::span<const double> decays) {
  MomentAges mean = ages.front();
  const auto count = static_cast<double>(ages.size());
  const double total = weights.empty() ? count : std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t moment = 0; moment < decays.size(); ++moment) {
    if (std::ranges::all_of(ages, [&](const MomentAges& each) { return each[moment] == mean[moment]; })) continue;
    double left = 0;
    for (std::size_t i = 0; i < ages.size(); ++i) {
      const MomentAge& age = ages[i][moment];
      const double share = (weights.empty() ? 1 : weights[i]) / total;
      left += share * age.left * std::pow(decays[moment], static_cast<double>(age.steps.value()));
    }
    mean[moment] = {.steps = {}, .left = left};
  }
  return mean;
}

}  // namespace syncopate
