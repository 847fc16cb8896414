// DropThreshold: after how many seconds of a step a worker stops computing (tau of DropCompute).
// Source:  Giladi et al. 2023, "DropCompute" (fixed; automatic); the adaptive rules are this project's own.
// Shapes:  scalars; the rules that measure gather each worker's times.   Units: seconds.
// Cost:    fixed: none; automatic: one all-gather in all; adaptive: one small all-gather every few steps.
// Differs: see each rule's header.
// Checks:  each rule's threshold against a closed form, and against what the steps then take.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/theory/paper_formulas.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// Threshold search: which tau would have served best on micro-batch times that were recorded without one.
// Source:  Giladi et al. 2023, "DropCompute", the choice of tau; the search in its reference code.
// Shapes:  times (N, I, M): workers, steps, micro-batches.   Units: any one unit of time for all.
// Cost:    O(N I M log G) on one worker's processor, for G thresholds.
// Differs: the reference code starts its grid at the earliest end of a 6th micro-batch; for M < 6 it starts
//          here after the first half of them, and never at 0, where it starts if something takes no time. A threshold
//          that would gain nothing is not set at all. By default thresholds are judged by micro-batches per time over
//          all steps: in the mean of the steps' own speed-ups the few longest steps outweigh all others if times have a
//          heavy tail, and the best threshold then lies between two points of an equally spaced grid.
// Checks:  thresholds, drop rates and speed-ups of an independent computation (tests/golden).
// The reference code's 200 equally spaced thresholds, both ends included.
std::vector<double> threshold_grid(const MicroBatchTimes& recorded);

// The first threshold with the highest effective speed-up among those that drop at most `maximum_drop_rate`; an
// infinite one if none of them gains anything. By Eq. 6 and the reference code the first of the reference code's grid;
// by throughput of as many in equal ratios, and then of as many between the best one's neighbours.
ThresholdEffect search_threshold(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                 std::optional<double> maximum_drop_rate = {});

// How a step went for one worker, by the clock that enforces the threshold.
struct TimedStep {
  Time start{};
  std::vector<Time> ends{};       // of the micro-batches that were computed
  std::vector<Duration> times{};  // of the same, each by a timer of its own, if the rule asks for them
  Time arrival{};                 // at the all-reduce
  int offered = 0;                // micro-batches of a usual step without a threshold
  int offered_at_most = 0;        // of the longest such step, where they alternate
  bool is_timed = false;          // whether `times` are asked for

  void begin(Time now, int micro_batches, int at_most, bool timed) {
    start = now;
    ends.clear();
    times.clear();
    offered = micro_batches;
    offered_at_most = at_most;
    is_timed = timed;
  }
  // The micro-batch computed last; one that a deadline has cut does not count.
  void add(const Worker& worker, const Gradient& gradient) {
    if (gradient.cut()) return;
    ends.push_back(worker.now());
    if (is_timed) times.push_back(worker.micro_batch_time(gradient));
  }
};

// What a formula knows of a run before it has begun, to say which threshold a rule will set.
struct ThresholdQuestion {
  int micro_batches = 1;
  MicroBatchLaw law{};
  double slowest_s = 0;   // E[T], without a threshold
  double serial_s = 0;    // T^c
  double shortest_s = 0;  // no micro-batch is shorter
  // Steps of the run; where there are some, they count, not the law.
  std::optional<MicroBatchTimes> drawn{};
};
struct ThresholdForecast {
  double threshold_s = 0;  // infinite: none
  Step from{};             // steps without one come first
};

// What a rule says about itself.
struct ThresholdTraits {
  Step begins_after{};    // steps that come before the first threshold which it means to keep
  bool goes_on = true;    // whether it sets thresholds anew after that one
  Step searched_steps{};  // it finds the threshold, and what that will drop, in so many steps; 0: not in that way
  bool searches() const { return searched_steps > Step{0}; }
};

class DropThreshold {
 public:
  // One worker's threshold in the course of a run.
  class Course {
   public:
    virtual ~Course() = default;
    // Of the step that begins now, from its start; longest_duration: none.
    virtual Duration current() const = 0;
    // The share of micro-batches that the rule expects to be lost under it; 0 also where it expects nothing.
    virtual double drop_rate() const { return 0; }
    // Whether TimedStep::times are of use.
    virtual bool times_micro_batches() const { return false; }
    // What the step that has just ended teaches. The same steps on all workers, who may have to meet for it.
    virtual void learn(Worker&, const TimedStep&) {}
  };

  virtual ~DropThreshold() = default;
  // Runs do not share what their courses learn.
  virtual std::unique_ptr<Course> begin() const = 0;
  virtual ThresholdTraits traits() const = 0;
  // None where no formula says it.
  virtual std::optional<ThresholdForecast> forecast(const ThresholdQuestion&) const { return std::nullopt; }
};

// The same for ever; longest_duration: none.
std::shared_ptr<const DropThreshold> make_fixed_threshold(Duration threshold);

