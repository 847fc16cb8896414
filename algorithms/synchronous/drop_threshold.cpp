#include "algorithms/synchronous/drop_threshold.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace syncopate {

namespace {

constexpr int grid_points = 200;

// The range of thresholds to search. Micro-batches that end at time 0 are ignored, since any threshold keeps them. Both
// limits are 0 if no micro-batch takes time.
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

// A geometric grid from `lowest` (above 0) to `highest`, both included.
std::vector<double> grid_in_equal_ratios(double lowest, double highest) {
  std::vector<double> grid(grid_points, highest);
  const double step = std::log(highest / lowest) / (grid_points - 1);
  for (int k = 0; k < grid_points - 1; ++k) grid[static_cast<std::size_t>(k)] = lowest * std::exp(k * step);
  return grid;
}

class ConstantThreshold final : public DropThreshold::State {
 public:
  explicit ConstantThreshold(Duration threshold) : threshold_(threshold) {}
  Duration current() const override { return threshold_; }

 private:
  Duration threshold_;
};

// The number of updates of the threshold, one every u steps, whose times fill the window.
std::int64_t updates_in_window(const AdaptiveThresholdOptions& options) {
  const std::int64_t u = options.update_every_steps.value();
  return (options.window_steps.value() + u - 1) / u;
}

// The step times that all workers gathered in the last updates, oldest update first, and the threshold that follows
// from them. A negative number is a lower bound for a time. Consecutive windows share updates.
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
  // One nanosecond more, so that a worker with exactly this time is not late.
  window.threshold = from_seconds(adaptive_threshold(std::move(times), options)) + Duration{1};
  return window;
}

class ThresholdByWindow final : public DropThreshold::State {
 public:
  explicit ThresholdByWindow(const AdaptiveThresholdOptions& options)
      : options_(options), window_(std::make_shared<const Window>()) {}

  Duration current() const override { return window_->threshold; }

  void learn(Worker& worker, const TimedStep& step) override {
    const StepTime time = time_of(step);
    own_.push_back(time.at_least ? -time.seconds : time.seconds);
    if (std::ssize(own_) < options_.update_every_steps.value()) return;
    window_ =
        worker.all_gather(own_, [&](std::span<const double> update) { return moved_on(*window_, update, options_); });
    own_.clear();
  }

 private:
  AdaptiveThresholdOptions options_;
  std::vector<double> own_;               // this worker's step times since the last update, as in Window
  std::shared_ptr<const Window> window_;  // shared by all workers of the process
};

// `gathered`: for each worker the I x M times of its micro-batches, then the mean duration of its steps.
ThresholdEffect search_in(std::span<const double> gathered, int workers, const AutomaticThresholdOptions& options) {
  const std::size_t count = gathered.size() / static_cast<std::size_t>(workers);
  const auto steps = static_cast<std::size_t>(options.calibration_steps.value());
  const std::size_t micro_batches = (count - 1) / steps;
  std::vector<double> times;
  std::vector<double> slowest(steps);  // [step]: T, the slowest worker's time for its micro-batches
  times.reserve(gathered.size());
  double duration = 0;
  for (; !gathered.empty(); gathered = gathered.subspan(count)) {
    times.insert(times.end(), gathered.begin(), gathered.begin() + static_cast<std::ptrdiff_t>(count - 1));
    for (std::size_t i = 0; i < steps; ++i) {
      const auto of_step = gathered.subspan(i * micro_batches, micro_batches);
      slowest[i] = std::max(slowest[i], std::accumulate(of_step.begin(), of_step.end(), 0.0));
    }
    duration += gathered[count - 1] / workers;
  }
  double computing = 0;
  for (const double step : slowest) computing += step / static_cast<double>(steps);
  const MicroBatchTimes recorded{times, workers, static_cast<int>(steps), static_cast<int>(micro_batches)};
  return search_threshold(recorded, std::max(duration - computing, 0.0), options.form, options.maximum_drop_rate);
}

class ThresholdByCalibration final : public DropThreshold::State {
 public:
  explicit ThresholdByCalibration(const AutomaticThresholdOptions& options) : options_(options) {}

  Duration current() const override { return found_ ? from_seconds(found_->threshold) : longest_duration; }
  double drop_rate() const override { return found_ ? found_->drop_rate : 0; }

