#include "experiments/execution/judged_claims.hpp"

#include <set>
#include <span>
#include <vector>

#include "results/claims/claims_json.hpp"
#include "results/claims/scoreboard.hpp"
#include "results/claims/verdict.hpp"
#include "results/directory/found_runs.hpp"
#include "results/directory/replaced_file.hpp"
#include "results/directory/run_directory.hpp"
#include "results/tables/result_rows.hpp"

namespace syncopate {

std::string judge_claims(const Experiment& experiment, const std::filesystem::path& results) {
  if (experiment.claims.empty()) return {};
  const std::filesystem::path directory = experiment_directory(results, experiment.name);
  std::vector<FoundRun> runs = find_runs(directory);
  const std::set<std::string> hashes(experiment.hashes.begin(), experiment.hashes.end());
  std::erase_if(runs, [&](const FoundRun& run) { return run.on_wall_clock || !hashes.contains(run.summary.hash); });
  const std::vector<ResultRow> rows = result_rows(runs);
  JudgedClaims judged{.experiment = experiment.name, .description = experiment.description, .results = {}};
  for (const Claim& claim : experiment.claims) judged.results.push_back(judge(claim, rows));
  replace_file(directory / claims_file, to_json(judged));
  return scoreboard_text(std::span(&judged, 1)) + scoreboard_notes(std::span(&judged, 1));
}

}  // namespace syncopate
