// The short time-only simulation behind a prediction: the run's method, delays and network on the virtual clock,
// without model and data, for as many steps as a bound on work allows.
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

// A run's communication as far as its method's schedule determines it, and so whether simulated steps stand for all.
// Units:   steps of the experiment file.
// Cost:    a method's closed form goes round by round; results are kept.
// Checks:  closed forms of scheduled periods (tests/experiments/predict_test.cpp).
class ScheduledRounds {
 public:
  explicit ScheduledRounds(const Run& run);

  // False if they depend on clocks or values, or on tensors of an unknown model.
  bool are_known() const { return known_; }
  // For a run of so many steps in which all workers stay. Requires are_known().
  Communicated until(Step steps) const;

  // Whether counting them takes only a moment.
  bool are_countable(Step steps) const;
  // The last step within [at_least, at_most] at which a round, and a cycle of the method, ends; else the first one up
  // to `limit`; else, or if rounds are unknown, at_most.
  Step end_of_round(Step at_least, Step at_most, Step limit) const;

  // The round that takes step `step`, which counts from 0, of a run of `all` steps: from `begin` up to before `end`.
  struct Span {
    Step begin{}, end{};
  };
  Span round_with(Step step, Step all) const;

  // Whether a run of `all` steps has, within 1 %, the rounds and bytes extrapolated from the steps between the method's
  // settling and `first`, and no round of few is cut off there. True if rounds are unknown.
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
  Step steps{};             // simulated
  bool whole = false;       // up to the end of the budget; false: the first steps, extrapolated, or a sample of rounds
  bool is_sampled = false;  // a sample of rounds
  double step_time_s = 0;
  std::optional<double> error_s{};       // standard error of step_time_s
  double drop_rate = 0;                  // dropped / (kept + dropped)
  double communication_share = 0;        // of all workers' time
  double computing_share = 0;            // of all workers' time, kept or discarded
  double longest_round_s = 0;            // of simulated rounds
  double micro_batches_per_s = 0;        // that went into the model
  std::optional<double> pace_error{};    // standard error of micro_batches_per_s
  std::optional<double> total_time_s{};  // of the budget; none if unknown
  double rounds = 0;                     // rows of steps.csv, of the whole run; extrapolated unless `whole`
  double bytes = 0;                      // communicated by all workers; extrapolated unless `whole`
};

// Work of a simulation, in units of about 20 ns, so that its length depends only on the file.
std::int64_t work_of(const Run& run, Step steps);

// Simulates at most so many steps. Throws RunFailure, Interrupted.
SimulatedTime simulate_time(const Run& run, Step at_most);

struct Simulation {
  std::optional<SimulatedTime> time{};
  std::string why_none{};  // empty if there is one
  bool failed = false;     // there is none because the run would fail
};

// A run of rounds that change, and that is too long to be simulated as a whole: whole rounds of it, which begin at
// places spread over all its steps, about `affordable` steps in all. The errors are those of a stratified sample, two
// places in each of equal parts of the run. None where rounds are not known beforehand, where single ones take too
// long, and where what comes depends on what has been: under outages, or where data are used up.
// Checks:  whole simulations of the same runs; constant times, exactly.
std::optional<SimulatedTime> sample_time(const Run& run, const ScheduledRounds& rounds, Step affordable);

// For `predict`: each run as a whole if a bound on the work of all runs allows it, else its first steps if these stand
// for the rest, else a sample of its rounds. Steps that methods need to settle do not count. Throws Interrupted.
std::vector<Simulation> simulate_all(const std::vector<Run>& runs);

// The first steps as if they were the run's budget; none if they are too many or fail.
std::optional<SimulatedTime> simulate_first_steps(const Run& run, Step steps);

// Lines on numbers that are probably wrong by a factor of a thousand or eight: a threshold that never drops
// (milliseconds for seconds), a network that takes nearly all of the time (bits for bytes), or a server's link that
// workers wait for. By simulated first steps of the first seed, as far as a bound on their work allows.
std::string magnitude_notes(std::span<const Run> runs);

// The same by the runs' summaries on the virtual clock; none for a run that was not made.
std::string magnitude_notes(std::span<const Run> runs, const std::vector<std::optional<RunSummary>>& summaries);

}  // namespace syncopate
