#include "results/rows/measures.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace syncopate {
namespace {

using Run = const RunSummary&;
using Number = std::optional<double>;

Number per_virtual_s(Run run, std::int64_t count) {
  return run.end_time_s > 0 ? Number(static_cast<double>(count) / run.end_time_s) : std::nullopt;
}

template <typename Value>
Number of_target(Run run, Value value) {
  if (!run.time_to_target) return {};
  const auto found = value(*run.time_to_target);
  return found ? Number(static_cast<double>(*found)) : std::nullopt;
}

// Of the last of the bins of lengths.
Number of_longest(Run run, std::vector<double> KeptSamples::*of_bins) {
  if (!run.samples_kept || ((*run.samples_kept).*of_bins).empty()) return {};
  const double value = ((*run.samples_kept).*of_bins).back();
  return std::isfinite(value) ? Number(value) : std::nullopt;
}

Number kept_share_of_longest(Run run) {
  if (!run.samples_kept || run.samples_kept->by_length.kept.empty()) return {};
  const std::vector<std::int64_t>& kept = run.samples_kept->by_length.kept;
  const std::int64_t all = std::accumulate(kept.begin(), kept.end(), std::int64_t{0});
  return all > 0 ? Number(static_cast<double>(kept.back()) / static_cast<double>(all)) : std::nullopt;
}

Number formula_share(Run run, bool is_first) {
  if (run.predicted.empty() || run.step_time_s() <= 0) return {};
  const FormulaTime& formula = is_first ? run.predicted.front() : run.predicted.back();
  return formula.prediction.step_time_s / run.step_time_s();
}

// None where a micro-batch of a step may be neither kept nor dropped, so that drops do not say what is kept.
Number formula_throughput_share(Run run) {
  if (run.predicted.empty() || run.step_time_s() <= 0 || run.kept_micro_batches <= 0) return {};
  const Prediction& formula = run.predicted.front().prediction;
  constexpr double rounding = 1e-9;
  if (!formula.drop_rate || std::abs(1 - *formula.drop_rate - formula.kept) > rounding) return {};
  return formula.kept / formula.step_time_s / ((1 - run.drop_rate()) / run.step_time_s());
}

const std::vector<Measure>& list() {
  using enum Better;
  static const std::vector<Measure> all = {
      {"final_test_accuracy", "accuracy %", "%", "Share of the test set that the last model has right.", more, 100,
       [](Run run) { return run.final_test_accuracy; }},
      {"best_test_accuracy", "best accuracy %", "%", "The highest of all evaluations.", more, 100,
       [](Run run) { return run.best_test_accuracy; }},
      {"final_test_loss", "test loss", "", "Of the last model.", less, 1, [](Run run) { return run.final_test_loss; }},
      {"best_test_loss", "best test loss", "", "The lowest of all evaluations.", less, 1,
       [](Run run) { return run.best_test_loss; }},
      {"final_train_loss", "training loss", "", "Of the last model, on evaluation.train_samples.", less, 1,
       [](Run run) { return run.final_train_loss; }},
      {"final_validation_accuracy", "validation accuracy %", "%", "Of the last model, on what was held out.", more, 100,
       [](Run run) { return run.final_validation_accuracy; }},
      {"best_validation_accuracy", "best validation accuracy %", "%", "The highest of all evaluations.", more, 100,
       [](Run run) { return run.best_validation_accuracy; }},
      {"final_validation_loss", "validation loss", "", "Of the last model, on what was held out.", less, 1,
       [](Run run) { return run.final_validation_loss; }},
      {"best_validation_loss", "best validation loss", "", "The lowest of all evaluations.", less, 1,
       [](Run run) { return run.best_validation_loss; }},
      {"final_largest_eigenvalue", "largest eigenvalue", "",
       "Of the Hessian, at the last measurement; where `[measurements]` has it.", less, 1,
       [](Run run) { return run.final_largest_eigenvalue; }, ComparedBy::ratio, "eigenvalues, times"},
      {"final_hessian_trace", "trace", "", "Of the Hessian, at the last measurement; where `[measurements]` has it.",
       less, 1, [](Run run) { return run.final_hessian_trace; }, ComparedBy::ratio, "traces, times"},
      {"longest_test_accuracy", "accuracy of the longest %", "%",
       "Of the last of eight bins of lengths; where `recording.samples` has it.", more, 100,
       [](Run run) { return of_longest(run, &KeptSamples::test_accuracy); }},
      {"longest_kept_share", "the longest among kept %", "%",
       "Of the samples in the model, the share of the last of these bins; where `recording.samples` has it.", neither,
       100, kept_share_of_longest},
      {"time_to_target_s", "to target s", "s", "Until the first evaluation that met the target.", less, 1,
       [](Run run) { return of_target(run, [](const TimeToTarget& target) { return target.time_s; }); }},
      {"steps_to_target", "steps to target", "steps", "Steps until then.", less, 1,
       [](Run run) { return of_target(run, [](const TimeToTarget& target) { return target.step; }); }},
      {"samples_to_target", "samples to target", "samples", "Samples until then.", less, 1,
       [](Run run) { return of_target(run, [](const TimeToTarget& target) { return target.samples; }); }},
      {"mean_squared_gradient_norm", "squared gradient norm", "",
       "Mean over models, weighted by the samples of the steps from there; measured at every step.", less, 1,
       [](Run run) { return run.mean_squared_gradient_norm; }},
      {"end_time_s", "time s", "s", "The end of the run, on the cluster's clock.", less, 1,
       [](Run run) { return Number(run.end_time_s); }},
      {"step_time_s", "s/step", "s", "That, per step.", less, 1, [](Run run) { return Number(run.step_time_s()); },
       ComparedBy::speed_up, "speed-up of steps"},
      {"first_formula_over_step_time", "formula / measured", "",
       "What the paper's own formula says of a step's time, divided by what it took.", neither, 1,
       [](Run run) { return formula_share(run, true); }},
      {"last_formula_over_step_time", "best formula / measured", "",
       "The same of the formula that assumes least, which the table shows.", neither, 1,
       [](Run run) { return formula_share(run, false); }},
      {"first_formula_over_throughput", "formula / measured throughput", "",
       "What it says of micro-batches/s, divided by what there were; a ratio to synchronous SGD's is one of S_eff.",
       neither, 1, formula_throughput_share},
      {"communication_s", "communication s/step", "s", "Of a worker per step, on average over the workers.", less, 1,
       [](Run run) { return run.communication_s(); }},
      {"steps", "steps", "steps", "Optimizer steps of a worker, or of the server.", neither, 1,
       [](Run run) { return Number(static_cast<double>(run.steps)); }},
      {"rounds", "syncs", "rounds", "Synchronisations.", less, 1,
       [](Run run) { return Number(static_cast<double>(run.rounds)); }},
      {"largest_period", "largest period", "steps", "Most steps from one synchronisation to the next.", neither, 1,
       [](Run run) { return run.largest_period ? Number(static_cast<double>(*run.largest_period)) : std::nullopt; }},
      {"samples", "samples", "samples", "That ended up in the model.", neither, 1,
       [](Run run) { return Number(static_cast<double>(run.samples)); }},
      {"communicated_bytes", "sent bytes", "bytes", "By all workers and servers together.", less, 1,
       [](Run run) { return Number(static_cast<double>(run.communicated_bytes)); }, ComparedBy::ratio, "bytes, times"},
      {"drop_rate", "dropped %", "%", "Share of the micro-batches that did not end up in the model.", neither, 100,
       [](Run run) { return Number(run.drop_rate()); }},
      {"mean_staleness", "staleness steps", "steps", "Steps between the model of a gradient and its use.", neither, 1,
       [](Run run) { return run.mean_staleness(); }},
      {"micro_batches_per_s", "micro-batches/s", "micro-batches/s",
       "That end up in the model, per second of the cluster's clock.", more, 1,
       [](Run run) { return per_virtual_s(run, run.kept_micro_batches); }, ComparedBy::ratio, "S_eff"},
      {"samples_per_s", "samples/s", "samples/s", "That end up in the model, per second of the cluster's clock.", more,
       1, [](Run run) { return per_virtual_s(run, run.samples); }},
  };
  return all;
}

}  // namespace

std::span<const Measure> measures() { return list(); }

const Measure* measure_named(std::string_view name) {
  const auto found = std::ranges::find(list(), name, &Measure::name);
  return found == list().end() ? nullptr : &*found;
}

}  // namespace syncopate
