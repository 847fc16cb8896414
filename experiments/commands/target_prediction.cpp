#include "experiments/commands/target_prediction.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "experiments/execution/scheduled_rounds.hpp"
#include "experiments/execution/simulations.hpp"
#include "results/directory/found_runs.hpp"
#include "results/directory/run_directory.hpp"
#include "results/run/run_prediction.hpp"
#include "results/tables/folded_text.hpp"
#include "results/tables/result_table.hpp"
#include "results/tables/text_table.hpp"
#include "workers/process/printable.hpp"
#include "workers/process/shown_number.hpp"

namespace syncopate {
namespace {

std::vector<FoundRun> runs_below(const std::string& directory) {
  try {
    return find_runs(directory);
  } catch (const ResultsDirectoryFault& fault) {
    throw ConfigurationFault(fmt::format("--to-target {}", fault.what()));
  }
}

const Run& run_of(const PredictedMethod& method, const Experiment& experiment) {
  return *std::ranges::find_if(experiment.runs, [&](const Run& run) {
    return run.method == method.method && run.sweep == method.sweep && run.seed == method.seed;
  });
}

std::string label_of(const PredictedMethod& method) {
  RunSummary named;
  named.method = method.method;
  named.sweep = method.sweep;
  return row_label(named);
}

// "an accuracy of 0.55", "a loss of 0.4", or both.
std::string target_text(std::optional<double> accuracy, std::optional<double> loss) {
  std::string text;
  if (accuracy) text = fmt::format("an accuracy of {:.6g}", *accuracy);
  if (loss) text += fmt::format("{}a loss of {:.6g}", text.empty() ? "" : " and ", *loss);
  return text;
}

std::optional<double> number_of(const std::string& value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool is_number = error == std::errc() && end == value.data() + value.size();
  return is_number ? std::optional(number) : std::nullopt;
}

// Of the best setting's swept numbers those beyond which the file tries none: a better one may lie there.
std::string edges_of(const PredictedMethod& best, std::span<const PredictedMethod> methods) {
  std::string text;
  for (const auto& [key, value] : best.sweep) {
    const std::optional<double> own = number_of(value);
    bool is_least = own.has_value(), is_most = own.has_value(), is_alone = true;
    for (const PredictedMethod& other : methods)
      for (const auto& [other_key, other_value] : other.sweep) {
        const auto number = number_of(other_value);
        if (!own || !number || other_key != key || other.method != best.method) continue;
        is_least &= *own <= *number;
        is_most &= *own >= *number;
        is_alone &= *own == *number;
      }
    if (!is_alone && (is_least || is_most))
      text += fmt::format("{} = {} is the {} that the file sweeps: a better one may lie beyond\n", printable(key),
                          printable(value), is_least ? "least" : "most");
  }
  return text;
}

// Of the steps that are needed alone, where those of the whole run have another pace or batch, or are too many to
// simulate; none where those needed are, too.
std::optional<PredictedTarget> way_to_target(const Run& run, const std::optional<SimulatedTime>& whole,
                                             const StepsByBatch& target) {
  constexpr int most_rounds = 4;  // of better guesses
  constexpr Step first_guess = 100;
  const ScheduledRounds rounds(run);
  std::optional<SimulatedTime> time = whole ? whole : simulate_first_steps(run, first_guess);
  if (!time) return std::nullopt;
  PredictedTarget predicted;
  for (int round = 0;; ++round) {
    const Step last = std::llround(std::ceil(predicted.steps));
    predicted.batch =
        time->micro_batches_per_s * time->step_time_s * static_cast<double>(run.training.samples_per_micro_batch);
    if (!(predicted.batch > 0)) return std::nullopt;
    predicted.steps = target.steps(predicted.batch);
    predicted.step_time_s = time->step_time_s;
    predicted.time_s = predicted.steps * predicted.step_time_s;
    if (whole && !whole->total_time_s) return predicted;
    const Step needed = std::llround(std::ceil(predicted.steps));
    if (needed == last || round == most_rounds) return predicted;
    if (whole) {
      const Step all = std::llround(*whole->total_time_s / whole->step_time_s);
      if (needed >= all || (settles_after(run) == 0 && rounds.stand_for_all(needed, all))) return predicted;
    }
    time = simulate_first_steps(run, needed);
    if (!time) return std::nullopt;
  }
}

}  // namespace

TargetRuns read_target_runs(const std::string& directory) {
  const auto fault = [&](const std::string& why) {
    return ConfigurationFault(fmt::format("--to-target {}: {}", directory, why));
  };
  const std::vector<FoundRun> runs = runs_below(directory);
  TargetRuns target;
  std::set<std::string> methods;
  for (const FoundRun& run : runs) methods.insert(run.summary.method);
  if (methods.size() > 1) throw fault("has runs of several methods; must be the directory of one method's runs");
  target.method = *methods.begin();
  std::set<std::string> targets;
  for (const FoundRun& run : runs) {
    if (!run.summary.time_to_target)
      throw fault("its runs have no target; evaluation.target_accuracy or evaluation.target_loss sets one");
    target.accuracy = run.summary.time_to_target->target_accuracy;
    target.loss = run.summary.time_to_target->target_loss;
    targets.insert(target_text(target.accuracy, target.loss));
    if (!run.summary.steps_by_batch) continue;
    ++target.count;
    target.steps.least += run.summary.steps_by_batch->least;
    target.steps.times_batch += run.summary.steps_by_batch->times_batch;
    target.steps.mean_noise_scale += run.summary.steps_by_batch->mean_noise_scale;
  }
  if (targets.size() > 1)
    throw fault(fmt::format("its runs have several targets, {}; must have one", fmt::join(targets, ", ")));
  if (target.count == 0)
    throw fault(
        fmt::format("none of its {} runs has both reached its target and measured noise scales before "
                    "(measurements.noise_scale = true)",
                    runs.size()));
  target.steps.least /= target.count;
  target.steps.times_batch /= target.count;
  target.steps.mean_noise_scale /= target.count;
  return target;
}

void check_target(const Experiment& experiment, const TargetRuns& target) {
  for (const Run& run : experiment.runs) {
    const EvaluationPlan& plan = run.evaluation;
    const bool is_other = plan.target_accuracy != target.accuracy || plan.target_loss != target.loss;
    if (!is_other || (!plan.target_accuracy && !plan.target_loss)) continue;
    throw ConfigurationFault(
        fmt::format("--to-target: {} has a target of {}, and the runs of \"{}\" had one of {}: must be the same, or "
                    "left out in the file (~evaluation.target_accuracy, ~evaluation.target_loss)",
                    experiment.file, target_text(plan.target_accuracy, plan.target_loss), printable(target.method),
                    target_text(target.accuracy, target.loss)));
  }
}

void predict_target(std::span<PredictedMethod> methods, const Experiment& experiment, const TargetRuns& target) {
  for (PredictedMethod& method : methods) {
    const Run& run = run_of(method, experiment);
    const Traits traits = run.algorithm->traits();
    if (!traits.steps_along_fresh_mean && !traits.publishes_rounds) continue;
    method.target = way_to_target(run, method.simulated, target.steps);
    if (method.target) method.target->is_bound = !traits.steps_along_fresh_mean;
  }
}

std::string target_table(std::span<const PredictedMethod> methods, const TargetRuns& target, std::size_t width) {
  std::vector<const PredictedMethod*> known;
  std::vector<std::string> unknown;
  for (const PredictedMethod& method : methods) {
    if (method.target)
      known.push_back(&method);
    else
      unknown.push_back(label_of(method));
  }
  std::ranges::stable_sort(known, {}, [](const PredictedMethod* method) { return method->target->time_s; });
  TextTable table;
  table.add_column("method", Align::left);
  for (const char* const heading : {"batch\nsamples", "steps", "s/step", "to target\ns"})
    table.add_column(heading, Align::right);
  bool has_bound = false;
  for (const PredictedMethod* method : known) {
    const PredictedTarget& to_target = *method->target;
    const char* const mark = to_target.is_bound ? ">= " : "";
    has_bound |= to_target.is_bound;
    table.add_row({label_of(*method), fmt::format("{:.1f}", to_target.batch),
                   fmt::format("{}{:.0f}", mark, to_target.steps), shown_number(to_target.step_time_s),
                   mark + shown_number(to_target.time_s)});
  }
  const std::string heading = fmt::format(
      "To {}, the target of \"{}\": at a batch of B samples {:.0f} + {:.0f} / B steps,\n"
      "by a mean noise scale of {:.0f} samples ({} run{})\n\n",
      target_text(target.accuracy, target.loss), printable(target.method), target.steps.least, target.steps.times_batch,
      target.steps.mean_noise_scale, target.count, target.count == 1 ? "" : "s");
  std::string text;
  const auto best =
      std::ranges::find_if(known, [](const PredictedMethod* method) { return !method->target->is_bound; });
  if (best != known.end())
    text += fmt::format("Best: {}, {} s\n{}", label_of(**best), shown_number((*best)->target->time_s),
                        edges_of(**best, methods));
  if (has_bound) text += ">=: local steps, as if they were as good as steps along the mean of all gradients\n";
  for (const std::string& label : unknown)
    text += fmt::format(
        "{}: of gradients of an older model, or of what is not simulated, the noise scale says nothing\n", label);
  return fold_lines(heading, width) + (width > 0 ? table.folded_text(width) : table.text()) + "\n" +
         fold_lines(text, width);
}

}  // namespace syncopate
