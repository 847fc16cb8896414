#include "results/directory/formula_json.hpp"

#include <nlohmann/json.hpp>

#include "results/formats/optional_json.hpp"

namespace syncopate {
namespace {

using Json = nlohmann::ordered_json;

// None for a formula that does not go by a sample.
Json json_of_error(double error) { return error > 0 ? Json(error) : Json(nullptr); }

double error_at(const Json& json, const char* key) {
  return json.contains(key) ? optional_at<double>(json, key).value_or(0) : 0;
}

}  // namespace

Json json_of(const FormulaTime& formula) {
  const Prediction& prediction = formula.prediction;
  return {{"formula", prediction.formula},
          {"step_time_s", prediction.step_time_s},
          {"step_time_standard_error_s", json_of_error(prediction.step_error_s)},
          {"communication_s", prediction.communication_s},
          {"communication_share", prediction.communication_share()},
          {"kept", prediction.kept},
          {"kept_standard_error", json_of_error(prediction.kept_error)},
          {"drop_rate", or_null(prediction.drop_rate)},
          {"sync_step_time_s", prediction.sync_step_time_s},
          {"sync_step_time_standard_error_s", json_of_error(prediction.sync_step_error_s)},
          {"effective_speedup", prediction.effective_speedup()},
          {"effective_speedup_standard_error", json_of_error(prediction.effective_speedup_error())},
          {"total_time_s", or_null(formula.total_time_s)}};
}

FormulaTime formula_of(const Json& json) {
  FormulaTime formula;
  Prediction& prediction = formula.prediction;
  json.at("formula").get_to(prediction.formula);
  json.at("step_time_s").get_to(prediction.step_time_s);
  prediction.step_error_s = error_at(json, "step_time_standard_error_s");
  json.at("communication_s").get_to(prediction.communication_s);
  json.at("kept").get_to(prediction.kept);
  prediction.kept_error = error_at(json, "kept_standard_error");
  prediction.drop_rate = optional_at<double>(json, "drop_rate");
  json.at("sync_step_time_s").get_to(prediction.sync_step_time_s);
  prediction.sync_step_error_s = error_at(json, "sync_step_time_standard_error_s");
  formula.total_time_s = optional_at<double>(json, "total_time_s");
  return formula;
}

}  // namespace syncopate
