#include "experiments/commands/prediction_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "results/directory/formula_json.hpp"
#include "results/directory/summary_json.hpp"
#include "results/formats/json.hpp"
#include "results/formats/optional_json.hpp"
#include "results/tables/folded_text.hpp"
#include "results/tables/result_table.hpp"
#include "results/tables/sampled_note.hpp"
#include "results/tables/short_reason.hpp"
#include "results/tables/text_table.hpp"
#include "workers/process/shown_number.hpp"

namespace syncopate {
namespace {

constexpr std::size_t leading_columns = 2;  // which method, and by what

// An error that six digits do not show is left out.
std::string seconds(std::optional<double> value, double error = 0) {
  if (!value) return "-";
  return mean_and_deviation({1, *value, error > 1e-6 * *value ? error : 0});
}

std::string percent(std::optional<double> share) { return share ? with_decimals(100 * *share, 1) : "-"; }

// With as many digits as its error has a meaning for.
std::string speedup(std::optional<double> value, double error) {
  if (!value) return "-";
  if (error > 1e-6 * *value) return mean_and_deviation({1, *value, error});
  return with_decimals(*value, 3);
}

// What is not exact is so marked.
std::string rounds_of(const std::optional<PredictedCommunication>& communicated) {
  if (!communicated) return "-";
  return fmt::format("{}{:.0f}", communicated->is_exact ? "" : "~", communicated->rounds);
}

std::string bytes_of(const std::optional<PredictedCommunication>& communicated) {
  if (!communicated) return "-";
  double bytes = communicated->bytes;
  const char* prefix = "";
  for (const char* const next : {"k", "M", "G", "T", "P", "E"}) {
    if (bytes < 1000) break;
    bytes /= 1000;
    prefix = next;
  }
  return fmt::format("{}{:.4g}{}", communicated->is_exact ? "" : "~", bytes, prefix);
}

// Which part of the run was simulated.
std::string source_of(const PredictedMethod& method) {
  std::string source = "simulation";
  const SimulatedTime& simulated = *method.simulated;
  if (simulated.whole) return source;
  source += fmt::format(", {}", simulated.steps.value());
  if (method.planned_steps) source += fmt::format(" of {}", method.planned_steps->value());
  return source + " steps";
}

std::vector<std::string> row_of_simulation(const PredictedMethod& method) {
  if (!method.simulated)
    return {short_reason(method.not_simulated), "-", "-", "-", "-", "-", rounds_of(method.communicated),
            bytes_of(method.communicated)};
  const SimulatedTime& simulated = *method.simulated;
  return {source_of(method),
          seconds(simulated.step_time_s, simulated.error_s.value_or(0)),
          speedup(method.simulated_speedup, method.simulated_speedup_error),
          percent(simulated.drop_rate),
          percent(simulated.communication_share),
          seconds(simulated.total_time_s),
          rounds_of(method.communicated),
          bytes_of(method.communicated)};
}

std::vector<std::string> row_of_formula(const FormulaTime& formula) {
  const Prediction& prediction = formula.prediction;
  return {
      prediction.formula,
      seconds(prediction.step_time_s, prediction.step_error_s),
      speedup(std::isnan(prediction.effective_speedup()) ? std::nullopt : std::optional(prediction.effective_speedup()),
              prediction.effective_speedup_error()),
      percent(prediction.drop_rate),
      percent(prediction.communication_share()),
      seconds(formula.total_time_s),
      "",
      ""};
}

std::string label_of(const PredictedMethod& method) {
  RunSummary named;
  named.method = method.method;
  named.sweep = method.sweep;
  return row_label(named);
}

Json json_of(const PredictedMethod& method) {
  Json simulated = nullptr;
  if (method.simulated) {
    const SimulatedTime& time = *method.simulated;
    simulated = {{"steps", time.steps.value()},
                 {"whole", time.whole},
                 {"step_time_s", time.step_time_s},
                 {"step_time_standard_error_s", or_null(time.error_s)},
                 {"effective_speedup", or_null(method.simulated_speedup)},
                 {"effective_speedup_standard_error", json_of_error(method.simulated_speedup_error)},
                 {"drop_rate", time.drop_rate},
                 {"communication_share", time.communication_share},
                 {"total_time_s", or_null(time.total_time_s)}};
  }
  Json formulas = Json::array();
  for (const FormulaTime& formula : method.formulas) formulas.push_back(json_with_errors(formula));
  return {{"method", method.method},
          {"algorithm", method.algorithm},
          {"sweep", method.sweep},
          {"seed", method.seed},
          {"planned_steps", method.planned_steps ? Json(method.planned_steps->value()) : Json(nullptr)},
          {"rounds", method.communicated ? Json(std::llround(method.communicated->rounds)) : Json(nullptr)},
          {"communicated_bytes", method.communicated ? Json(std::llround(method.communicated->bytes)) : Json(nullptr)},
          {"communication_is_exact", method.communicated ? Json(method.communicated->is_exact) : Json(nullptr)},
          {"to_target", method.target ? Json{{"batch", method.target->batch},
                                             {"steps", method.target->steps},
                                             {"step_time_s", method.target->step_time_s},
                                             {"time_s", method.target->time_s},
                                             {"is_bound", method.target->is_bound}}
                                      : Json(nullptr)},
          {"solved", method.solved.empty() ? Json(nullptr) : Json(method.solved)},
          {"against", method.compared_with.empty() ? Json(nullptr) : Json(method.compared_with)},
          {"links", method.has_unshared_links ? Json(unshared_links) : Json(nullptr)},
          {"simulated", std::move(simulated)},
          {"not_simulated", method.not_simulated.empty() ? Json(nullptr) : Json(method.not_simulated)},
          {"formulas", std::move(formulas)},
          {"no_formula", method.why_no_formula.empty() ? Json(nullptr) : Json(method.why_no_formula)}};
}

}  // namespace

std::string prediction_table(std::span<const PredictedMethod> methods, std::size_t width) {
  TextTable table, narrow;
  for (TextTable* one : {&table, &narrow}) {
    for (const char* heading : {"method", "by"}) one->add_column(heading, Align::left);
    for (const char* heading :
         {"s/step", "S_eff", "dropped\n%", "communication\n%", "total\ns", "rounds", "sent\nbytes"})
      one->add_column(heading, Align::right);
  }
  const auto add = [&](const std::string& label, std::vector<std::string> cells) {
    cells.insert(cells.begin(), label);
    table.add_row(cells);
    for (std::size_t i = 1; i < cells.size(); ++i) cells[i] = squeezed(std::move(cells[i]));
    narrow.add_row(std::move(cells));
  };
  std::string notes;
  bool is_sampled = false, has_bounds = false;
  std::vector<std::string> compared_with;  // in their order
  for (const PredictedMethod& method : methods) {
    add(label_of(method), row_of_simulation(method));
    if (!method.compared_with.empty() && std::ranges::find(compared_with, method.compared_with) == compared_with.end())
      compared_with.push_back(method.compared_with);
    notes += note_of_reason(label_of(method), method.not_simulated);
    if (!method.solved.empty()) notes += fmt::format("{}: {}\n", label_of(method), method.solved);
    for (const FormulaTime& formula : method.formulas) {
      add("", row_of_formula(formula));
      is_sampled |= formula.prediction.is_sampled;
      has_bounds |= formula.prediction.formula.ends_with("(lower bound)");
      if (const auto staleness = formula.prediction.mean_staleness)
        notes += fmt::format("{}: a mean staleness of {} updates, whatever its workers' times\n", label_of(method),
                             shown_number(*staleness));
    }
    if (method.formulas.empty()) add("", {"no formula: " + method.why_no_formula, "-", "-", "-", "-", "-", "", ""});
  }
  if (std::ranges::any_of(methods,
                          [](const PredictedMethod& m) { return m.communicated && !m.communicated->is_exact; }))
    notes += "~: as in the steps that were simulated, drawn out\n";
  for (const std::string& baseline : compared_with) notes += fmt::format("S_eff: against {}\n", baseline);
  std::vector<std::string> of_unshared;
  for (const PredictedMethod& method : methods)
    if (method.has_unshared_links) of_unshared.push_back(label_of(method));
  notes += unshared_links_text(of_unshared, of_unshared.size() == methods.size());
  if (has_bounds) notes += "Lower bound: a step takes at least so long, and S_eff is at most so large.\n";
  if (is_sampled) notes += note_of_sampled();
  const std::string text =
      width == 0 || table.width() <= width ? table.text() : narrow.folded_text(width, leading_columns);
  return notes.empty() ? text : text + "\n" + fold_lines(notes, width);
}

std::string predictions_json(const std::string& experiment, std::span<const PredictedMethod> methods) {
  Json list = Json::array();
  for (const PredictedMethod& method : methods) list.push_back(json_of(method));
  const Json json = {{"experiment", experiment}, {"predictions", std::move(list)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace syncopate
