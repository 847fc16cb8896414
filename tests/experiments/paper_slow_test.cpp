// The papers' experiments that take seconds, because they use virtual time alone. Their verdicts must equal those in
// results/paper. Seeds determine the numbers, so another verdict means that the program or a claim has changed.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using Paper = ProgramTest;
using Verdicts = std::map<std::string, std::string>;  // by sentence of the claim

// Returns the verdicts of each experiment in the directory, by its name.
std::map<std::string, Verdicts> verdicts_in(const fs::path& directory) {
  std::map<std::string, Verdicts> experiments;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (!fs::exists(entry.path() / "claims.json")) continue;
    const auto judged = nlohmann::json::parse(std::ifstream(entry.path() / "claims.json"));
    for (const auto& claim : judged.at("claims"))
      experiments[judged.at("experiment")][claim.at("sentence")] = claim.at("verdict");
  }
  return experiments;
}

TEST_F(Paper, WhatTakesSecondsHasTheVerdictsThatAreKept) {
  for (const auto& entry : fs::directory_iterator(SYNCOPATE_SOURCE_DIR "/experiments/paper")) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    if (entry.path().extension() != ".toml" || text.str().find("model = \"none\"") == std::string::npos) continue;
    SCOPED_TRACE(entry.path());
    const ProgramOutcome run = syncopate("run '" + entry.path().string() + "' --quiet --results results");
    EXPECT_EQ(run.status, 0) << run.err;
  }
  const auto kept = verdicts_in(SYNCOPATE_SOURCE_DIR "/results/paper");
  const auto found = verdicts_in(directory / "results");
  EXPECT_GE(found.size(), 4u);
  for (const auto& [experiment, verdicts] : found) {
    SCOPED_TRACE(experiment);
    ASSERT_TRUE(kept.contains(experiment));
    EXPECT_EQ(verdicts, kept.at(experiment));
  }
}

}  // namespace
}  // namespace syncopate
