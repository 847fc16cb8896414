#include "results/rows/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "results/formats/exact_seconds.hpp"
#include "results/formats/not_a_number.hpp"

namespace syncopate {
namespace {

std::string cell(std::optional<double> value) {
  return value ? fmt::format("{}", without_sign_of_nan(*value)) : std::string{};
}

// What is not a number was not there to be measured: an accuracy of an objective without one, a validation set.
std::optional<double> measured(double value) {
  if (std::isnan(value)) return {};
  return value;
}

}  // namespace

void cut_after_divergence(Recording& recording) {
  const auto is_divergent = [](const MetricsRow& row) { return row.evaluation && !row.evaluation->finite; };
  const auto first = std::find_if(recording.metrics.begin(), recording.metrics.end(), is_divergent);
  if (first == recording.metrics.end()) return;
  recording.diverged = true;
  const Time end = first->time;
  recording.metrics.erase(std::next(first), recording.metrics.end());
  std::erase_if(recording.rows, [end](const StepRow& row) { return row.end > end; });
  std::erase_if(recording.measurements, [end](const Measurement& row) { return row.time > end; });
}

std::string metrics_csv(std::span<const MetricsRow> rows) {
  const bool is_validated = std::ranges::any_of(
      rows, [](const MetricsRow& row) { return row.evaluation && measured(row.evaluation->validation_loss); });
  std::string text = "step,epoch,samples,time_s,test_loss,test_accuracy,train_loss,learning_rate,communicated_bytes";
  text += is_validated ? ",validation_loss,validation_accuracy\n" : "\n";
  for (const MetricsRow& row : rows) {
    std::optional<double> test_loss, test_accuracy, train_loss, validation_loss, validation_accuracy;
    if (row.evaluation) {
      test_loss = row.evaluation->test_loss;
      test_accuracy = measured(row.evaluation->test_accuracy);
      train_loss = row.evaluation->train_loss;
      validation_loss = row.evaluation->validation_loss;
      validation_accuracy = measured(row.evaluation->validation_accuracy);
    }
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{},{},{},{},{}", row.step.value(), cell(row.epoch),
                   row.samples, exact_seconds(row.time), cell(test_loss), cell(test_accuracy), cell(train_loss),
                   row.learning_rate, row.bytes.value());
    if (is_validated)
      fmt::format_to(std::back_inserter(text), ",{},{}", cell(validation_loss), cell(validation_accuracy));
    text += '\n';
  }
  return text;
}

std::string steps_csv(std::span<const StepRow> rows) {
  std::string text = "step,time_s,duration_s,kept_micro_batches,dropped_micro_batches,period_steps,bytes\n";
  for (const StepRow& row : rows) {
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{},{},{}\n", row.step.value(), exact_seconds(row.end),
                   exact_seconds(row.duration), row.kept, row.dropped, row.period.value(), row.bytes.value());
  }
  return text;
}

std::string measurements_csv(std::span<const Measurement> rows) {
  std::string text = "step,time_s,quantity,value\n";
  for (const Measurement& row : rows)
    fmt::format_to(std::back_inserter(text), "{},{},{},{}\n", row.step.value(), exact_seconds(row.time), row.quantity,
                   cell(row.value));
  return text;
}

}  // namespace syncopate