  bool times_micro_batches() const override {
    return !found_ && options_.clock == AutomaticThresholdOptions::Clock::micro_batch;
  }

  void learn(Worker& worker, const TimedStep& step) override {
    if (found_ || ++steps_ <= options_.warmup_steps) return;
    Time before = step.start;
    for (std::size_t m = 0; m < step.ends.size(); ++m) {
      const Duration by_step = step.ends[m] - std::exchange(before, step.ends[m]);
      times_.push_back(to_seconds(times_micro_batches() ? step.times[m] : by_step));
    }
    // Steps may have different numbers of micro-batches. A shorter one is filled up with micro-batches of 0 s, which
    // any threshold keeps that keeps the step's last real one.
    for (auto m = std::ssize(step.ends); m < step.offered_at_most; ++m) times_.push_back(0);
    // A step lasts until the next step starts, so T^c is the step's time without computing and waiting.
    duration_ += worker.now() - step.start;
    const Step recorded = steps_ - options_.warmup_steps;
    if (recorded < options_.calibration_steps) return;
    times_.push_back(to_seconds(duration_) / static_cast<double>(recorded.value()));
    found_ = worker.all_gather(
        times_, [&](std::span<const double> gathered) { return search_in(gathered, worker.size(), options_); });
    times_ = {};
  }

 private:
  AutomaticThresholdOptions options_;
  Step steps_{};               // steps seen so far
  std::vector<double> times_;  // this worker's micro-batch times, [step][micro-batch]
  Duration duration_{};        // sum of the recorded steps' durations
  std::shared_ptr<const ThresholdEffect> found_;
};

DropThreshold read_fixed(Settings& settings, const AlgorithmContext&) {
  return make_fixed_threshold(from_seconds(settings.number(
      {"threshold_s", "After what time a worker stops computing in a step (tau).", "s"}, Range::positive())));
}

DropThreshold read_window(Settings& settings, AdaptiveThresholdOptions options) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::size_t faults = settings.faults_so_far();
  options.window_steps = settings.integer({"window_steps", "How many of the last steps' times are used.", "steps"}, 1,
                                          most, options.window_steps.value());
  options.update_every_steps =
      settings.integer({"update_every_steps", "After how many steps the threshold is updated.", "steps"}, 1, most,
                       options.update_every_steps.value());
  if (settings.faults_so_far() == faults && options.update_every_steps > options.window_steps)
    settings.fault("update_every_steps", "must be at most window_steps");
  return make_adaptive_threshold(options);
}

DropThreshold read_quantile_threshold(Settings& settings, const AlgorithmContext&) {
  AdaptiveThresholdOptions options{.statistic = AdaptiveThresholdOptions::Statistic::quantile};
  constexpr Range inside{.low = 0, .high = 1, .low_open = true, .high_open = true};
  options.quantile =
      settings.number({"quantile", "The quantile of the step times that is the threshold."}, inside, options.quantile);
  return read_window(settings, options);
}

DropThreshold read_deviation_threshold(Settings& settings, const AlgorithmContext&) {
  AdaptiveThresholdOptions options{.statistic = AdaptiveThresholdOptions::Statistic::median_and_deviations};
  options.deviations = settings.number({"deviations", "Threshold minus median, in median absolute deviations."},
                                       Range::finite_from_zero(), options.deviations);
  return read_window(settings, options);
}

DropThreshold read_automatic_threshold(Settings& settings, const AlgorithmContext& context) {
  using Clock = AutomaticThresholdOptions::Clock;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::size_t faults = settings.faults_so_far();
  AutomaticThresholdOptions options;
  options.form = settings.choice(
      {"search",
       "The measure that the best threshold maximises: micro-batches per time, Eq. 6, or the reference code's."},
      {{"throughput", SpeedupForm::throughput},
       {"s-eff", SpeedupForm::effective},
       {"reference", SpeedupForm::reference}},
      options.form);
  options.warmup_steps = settings.integer({"warmup_steps", "Number of first steps, which are not measured.", "steps"},
                                          0, most, options.warmup_steps.value());
  options.calibration_steps =
      settings.integer({"calibration_steps", "Number of measured steps after the warm-up.", "steps"}, 1, most,
                       options.calibration_steps.value());
  options.maximum_drop_rate =
      settings.optional_number({"maximum_drop_rate", "Largest share of micro-batches that may be dropped.", "", "any"},
                               {.low = 0, .high = 1, .low_open = true, .high_open = true});
  if (settings.has("calibration_clock"))
    options.clock = settings.choice(
        {"calibration_clock", "Whether the step's clock times micro-batches, or a separate timer for each one."},
        {{"step", Clock::step}, {"micro-batch", Clock::micro_batch}}, options.clock);
  const bool is_clean = settings.faults_so_far() == faults;
  if (is_clean && context.total_steps && options.warmup_steps + options.calibration_steps >= *context.total_steps)
    settings.fault("calibration_steps",
                   "must be smaller: warmup_steps + calibration_steps must be less than the budget's steps");
  return make_automatic_threshold(options);
}

