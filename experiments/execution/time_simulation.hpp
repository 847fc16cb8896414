// The short, time-only simulation behind a prediction: the run's own method, delays and network on the virtual
// clock, without model and data, for as many steps as a bound on work allows.
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

// What a run communicates by its method's schedule alone, whatever clocks and budgets do; and so whether some of its
// steps, which are simulated, stand for all.
// Units:   steps of the experiment file.
// Cost:    a method's closed form goes round by round; what has been asked is kept.
// Checks:  closed forms of scheduled periods (tests/experiments/predict_test.cpp).
class ScheduledRounds {
 public:
  explicit ScheduledRounds(const Run& run);

  // False where clocks or values have a say in it, or the model's tensors are needed and not known.
  bool are_known() const { return known_; }
  // Of a run of so many steps, in which nobody leaves or loses anything. They are known.
  Communicated until(Step steps) const;

  // Whether they can be counted in a moment.
  bool are_countable(Step steps) const;
  // The last step within [at_least, at_most] at which a round, and with it a cycle of the method, ends; if there is none,
  // the first one after them and up to `limit`; else, or where rounds are not known, at_most.
  Step end_of_round(Step at_least, Step at_most, Step limit) const;

  // Whether a run of `all` steps has the rounds and the bytes, within 1 %, that it would have if all went on as between
  // the step after which its method settles and the step `first`, and no round of few is cut off there. Always where they
  // are not known.
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
  Step steps{};        // simulated
  bool whole = false;  // to the end of the budget; false: the first steps, extrapolated to the rest
  double step_time_s = 0;
  std::optional<double> error_s{};       // standard error of step_time_s
  double drop_rate = 0;                  // dropped / (kept + dropped)
  double communication_share = 0;        // of all workers' time
  double computing_share = 0;            // of the same: of what was kept and of what was discarded
  double longest_round_s = 0;            // of those simulated
  double micro_batches_per_s = 0;        // that went into the model
  std::optional<double> pace_error{};    // standard error of micro_batches_per_s
  std::optional<double> total_time_s{};  // of the budget; none where that cannot be told
  double rounds = 0;  // rows of steps.csv, of the whole run; of all that is not whole at the last pace
  double bytes = 0;   // that all workers communicate in it, likewise
};

// Roughly 20 ns of this machine's time each, so that the length of a simulation depends on the file alone.
std::int64_t work_of(const Run& run, Step steps);

// Simulates at most so many steps. Throws RunFailure, Interrupted.
SimulatedTime simulate_time(const Run& run, Step at_most);

// How much of each run `predict` simulates: all of it where a bound on the work of all runs together allows, else its
// first steps, where these stand for the rest. What methods need to settle comes on top of that bound.
// Units:   as time_simulation.hpp.
struct Simulation {
  std::optional<SimulatedTime> time{};
  std::string why_none{};  // empty if there is one
  bool failed = false;     // there is none because the run would fail
};

// Run by run. Throws Interrupted.
std::vector<Simulation> simulate_all(const std::vector<Run>& runs);

// What so many first steps of a run take, as if they were its budget; none where they are too many, or fail.
std::optional<SimulatedTime> simulate_first_steps(const Run& run, Step steps);

// Notes on numbers that are probably a thousand times, or eight times, what was meant: a threshold that never drops
// (milliseconds for seconds), a network that takes nearly all of the time (bits for bytes), and
// a server's link that workers wait for.
// A line each, of methods and points of what varies; empty: there is nothing to note. `check` goes by first steps, of
// the first seed, which are simulated as far as a bound on all of them together allows.
std::string magnitude_notes(std::span<const Run> runs);

// The same by how the runs went on the virtual clock; run by run, none where a run was not made.
std::string magnitude_notes(std::span<const Run> runs, const std::vector<std::optional<RunSummary>>& summaries);

}  // namespace syncopate
