// DropThreshold: after how many seconds of a step a worker stops computing (tau of DropCompute).
// Source:  Giladi et al. 2023, "DropCompute" (fixed; automatic); the adaptive rules are ours. Kaplan and Meier 1958 for
//          quantiles of times of which some were cut off.
// Shapes:  scalars; the rules that measure gather each worker's times.   Units: seconds.
// Cost:    fixed: none. Automatic: I steps without a threshold, one all-gather of N (I M + 1) numbers, and one search
//          per process. Adaptive: every u steps one all-gather of N u numbers and one sort of N W times per process.
// Differs: automatic: the search sees the clock that enforces tau, which runs from the step's start, so that what it
//          predicts comes true; T^c is what a step takes besides. The reference code searches in the times of a timer
//          around each micro-batch: calibration_clock = "micro-batch". It measures the same steps, 6 to 49, and drops
//          from step 51 on, here from 50. search = "throughput" (default), "s-eff" (Eq. 6) or "reference". The cap on
//          the drop rate is ours.
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

// The reference code's 200 equally spaced thresholds, both ends included. It starts at the earliest end of a 6th
// micro-batch; for M < 6 it starts here after the first half of them, and never at 0.
std::vector<double> threshold_grid(const MicroBatchTimes& recorded);

// Threshold search: the first tau with the highest effective speed-up on micro-batch times recorded without one, among
// those that drop at most `maximum_drop_rate`; infinite if none gains anything.
// Shapes:  times (N, I, M): workers, steps, micro-batches, in any one unit of time.   Cost: O(N I M log G), G
//          thresholds.
// Differs: Eq. 6 and the reference code's measure search the reference code's grid. Throughput, micro-batches per time
//          over all steps, searches 200 thresholds in equal ratios, and then 200 between the best one's neighbours: in
//          a mean of steps' own speed-ups the few longest steps outweigh all others if times have a heavy tail, and the
//          best threshold then lies between two points of an equally spaced grid.
// Checks:  thresholds, drop rates and speed-ups of an independent computation (tests/golden).
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
  // Adds the micro-batch computed last, unless a deadline has cut it.
  void add(const Worker& worker, const Gradient& gradient) {
    if (gradient.cut()) return;
    ends.push_back(worker.now());
    if (is_timed) times.push_back(worker.micro_batch_time(gradient));
  }
};

// The facts that a formula knows of a run before it begins, to say which threshold a rule will set.
struct ThresholdQuestion {
  int micro_batches = 1;
  MicroBatchLaw law{};
  double slowest_s = 0;                    // E[T], without a threshold
  double serial_s = 0;                     // T^c
  double shortest_s = 0;                   // no micro-batch is shorter
  std::optional<MicroBatchTimes> drawn{};  // steps of the run; they replace the law
};
struct ThresholdForecast {
  double threshold_s = 0;  // infinite: none
  Step from{};             // steps without one come first
};

struct ThresholdTraits {
  Step begins_after{};    // steps before the first threshold that the rule means to keep
  bool goes_on = true;    // whether it sets further thresholds after that one
  Step searched_steps{};  // steps in which it finds the threshold, and what that will drop; 0: it does not search
  bool searches() const { return searched_steps > Step{0}; }
};

class DropThreshold {
 public:
  // One worker's threshold during a run.
  class State {
   public:
    virtual ~State() = default;
    // The threshold of the step that begins now, from its start; longest_duration: none.
    virtual Duration current() const = 0;
    // The share of micro-batches that the rule expects to lose under it; 0 also where it expects nothing.
    virtual double drop_rate() const { return 0; }
    // Whether it uses TimedStep::times.
    virtual bool times_micro_batches() const { return false; }
    // Learns from the step that has just ended. All workers call it after the same steps, so that it may gather.
    virtual void learn(Worker&, const TimedStep&) {}
  };

  virtual ~DropThreshold() = default;
  // Each run begins with a state of its own: runs do not share what their thresholds learn.
  virtual std::unique_ptr<State> begin() const = 0;
  virtual ThresholdTraits traits() const = 0;
  // None where no formula says it.
  virtual std::optional<ThresholdForecast> forecast(const ThresholdQuestion&) const { return std::nullopt; }
};

// The same for ever; longest_duration: none.
std::shared_ptr<const DropThreshold> make_fixed_threshold(Duration threshold);

// Adaptive thresholds: tau follows the workers' step times over a sliding window, by a quantile or by median + k MAD
// (the median absolute deviation, not scaled). In a steady state the share of late workers is 1 - quantile.
struct AdaptiveThresholdOptions {
  enum class Statistic { quantile, median_and_deviations };
  Statistic statistic = Statistic::quantile;
  double quantile = 0.9;        // in (0, 1)
  double deviations = 3;        // k
  Step window_steps{40};        // no threshold until the window is full
  Step update_every_steps{10};  // u; the window is made of whole updates
};
std::shared_ptr<const DropThreshold> make_adaptive_threshold(const AdaptiveThresholdOptions& options);

// How long all micro-batches of a usual step took a worker. If it was cut off, they would have taken longer than it
// had.
using StepTime = CensoredTime;
StepTime time_of(const TimedStep& step);

// The threshold of a window's times, of which there is at least one. Quantiles are those of the Kaplan-Meier estimate,
// which counts cut-off times as lower bounds: the first time that no more than 1 - q exceed. Where too many were cut
// off to tell, it lies above the longest time by the excess share, so that a threshold which is too low for most rises
// by up to 1 + q with each update.
double adaptive_threshold(std::vector<StepTime> times, const AdaptiveThresholdOptions& options);

// The automatic threshold: all workers record their micro-batches for some steps and share what they have; each finds
// the same tau by the same search. It holds from the step after the last measured one.
struct AutomaticThresholdOptions {
  // Which times of micro-batches the search sees.
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

// The facts that a rule's settings depend on.
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

// Reports a fault of the key threshold_s, which may stand in a table `threshold`, if no micro-batch can meet the
// threshold: the shortest takes `shortest_s`.
void check_threshold(Settings& settings, Duration threshold, double shortest_s);

}  // namespace syncopate
