// The results of one run as text, for comparing two runs.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "experiments/execution/execution.hpp"
#include "results/recorder.hpp"
#include "results/run_directory.hpp"

namespace syncopate {

// Executes the run with a thread for the arithmetic. Without it the arithmetic would use workers' stacks, which are too
// small for some of LibTorch's kernels.
inline Outcome outcome_of(const syncopate::Run& run) {
  Progress progress(Progress::Style::silent, 1, 1);
  progress.begin_run(1, run);
  return execute(run, {.threads = 1}, progress, [](const Outcome&) {});
}

inline std::string totals_text(const RunTotals& totals) {
  std::string text = fmt::format("end {} bytes {} collectives {} messages {}\n", totals.end.time_since_epoch().count(),
                                 totals.bytes.value(), totals.collectives, totals.messages);
  for (const auto& [name, counts] : {std::pair("kept", &totals.kept), std::pair("dropped", &totals.dropped),
                                     std::pair("staleness", &totals.staleness)}) {
    text += name;
    for (const auto count : *counts) text += fmt::format(" {}", count);
    text += "\n";
  }
  for (const Account& account : totals.accounts)
    for (const Duration time : account.time) text += fmt::format("{} ", time.count());
  return text + "\n";
}

// Returns everything that the run computes: its rows, its totals, when it met its targets and, if recorded, the bits of
// its last model.
inline std::string results_text(const syncopate::Run& run, const Outcome& outcome) {
  if (!outcome.failure.empty()) return "failed: " + outcome.failure;
  std::string text = metrics_csv(outcome.recording.metrics) + steps_csv(outcome.recording.rows);
  if (!outcome.recording.measurements.empty()) text += measurements_csv(outcome.recording.measurements);
  text += totals_text(*outcome.totals);
  if (const auto target = summarise(run, outcome).time_to_target)
    text += fmt::format("target at step {} after {} s\n", target->step.value_or(-1), target->time_s.value_or(-1));
  for (const auto& model : outcome.recording.parameters)
    for (const float value : model) text += fmt::format("{} ", value);
  return text;
}

// Returns the optional recordings that the run requests.
inline std::string recorded_text(const syncopate::Run& run) {
  const Outcome outcome = outcome_of(run);
  std::string text = fmt::format("{} models\n", outcome.recording.parameters.size());
  if (outcome.timeline) text += trace_events(*outcome.timeline, run, "simulated");
  if (outcome.durations) text += durations_csv(*outcome.durations);
  if (outcome.arrivals) text += arrivals_csv(*outcome.arrivals);
  if (outcome.samples) text += fmt::format("kept of each class: {}\n", fmt::join(outcome.samples->by_class.kept, " "));
  return text;
}

}  // namespace syncopate
