// What a formula says of a run's time, as it stands in summary.json and in what `predict --json` prints.
#pragma once

#include "results/formats/json.hpp"
#include "results/run/run_prediction.hpp"

namespace syncopate {

Json json_of(const FormulaTime& formula);           // of summary.json
Json json_with_errors(const FormulaTime& formula);  // of `predict --json`: the same and standard errors

Json json_of_error(double error);  // null where nothing was drawn

// What json_of wrote. Throws nlohmann's exceptions for what is no formula.
FormulaTime formula_of(const Json& json);

}  // namespace syncopate
