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
  std::vector<FormulaTime> formulas;
  std::string why_no_formula;   // empty if there are some
  std::string compared_with{};  // S_eff's, of simulation and formulas: which synchronous SGD; empty: none
};

// A row for the simulation of each method, and one for each of its formulas, or for why there is none.
std::string prediction_table(std::span<const PredictedMethod> methods);
std::string predictions_json(const std::string& experiment, std::span<const PredictedMethod> methods);

}  // namespace syncopate
