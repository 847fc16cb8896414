#include "algorithms/synchronous/threshold_search.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace syncopate {
namespace {

constexpr int grid_points = 200;

// Of positive ends: what takes no time is kept under any threshold. Both 0 where nothing takes any.
struct SearchedRange {
  double lowest = std::numeric_limits<double>::infinity();
  double highest = 0;
};

SearchedRange searched_range(const MicroBatchTimes& recorded) {
  const int first = recorded.micro_batches >= 6 ? 5 : (recorded.micro_batches - 1) / 2;
  SearchedRange range;
  visit_ends(recorded, [&](int, int m, double end) {
    if (m >= first && end > 0) range.lowest = std::min(range.lowest, end);
    range.highest = std::max(range.highest, end);
  });
  range.lowest = std::min(range.lowest, range.highest);
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
      if (!allowed || !(effects[k].effective_speedup > best.effective_speedup)) continue;
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
  if (highest == 0) return best;
  const std::vector<double> grid = grid_in_equal_ratios(lowest, highest);
  if (const auto place = search(grid))
    search(grid_in_equal_ratios(grid[*place == 0 ? 0 : *place - 1], grid[std::min(*place + 1, grid.size() - 1)]));
  return best;
}

}  // namespace syncopate
