// Predictions of an experiment's methods, as a table and as JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/execution/time_simulation.hpp"
#include "results/run/run_prediction.hpp"

namespace syncopate {

// What is communicated in the whole run.
struct PredictedCommunication {
  double rounds = 0;      // rows of steps.csv: synchronisations
  double bytes = 0;       // of all workers
  bool is_exact = false;  // by a whole simulation or in closed form; else the first steps' pace, drawn out
};

// Steps and time to a target, by the noise scale that a finished run has measured on its way there.
struct PredictedTarget {
  double batch = 0;  // samples that go into a step, on average
  double steps = 0;
  double step_time_s = 0;  // of these steps
  double time_s = 0;
  bool is_bound = false;  // local steps: as if they were as good as steps along the mean of all gradients
};

struct PredictedMethod {
  std::string method;
  std::string algorithm{};  // as the file names it
  std::vector<std::pair<std::string, std::string>> sweep;
  std::uint64_t seed = 0;
  std::optional<Step> planned_steps;  // of the budget
  std::optional<SimulatedTime> simulated;
  std::optional<double> simulated_speedup;  // S_eff against synchronous SGD's simulation
  double simulated_speedup_error = 0;       // its standard error, as if the two drew delays of their own
  std::string not_simulated;                // why not; empty if it was
  bool failed = false;                      // because the simulation failed
  std::optional<PredictedCommunication> communicated{};
  std::optional<PredictedTarget> target{};  // none: not asked for, or nothing is known of the method
  std::vector<FormulaTime> formulas;        // against the same as the simulation
  std::string why_no_formula;               // empty if there are some
  std::string solved{};                     // what a number of the method was solved for, and gives; empty: nothing was
  bool has_unshared_links = false;          // (NetworkModel::has_unshared_links)
  std::string compared_with{};              // S_eff's, of simulation and formulas: which method; empty: none
};

// A row for the simulation of each method, and one for each of its formulas, or for why there is none.
// `width`: of the terminal, at which the table is broken into several and text folded; 0: there is none.
std::string prediction_table(std::span<const PredictedMethod> methods, std::size_t width = 0);
std::string predictions_json(const std::string& experiment, std::span<const PredictedMethod> methods);

}  // namespace syncopate
