#include "experiments/commands/thresholds.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>

#include "algorithms/synchronous/threshold_search.hpp"

namespace syncopate {
namespace {

// E[T] and E[T_n].
std::pair<double, double> mean_times(const MicroBatchTimes& recorded) {
  std::vector<double> slowest(static_cast<std::size_t>(recorded.steps), 0.0);
  double of_workers = 0, of_steps = 0;
  visit_ends(recorded, [&](int step, int micro_batch, double end) {
    double& until = slowest[static_cast<std::size_t>(step)];
    until = std::max(until, end);
    if (micro_batch + 1 == recorded.micro_batches) of_workers += end;
  });
  for (const double end : slowest) of_steps += end;
  return {of_steps / recorded.steps, of_workers / recorded.steps / recorded.workers};
}

}  // namespace

ThresholdReport report_thresholds(const ThresholdsOptions& options) {
  ThresholdReport report;
  report.source = options.source;
  report.recorded = read_recorded_times(options.source);
  const MicroBatchTimes recorded = report.recorded.view();
  report.serial_s = options.serial_s.value_or(report.recorded.serial_s.value_or(0));
  std::tie(report.step_s, report.worker_s) = mean_times(recorded);
  const auto [shortest, longest] = std::ranges::minmax(report.recorded.times);
  constexpr double rounding = 1e-9;
  report.is_equal = longest - shortest <= rounding * longest;
  const std::vector<double> grid = threshold_grid(recorded);
  constexpr std::tuple<SpeedupForm, const char*, const char*> ways[] = {
      {SpeedupForm::throughput, "throughput", "micro-batches per time over all steps"},
      {SpeedupForm::effective, "s-eff", "Eq. 6"},
      {SpeedupForm::reference, "reference", "the reference code"},
  };
  for (const auto& [form, name, sentence] : ways)
    report.ways.push_back({.name = name,
                           .sentence = sentence,
                           .effects = threshold_effects(recorded, report.serial_s, form, grid),
                           .best = search_threshold(recorded, report.serial_s, form, options.maximum_drop_rate)});
  report.droppers = largest_droppers(recorded, grid);
  for (ThresholdReport::Way& way : report.ways)
    way.dropper_of_best = largest_droppers(recorded, std::span(&way.best.threshold, 1)).front();
  report.recorded.times = {};
  return report;
}

}  // namespace syncopate
