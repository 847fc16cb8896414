#include "algorithms/synchronous/drop_threshold.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "algorithms/synchronous/adaptive_threshold.hpp"
#include "algorithms/synchronous/automatic_threshold.hpp"

namespace syncopate {
namespace {

class FixedThreshold final : public DropThreshold {
 public:
  explicit FixedThreshold(Duration threshold) : threshold_(threshold) {}

  std::unique_ptr<Course> begin() const override { return std::make_unique<Constant>(threshold_); }
  ThresholdTraits traits() const override { return {.goes_on = false}; }
  std::optional<ThresholdForecast> forecast(const ThresholdQuestion&) const override {
    return ThresholdForecast{.threshold_s = to_seconds(threshold_)};
  }

 private:
  class Constant final : public Course {
   public:
    explicit Constant(Duration threshold) : threshold_(threshold) {}
    Duration current() const override { return threshold_; }

   private:
    Duration threshold_;
  };

  Duration threshold_;
};

}  // namespace

// The card.
namespace {

std::shared_ptr<const DropThreshold> read_fixed(Settings& settings, const DropThresholdContext&) {
  return make_fixed_threshold(from_seconds(settings.number(
      {"threshold_s", "After what time a worker stops computing in a step (tau).", "s"}, Range::positive())));
}

constexpr std::array rules = {
    DropThresholdRow{"fixed", "the same `threshold_s` for ever", read_fixed},
    DropThresholdRow{"automatic",
                     "measured without a threshold for `calibration_steps`, then the one with the best effective "
                     "speed-up for good",
                     read_automatic_threshold},
    DropThresholdRow{"adaptive-quantile", "a quantile of the workers' step times over the last `window_steps`",
                     read_quantile_threshold},
    DropThresholdRow{"adaptive-mad",
                     "the median of the workers' step times over the last `window_steps`, plus `deviations` times "
                     "their median absolute deviation",
                     read_deviation_threshold},
};

}  // namespace

std::shared_ptr<const DropThreshold> make_fixed_threshold(Duration threshold) {
  return std::make_shared<FixedThreshold>(threshold);
}

std::span<const DropThresholdRow> drop_thresholds() { return rules; }

std::shared_ptr<const DropThreshold> read_drop_threshold(Settings& settings, const DropThresholdContext& context) {
  const bool has_table = settings.has("threshold");
  if (has_table && settings.has("threshold_s"))
    settings.fault("threshold_s", "must not stand beside a table `threshold`, which says it all");
  if (!has_table && !settings.has("threshold_s")) {
    settings.fault("threshold_s", "must be a number above 0, or a rule must be given: threshold = { rule = ... }");
    return make_fixed_threshold(longest_duration);
  }
  if (!has_table) return read_fixed(settings, context);
  Settings table =
      settings.section({"threshold", "A rule that finds the threshold; either it or threshold_s must be given."});
  const auto* const row = table.row({"rule", "Which rule."}, rules);
  return row ? row->make(table, context) : make_fixed_threshold(longest_duration);
}

void check_threshold(Settings& settings, Duration threshold, double shortest_s) {
  if (threshold >= from_seconds(shortest_s)) return;
  Settings table = settings.has("threshold") ? settings.section("threshold") : settings;
  table.fault("threshold_s", fmt::format("must be at least {:.6g} s, the shortest that a micro-batch can take: under "
                                         "{:.6g} s nobody would ever finish one",
                                         shortest_s, to_seconds(threshold)));
}

}  // namespace syncopate
