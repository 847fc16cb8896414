#include "algorithms/synchronous/automatic_threshold.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

namespace syncopate {
namespace {

// `gathered`: per worker its I x M times, then the mean duration of its steps.
ThresholdEffect search_in(std::span<const double> gathered, int workers, const AutomaticThresholdOptions& options) {
  const std::size_t count = gathered.size() / static_cast<std::size_t>(workers);
  const auto steps = static_cast<std::size_t>(options.calibration_steps.value());
  const std::size_t micro_batches = (count - 1) / steps;
  std::vector<double> times;
  std::vector<double> slowest(steps);  // T of each step
  times.reserve(gathered.size());
  double duration = 0;
  for (auto own = gathered.begin(); own != gathered.end(); own += static_cast<std::ptrdiff_t>(count)) {
    for (std::size_t i = 0; i < steps; ++i) {
      double computing = 0;
      for (std::size_t m = 0; m < micro_batches; ++m) {
        times.push_back(own[static_cast<std::ptrdiff_t>(i * micro_batches + m)]);
        computing += times.back();
      }
      slowest[i] = std::max(slowest[i], computing);
    }
    duration += own[static_cast<std::ptrdiff_t>(count - 1)] / workers;
  }
  double computing = 0;
  for (const double step : slowest) computing += step / static_cast<double>(steps);
  const MicroBatchTimes recorded{times, workers, static_cast<int>(steps), static_cast<int>(micro_batches)};
  return search_threshold(recorded, std::max(duration - computing, 0.0), options.form, options.maximum_drop_rate);
}

class AutomaticThreshold final : public DropThreshold {
 public:
  explicit AutomaticThreshold(const AutomaticThresholdOptions& options) : options_(options) {}

  std::unique_ptr<Course> begin() const override { return std::make_unique<Calibration>(*this); }
  ThresholdTraits traits() const override;
  std::optional<ThresholdForecast> forecast(const ThresholdQuestion& question) const override;

 private:
  class Calibration final : public Course {
   public:
    explicit Calibration(const AutomaticThreshold& rule) : rule_(rule) {}

    Duration current() const override { return found_ ? from_seconds(found_->threshold) : longest_duration; }
    double drop_rate() const override { return found_ ? found_->drop_rate : 0; }

    bool times_micro_batches() const override {
      return !found_ && rule_.options_.clock == AutomaticThresholdOptions::Clock::micro_batch;
    }

    void learn(Worker& worker, const TimedStep& step) override {
      if (found_ || ++steps_ <= rule_.options_.warmup_steps) return;
      Time before = step.start;
      for (std::size_t m = 0; m < step.ends.size(); ++m) {
        const Duration by_step = step.ends[m] - std::exchange(before, step.ends[m]);
        times_.push_back(to_seconds(times_micro_batches() ? step.times[m] : by_step));
      }
      // What a longer step has besides counts as one of no time, which is kept where this step's last is.
      for (auto m = std::ssize(step.ends); m < step.offered_at_most; ++m) times_.push_back(0);
      // To the start of the next step, so that what is neither computing nor waiting is T^c.
      duration_ += worker.now() - step.start;
      const Step recorded = steps_ - rule_.options_.warmup_steps;
      if (recorded < rule_.options_.calibration_steps) return;
      times_.push_back(to_seconds(duration_) / static_cast<double>(recorded.value()));
      found_ = worker.all_gather(
          times_, [&](std::span<const double> gathered) { return search_in(gathered, worker.size(), rule_.options_); });
      times_ = {};
    }

   private:
    const AutomaticThreshold& rule_;
    Step steps_{};               // seen so far
    std::vector<double> times_;  // own, [step][micro-batch]
    Duration duration_{};
    std::shared_ptr<const ThresholdEffect> found_;
  };

  AutomaticThresholdOptions options_;
};

// The card.
ThresholdTraits AutomaticThreshold::traits() const {
  return {.begins_after = options_.warmup_steps + options_.calibration_steps,
          .goes_on = false,
          .searched_steps = options_.calibration_steps};
}

// What the search finds in drawn steps, or, by Eqs. 5 and 6, in the law.
std::optional<ThresholdForecast> AutomaticThreshold::forecast(const ThresholdQuestion& q) const {
  const double most = options_.maximum_drop_rate.value_or(1);
  const double threshold_s =
      q.drawn ? search_threshold(*q.drawn, q.serial_s, options_.form, options_.maximum_drop_rate).threshold
              : best_threshold(q.micro_batches, q.law, q.slowest_s, q.serial_s, most, q.shortest_s).threshold;
  return ThresholdForecast{threshold_s, traits().begins_after};
}

}  // namespace

std::shared_ptr<const DropThreshold> make_automatic_threshold(const AutomaticThresholdOptions& options) {
  return std::make_shared<AutomaticThreshold>(options);
}

std::shared_ptr<const DropThreshold> read_automatic_threshold(Settings& settings, const DropThresholdContext& context) {
  using Clock = AutomaticThresholdOptions::Clock;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::size_t faults = settings.faults_so_far();
  AutomaticThresholdOptions options;
  options.form = settings.choice(
      {"search", "What the best threshold maximises: micro-batches per time, Eq. 6, or the reference code's measure."},
      {{"throughput", SpeedupForm::throughput},
       {"s-eff", SpeedupForm::effective},
       {"reference", SpeedupForm::reference}},
      options.form);
  options.warmup_steps = settings.integer({"warmup_steps", "First steps, which are not measured.", "steps"}, 0, most,
                                          options.warmup_steps.value());
  options.calibration_steps = settings.integer({"calibration_steps", "Steps that are measured then.", "steps"}, 1, most,
                                               options.calibration_steps.value());
  options.maximum_drop_rate =
      settings.optional_number({"maximum_drop_rate", "Share of micro-batches that the threshold may drop.", "", "any"},
                               {.low = 0, .high = 1, .low_open = true, .high_open = true});
  if (settings.has("calibration_clock"))
    options.clock = settings.choice(
        {"calibration_clock", "Whether micro-batches are timed by the step's clock, or each by a timer of its own."},
        {{"step", Clock::step}, {"micro-batch", Clock::micro_batch}}, options.clock);
  const bool is_clean = settings.faults_so_far() == faults;
  if (is_clean && context.total_steps && options.warmup_steps + options.calibration_steps >= *context.total_steps)
    settings.fault("calibration_steps", "must, with warmup_steps, end before the budget does");
  return make_automatic_threshold(options);
}

}  // namespace syncopate
