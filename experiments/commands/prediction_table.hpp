// Predictions of an experiment's methods, as a table and as JSON.
#pragma once

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

struct PredictedMethod {
  std::string method;
  std::vector<std::pair<std::string, std::string>> sweep;
  std::uint64_t seed = 0;
  std::optional<Step> planned_steps;  // of the budget
  std::optional<SimulatedTime> simulated;
  std::optional<double> simulated_speedup;  // S_eff against synchronous SGD's simulation
  double simulated_speedup_error = 0;       // its standard error, as if the two drew delays of their own
  std::string not_simulated;                // why not; empty if it was
  bool failed = false;                      // because the simulation failed
  std::optional<PredictedCommunication> communicated{};
  std::vector<FormulaTime> formulas;  // against the same as the simulation
  std::string why_no_formula;         // empty if there are some
  std::string solved{};               // what a number of the method was solved for, and gives; empty: nothing was
  std::string compared_with{};        // S_eff's, of simulation and formulas: which method; empty: none
};

// A row for the simulation of each method, and one for each of its formulas, or for why there is none.
std::string prediction_table(std::span<const PredictedMethod> methods);
std::string predictions_json(const std::string& experiment, std::span<const PredictedMethod> methods);

}  // namespace syncopate
