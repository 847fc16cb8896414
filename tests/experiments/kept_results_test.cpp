// The files in results/paper/ belong to today's experiments: their runs have the same hashes, and their claims are
// equal. Otherwise `./dev paper` would repeat hours of computation.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/execution/runner.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/claims.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

// Returns whether the table says that an older version of the program computed the results, which must be repeated.
bool is_marked(const fs::path& directory) {
  std::ostringstream table;
  table << std::ifstream(directory / "table.md").rdbuf();
  return table.str().find("**Not yet run again.**") != std::string::npos;
}

TEST(KeptResults, AreAcceptedForTheExperimentsOfToday) {
  const fs::path checkout = SYNCOPATE_SOURCE_DIR, kept = checkout / "results/paper";
  int accepted = 0;
  for (const auto& entry : fs::directory_iterator(checkout / "experiments/paper")) {
    if (entry.path().extension() != ".toml") continue;
    const Experiment experiment = load_experiment(entry.path().string(), {});
    if (!fs::exists(kept / experiment.name / claims_file)) continue;
    if (is_marked(kept / experiment.name)) continue;
    EXPECT_NE(accepted_claims(experiment, kept, 0), "") << entry.path();
    ++accepted;
  }
  EXPECT_GT(accepted, 40);
}

}  // namespace
}  // namespace syncopate
