// The project's experiment files: each is valid, and each method has one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "experiments/execution/time_simulation.hpp"
#include "experiments/sections/experiment.hpp"
#include "workers/config/settings.hpp"

namespace syncopate {
namespace {

std::vector<std::string> files() {
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(SYNCOPATE_SOURCE_DIR "/experiments"))
    if (entry.path().extension() == ".toml") result.push_back(entry.path().string());
  return result;
}

TEST(Examples, EveryExperimentFileIsRight) {
  EXPECT_GT(files().size(), 15u);
  for (const std::string& file : files()) {
    SCOPED_TRACE(file);
    try {
      const Experiment experiment = load_experiment(file, {});
      EXPECT_FALSE(experiment.runs.empty());
      EXPECT_FALSE(experiment.description.empty());
      std::istringstream notes(magnitude_notes(experiment.runs));
      for (std::string note; std::getline(notes, note);)  // looks for notes on wrong units; a busy link is a result
        EXPECT_NE(note.find("its server's link is busy"), note.npos) << note;
      if (file.find("/paper/") != file.npos) {
        EXPECT_FALSE(experiment.claims.empty());
      }
      const TomlNode root = load_toml(file);
      if (const TomlNode* profiles = root.find("profiles"))
        for (const TomlNode::Member& profile : profiles->table())
          load_experiment(file, {}, {.profiles = {profile.key}});
    } catch (const ConfigurationFault& fault) {
      ADD_FAILURE() << fault.what();
    }
  }
}

TEST(Examples, EveryMethodHasOne) {
  std::set<std::string, std::less<>> shown;
  for (const std::string& file : files()) {
    TomlNode root = load_toml(file);
    for (TomlNode& method : root.find("methods")->array())
      shown.insert(std::get<std::string>(method.find("algorithm")->value));
  }
  for (const AlgorithmRow& row : algorithms()) EXPECT_TRUE(shown.contains(row.name)) << row.name;
}

// `./dev paper` runs the experiments that the page lists.
TEST(Examples, EveryPapersExperimentIsOnItsPage) {
  const std::filesystem::path folder = SYNCOPATE_SOURCE_DIR "/experiments/paper";
  std::ostringstream page;
  page << std::ifstream(folder / "README.md").rdbuf();
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".toml") {
      EXPECT_NE(page.str().find("\n| `" + entry.path().filename().string() + "` |"), std::string::npos) << entry.path();
    }
}

}  // namespace
}  // namespace syncopate
