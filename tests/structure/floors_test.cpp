// The floors of the code base. This list has each folder once, the lowest first. A folder may include its own headers
// and those of folders that precede it in the list, so there are no cycles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace syncopate {
namespace {

namespace fs = std::filesystem;

const fs::path source = SYNCOPATE_SOURCE_DIR;

const std::vector<std::string> floors = {
    // The ground floor, which all other folders need.
    "workers/base", "workers/config",
    // Models, training and data.
    "workers/training", "workers/data", "workers/models",
    // Time, the interface between methods and clusters, and formulas about them.
    "workers/time", "workers/cluster", "workers/theory", "workers/compression",
    // The calls that a method sees.
    "workers",
    // Clusters, which execute methods.
    "workers/simulated", "workers/mpi",
    // Methods, and then their list.
    "algorithms/method", "algorithms/synchronous", "algorithms/quorum", "algorithms/local_sgd",
    "algorithms/asynchronous", "algorithms/gossip", "algorithms/gradient_coding", "algorithms",
    // Runs and their results.
    "results",
    // From an experiment file to runs, and from runs to results.
    "experiments/sections", "experiments/execution", "experiments/commands"};

std::size_t floor_of(const std::string& folder) {
  return static_cast<std::size_t>(std::ranges::find(floors, folder) - floors.begin());
}

// Returns the includes of our own headers in each source file, by folder.
std::map<std::string, std::vector<std::string>> includes() {
  std::map<std::string, std::vector<std::string>> result;
  for (const char* top : {"workers", "algorithms", "results", "experiments"})
    for (const auto& entry : fs::recursive_directory_iterator(source / top)) {
      if (entry.path().extension() != ".hpp" && entry.path().extension() != ".cpp") continue;
      auto& included = result[entry.path().lexically_relative(source).string()];
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        const std::string mark = "#include \"";
        if (!line.starts_with(mark)) continue;
        const fs::path name = line.substr(mark.size(), line.rfind('"') - mark.size());
        if (name == "commit.inc") continue;  // written by the build
        EXPECT_TRUE(fs::exists(source / name)) << entry.path() << " includes " << name << ", not by its whole name";
        included.push_back(name.string());
      }
    }
  return result;
}

TEST(Floors, EveryFolderOfSourcesStandsInTheList) {
  for (const auto& [file, included] : includes())
    EXPECT_THAT(floors, testing::Contains(fs::path(file).parent_path().string())) << file;
}

TEST(Floors, AnIncludeGoesDown) {
  int seen = 0;
  for (const auto& [file, included] : includes())
    for (const std::string& name : included) {
      const std::string from = fs::path(file).parent_path(), to = fs::path(name).parent_path();
      EXPECT_LE(floor_of(to), floor_of(from)) << file << " includes " << name;
      ++seen;
    }
  EXPECT_GT(seen, 500) << "the sources were read";
}

// A method may use workers, servers and what formulas are based on, but neither clusters nor data.
TEST(Floors, AMethodKnowsNothingOfClustersAndData) {
  const std::vector<std::string> known = {"workers",      "workers/base",   "workers/config",     "workers/training",
                                          "workers/time", "workers/theory", "workers/compression"};
  int seen = 0;
  for (const auto& [file, included] : includes()) {
    if (!file.starts_with("algorithms/")) continue;
    for (const std::string& name : included) {
      if (!name.starts_with("workers/")) continue;
      EXPECT_THAT(known, testing::Contains(fs::path(name).parent_path().string())) << file << " includes " << name;
      ++seen;
    }
  }
  EXPECT_GT(seen, 20) << "the sources were read";
}

TEST(Floors, AreAtMostTwoFoldersDeep) {
  for (const std::string& folder : floors) EXPECT_LE(std::ranges::count(folder, '/'), 1) << folder;
}

}  // namespace
}  // namespace syncopate
