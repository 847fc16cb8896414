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

// An accuracy that is not a number is one that the objective does not have.
std::optional<double> accuracy(const Evaluation& evaluation) {
  if (std::isnan(evaluation.test_accuracy)) return {};
  return evaluation.test_accuracy;
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
}

std::string metrics_csv(std::span<const MetricsRow> rows) {
  std::string text = "step,epoch,samples,time_s,test_loss,test_accuracy,train_loss,learning_rate,communicated_bytes\n";
  for (const MetricsRow& row : rows) {
    std::optional<double> test_loss, test_accuracy, train_loss;
    if (row.evaluation) {
      test_loss = row.evaluation->test_loss;
      test_accuracy = accuracy(*row.evaluation);
      train_loss = row.evaluation->train_loss;
    }
    fmt::format_to(std::back_inserter(text), "{},{},{},{},{},{},{},{},{}\n", row.step.value(), cell(row.epoch),
                   row.samples, exact_seconds(row.time), cell(test_loss), cell(test_accuracy), cell(train_loss),
                   row.learning_rate, row.bytes.value());
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

}  // namespace syncopate
