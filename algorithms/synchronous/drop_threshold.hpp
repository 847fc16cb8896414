// DropThreshold: the number of seconds after which a worker stops computing in a step (tau of DropCompute).
// Source:  Giladi et al. 2023, "DropCompute" (fixed; automatic); the adaptive rules are ours. Kaplan and Meier 1958 for
//          quantiles of censored times.
// Shapes:  scalars; the rules that measure gather each worker's times.   Units: seconds.
// Cost:    fixed: none. Automatic: I steps (calibration_steps) without a threshold, one all-gather of N (I M + 1)
//          numbers, and one search per process. Adaptive: every u steps (update_every_steps) one all-gather of N u
//          numbers, and one sort of N W times per process (W: window_steps).
// Differs: (automatic) the search uses the clock that enforces tau, which runs from the step's start, so that the
//          search's prediction holds in the run. T^c is the time of a step apart from computing and waiting. The
//          reference code uses a separate timer around each micro-batch, as calibration_clock = "micro-batch" does. It
//          measures steps 6 to 49, as the defaults do here, but drops from step 51 on and not from step 50 on. Its
//          measure is search = "reference"; ours is "throughput" (default); Eq. 6 is "s-eff". The limit for the drop
//          rate is ours.
// Checks:  each rule's threshold against a closed form, and against the durations of the steps that follow.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "workers/theory/paper_formulas.hpp"

namespace syncopate {

// The reference code's 200 equally spaced thresholds, from the earliest end of a 6th micro-batch to the latest end of
// any, both included. For M < 6 the grid starts at the earliest end of micro-batch ceil(M / 2). It never starts at 0.
std::vector<double> threshold_grid(const MicroBatchTimes& recorded);

// Threshold search: finds the tau with the highest effective speed-up on micro-batch times recorded without a
// threshold, or the first of several equally good ones. It must drop at most `maximum_drop_rate`. The threshold is
// infinite if none gains anything.
// Shapes:  times (N, I, M): workers, steps, micro-batches, in any one unit of time.
// Cost:    O(N I M log G) for a grid of G thresholds.
// Differs: Eq. 6 and the reference code's measure use the reference code's grid. Throughput (micro-batches per time, in
//          all steps together) uses 200 thresholds in equal ratios, then 200 between the neighbours of the best one.
//          The reason is times with a heavy tail: in a mean of the steps' own speed-ups the few longest steps outweigh
//          all others, and the best threshold can be between two points of an equally spaced grid.
// Checks:  thresholds, drop rates and speed-ups of an independent computation (tests/golden).
ThresholdEffect search_threshold(const MicroBatchTimes& recorded, double serial_time, SpeedupForm form,
                                 std::optional<double> maximum_drop_rate = {});

// One worker's step, timed by the clock that enforces the threshold.
struct TimedStep {
  Time start{};
  std::vector<Time> ends{};       // ends of the computed micro-batches
  std::vector<Duration> times{};  // durations of these micro-batches, each by its own timer, if the rule needs them
  Time arrival{};                 // when the worker arrives at the all-reduce
  int offered = 0;                // micro-batches of the step, except those carried over to it
  int offered_at_most = 0;        // the maximum of `offered` over all steps
  bool is_timed = false;          // whether the rule needs `times`

  void begin(Time now, int micro_batches, int at_most, bool timed) {
    start = now;
    ends.clear();
    times.clear();
    offered = micro_batches;
    offered_at_most = at_most;
    is_timed = timed;
  }
  // Adds the micro-batch that was computed last, unless a deadline has cut it.
  void add(const Worker& worker, const Gradient& gradient) {
    if (gradient.cut()) return;
    ends.push_back(worker.now());
    if (is_timed) times.push_back(worker.micro_batch_time(gradient));
  }
};

// Facts known before a run begins, for formulas that predict a rule's threshold.
struct ThresholdQuestion {
  int micro_batches = 1;
  MicroBatchLaw law{};
  double slowest_s = 0;                    // E[T], without a threshold
  double serial_s = 0;                     // T^c
  double shortest_s = 0;                   // lower bound for a micro-batch's time
  std::optional<MicroBatchTimes> drawn{};  // micro-batch times of drawn steps, which replace `law`
};
struct ThresholdForecast {
  double threshold_s = 0;  // infinite: no threshold
  Step from{};             // first step with a threshold
};

struct ThresholdTraits {
  Step begins_after{};    // number of steps before the first lasting threshold
  bool goes_on = true;    // whether the rule sets further thresholds later
  Step searched_steps{};  // number of steps that it searches for the threshold and its drop rate; 0: no search
  bool searches() const { return searched_steps > Step{0}; }
};

struct DropThreshold {
  class State {
   public:
    virtual ~State() = default;
    // The threshold of the step that begins now, counted from its start; longest_duration: none.
    virtual Duration current() const = 0;
    // The share of micro-batches that the rule expects the current threshold to drop; 0 if it makes no prediction.
    virtual double drop_rate() const { return 0; }
    // Whether the rule uses TimedStep::times.
    virtual bool times_micro_batches() const { return false; }
    // Learns from the step that has just ended. All workers call it after the same steps, so it may use collectives.
    virtual void learn(Worker&, const TimedStep&) {}
  };

