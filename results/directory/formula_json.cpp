#include "results/directory/formula_json.hpp"

#include "results/formats/json.hpp"
#include "results/formats/optional_json.hpp"

namespace syncopate {
namespace {}  // namespace

Json json_of_error(double error) { return error > 0 ? Json(error) : Json(nullptr); }

Json json_of(const FormulaTime& formula) {
  const Prediction& prediction = formula.prediction;
  return {{"formula", prediction.formula},
          {"sampled", prediction.is_sampled},
          {"step_time_s", prediction.step_time_s},
          {"communication_s", prediction.communication_s},
          {"kept", prediction.kept},
          {"drop_rate", or_null(prediction.drop_rate)},
          {"sync_step_time_s", prediction.sync_step_time_s},
          {"effective_speedup", prediction.effective_speedup()},
          {"total_time_s", or_null(formula.total_time_s)}};
}

Json json_with_errors(const FormulaTime& formula) {
  const Prediction& prediction = formula.prediction;
  Json json = json_of(formula);
  json["communication_share"] = prediction.communication_share();
  json["mean_staleness"] = or_null(prediction.mean_staleness);
  json["step_time_standard_error_s"] = json_of_error(prediction.step_error_s);
  json["effective_speedup_standard_error"] = json_of_error(prediction.effective_speedup_error());
  return json;
}

FormulaTime formula_of(const Json& json) {
  FormulaTime formula;
  Prediction& prediction = formula.prediction;
  json.at("formula").get_to(prediction.formula);
  prediction.is_sampled = json.value("sampled", false);  // older files do not say it
  json.at("step_time_s").get_to(prediction.step_time_s);
  json.at("communication_s").get_to(prediction.communication_s);
  json.at("kept").get_to(prediction.kept);
  prediction.drop_rate = optional_at<double>(json, "drop_rate");
  json.at("sync_step_time_s").get_to(prediction.sync_step_time_s);
  formula.total_time_s = optional_at<double>(json, "total_time_s");
  return formula;
}

}  // namespace syncopate
