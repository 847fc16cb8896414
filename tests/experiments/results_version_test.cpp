// Results of small runs of every method, compared with a table of results by results_version. In the same way, the
// tests that change single keys (key_walk.hpp) watch the effects of each key, and of each word of a registry.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "algorithms/registry.hpp"
#include "experiments/sections/definition.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/run.hpp"
#include "tests/experiments/results_by_version.hpp"
#include "tests/experiments/results_digest.hpp"
#include "tests/experiments/run_results.hpp"
#include "tests/experiments/watched_runs.hpp"
#include "workers/base/files.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

std::vector<Run> runs_of(const watched::Group& group) {
  const auto file = std::filesystem::path(testing::TempDir()) / fmt::format("syncopate-version-{}.toml", getpid());
  std::ofstream(file) << group.toml;
  std::vector<Run> runs = load_experiment(file.string(), {}).runs;
  std::filesystem::remove(file);
  return runs;
}

// Calls `result_of` with the outcome of each run.
template <typename ResultOf>
void add_results(OrderedJson& results, const std::vector<watched::Group>& groups, const ResultOf& result_of) {
  for (const auto& group : groups)
    for (const auto& run : runs_of(group)) {
      const Outcome outcome = outcome_of(run);
      EXPECT_EQ(outcome.failure, "") << run.method;
      results[fmt::format("{}: {}", group.name, run.method)] = result_of(outcome);
    }
}

TEST(ResultsVersion, IsRaisedByWhateverChangesResults) {
  OrderedJson results = OrderedJson::object();
  add_results(results, watched::exact_groups(),
              [](const Outcome& outcome) { return digest_of(outcome, Losses::rounded); });
  add_results(results, watched::rounded_groups(), [](const Outcome& outcome) {
    OrderedJson losses = OrderedJson::array();
    for (const MetricsRow& row : outcome.recording.metrics) losses.push_back(seven_digits(row.evaluation->test_loss));
    return losses;
  });
  ResultsByVersion(SYNCOPATE_SOURCE_DIR, "tests/golden/results_by_version/algorithms.json").expect(results);
}

// The results of a method are watched if watched_methods.hpp contains it. It must contain the project's methods, but
// need not contain a user's own.
TEST(ResultsVersion, IsWatchedByRunsOfTheProjectsAlgorithms) {
  std::set<std::string> seen;
  for (const auto& group : watched::exact_groups())
    for (const auto& run : runs_of(group)) {
      const TomlNode resolved = parse_toml(run.resolved_toml, "resolved");
      seen.insert(std::get<std::string>(resolved.find("methods")->array()[0].find("algorithm")->value));
    }
  for (const AlgorithmRow& row : algorithms())
    if (!seen.contains(std::string(row.name))) fmt::print("{}: its results are not watched\n", row.name);
  EXPECT_GE(seen.size(), 21u);
}

// If a version changed a run's results, the run's hash contains this version, so that the run is repeated. All other
// runs keep their hashes, so that no finished run is lost.
TEST(ResultsVersion, OfARunIsThatOfTheNewestChangeOfItsResults) {
  const OrderedJson table = OrderedJson::parse(
      std::ifstream(SYNCOPATE_SOURCE_DIR "/tests/golden/results_by_version/algorithms.json"), nullptr, false);
  int runs = 0;
  for (const auto& groups : {watched::exact_groups(), watched::rounded_groups()})
    for (const auto& group : groups)
      for (const auto& run : runs_of(group)) {
        int newest = first_selective_results_version;
        const OrderedJson versions = table.value(fmt::format("{}: {}", group.name, run.method), OrderedJson::object());
        for (const auto& [version, result] : versions.items()) newest = std::max(newest, std::stoi(version));
        const int version = results_version_of(parse_toml(run.resolved_toml, "resolved"));
        // The version may be newer than the table's newest entry: a change may be too small to show in small runs.
        EXPECT_GE(version, newest) << run.method << " has other results since version " << newest
                                   << "; say so in experiments/sections/run_hash.cpp";
        ++runs;
      }
  EXPECT_GT(runs, 100);
}

// Since version 7 messages share links. The list in run_hash.cpp names the methods that this does not affect, because
// it must also be valid for old files. This test compares the list with the methods' traits.
TEST(ResultsVersion, OfMethodsThatSendMessagesOverLinksIsAtLeastSeven) {
  const auto file = std::filesystem::path(testing::TempDir()) / fmt::format("syncopate-links-{}.toml", getpid());
  int methods = 0;
  for (const auto& groups : {watched::exact_groups(), watched::rounded_groups()})
    for (const auto& group : groups) {
      std::ofstream(file) << group.toml;
      const std::vector<syncopate::Run> runs =
          load_experiment(file.string(), {"network={kind=\"ring\",latency_s=1e-3,bandwidth_bytes_per_s=1e7}"}).runs;
      for (const syncopate::Run& run : runs) {
        const int version = results_version_of(parse_toml(run.resolved_toml, "resolved"));
        EXPECT_EQ(version >= 7, run.algorithm->traits().sends_messages()) << run.method;
        ++methods;
      }
    }
  std::filesystem::remove(file);
  EXPECT_GT(methods, 100);
}

TEST(ResultsVersion, IsPartOfEveryRunsHash) {
  const syncopate::Run run = runs_of(watched::exact_groups().front()).front();
  TomlNode configuration = parse_toml(run.resolved_toml, "resolved");
  configuration.erase("description");
  configuration.erase("recording");
  if (TomlNode* const network = configuration.find("network")) network->erase("contention");  // the default: not hashed
  const auto hash_with = [&](int version) {
    const std::string text = fmt::format("{}\nresults_version = {}\n", write_toml(configuration), version);
    return content_hash(text);
  };
  EXPECT_EQ(run.hash, hash_with(results_version_of(configuration)));
  EXPECT_NE(run.hash, hash_with(results_version + 1));
}

}  // namespace
}  // namespace syncopate
