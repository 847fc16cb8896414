// What a formula says of a run's time, as it stands in summary.json and in what `predict --json` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "results/run/run_prediction.hpp"

namespace syncopate {

nlohmann::ordered_json json_of(const FormulaTime& formula);

// Throws nlohmann's exceptions for what is no formula. Files of earlier versions have no standard errors.
FormulaTime formula_of(const nlohmann::ordered_json& json);

}  // namespace syncopate
