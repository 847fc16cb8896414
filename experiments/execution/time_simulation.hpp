// A short time-only simulation for predictions: the run's method, delays and network on the virtual clock, without
// model and data. A bound on work limits the number of steps.
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

// A run's communication as far as its method's schedule determines it, and whether simulated steps represent all steps.
// Units:   steps of the experiment file.
// Cost:    a method's closed form goes round by round; results are kept.
// Checks:  closed forms of scheduled periods (tests/experiments/predict_test.cpp).
class ScheduledRounds {
 public:
  explicit ScheduledRounds(const Run& run);

  // False if rounds depend on clocks or values, or on tensors of an unknown model.
  bool are_known() const { return known_; }
  // Communication of a run of this many steps in which no worker leaves. Requires are_known().
  Communicated until(Step steps) const;

  // Whether counting the rounds takes only a moment.
  bool are_countable(Step steps) const;
  // The last step within [at_least, at_most] at which a round and a cycle of the method end. If there is none, the
  // first such step up to `limit`. If there is none either, or if rounds are unknown, at_most.
  Step end_of_round(Step at_least, Step at_most, Step limit) const;

  // The round that contains step `step` (counted from 0) of a run of `all` steps: from `begin` up to before `end`.
  struct Span {
    Step begin{}, end{};
  };
  Span round_with(Step step, Step all) const;

  // Whether the first steps represent a run of `all` steps. Its rounds and bytes must be within 1 % of those
  // extrapolated from the steps between the method's settling and `first`; if rounds are few, none may be cut off at
  // `first`. True if rounds are unknown.
  bool stand_for_all(Step first, Step all) const;

 private:
  bool ends_round(Step step) const { return until(step + Step{1}).rounds > until(step).rounds; }
  double misfit(Step first, Step all) const;

  const Run& run_;
  KnownExchanges exchanges_;
  bool known_;
  mutable std::map<Step, Communicated> until_{};
};

struct SimulatedTime {
  Step steps{};             // number of simulated steps
  bool whole = false;       // up to the end of the budget; false: extrapolated from the first steps, or a sample of
                            // rounds
  bool is_sampled = false;  // a sample of rounds
  double step_time_s = 0;
  std::optional<double> error_s{};       // standard error of step_time_s
  double drop_rate = 0;                  // dropped / (kept + dropped)
  double communication_share = 0;        // share of all workers' time
  double computing_share = 0;            // share of all workers' time, in kept or discarded micro-batches
  double longest_round_s = 0;            // longest simulated round
  double micro_batches_per_s = 0;        // micro-batches that went into the model
  std::optional<double> pace_error{};    // standard error of micro_batches_per_s
  std::optional<double> total_time_s{};  // time of the whole budget; none if unknown
  double rounds = 0;                     // rows of steps.csv for the whole run; extrapolated unless `whole`
  double bytes = 0;                      // sent by all workers; extrapolated unless `whole`
};

// The work of a simulation, in units of about 20 ns. It depends only on the file, and so does the length of a
// simulation.
std::int64_t work_of(const Run& run, Step steps);

// Simulates at most this many steps. Throws RunFailure, Interrupted.
SimulatedTime simulate_time(const Run& run, Step at_most);

struct Simulation {
  std::optional<SimulatedTime> time{};
  std::string why_none{};  // empty if there is a time
  bool failed = false;     // the run itself would fail
};

// For a run whose rounds change, and which is too long to be simulated as a whole: simulates whole rounds at places
// spread over all its steps, about `affordable` steps in total. The errors are those of a stratified sample, with two
// places in each of equal parts of the run. nullopt if rounds are not known in advance, if single rounds take too long,
// or if later rounds depend on earlier ones: under outages, or if data are used up.
// Checks:  whole simulations of the same runs; constant times, exactly.
std::optional<SimulatedTime> sample_time(const Run& run, const ScheduledRounds& rounds, Step affordable);

// For `predict`: simulates each run as a whole if a bound on the work of all runs allows it. Otherwise its first steps
// if these represent the rest, otherwise a sample of its rounds. Steps in which methods settle do not count. Throws
// Interrupted.
std::vector<Simulation> simulate_all(const std::vector<Run>& runs);

// Simulates the first steps as if they were the run's budget; nullopt if they are too many or fail.
std::optional<SimulatedTime> simulate_first_steps(const Run& run, Step steps);

// Lines on numbers that are probably wrong by a factor of a thousand or eight: a threshold that never drops
// (milliseconds for seconds), a network that takes nearly all of the time (bits for bytes), or a server's link that
// workers wait for. Simulates first steps of the first seed, as far as a bound on the work allows.
std::string magnitude_notes(std::span<const Run> runs);

// The same from the runs' summaries on the virtual clock; nullopt for a run that was not made.
std::string magnitude_notes(std::span<const Run> runs, const std::vector<std::optional<RunSummary>>& summaries);

}  // namespace syncopate
