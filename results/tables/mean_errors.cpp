#include "results/tables/mean_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "results/tables/result_table.hpp"
#include "results/tables/text_table.hpp"
#include "workers/process/shown_number.hpp"

namespace syncopate {
namespace {

std::string cell(const PairedDifference& errors, const char* unit) {
  std::string text = error_text(100 * errors.mean) + unit;
  if (errors.interval)
    text += fmt::format(" [{}, {}]", error_text(100 * errors.interval->low), error_text(100 * errors.interval->high));
  return text;
}

TextTable table_of(std::span<const MeanError> errors, const Tolerances& tolerances) {
  TextTable table;
  table.add_column("over seeds", Align::left);
  table.add_column("seeds", Align::right);
  table.add_column("error of\ns/step", Align::right);
  table.add_column("error of dropped\npoints", Align::right);
  table.add_column("verdict", Align::left);
  for (const MeanError& error : errors)
    table.add_row({error.label, std::to_string(error.step_time.n), cell(error.step_time, " %"),
                   cell(error.drop_rate, ""), error.verdict(tolerances).text()});
  return table;
}

const char* const note = "Means over seeds, and in brackets their 95 % intervals (Student's t).\n";

}  // namespace

Verdict MeanError::verdict(const Tolerances& tolerances) const {
  return {.step_time_is_off = !(std::abs(step_time.mean) <= tolerances.step_time),
          .drop_rate_is_off = !(std::abs(drop_rate.mean) <= tolerances.drop_rate)};
}

std::vector<MeanError> mean_errors(std::span<const ComparedRun> runs) {
  std::vector<std::string> labels;
  for (const ComparedRun& run : runs)
    if (std::string label = row_label(run.simulated); std::ranges::find(labels, label) == labels.end())
      labels.push_back(std::move(label));
  std::vector<MeanError> errors;
  for (const std::string& label : labels) {
    std::vector<double> step_times, drop_rates;
    bool has_failed = false;
    for (const ComparedRun& run : runs) {
      if (row_label(run.simulated) != label) continue;
      has_failed |= !run.failure.empty();
      if (has_failed) break;
      step_times.push_back(step_time_error(run));
      drop_rates.push_back(drop_rate_error(run));
    }
    if (!has_failed && step_times.size() > 1)
      errors.push_back({label, paired_difference(step_times), paired_difference(drop_rates)});
  }
  return errors;
}

std::string mean_errors_text(std::span<const MeanError> errors, const Tolerances& tolerances) {
  return errors.empty() ? "" : table_of(errors, tolerances).text() + note;
}

std::string mean_errors_markdown(std::span<const MeanError> errors, const Tolerances& tolerances) {
  return errors.empty() ? "" : table_of(errors, tolerances).markdown() + "\n" + note;
}

}  // namespace syncopate