constexpr std::array threshold_rows = {
    DropThresholdRow{"fixed", "`threshold_s` in every step", read_fixed},
    DropThresholdRow{"automatic",
                     "none while `calibration_steps` are measured, then always the one with the best effective "
                     "speed-up in these",
                     read_automatic_threshold},
    DropThresholdRow{"adaptive-quantile", "a quantile of the workers' step times over the last `window_steps`",
                     read_quantile_threshold},
    DropThresholdRow{"adaptive-mad",
                     "the median of the workers' step times over the last `window_steps`, plus `deviations` times "
                     "their median absolute deviation",
                     read_deviation_threshold},
};

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
  // Returns the index of the grid's best threshold; none if no threshold of the grid is better than `best`.
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

DropThreshold make_adaptive_threshold(const AdaptiveThresholdOptions& options) {
  return {.begin = [options] { return std::make_unique<ThresholdByWindow>(options); },
          .traits = {.begins_after = updates_in_window(options) * options.update_every_steps.value()}};
}

DropThreshold make_fixed_threshold(Duration threshold) {
  const ThresholdForecast forecast{.threshold_s = to_seconds(threshold)};
  return {.begin = [threshold] { return std::make_unique<ConstantThreshold>(threshold); },
          .traits = {.goes_on = false},
          .forecast = [forecast](const ThresholdQuestion&) { return forecast; }};
}

std::span<const DropThresholdRow> drop_thresholds() { return threshold_rows; }

DropThreshold read_drop_threshold(Settings& settings, const AlgorithmContext& context) {
  const bool has_table = settings.has("threshold");
  if (has_table && settings.has("threshold_s"))
    settings.fault("threshold_s", "must not be given together with a table `threshold`");
  if (!has_table && !settings.has("threshold_s")) {
    settings.fault("threshold_s", "must be a number above 0, unless a rule is given: threshold = { rule = ... }");
    return make_fixed_threshold(longest_duration);
  }
  if (!has_table) return read_fixed(settings, context);
  Settings table =
      settings.section({"threshold", "A rule that finds the threshold; give either this table or threshold_s."});
  const auto* const row = table.row({"rule", "Which rule."}, threshold_rows);
  return row ? row->make(table, context) : make_fixed_threshold(longest_duration);
}

void check_threshold(Settings& settings, Duration threshold, double shortest_s) {
  if (threshold >= from_seconds(shortest_s)) return;
  Settings table = settings.has("threshold") ? settings.section("threshold") : settings;
  table.fault("threshold_s", fmt::format("must be at least {:.6g} s: within {:.6g} s not even the shortest micro-batch "
                                         "could count",
                                         shortest_s, to_seconds(threshold)));
}

DropThreshold make_automatic_threshold(const AutomaticThresholdOptions& options) {
  const Step begins_after = options.warmup_steps + options.calibration_steps;
  return {.begin = [options] { return std::make_unique<ThresholdByCalibration>(options); },
          .traits = {.begins_after = begins_after, .goes_on = false, .searched_steps = options.calibration_steps},
          // The threshold that the search finds in the drawn steps; without these, the best one for the law by Eqs. 5
          // and 6.
          .forecast =
              [=](const ThresholdQuestion& q) {
                const double most = options.maximum_drop_rate.value_or(1);
                const double threshold_s =
                    q.drawn ? search_threshold(*q.drawn, q.serial_s, options.form, options.maximum_drop_rate).threshold
                            : best_threshold(q.micro_batches, q.law, q.slowest_s, q.serial_s, most, q.shortest_s);
                return ThresholdForecast{threshold_s, begins_after};
              }};
}

}  // namespace syncopate
