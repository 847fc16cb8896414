#include "experiments/sections/definition.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>

#include "algorithms/registry.hpp"
#include "experiments/sections/budget_section.hpp"
#include "experiments/sections/checkpoint_section.hpp"
#include "experiments/sections/measurement_section.hpp"
#include "experiments/sections/method_checks.hpp"
#include "experiments/sections/network_times.hpp"
#include "experiments/sections/recording_section.hpp"
#include "workers/compression/largest_rank.hpp"
#include "workers/compression/named_tables.hpp"
#include "workers/delays/limits.hpp"

namespace syncopate {
namespace {

std::string read_name(Settings& root, const std::string& file) {
  std::string name = root.text({"name", "What the results' directory is called."},
                               Stated(std::filesystem::path(file).stem().string(), "the file's name"));
  // It names a directory of results.
  const bool usable = !name.empty() && name != "." && name != ".." &&
                      std::ranges::none_of(name, [](unsigned char c) { return c == '/' || c < 0x20; });
  if (!usable)
    root.fault("name",
               "must name a directory: not empty, neither \".\" nor \"..\", without \"/\" and control characters");
  return name;
}

std::vector<std::uint64_t> read_seeds(Settings& root) {
  const std::size_t faults = root.faults_so_far();
  const std::vector<std::int64_t> written =
      root.integers({"seeds", "A run for each; delays, data and initial models are a function of the seed."}, 0,
                    std::numeric_limits<std::int64_t>::max(), std::vector<std::int64_t>{1});
  std::vector<std::uint64_t> seeds(written.begin(), written.end());
  if (seeds.empty() && root.faults_so_far() == faults) root.fault("seeds", "must hold at least one seed");
  if (std::set(seeds.begin(), seeds.end()).size() < seeds.size()) root.fault("seeds", "must hold no seed twice");
  if (seeds.empty()) seeds.push_back(1);
  return seeds;
}

constexpr const char* costs_need_sequences =
    "goes by the lengths of sequences: training.dataset must name a data set of tokens, such as \"wordnet-glosses\"";

double shortest_micro_batch_s(const ClusterSection& cluster) {
  double shortest_s = std::numeric_limits<double>::infinity();
  for (int n = 0; n < cluster.plan.workers; ++n)
    shortest_s = std::min(shortest_s, cluster.plan.compute_time->shortest(Rank{n}));
  return shortest_s;
}

// Until the first limit that is counted in work.
WorkInBudget work_in(const Definition& definition) {
  if (!definition.is_clean) return {};
  const ClusterPlan& cluster = definition.cluster.plan;
  WorkInBudget work = WorkInBudget::of_steps(definition.budget.steps, cluster.workers);
  if (const auto samples = definition.budget.samples) {
    const std::int64_t of_gradient = cluster.micro_batches * definition.training.plan.samples_per_micro_batch;
    const std::int64_t gradients = (*samples - 1) / of_gradient + 1;
    work.gradients = std::min(work.gradients.value_or(gradients), gradients);
  }
  return work;
}

AlgorithmContext algorithm_context(const Definition& definition) {
  const ClusterSection& cluster = definition.cluster;
  const TrainingSection& training = definition.training;
  const Budget& budget = definition.budget;
  const int tensors = static_cast<int>(training.objective.tensors.size());
  const std::int64_t parameters = training.objective.parameters;
  return {.workers = cluster.workers_known ? cluster.plan.workers : most_workers,
          .workers_known = cluster.workers_known,
          .micro_batches = cluster.plan.micro_batches,
          .time_only = training.plan.time_only,
          .plain_sgd = training.plan.optimizer->moments() == 0 && training.plan.optimizer->weight_decay().rate == 0,
          .moment_decays = training.plan.optimizer->decays(),
          .frozen_beta1 = training.plan.optimizer->beta1_of_frozen(),
          .clips_gradients = training.plan.clip_norm > 0,
          .learning_rate_warmup = training.plan.learning_rate->warmup(),
          .steps_per_epoch = training.epoch.steps,
          .has_epochs = training.epoch.steps || training.epoch.is_faulty,
          .first_step = training.first_step,
          .divides_data = training.objective.divides_data,
          .total_steps = definition.steps.steps,
          .counts_steps = definition.steps.is_counted,
          .shortest_micro_batch_s =
              definition.is_clean && !cluster.plan.to_be_measured ? shortest_micro_batch_s(cluster) : 0,
          .budget_ends_alone = !budget.bytes || definition.steps.is_counted || budget.seconds || budget.samples,
          .learning_rate = training.plan.learning_rate.get(),
          .tensors = tensors > 0 ? std::optional(tensors) : std::nullopt,
          .parameters = parameters > 0 ? std::optional(parameters) : std::nullopt,
          .work = work_in(definition)};
}

std::vector<Method> read_methods(Settings& root, const Definition& definition,
                                 const std::vector<std::shared_ptr<const Definition>>& own) {
  std::vector<Method> methods;
  std::set<std::string> labels;
  const std::size_t faults = root.faults_so_far();
  for (Settings& table : root.sections({"methods", "What is compared; at least one entry."})) {
    const bool labelled = table.has("label");  // asked first, so that it comes first in the resolved document
    Method method;
    if (methods.size() < own.size()) method.own = own[methods.size()];
    table.keep_as_written({"training", "Keys of [training] that are otherwise for this method."});
    method.algorithm = make_algorithm(table, algorithm_context(definition.of(method)));
    if (method.algorithm) {
      const auto& tensors = definition.of(method).training.objective.tensors;
      check_rank(table, method.algorithm->compression(), tensors);
      check_tables(table, method.algorithm->compression(), tensors);
    }
    const std::string name = method.algorithm ? table.text("algorithm") : "";
    const Key label{"label", "What the method is called in tables and plots."};
    if (labelled || method.algorithm) method.label = table.text(label, Stated(name, "the algorithm's name"));
    const bool is_new = method.label.empty() ? !labelled : labels.insert(method.label).second;
    if (!is_new) table.fault("label", "must be a name that no other method has");
    methods.push_back(std::move(method));
  }
  if (methods.empty() && root.faults_so_far() == faults)
    root.fault("methods", "must have at least one entry, [[methods]]");
  return methods;
}

}  // namespace

Definition read_definition(Settings& root, const DefinitionOptions& options) {
  const auto is_clean = [&root] { return root.faults_so_far() == 0; };

  Definition result;
  result.name = read_name(root, options.file);
  result.description = root.text({"description", "The title of plots."}, "");
  result.seeds = read_seeds(root);
  // Where a micro-batch's time goes by its lengths, the data set is read before the rest of [cluster].
  std::size_t faults_before = 0;
  bool is_read = false;
  const auto read_data = [&](int workers, int micro_batches, bool needs_lengths) {
    faults_before = root.faults_so_far();
    is_read = true;
    result.training = read_training(root,
                                    {.seed = result.seeds.front(),
                                     .workers = workers,
                                     .micro_batches = micro_batches,
                                     .looks_for_data = options.looks_for_data,
                                     .needs_lengths = needs_lengths},
                                    options.after_common_phase, options.takes_common);
  };
  result.cluster = read_cluster(root, result.seeds.front(), options.finite_means, [&](int workers, int micro_batches) {
    read_data(workers, micro_batches, true);
    const ObjectivePlan& data = result.training.objective;
    if (!data.lengths && is_clean() && options.looks_for_data)
      root.section("cluster").fault("micro_batch_s", costs_need_sequences);
    return PlannedLengths{data.lengths, data.pads};
  });
  if (!is_read)
    read_data(result.cluster.plan.workers, result.cluster.plan.micro_batches, result.cluster.plan.to_be_measured);
  EpochLength& epoch = result.training.epoch;
  if (result.training.objective.steps_per_epoch > 0) epoch.steps = result.training.objective.steps_per_epoch;
  epoch.is_faulty = !epoch.steps && (root.faults_so_far() > faults_before || !options.looks_for_data);

  if (is_clean())
    check_network_times(root, *result.cluster.plan.network, result.cluster.plan.workers,
                        result.training.plan.parameter_bytes);

  // The budget may count epochs, and the learning rate needs the number of steps of the budget.
  const BudgetSection budget = read_budget(root, epoch);
  result.budget = budget.limits;
  if (is_clean()) fit_budget_to_traces(result.cluster, result.budget);
  StepBudget& steps = result.steps;
  steps.is_counted = budget.counts_steps || result.budget.steps;
  if (is_clean()) steps.steps = result.budget.steps;
  if (result.cluster.plan.to_be_measured && result.training.plan.time_only)
    root.section("cluster").fault(
        "micro_batch_s", "must be a number of seconds where training.model = \"none\": there is no model to measure");
  Settings training = root.section("training");
  result.training.plan.learning_rate = read_learning_rate(training, steps, epoch, result.training.plan.time_only);
  result.evaluation = read_evaluation(root, result.training);
  result.measurements = read_measurements(root, result.training);
  result.recording = read_recording(root);
  result.checkpoint = read_checkpoint(root);
  root.keep_as_written({"sweep", "Keys that take several values: a run for every combination."});
  root.keep_as_written(
      {"variants", "Named sets of keys, [[variants]]: each with a label, and what a run has otherwise."});
  root.keep_as_written(
      {"profiles", "Sets of keys, [profiles.NAME], that take their places with --profile NAME alone."});
  if (options.looks_for_data)
    for (const char* const key : {"claim", "tune"}) root.keep_as_written({key});  // they have readers of their own
  result.is_clean = is_clean();
  if (!options.reads_methods) return result;
  result.methods = read_methods(root, result, options.own);
  check_methods(root, result);
  return result;
}

}  // namespace syncopate
