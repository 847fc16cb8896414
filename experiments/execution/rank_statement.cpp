#include "experiments/execution/rank_statement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "experiments/execution/tuned_runs.hpp"
#include "results/formats/build_info.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {
namespace {

using Plan = std::vector<std::pair<std::string, std::string>>;

// Keys as one writes them on the command line: methods."Local SGD".period, delays.0.kind.
void add_keys(const TomlNode& node, const std::string& path, Plan& plan) {
  const std::string prefix = path.empty() ? "" : path + ".";
  if (node.is_table()) {
    for (const TomlNode::Member& member : node.table()) add_keys(member.value, prefix + toml_key(member.key), plan);
  } else if (node.is_array_of_tables()) {
    for (std::size_t i = 0; i < node.array().size(); ++i) {
      const TomlNode* label = node.array()[i].find("label");
      const auto* name = label ? std::get_if<std::string>(&label->value) : nullptr;
      add_keys(node.array()[i], prefix + (name ? toml_key(*name) : std::to_string(i)), plan);
    }
  } else {
    plan.emplace_back(path, inline_toml(node));
  }
}

// A run's hash is that of all that decides what it computes; what it records decides what ranks tell each other.
std::string identity_of(const std::vector<Run>& runs) {
  std::string text;
  for (const Run& run : runs)
    text += fmt::format("{} {} {} {} {} {} {} {} {}\n", run.hash, run.recording.trace,
                        run.recording.trace_seconds.value_or(-1), run.recording.trace_events,
                        run.recording.records_durations(true), run.recording.arrivals, run.recording.samples,
                        run.recording.parameters, run.cluster.to_be_measured);
  return text;
}

// As it was given, without what does not tell directories apart ("./results/" is "results"). It stays relative: working
// directories of different hosts may have different names. Only rank 0 writes there, but ranks that were told
// different places were not meant to run together.
std::string normalised(const std::string& directory) {
  const std::filesystem::path normal = std::filesystem::path(directory).lexically_normal();
  return (normal.has_filename() || !normal.has_relative_path() ? normal : normal.parent_path()).string();
}

}  // namespace

RankStatement statement_of(const Intention& intention) {
  const bool together = intention.on_mpi || intention.together;
  RankStatement statement;
  Plan& plan = statement.plan;
  plan = {{"command", intention.command}, {"commit of Syncopate", build_info().commit}};
  if (intention.experiment) {
    plan.emplace_back("--cluster", intention.on_mpi ? "mpi" : "simulated");
    plan.emplace_back("--rerun", intention.rerun ? "yes" : "no");
    if (together) plan.emplace_back("--results", normalised(intention.results_directory));
  }
  for (const auto& [key, value] : plan) statement.identity += fmt::format("{}: {}\n", key, value);
  if (!intention.experiment) return statement;

  const Experiment& experiment = *intention.experiment;
  if (together) statement.identity += identity_of(experiment.runs);
  if (together && experiment.tuning)
    statement.identity += fmt::format("{}{} {} {}\n", identity_of(first_trials(experiment)), experiment.tuning->measure,
                                      experiment.tuning->extensions, fmt::join(experiment.tuning->seeds, " "));
  add_keys(parse_toml(experiment.resolved_toml, experiment.file), "", plan);
  plan.emplace_back("number of runs", std::to_string(experiment.runs.size()));
  return statement;
}

}  // namespace syncopate