  // Creates the state of one worker in one run. Runs do not share what their thresholds have learned.
  std::function<std::unique_ptr<State>()> begin;
  ThresholdTraits traits{};
  // Predicts the threshold before a run; none: no formula does.
  std::function<std::optional<ThresholdForecast>(const ThresholdQuestion&)> forecast = [](const ThresholdQuestion&) {
    return std::nullopt;
  };
};

// The same threshold in every step; longest_duration: none.
DropThreshold make_fixed_threshold(Duration threshold);

// Adaptive thresholds: tau follows the workers' step times over a sliding window, by a quantile or by median + k MAD
// (the median absolute deviation, not scaled). In a steady state the share of late workers is 1 - quantile.
struct AdaptiveThresholdOptions {
  enum class Statistic { quantile, median_and_deviations };
  Statistic statistic = Statistic::quantile;
  double quantile = 0.9;        // in (0, 1)
  double deviations = 3;        // k
  Step window_steps{40};        // no threshold until the window is full
  Step update_every_steps{10};  // u; window_steps is rounded up to a multiple of u
};
DropThreshold make_adaptive_threshold(const AdaptiveThresholdOptions& options);

// A worker's time for the micro-batches that a step offers. If the threshold cut the step, the time until the worker's
// arrival at the all-reduce is a lower bound.
using StepTime = CensoredTime;
StepTime time_of(const TimedStep& step);

// The threshold from a window's times (at least one). The quantile q is the smallest time that at most a share 1 - q of
// the times exceeds. It is a Kaplan-Meier estimate, which treats the times of cut steps as lower bounds. If so many
// steps are cut that a larger share exceeds even the longest time, the quantile is the longest time, lengthened by the
// excess share. So a threshold that is too low for most workers rises with each update, by a factor of up to 1 + q.
double adaptive_threshold(std::vector<StepTime> times, const AdaptiveThresholdOptions& options);

// The automatic threshold: all workers record the times of their micro-batches for some steps and gather the records;
// each finds the same tau by the same search. It applies from the step after the last recorded one.
struct AutomaticThresholdOptions {
  // Which times of micro-batches the search uses.
  enum class Clock {
    step,         // differences between their ends by the clock that enforces tau; includes everything in a step
    micro_batch,  // each by its own timer; excludes the time between micro-batches, and work that ends after them
  };
  SpeedupForm form = SpeedupForm::throughput;
  Step warmup_steps{6};        // number of first steps that are not recorded
  Step calibration_steps{44};  // I, recorded steps; both numbers are from the reference code
  std::optional<double> maximum_drop_rate{};
  Clock clock = Clock::step;
};
DropThreshold make_automatic_threshold(const AutomaticThresholdOptions& options);

using DropThresholdRow = RuleRow<DropThreshold(Settings&, const AlgorithmContext&)>;
std::span<const DropThresholdRow> drop_thresholds();

// Reads `threshold_s = 0.05`, a fixed threshold, or a table such as threshold = { rule = "automatic" }. After a fault
// it returns a rule without a threshold.
DropThreshold read_drop_threshold(Settings& settings, const AlgorithmContext& context);

// Reports a fault of the key threshold_s, which may be in a table `threshold`, if the threshold is below `shortest_s`,
// the time that the shortest micro-batch needs so that it can count.
void check_threshold(Settings& settings, Duration threshold, double shortest_s);

}  // namespace syncopate
