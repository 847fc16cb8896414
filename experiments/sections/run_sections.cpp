#include <algorithm>
#include <limits>
#include <string>

#include "experiments/sections/definition.hpp"
#include "workers/time/compute_time.hpp"

namespace syncopate {

namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr Range positive_and_finite{.low = 0, .low_open = true, .high_open = true};

Step at_least_one(Step steps) { return std::max(steps, Step{1}); }

}  // namespace

BudgetSection read_budget(Settings& root, const EpochLength& epoch) {
  Budget result;
  Settings budget = root.section({"budget", "When a run ends: at the first limit that is reached; at least one."});
  result.steps = budget.optional_integer({"steps", "Optimizer steps.", "steps", "no limit"}, 1, most);
  const Key in_epochs{"epochs", "Times that all workers together see the training data.", "epochs", "no limit"};
  if (const auto epochs = budget.optional_number(in_epochs, positive_and_finite)) {
    if (const auto steps = steps_of_epochs(budget, "epochs", *epochs, epoch))
      result.steps = std::min(result.steps.value_or(most), at_least_one(*steps));
  }
  const bool counts_steps = result.steps || budget.has("epochs");
  result.samples = budget.optional_integer(
      {"samples", "Samples whose gradients were used, of all workers.", "samples", "no limit"}, 1, most);
  result.seconds =
      budget.optional_number({"seconds", "Time on the cluster's clock.", "s", "no limit"}, positive_and_finite);
  result.bytes =
      budget.optional_integer({"bytes", "What is communicated, of all workers.", "bytes", "no limit"}, 1, most);
  const bool is_limited = counts_steps || result.samples || result.seconds || result.bytes;
  if (!is_limited) root.fault("budget", "must set at least one of steps, epochs, samples, seconds, bytes");
  return {result, counts_steps || !is_limited};
}

EvaluationPlan read_evaluation(Settings& root, const TrainingSection& training) {
  constexpr std::int64_t default_steps = 100;
  EvaluationPlan plan;
  Settings evaluation = root.section({"evaluation", "When the model is looked at; it takes no time on the clock."});
  const Key in_epochs{"every_epochs", "After how many epochs models are evaluated, instead of every_steps.", "epochs"};
  const Key in_seconds{"every_seconds", "After how much time on the cluster's clock, instead of every_steps.", "s"};
  constexpr Range clock_ticks{.low = 1e-9, .high = longest_delay};
  if (const auto seconds = evaluation.optional_number(in_seconds, clock_ticks)) {
    for (const char* const other : {"every_steps", "every_epochs"})
      if (evaluation.has(other)) evaluation.fault(other, "must not be given together with every_seconds");
    plan.every_duration = from_seconds(*seconds);
  } else if (const auto epochs = evaluation.optional_number(in_epochs, positive_and_finite)) {
    if (evaluation.has("every_steps")) evaluation.fault("every_steps", "must not be given together with every_epochs");
    plan.every_steps = at_least_one(steps_of_epochs(evaluation, "every_epochs", *epochs, training.epoch).value_or(1));
  } else {
    plan.every_steps = evaluation.integer(
        {"every_steps", "The model is evaluated each time so many steps are passed, and at the end.", "steps"}, 1, most,
        default_steps);
  }
  plan.train_samples =
      evaluation.integer({"train_samples", "How many training samples the training loss is taken of.", "samples"}, 1,
                         most, plan.train_samples);
  plan.target_accuracy = evaluation.optional_number(
      {"target_accuracy", "The accuracy of \"time to target\", as a fraction.", "", "no target"},
      {.low = 0, .high = 1, .low_open = true});
  if (plan.target_accuracy) {
    if (!training.plan.time_only && training.objective.load && !training.objective.has_accuracy) {
      evaluation.fault("target_accuracy", "must be left out: this model has no accuracy");
    }
  }
  plan.target_loss =
      evaluation.optional_number({"target_loss", "The loss of \"time to target\".", "", "no target"}, Range::any());
  if (!plan.target_accuracy && !plan.target_loss) return plan;
  plan.targets_validation =
      evaluation.choice({"target_of", "Which samples the targets are of: training.validation_samples are held out."},
                        {{"test", false}, {"validation", true}}, false);
  if (plan.targets_validation && training.objective.load && training.objective.validation_samples == 0)
    evaluation.fault("target_of", "must be \"test\": there are no training.validation_samples");
  return plan;
}

