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

#include "algorithms/synchronous/threshold_search.hpp"
#include "workers/settings/settings.hpp"
#include "workers/theory/drop_compute_theory.hpp"
#include "workers/worker.hpp"

namespace syncopate {

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

}  // namespace syncopate