// What a rule's settings depend on.
struct DropThresholdContext {
  std::optional<Step> total_steps{};  // none: the budget is not counted in steps
};

// The registry: one row per rule.
struct DropThresholdRow {
  std::string_view name;      // `rule = ...` in TOML
  std::string_view sentence;  // what it does
  std::shared_ptr<const DropThreshold> (*make)(Settings& settings, const DropThresholdContext& context);
};
std::span<const DropThresholdRow> drop_thresholds();

// Reads `threshold_s = 0.05`, which is a fixed one, or a table such as threshold = { rule = "automatic" }.
// Never null: what is faulty reads as no threshold.
std::shared_ptr<const DropThreshold> read_drop_threshold(Settings& settings, const DropThresholdContext& context);

// A threshold that no micro-batch can meet, the shortest of which takes `shortest_s`, is a fault of the key
// threshold_s, which may stand in a table `threshold`.
void check_threshold(Settings& settings, Duration threshold, double shortest_s);

// Adaptive thresholds: tau follows the workers' step times over a sliding window, by a quantile or by
// median + k MAD (the median absolute deviation, not scaled).
// Source:  none for the rules; Kaplan and Meier 1958 for quantiles of times of which some were cut off.
// Shapes:  what is shared: (N, u) step times of u steps.   Units: seconds.
// Cost:    every u steps one all-gather of N u numbers, and one sort of a window of N W times per process.
// Differs: from a threshold that is set once: it follows what changes, and the drop rate is what is set.
// Checks:  thresholds of hand-written windows; in a steady state the share of late workers is 1 - quantile.
struct AdaptiveThresholdOptions {
  enum class Statistic { quantile, median_and_deviations };
  Statistic statistic = Statistic::quantile;
  double quantile = 0.9;        // in (0, 1)
  double deviations = 3;        // k
  Step window_steps{40};        // no threshold until the window is full
  Step update_every_steps{10};  // u; the window is made of whole updates
};
std::shared_ptr<const DropThreshold> make_adaptive_threshold(const AdaptiveThresholdOptions& options);

// How long all micro-batches of a usual step took a worker. Of one that was cut off it is only known that they
// would have taken longer than it had.
using StepTime = CensoredTime;
StepTime time_of(const TimedStep& step);

// Of the times of a window, at least one. Its quantiles are those of the Kaplan-Meier estimate, which takes times
// that are only known to be longer for what they are: the first time that no more than 1 - q exceed. Where too
// many were cut off to tell, it lies above the longest by the share that is in excess, so that a threshold which
// is too low for most rises by up to 1 + q with each update.
double adaptive_threshold(std::vector<StepTime> times, const AdaptiveThresholdOptions& options);

// Keys of both: window_steps, update_every_steps; and quantile, or deviations.
std::shared_ptr<const DropThreshold> read_quantile_threshold(Settings& settings, const DropThresholdContext& context);
std::shared_ptr<const DropThreshold> read_deviation_threshold(Settings& settings, const DropThresholdContext& context);

// The automatic threshold: all workers record their micro-batches for some steps, share what they have, and each finds
// the same tau in it by the same search.
// Source:  Giladi et al. 2023, "DropCompute", automatic selection of tau; its reference code.
// Shapes:  what is shared: (N, I, M) times of I steps.   Units: seconds.
// Cost:    I steps without a threshold, one all-gather of N (I M + 1) numbers, one search per process.
// Differs: the search sees the clock that enforces tau, which runs from the step's start, so that what it predicts
//          comes true; T^c is what a step takes besides. The reference code takes the times of a timer around each
//          micro-batch for the search and the step's clock for tau: calibration_clock = "micro-batch". The threshold
//          holds from the step after the last one that was measured, by default from step index 50 on. The reference
//          code measures the same steps, 6 to 49, searches during step 50 and drops from step 51 on. search =
//          "throughput" (default), "s-eff" (Eq. 6) or "reference". The cap on the drop rate
//          is in neither paper nor code.
// Checks:  the threshold equals that of the search on the same delays; predicted and realised drop rates agree.
struct AutomaticThresholdOptions {
  // What the search takes for the micro-batches' times.
  enum class Clock {
    step,         // their ends by the clock that enforces tau; all that a step holds counts
    micro_batch,  // each one's by a timer of its own: not what lies between or runs on behind them
  };
  SpeedupForm form = SpeedupForm::throughput;
  Step warmup_steps{6};        // first steps, which are not recorded
  Step calibration_steps{44};  // I; both as in the reference code
  std::optional<double> maximum_drop_rate{};
  Clock clock = Clock::step;
};
std::shared_ptr<const DropThreshold> make_automatic_threshold(const AutomaticThresholdOptions& options);

// Keys: search, warmup_steps, calibration_steps, maximum_drop_rate, calibration_clock.
std::shared_ptr<const DropThreshold> read_automatic_threshold(Settings& settings, const DropThresholdContext& context);

}  // namespace syncopate
