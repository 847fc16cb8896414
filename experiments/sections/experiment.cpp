#include "experiments/sections/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <new>

#include "algorithms/registry.hpp"
#include "experiments/sections/budget_section.hpp"
#include "experiments/sections/cluster_section.hpp"
#include "experiments/sections/configuration_hash.hpp"
#include "experiments/sections/network_times.hpp"
#include "experiments/sections/outages_section.hpp"
#include "experiments/sections/recording_section.hpp"
#include "experiments/sections/sweep.hpp"
#include "experiments/sections/training_section.hpp"
#include "workers/settings/settings_document.hpp"

namespace syncopate {
namespace {

struct Method {
  std::string label;
  std::shared_ptr<const Algorithm> algorithm;
};

// A whole document as read once, with one seed. Complete only if there were no faults.
struct Definition {
  std::string name;
  std::string description;
  std::vector<std::uint64_t> seeds;
  ClusterSection cluster;
  TrainingSection training;
  Budget budget;
  std::shared_ptr<const LearningRate> learning_rate;
  EvaluationPlan evaluation;
  RecordingPlan recording;
  std::vector<Method> methods;
  TomlNode resolved{};
  std::vector<KnownKey> known_keys{};
  FaultList faults;
};

std::string read_name(Settings& root, const std::string& file) {
  std::string name = root.text("name", std::filesystem::path(file).stem().string());
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
      root.integers("seeds", 0, std::numeric_limits<std::int64_t>::max(), std::vector<std::int64_t>{1});
  std::vector<std::uint64_t> seeds(written.begin(), written.end());
  if (seeds.empty() && root.faults_so_far() == faults) root.fault("seeds", "must hold at least one seed");
  if (std::set(seeds.begin(), seeds.end()).size() < seeds.size()) root.fault("seeds", "must hold no seed twice");
  if (seeds.empty()) seeds.push_back(1);
  return seeds;
}

std::vector<Method> read_methods(Settings& root, const AlgorithmContext& context) {
  std::vector<Method> methods;
  std::set<std::string> labels;
  const std::size_t faults = root.faults_so_far();
  for (Settings& table : root.sections("methods")) {
    const bool labelled = table.has("label");  // asked first, so that it comes first in the resolved document
    Method method{.label = {}, .algorithm = make_algorithm(table, context)};
    const std::string name = method.algorithm ? table.text("algorithm") : "";
    if (labelled || method.algorithm) method.label = table.text("label", name);
    const bool is_new = method.label.empty() ? !labelled : labels.insert(method.label).second;
    if (!is_new) table.fault("label", "must be a name that no other method has");
    methods.push_back(std::move(method));
  }
  if (methods.empty() && root.faults_so_far() == faults)
    root.fault("methods", "must have at least one entry, [[methods]]");
  return methods;
}

double shortest_micro_batch_s(const ClusterSection& cluster) {
  double shortest_s = std::numeric_limits<double>::infinity();
  for (int n = 0; n < cluster.workers; ++n) shortest_s = std::min(shortest_s, cluster.compute_time->shortest(Rank{n}));
  return shortest_s;
}

// `certain`: there have been no faults so far, so nothing stands in for what is faulty.
AlgorithmContext algorithm_context(const Definition& definition, bool certain) {
  constexpr int unknown_workers = 1'000'000;  // so many that no check fails on them
  const ClusterSection& cluster = definition.cluster;
  const TrainingSection& training = definition.training;
  const Budget& budget = definition.budget;
  const std::int64_t steps_per_epoch = training.objective.steps_per_epoch;
  return {.workers = cluster.workers_known ? cluster.workers : unknown_workers,
          .micro_batches = cluster.micro_batches,
          .time_only = training.time_only,
          .plain_sgd = training.optimizer->moments() == 0 && training.optimizer->weight_decay().rate == 0,
          .learning_rate_warmup = definition.learning_rate->options().warmup_steps,
          .steps_per_epoch = steps_per_epoch > 0 ? std::optional<Step>(steps_per_epoch) : std::nullopt,
          .total_steps = budget.steps,
          .shortest_micro_batch_s = certain && !cluster.to_be_measured ? shortest_micro_batch_s(cluster) : 0,
          .budget_ends_alone = !budget.bytes || budget.steps || budget.seconds || budget.samples};
}

// Where there is not one server, the model that is evaluated is worker 0's.
void check_who_leaves(Settings& root, const Definition& definition) {
  const auto& data_of = definition.cluster.data_of;
  if (data_of.empty() || !data_of.front()) return;
  for (const Method& method : definition.methods) {
    if (!method.algorithm || method.algorithm->traits().servers == 1) continue;
    root.section("cluster").fault(
        "leave", fmt::format("must not name worker 0, whose model is the one that \"{}\" has evaluated", method.label));
    return;
  }
}

// A server's accounts know micro-batches alone, and it may end one that is under way.
void check_pauses(Settings& root, const Definition& definition) {
  if (!definition.cluster.pauses) return;
  for (const Method& method : definition.methods)
    if (method.algorithm && method.algorithm->traits().servers > 0)
      return root.fault("methods", fmt::format("\"{}\" has a server, which needs delays that are part of the "
                                               "computation: no delays that are sleeps, and no cluster.trailing_s",
                                               method.label));
}

// Each of several servers has the norm of its own part alone.
void check_clipping(Settings& root, const Definition& definition) {
  if (definition.training.clip_norm == 0) return;
  for (const Method& method : definition.methods)
    if (method.algorithm && method.algorithm->traits().servers > 1)
      return root.section("training")
          .fault("clip_norm",
                 fmt::format("must be 0: with the servers of \"{}\" nobody has the norm of a whole gradient",
                             method.label));
}

void check_outages(Settings& root, const Definition& definition) {
  const ClusterSection& cluster = definition.cluster;
  if (!cluster.outages) return;
  for (const Method& method : definition.methods)
    if (method.algorithm && method.algorithm->traits().servers == 1)
      return check_outages_of_steps(root, *cluster.outages, cluster.micro_batches, cluster.usual_micro_batch_s,
                                    method.label);
}

// Reads everything with the seed that stands first.
Definition read_definition(TomlNode document_root, const std::string& file, const LoadOptions& options) {
  // These stand for values that are faulty or follow from faulty ones: so large that no check fails on them.
  constexpr std::int64_t unknown_epoch = 1'000'000;
  constexpr std::int64_t unknown_budget = 1'000'000'000'000'000;

  SettingsDocument document(std::move(document_root));
  Settings root = document.root();
  Definition result;
  result.name = read_name(root, file);
  result.description = root.text("description", "");
  result.seeds = read_seeds(root);
  result.cluster = read_cluster(root, result.seeds.front(), options.finite_means);

  const std::size_t faults_before = document.faults().size();
  result.training = read_training(root, {result.seeds.front(), result.cluster.workers, result.cluster.micro_batches});
  std::int64_t& steps_per_epoch = result.training.objective.steps_per_epoch;
  if (steps_per_epoch == 0 && document.faults().size() > faults_before) steps_per_epoch = unknown_epoch;

  if (document.faults().empty())
    check_network_times(root, *result.cluster.network, result.cluster.workers, result.training.parameter_bytes);

  // The budget may count epochs, and the learning rate needs the number of steps of the budget.
  result.budget = read_budget(root, steps_per_epoch);
  if (document.faults().empty()) fit_budget_to_traces(result.cluster, result.budget);
  if (result.budget.steps && !document.faults().empty()) result.budget.steps = unknown_budget;
  if (result.cluster.to_be_measured && result.training.time_only)
    root.section("cluster").fault(
        "micro_batch_s", "must be a number of seconds where training.model = \"none\": there is no model to measure");
  result.learning_rate = read_learning_rate(root, result.budget, steps_per_epoch, result.training.time_only);
  result.evaluation = read_evaluation(root, result.training);
  result.recording = read_recording(root);
  document.record_as_written("sweep");
  result.methods = read_methods(root, algorithm_context(result, document.faults().empty()));
  check_who_leaves(root, result);
  check_pauses(root, result);
  check_clipping(root, result);
  check_outages(root, result);
  result.faults = document.check();
  result.resolved = document.resolved();
  result.known_keys = document.known_keys();
  return result;
}

// The document of one run: one method, one seed, nothing swept.
TomlNode document_of_run(TomlNode root, std::size_t method, std::uint64_t seed) {
  TomlNode one_method = root.find("methods")->array()[method];
  root.find("methods")->array() = {std::move(one_method)};
  root.set("seeds", {}, {TomlNode::Array{{static_cast<std::int64_t>(seed), {}}}, {}});
  root.erase("sweep");
  return root;
}

Run make_run(const Definition& definition) {
  Run run;
  run.experiment = definition.name;
  run.method = definition.methods.front().label;
  run.seed = definition.seeds.front();
  run.resolved_toml = write_toml(definition.resolved);
  run.hash = configuration_hash(definition.resolved);
  TomlNode setting = definition.resolved;
  setting.erase("methods");
  run.setting = configuration_hash(std::move(setting));
  run.workers = definition.cluster.workers;
  run.micro_batches = definition.cluster.micro_batches;
  run.data_of = definition.cluster.data_of;
  run.pace = definition.cluster.pace;
  run.to_be_measured = definition.cluster.to_be_measured;
  run.measured_micro_batch_s = definition.cluster.measured_micro_batch_s;
  run.compute_time = definition.cluster.compute_time;
  run.pauses = definition.cluster.pauses;
  run.outages = definition.cluster.outages;
  run.network = definition.cluster.network;
  run.make_objective = definition.training.objective.load;
  run.time_only = definition.training.time_only;
  if (run.time_only) run.make_objective = [] { return nullptr; };
  run.parameter_bytes = definition.training.parameter_bytes;
  run.samples_per_micro_batch = definition.training.objective.samples_per_micro_batch;
  run.optimizer = definition.training.optimizer;
  run.clip_norm = definition.training.clip_norm;
  run.learning_rate = definition.learning_rate;
  run.budget = definition.budget;
  run.evaluation = definition.evaluation;
  run.recording = definition.recording;
  run.recording.parameters &= !run.time_only;
  run.algorithm = definition.methods.front().algorithm;
  return run;
}

MicroBatchWork work_of(const Definition& definition) {
  const TomlNode& training = *definition.resolved.find("training");
  TomlNode decisive;
  for (const char* key : {"model", "dataset", "micro_batch_size"})
    if (const TomlNode* value = training.find(key)) decisive.set(key, {}, *value);
  for (const auto& [tables, chosen] : {std::pair{"models", "model"}, std::pair{"datasets", "dataset"}}) {
    const TomlNode* name = decisive.find(chosen);
    const TomlNode* table = definition.resolved.find(tables);
    if (name && table) table = table->find(std::get<std::string>(name->value));
    if (name && table) decisive.set(tables, {}, *table);
  }
  return {.experiment = definition.name,
          .key = inline_toml(decisive),
          .load = definition.training.objective.load,
          .seed = definition.seeds.front()};
}

void write_measured(TomlNode& root, double micro_batch_s) {
  TomlNode& cluster = *root.find("cluster");
  cluster.set("micro_batch_s", {}, {micro_batch_s, {}});
  cluster.set("micro_batch_measured", {}, {true, {}});
}

void throw_if_any(const FaultList& faults) {
  if (!faults.empty()) throw ConfigurationFault(faults.report());
}

std::string text_of(const std::vector<std::pair<std::string, std::string>>& sweep) {
  std::string text;
  for (const auto& [key, value] : sweep) text += fmt::format("{}\"{}\" = {}", text.empty() ? "" : ", ", key, value);
  return text;
}

// The runs of one point of the sweep; those that another point has already, because what is swept concerns another
// method, are left out. Other values that make the same run are a fault: they mean the same. `places`: where the runs
// by their hashes stand in `runs`.
void add_runs(const TomlNode& root, const std::string& file, const LoadOptions& options, const Definition& definition,
              const std::vector<SweepAxis>& axes, const SweepPoint& point, std::map<std::string, std::size_t>& places,
              std::vector<Run>& runs) {
  for (std::size_t method = 0; method < definition.methods.size(); ++method) {
    for (const std::uint64_t seed : definition.seeds) {
      TomlNode document = document_of_run(root, method, seed);
      Definition one = read_definition(document, file, options);
      throw_if_any(one.faults);
      if (one.cluster.to_be_measured && options.measure) {
        write_measured(document, options.measure(work_of(one)));
        one = read_definition(std::move(document), file, options);
        throw_if_any(one.faults);
      }
      Run run = make_run(one);
      run.method_index = method;
      run.sweep = describe_point(root, axes, point, method);
      const auto [place, is_new] = places.emplace(run.hash, runs.size());
      if (!is_new && runs[place->second].sweep != run.sweep)
        throw ConfigurationFault(
            fmt::format("{}: sweep; {} and {} make the same run of \"{}\"; must hold no value twice",
                        axes.front().place.text(), text_of(runs[place->second].sweep), text_of(run.sweep), run.method));
      if (is_new) runs.push_back(std::move(run));
    }
  }
}

TomlNode load_document(const std::string& file) {
  try {
    return load_toml(file);
  } catch (const TomlSyntaxFault& fault) {
    throw ConfigurationFault(fault.what());
  }
}

std::uint64_t elements(const TomlNode& root, std::string_view key) {
  const TomlNode* list = root.find(key);
  return list && list->is_array() ? std::max<std::uint64_t>(list->array().size(), 1) : 1;
}

// Each point of a sweep is read with all methods, and each run once more.
void check_number_of_runs(const TomlNode& root, const std::vector<SweepAxis>& axes, std::int64_t most) {
  const std::uint64_t points = number_of_points(axes), methods = elements(root, "methods"),
                      seeds = elements(root, "seeds");
  const std::uint64_t runs = saturated_product(saturated_product(points, methods), seeds);
  if (runs <= static_cast<std::uint64_t>(most)) return;
  const TomlNode* sweep = root.find("sweep");
  throw ConfigurationFault(
      fmt::format("{}: {} points of a sweep x {} methods x {} seeds are {} runs; must be at most {}, or as many as "
                  "--limit allows",
                  (sweep ? sweep->place : root.place).text(), points, methods, seeds, runs, most));
}

}  // namespace

Experiment load_experiment(const std::string& file, const std::vector<std::string>& overrides,
                           const LoadOptions& options) try {
  TomlNode root = load_document(file);
  FaultList faults;
  apply_overrides(root, overrides, faults);
  const std::vector<SweepAxis> axes = read_sweep(root, faults);
  write_sweep(root, axes);
  check_number_of_runs(root, axes, options.most_runs);

  // All points are read with all methods first, so that their faults come together and with the places
  // that the methods have in the file.
  const std::vector<SweepPoint> points = sweep_points(axes);
  std::vector<TomlNode> documents;
  std::vector<Definition> definitions;
  TomlNode of_further_points = root;  // the list of all values in each of them would take the square of their number
  of_further_points.erase("sweep");
  for (const SweepPoint& point : points) {
    documents.push_back(documents.empty() ? root : of_further_points);
    apply_sweep(documents.back(), axes, point, faults);
    definitions.push_back(read_definition(documents.back(), file, options));
    faults.add(definitions.back().faults);
  }
  throw_if_any(faults);

  const Definition& first = definitions.front();
  Experiment experiment{.name = first.name,
                        .description = first.description,
                        .file = file,
                        .resolved_toml = write_toml(first.resolved),
                        .known_keys = first.known_keys,
                        .runs = {},
                        .methods = {},
                        .seeds = first.seeds};
  for (const Method& method : first.methods) experiment.methods.push_back(method.label);
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < points.size(); ++i) {
    add_runs(documents[i], file, options, definitions[i], axes, points[i], places, experiment.runs);
  }
  return experiment;
} catch (const std::bad_alloc&) {
  throw std::runtime_error(fmt::format("{}: the memory does not suffice to read it and expand its runs", file));
}

}  // namespace syncopate
