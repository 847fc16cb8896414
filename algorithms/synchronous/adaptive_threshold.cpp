#include "algorithms/synchronous/adaptive_threshold.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace syncopate {
namespace {

// How many updates of u steps fill the window.
std::int64_t updates_in_window(const AdaptiveThresholdOptions& options) {
  const std::int64_t u = options.update_every_steps.value();
  return (options.window_steps.value() + u - 1) / u;
}

// The last updates, oldest first, and the threshold they give. Each window shares its updates with the one before.
struct Window {
  std::vector<std::shared_ptr<const std::vector<double>>> updates;
  Duration threshold = longest_duration;
};

Window moved_on(const Window& before, std::span<const double> update, const AdaptiveThresholdOptions& options) {
  const auto full = static_cast<std::size_t>(updates_in_window(options));
  Window window{.updates = before.updates};
  window.updates.push_back(std::make_shared<const std::vector<double>>(update.begin(), update.end()));
  if (window.updates.size() > full) window.updates.erase(window.updates.begin());
  if (window.updates.size() < full) return window;
  std::vector<StepTime> times;
  times.reserve(full * update.size());
  for (const auto& part : window.updates)
    for (const double number : *part) times.push_back({.seconds = std::abs(number), .at_least = number < 0});
  // One nanosecond later: who takes just as long is in time.
  window.threshold = from_seconds(adaptive_threshold(std::move(times), options)) + Duration{1};
  return window;
}

class AdaptiveThreshold final : public DropThreshold {
 public:
  explicit AdaptiveThreshold(const AdaptiveThresholdOptions& options) : options_(options) {}

  std::unique_ptr<Course> begin() const override { return std::make_unique<SlidingWindow>(*this); }
  ThresholdTraits traits() const override;

 private:
  class SlidingWindow final : public Course {
   public:
    explicit SlidingWindow(const AdaptiveThreshold& rule) : rule_(rule), window_(std::make_shared<const Window>()) {}

    Duration current() const override { return window_->threshold; }

    void learn(Worker& worker, const TimedStep& step) override {
      const StepTime time = time_of(step);
      own_.push_back(time.at_least ? -time.seconds : time.seconds);
      if (std::ssize(own_) < rule_.options_.update_every_steps.value()) return;
      window_ = worker.all_gather(
          own_, [&](std::span<const double> update) { return moved_on(*window_, update, rule_.options_); });
      own_.clear();
    }

   private:
    const AdaptiveThreshold& rule_;
    std::vector<double> own_;               // times since the last update, below 0: at least so long
    std::shared_ptr<const Window> window_;  // one for all workers of the process
  };

  AdaptiveThresholdOptions options_;
};

}  // namespace

double adaptive_threshold(std::vector<StepTime> times, const AdaptiveThresholdOptions& options) {
  if (options.statistic == AdaptiveThresholdOptions::Statistic::quantile)
    return kaplan_meier_quantile(std::move(times), options.quantile);
  const double median = kaplan_meier_quantile(times, 0.5);
  for (StepTime& time : times) {
    const double deviation = time.seconds - median;
    time.seconds = time.at_least ? std::max(deviation, 0.0) : std::abs(deviation);
  }
  return median + options.deviations * kaplan_meier_quantile(std::move(times), 0.5);
}

StepTime time_of(const TimedStep& step) {
  const auto offered = static_cast<std::size_t>(step.offered);
  if (step.ends.size() < offered) return {.seconds = to_seconds(step.arrival - step.start), .at_least = true};
  return {.seconds = to_seconds(step.ends[offered - 1] - step.start)};
}

std::shared_ptr<const DropThreshold> make_adaptive_threshold(const AdaptiveThresholdOptions& options) {
  return std::make_shared<AdaptiveThreshold>(options);
}

// The card.
namespace {

ThresholdTraits AdaptiveThreshold::traits() const {
  return {.begins_after = updates_in_window(options_) * options_.update_every_steps.value()};
}

std::shared_ptr<const DropThreshold> read_window(Settings& settings, AdaptiveThresholdOptions options) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::size_t faults = settings.faults_so_far();
  options.window_steps = settings.integer({"window_steps", "Over how many steps times are looked at.", "steps"}, 1,
                                          most, options.window_steps.value());
  options.update_every_steps =
      settings.integer({"update_every_steps", "After how many steps the threshold is set anew.", "steps"}, 1, most,
                       options.update_every_steps.value());
  if (settings.faults_so_far() == faults && options.update_every_steps > options.window_steps)
    settings.fault("update_every_steps", "must be at most window_steps");
  return make_adaptive_threshold(options);
}

}  // namespace

std::shared_ptr<const DropThreshold> read_quantile_threshold(Settings& settings, const DropThresholdContext&) {
  AdaptiveThresholdOptions options{.statistic = AdaptiveThresholdOptions::Statistic::quantile};
  constexpr Range inside{.low = 0, .high = 1, .low_open = true, .high_open = true};
  options.quantile =
      settings.number({"quantile", "Which quantile of the step times the threshold is."}, inside, options.quantile);
  return read_window(settings, options);
}

std::shared_ptr<const DropThreshold> read_deviation_threshold(Settings& settings, const DropThresholdContext&) {
  AdaptiveThresholdOptions options{.statistic = AdaptiveThresholdOptions::Statistic::median_and_deviations};
  options.deviations = settings.number({"deviations", "How many deviations above the median the threshold is."},
                                       {.low = 0, .high_open = true}, options.deviations);
  return read_window(settings, options);
}

}  // namespace syncopate
