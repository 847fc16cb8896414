#include "results/directory/shared_plan.hpp"

#include <exception>
#include <iterator>

#include "results/directory/finished_run.hpp"
#include "results/directory/replaced_file.hpp"
#include "results/directory/run_directory.hpp"
#include "results/formats/json.hpp"
#include "results/run/run_label.hpp"

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
  replace_file(folder / (runs.front().is_trial ? of_trials : of_runs),
               json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::optional<std::vector<PlannedRun>> saved_plan(const fs::path& experiment_directory) {
  std::optional<std::vector<PlannedRun>> plan;
  for (const char* const file : {of_trials, of_runs}) try {
      const auto text = read_file(experiment_directory / share_folder / file);
      if (!text) continue;
      std::vector<PlannedRun> runs;
      for (const Json& run : Json::parse(*text)) {
        const fs::path directory = run.at("directory").get<std::string>();
        if (stays_within(directory))
          runs.push_back({.hash = run.at("hash"),
                          .label = run.at("label"),
                          .seed = run.at("seed"),
                          .directory = experiment_directory / directory});
      }
      if (!plan) plan.emplace();
      plan->insert(plan->end(), std::move_iterator(runs.begin()), std::move_iterator(runs.end()));
    } catch (const std::exception&) {
    }
  return plan;
}

}  // namespace syncopate
