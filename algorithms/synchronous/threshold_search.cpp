#include "algorithms/synchronous/threshold_search.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

constexpr int grid_points = 200;

// Calls visit(step, micro-batch, end) with each micro-batch's end since its step began.
template <typename Visit>
void visit_ends(const MicroBatchTimes& recorded, const Visit& visit) {
  const double* time = recorded.times.data();
  for (int n = 0; n < recorded.workers; ++n)
    for (int i = 0; i < recorded.steps; ++i) {
      throw_if_interrupted();
      double end = 0;
      for (int m = 0; m < recorded.micro_batches; ++m) visit(i, m, end += *time++);
    }
}

// One recorded step, over all workers.
struct StepProfile {
  double computing = 0;              // T: the slowest worker's end
  std::vector<std::int64_t> ending;  // [k]: micro-batches that end before threshold k
  std::vector<double> last;          // [k]: the last end before threshold k; 0: none
};

std::vector<StepProfile> profiles_of(const MicroBatchTimes& recorded, std::span<const double> thresholds) {
  const std::size_t count = thresholds.size();
  // The last element takes what ends before no threshold.
  const StepProfile empty{.ending = std::vector<std::int64_t>(count + 1), .last = std::vector<double>(count + 1)};
  std::vector<StepProfile> profiles(static_cast<std::size_t>(recorded.steps), empty);
  visit_ends(recorded, [&](int step, int, double end) {
    StepProfile& profile = profiles[static_cast<std::size_t>(step)];
    const auto first = static_cast<std::size_t>(std::ranges::upper_bound(thresholds, end) - thresholds.begin());
    ++profile.ending[first];
    profile.last[first] = std::max(profile.last[first], end);
    profile.computing = std::max(profile.computing, end);
  });
  for (StepProfile& profile : profiles)
    for (std::size_t k = 1; k < count; ++k) {
      profile.ending[k] += profile.ending[k - 1];
      profile.last[k] = std::max(profile.last[k], profile.last[k - 1]);
    }
  return profiles;
}

struct SearchedRange {
  double lowest = std::numeric_limits<double>::infinity();
  double highest = 0;
};

SearchedRange searched_range(const MicroBatchTimes& recorded) {
  const int first = recorded.micro_batches >= 6 ? 5 : (recorded.micro_batches - 1) / 2;
  SearchedRange range;
  visit_ends(recorded, [&](int, int m, double end) {
    if (m >= first) range.lowest = std::min(range.lowest, end);
    range.highest = std::max(range.highest, end);
  });
  return range;
}

// Both ends included; lowest > 0.
std::vector<double> grid_in_equal_ratios(double lowest, double highest) {
  std::vector<double> grid(grid_points, highest);
  const double step = std::log(highest / lowest) / (grid_points - 1);
  for (int k = 0; k < grid_points - 1; ++k) grid[static_cast<std::size_t>(k)] = lowest * std::exp(k * step);
  return grid;
}

}  // namespace

std::vector<ThresholdEffect> threshold_effects(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                               std::span<const double> thresholds) {
  const std::vector<StepProfile> profiles = profiles_of(recorded, thresholds);
  const double micro_batches = static_cast<double>(recorded.workers) * recorded.micro_batches;  // of a step
  const auto steps = static_cast<double>(recorded.steps);
  std::vector<ThresholdEffect> effects;
  for (std::size_t k = 0; k < thresholds.size(); ++k) {
    double kept_sum = 0, with_sum = 0, without_sum = 0, saved_sum = 0, speedup_sum = 0;
    for (const StepProfile& step : profiles) {
      const double kept = static_cast<double>(step.ending[k]) / micro_batches;
      const double without = step.computing + serial_time;
      const double computing = form == SpeedupForm::reference ? step.last[k] : std::min(thresholds[k], step.computing);
      const double with = computing + serial_time;
      kept_sum += kept;
      with_sum += with;
      without_sum += without;
      saved_sum += 1 - with / without;
      speedup_sum += kept == 0 ? 0 : kept * without / with;
    }
    const double kept = kept_sum / steps;
    if (form == SpeedupForm::throughput)
      effects.push_back({thresholds[k], 1 - kept, 1 - with_sum / without_sum, kept * without_sum / with_sum});
    else
      effects.push_back({thresholds[k], 1 - kept, saved_sum / steps, speedup_sum / steps});
  }
  return effects;
}

std::vector<double> threshold_grid(const MicroBatchTimes& recorded) {
  const auto [lowest, highest] = searched_range(recorded);
  std::vector<double> grid(grid_points, highest);
  const double step = (highest - lowest) / (grid_points - 1);
  for (int k = 0; k < grid_points - 1; ++k) grid[static_cast<std::size_t>(k)] = lowest + k * step;
  return grid;
}

ThresholdEffect search_threshold(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                 std::optional<double> maximum_drop_rate) {
  ThresholdEffect best{.threshold = std::numeric_limits<double>::infinity()};
  // Returns the place of the best in the grid; none: no threshold of the grid is better than what was found before.
  const auto search = [&](const std::vector<double>& grid) {
    std::optional<std::size_t> place;
    const std::vector<ThresholdEffect> effects = threshold_effects(recorded, serial_time, form, grid);
    for (std::size_t k = 0; k < effects.size(); ++k) {
      const bool allowed = !maximum_drop_rate || effects[k].drop_rate <= *maximum_drop_rate;
      if (!allowed || effects[k].effective_speedup <= best.effective_speedup) continue;
      best = effects[k];
      place = k;
    }
    return place;
  };
  if (form != SpeedupForm::throughput) {
    search(threshold_grid(recorded));
    return best;
  }
  const auto [lowest, highest] = searched_range(recorded);
  const std::vector<double> grid = grid_in_equal_ratios(lowest, highest);
  if (const auto place = search(grid))
    search(grid_in_equal_ratios(grid[*place == 0 ? 0 : *place - 1], grid[std::min(*place + 1, grid.size() - 1)]));
  return best;
}

}  // namespace syncopate