CheckpointPlan read_checkpoint(Settings& root) {
  CheckpointPlan plan;
  if (!root.has("checkpoint")) return plan;
  Settings checkpoint = root.section({"checkpoint",
                                      "What a killed run goes on from, beside its results: of runs under MPI, and of "
                                      "simulated ones with a model."});
  plan.every_s =
      checkpoint.number({"every_s", "A checkpoint each time that so much of this machine's time has passed.", "s"},
                        Range::positive(), plan.every_s);
  plan.is_written = checkpoint.flag({"write", "Whether there are checkpoints at all."}, plan.is_written);
  return plan;
}

MeasurementPlan read_measurements(Settings& root, const TrainingSection& training) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  MeasurementPlan plan;
  if (!root.has("measurements")) return plan;
  Settings table = root.section({"measurements", "What is measured at chosen steps; it takes no time on the clock."});
  plan.every_steps = table.integer({"every_steps", "After how many steps; also before the first.", "steps"}, 1, most);
  MeasureOptions& model = plan.model;
  model.gradient_norm =
      table.flag({"gradient_norm", "Of the loss on `samples`, without augmentation, smoothing and dropout."}, false);
  model.noise_scale = table.flag(
      {"noise_scale", "Of single samples' gradients: their variance over their mean's square, in samples."}, false);
  plan.step_gradient_norm = table.flag(
      {"step_gradient_norm", "Of the gradient of a step, worker 0's or a server's, before the step clips it."}, false);
  plan.consensus_distance = table.flag(
      {"consensus_distance", "Root mean square distance of the workers' models from their mean, after own steps."},
      false);
  model.largest_eigenvalue =
      table.flag({"largest_eigenvalue", "Of the Hessian of the same loss, by power iteration."}, false);
  model.hessian_trace = table.flag({"hessian_trace", "Of that Hessian, by Hutchinson's estimator."}, false);
  model.samples = table.integer({"samples", "The first so many training samples.", "samples"}, 1, most, model.samples);
  model.most_products = static_cast<int>(
      table.integer({"most_products", "Products of the Hessian and a vector, at most, for each of the two."}, 1,
                    100'000, model.most_products));
  model.tolerance = table.number({"tolerance", "Both stop once their estimate changes by less than this part of it."},
                                 {.low = 0, .high = 1, .high_open = true}, model.tolerance);
  if (const std::string& why = training.objective.why_no_derivative; model.any() && !why.empty())
    table.fault("every_steps",
                "must go without gradient_norm, noise_scale, largest_eigenvalue and hessian_trace: " + why);
  if (model.noise_scale && training.objective.load && training.objective.steps_per_epoch == 0)
    table.fault("noise_scale", "must be false: this model has no samples, whose gradients could differ");
  if (training.plan.time_only) table.fault("every_steps", "needs a model to measure");
  return plan;
}

RecordingPlan read_recording(Settings& root) {
  RecordingPlan plan;
  if (!root.has("recording")) return plan;
  Settings recording = root.section({"recording", "More files of each run."});
  plan.trace = recording.flag({"trace", "Whether trace.json.gz is written: what every worker does when."}, false);
  plan.trace_events = recording.integer({"trace_events", "The trace ends after so many spans.", "spans"}, 1,
                                        std::numeric_limits<std::int64_t>::max(), plan.trace_events);
  plan.trace_seconds = recording.optional_number(
      {"trace_seconds", "The trace ends at this time on the cluster's clock.", "s", "no bound"},
      {.low = 0, .low_open = true, .high_open = true});
  plan.durations = recording.optional_flag(
      {"durations", "Whether durations.csv.gz is written, a row per micro-batch.", "", "under MPI alone"});
  plan.arrivals =
      recording
          .optional_flag(
              {"arrivals", "Whether arrivals.csv.gz is written: when each round's k-th gradient comes.", "", "false"})
          .value_or(false);
  plan.samples = recording
                     .optional_flag({"samples", "Whether summary.json has shares of kept samples, by class and length.",
                                     "", "false"})
                     .value_or(false);
  plan.parameters =
      recording.optional_flag({"parameters", "Whether parameters.npy is written, the last model.", "", "false"})
          .value_or(false);
  return plan;
}

}  // namespace syncopate
