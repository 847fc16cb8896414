// A short time-only simulation for predictions: it executes the run's method with its delays and network on the virtual
// clock, without model and data. A bound on the work limits the number of simulated steps.
// Units:   seconds of virtual time, steps of the experiment file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/run.hpp"
#include "results/summary.hpp"

namespace syncopate {

// The rounds and bytes of a run, if the method's schedule determines them. Answers whether simulated steps represent
// all steps of the run.
// Cost:    a method's formula iterates over the rounds; results are cached.
// Checks:  closed forms of scheduled periods (tests/experiments/predict_test.cpp).
class ScheduledRounds {
 public:
  explicit ScheduledRounds(const Run& run);

  // False if rounds depend on clocks or values, or on tensors of an unknown model.
  bool are_known() const { return known_; }
  // Returns the communication of a run of this many steps in which no worker leaves. Requires are_known().
  Communicated until(Step steps) const;

  // Whether the rounds are few enough to be counted quickly: at most `most`.
  bool are_countable(Step steps, double most = 1e8) const;
  // Returns the last step within [at_least, at_most] at which a round and a cycle of the method end. If there is no
  // such step, returns the first one between at_most and `limit`. If there is none there either, or if rounds are
  // unknown, returns at_most.
  Step end_of_round(Step at_least, Step at_most, Step limit) const;

  // The round that contains step `step` (counted from 0) of a run of `all` steps: steps from `begin` to before `end`.
  struct Span {
    Step begin{}, end{};
  };
  Span round_with(Step step, Step all) const;

  // Whether the steps up to `first` represent a run of `all` steps. The run's rounds and bytes must be within 1 % of
  // those extrapolated from the steps between `settles_after` (the method's start-up) and `first`. If rounds are few, a
  // round must end at `first`. True if rounds are unknown.
  bool stand_for_all(Step first, Step all) const;

 private:
  bool ends_round(Step step) const { return until(step + Step{1}).rounds > until(step).rounds; }
  double misfit(Step first, Step all) const;

  const Run& run_;
  KnownExchanges exchanges_;
  bool known_;
  mutable std::map<Step, Communicated> until_{};
};

// Returns the communication of the whole run if it follows from the method's schedule: the budget is in steps alone,
// all workers take part in all of them, and there are at most `most_rounds` rounds. Otherwise returns nullopt.
std::optional<Communicated> scheduled_communication(const Run& run, double most_rounds = 1e8);

struct SimulatedTime {
  Step steps{};             // number of simulated steps
  bool whole = false;       // simulated up to the end of the budget; false: extrapolated from first steps or a sample
  bool is_sampled = false;  // whether rounds were sampled (sample_time)
  double step_time_s = 0;
  std::optional<double> error_s{};       // standard error of step_time_s
  double drop_rate = 0;                  // dropped / (kept + dropped)
  double communication_share = 0;        // share of all workers' time
  double computing_share = 0;            // share of all workers' time; includes discarded micro-batches
  double longest_round_s = 0;            // longest simulated round
  double micro_batches_per_s = 0;        // micro-batches per second that went into the model
  std::optional<double> pace_error{};    // standard error of micro_batches_per_s
  std::optional<double> total_time_s{};  // time until the budget ends; none if unknown
  double rounds = 0;                     // rows of steps.csv for the whole run; extrapolated unless `whole`
  double bytes = 0;                      // sent by all workers; extrapolated unless `whole`
};

// Returns the work of simulating this many steps, in units of about 20 ns. It depends only on the experiment file, so
// the number of simulated steps does not depend on the machine.
std::int64_t work_of(const Run& run, Step steps);

// Simulates at most `at_most` steps. Throws RunFailure and Interrupted.
SimulatedTime simulate_time(const Run& run, Step at_most);

struct Simulation {
  std::optional<SimulatedTime> time{};
  std::string why_none{};  // why there is no time; empty if there is one
  bool failed = false;     // whether the run itself would fail
};

// Predicts the time of a run that is too long to be simulated as a whole and whose rounds change. Simulates whole
// rounds at places spread over all steps of the run, about `affordable` steps in total. The errors are those of a
// stratified sample, with two places in each of 32 equal parts of the run. Returns nullopt if
// - rounds are not known in advance,
// - single rounds take too long, or
// - later rounds depend on earlier ones, which is so with outages and if workers' data may be used up.
// Checks:  whole simulations of the same runs; constant times, exactly.
std::optional<SimulatedTime> sample_time(const Run& run, const ScheduledRounds& rounds, Step affordable);

// Simulates runs for `predict`. Simulates a run as a whole if a bound on the work of all runs allows it. Otherwise
// simulates its first steps if they represent the rest, or else a sample of its rounds. The bound does not include the
// steps before `settles_after`, in which a method starts up. Throws Interrupted.
std::vector<Simulation> simulate_all(const std::vector<Run>& runs);

// Simulates the first `steps` steps as if they were the run's budget; nullopt if they are too many or fail.
std::optional<SimulatedTime> simulate_first_steps(const Run& run, Step steps);

// Returns lines about probable mistakes in units, from short simulations of each method's first seed:
// - a threshold that never drops anything (milliseconds instead of seconds?)
// - a network that takes nearly all of the time (bits instead of bytes?)
// - a server's link for which workers wait
std::string magnitude_notes(std::span<const Run> runs);

// Returns the same lines, made from the runs' summaries on the virtual clock. `summaries`: by run; nullopt: none.
std::string magnitude_notes(std::span<const Run> runs, const std::vector<std::optional<RunSummary>>& summaries);

}  // namespace syncopate
