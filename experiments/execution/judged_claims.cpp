#include "experiments/execution/judged_claims.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "results/claims/claims_json.hpp"
#include "results/claims/scoreboard.hpp"
#include "results/claims/verdict.hpp"
#include "results/directory/found_runs.hpp"
#include "results/directory/replaced_file.hpp"
#include "results/directory/run_directory.hpp"
#include "results/formats/build_info.hpp"
#include "results/formats/host.hpp"
#include "results/tables/folded_text.hpp"
#include "results/tables/result_rows.hpp"
#include "workers/files/own_file.hpp"

namespace syncopate {
namespace {

JudgedAt here() {
  return {.commit = build_info().commit + (build_info().dirty.value_or(false) ? ", changed" : ""),
          .processor = processor_name(),
          .cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
          .time = iso_time(std::chrono::system_clock::now())};
}

}  // namespace

std::string judge_claims(const Experiment& experiment, const std::filesystem::path& results, std::size_t width) {
  if (experiment.claims.empty()) return {};
  const std::filesystem::path directory = experiment_directory(results, experiment.name);
  const std::vector<FoundRun> runs =
      find_runs_of(directory, std::set<std::string>(experiment.hashes.begin(), experiment.hashes.end()));
  const std::vector<ResultRow> rows = result_rows(runs);
  JudgedClaims judged{.experiment = experiment.name,
                      .description = experiment.description,
                      .runs = experiment.digest,
                      .at = here(),
                      .judged_runs = runs.size(),
                      .results = {}};
  for (const Claim& claim : experiment.claims) judged.results.push_back(judge(claim, rows));
  std::string text =
      scoreboard_text(std::span(&judged, 1), width) + fold_lines(scoreboard_notes(std::span(&judged, 1)), width);
  if (experiment.differs.empty()) {
    require_no_link(directory);
    replace_file(directory / claims_file, to_json(judged));
    return text;
  }
  return text +
         fold_lines(fmt::format("These verdicts are not kept, since they are not those of the file as it is: it was "
                                "run {}.\n",
                                experiment.differs),
                    width);
}

std::string accepted_claims(const Experiment& experiment, const std::filesystem::path& directory, std::size_t width) {
  const std::filesystem::path file = experiment_directory(directory, experiment.name) / claims_file;
  const std::optional<std::string> text = read_file(file);
  const std::optional<JudgedClaims> judged = text ? claims_from_json(*text) : std::nullopt;
  if (!judged || judged->runs != experiment.digest) return {};
  if (!std::ranges::equal(judged->results, experiment.claims, {}, &ClaimResult::claim)) return {};
  return scoreboard_text(std::span(&*judged, 1), width) +
         fold_lines(
             fmt::format("\n{}: judged {} by the same runs (commit {}, {}, {} cores); nothing was run\n", file.string(),
                         judged->at.time, judged->at.commit, judged->at.processor, judged->at.cores),
             width);
}

}  // namespace syncopate
