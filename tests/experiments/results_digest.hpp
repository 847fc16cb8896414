// A run's results in a few characters, for tables of results by results_version.
//
// The digest contains all times and counts. Times come from the counter-based streams, so they are equal to the
// nanosecond on every machine. Results of arithmetic differ in their last digits among C libraries and BLAS kernels.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/execution/execution.hpp"
#include "workers/base/files.hpp"

namespace syncopate {

using OrderedJson = nlohmann::ordered_json;

enum class Losses { rounded, left_out };

// Returns a digest of the numbers in metrics.csv and steps.csv, and of the run's totals.
inline std::string digest_of(const Outcome& outcome, Losses losses) {
  std::string text;
  const auto add = [&text](const auto&... numbers) { (fmt::format_to(std::back_inserter(text), "{} ", numbers), ...); };
  const auto add_rounded = [&text](double number) { fmt::format_to(std::back_inserter(text), "{:.5e} ", number); };
  for (const MetricsRow& row : outcome.recording.metrics) {
    add(row.step.value(), row.samples, row.time.time_since_epoch().count(), row.bytes.value());
    if (row.epoch) add_rounded(*row.epoch);
    add_rounded(row.learning_rate);
    if (row.evaluation && losses == Losses::rounded) add_rounded(row.evaluation->test_loss);
  }
  for (const StepRow& round : outcome.recording.rows)
    add(round.step.value(), round.end.time_since_epoch().count(), round.duration.count(), round.kept, round.dropped,
        round.period.value(), round.bytes.value());
  const RunTotals totals = outcome.totals.value_or(RunTotals{});
  for (const Account& account : totals.accounts)
    for (const Duration time : account.time) add(time.count());
  for (const auto* counts : {&totals.kept, &totals.dropped, &totals.staleness})
    for (const std::int64_t count : *counts) add(count);
  add(totals.end.time_since_epoch().count(), totals.bytes.value(), totals.collectives, totals.messages);
  return content_hash(text);
}

inline double seven_digits(double number) { return std::stod(fmt::format("{:.7g}", number)); }

// Returns the digest. For a run with a model, adds its last losses on test and training set and, if it has targets, the
// step at which it met them.
inline OrderedJson digest_and_losses(const syncopate::Run& run, const Outcome& outcome) {
  const std::string digest = digest_of(outcome, Losses::left_out);
  const auto& rows = outcome.recording.metrics;
  if (rows.empty() || !rows.back().evaluation) return digest;
  OrderedJson found = {digest, seven_digits(rows.back().evaluation->test_loss),
                       seven_digits(rows.back().evaluation->train_loss)};
  if (const auto target = summarise(run, outcome).time_to_target) found.push_back(target->step.value_or(-1));
  return found;
}

}  // namespace syncopate
