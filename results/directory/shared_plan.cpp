#include "results/directory/shared_plan.hpp"

#include <exception>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "results/directory/replaced_file.hpp"
#include "results/directory/run_directory.hpp"
#include "results/formats/digested_json.hpp"
#include "results/formats/json.hpp"
#include "results/run/run_label.hpp"
#include "workers/files/own_file.hpp"

namespace syncopate {
namespace fs = std::filesystem;
namespace {

constexpr const char* of_runs = "runs.json";
constexpr const char* of_trials = "trials.json";

// A path that leads out of the experiment's directory is none of its runs'.
bool stays_within(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return !normal.empty() && normal.is_relative() && *normal.begin() != "..";
}

// A list alone, without a digest, is of an earlier program.
std::vector<PlannedRun> runs_in(const std::string& text, const fs::path& experiment_directory) {
  Json json = Json::parse(text);
  if (json.is_object()) {
    if (!is_as_written(text, json, {})) throw std::runtime_error("not as it was written");
    json = Json(json.at("runs"));
  }
  if (!json.is_array()) throw std::runtime_error("no list");
  std::vector<PlannedRun> runs;
  for (const Json& run : json) {
    const fs::path directory = run.at("directory").get<std::string>();
    if (!stays_within(directory)) throw std::runtime_error("leads elsewhere");
    runs.push_back({.hash = run.at("hash"),
                    .label = run.at("label"),
                    .seed = run.at("seed"),
                    .directory = experiment_directory / directory});
  }
  return runs;
}

}  // namespace

std::vector<PlannedRun> planned_runs(const fs::path& results, std::span<const Run> runs) {
  std::vector<PlannedRun> planned;
  for (const Run& run : runs)
    planned.push_back({.hash = run.hash,
                       .label = run_label(run.method, run.sweep),
                       .seed = run.seed,
                       .directory = run_directory(results, run, false)});
  return planned;
}

void save_plan(const fs::path& folder, std::span<const Run> runs) {
  Json json = Json::array();
  const fs::path above = run_directory("", runs.front(), false);
  const fs::path experiment = *above.begin();
  for (const PlannedRun& run : planned_runs("", runs))
    json.push_back({{"hash", run.hash},
                    {"label", run.label},
                    {"seed", run.seed},
                    {"directory", run.directory.lexically_relative(experiment).generic_string()}});
  replace_file(folder / (runs.front().is_trial ? of_trials : of_runs), with_digest({{"runs", std::move(json)}}));
}

std::optional<std::vector<PlannedRun>> saved_plan(const fs::path& experiment_directory,
                                                  std::vector<std::string>* faults) {
  std::optional<std::vector<PlannedRun>> plan;
  for (const char* const name : {of_trials, of_runs}) {
    const fs::path file = experiment_directory / share_folder / name;
    try {
      const auto text = read_file(file);
      if (!text) continue;
      std::vector<PlannedRun> runs = runs_in(*text, experiment_directory);
      if (!plan) plan.emplace();
      plan->insert(plan->end(), std::move_iterator(runs.begin()), std::move_iterator(runs.end()));
    } catch (const std::exception&) {
      if (faults)
        faults->push_back(
            file.string() +
            ": is no list of runs, or is no longer as it was written; the next process that shares writes it");
    }
  }
  return plan;
}

}  // namespace syncopate
