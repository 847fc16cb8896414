// The project's experiment files: each is valid, and each method has one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
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
      for (std::string note; std::getline(notes, note);)  // a busy link is a result; other notes mean a wrong unit
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

// The overrides are those in the example's comment. nanoGPT writes shards as uint16 without a header; llm.c adds a
// header of 256 numbers of 32 bits.
TEST(Examples, TheGptOfFullSizeTakesTheShardsOfNanoGptAndLlmC) {
  const auto folder = std::filesystem::temp_directory_path() / ("syncopate-shards-" + std::to_string(getpid()));
  std::vector<std::uint16_t> tokens(1100 * 1025);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i * 13 % 50257);
  std::array<std::int32_t, 256> header{20240520, 1, static_cast<std::int32_t>(tokens.size())};
  for (const bool has_header : {false, true}) {
    std::filesystem::create_directories(folder);
    for (const std::string split : {"train", "val"}) {
      std::ofstream file(folder / (has_header ? "fineweb_" + split + "_000001.bin" : split + ".bin"), std::ios::binary);
      if (has_header) file.write(reinterpret_cast<const char*>(header.data()), sizeof(header));
      file.write(reinterpret_cast<const char*>(tokens.data()), std::ssize(tokens) * 2);
    }
    const Experiment experiment =
        load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/examples/gpt_diloco.toml",
                        {"datasets.tokens.directory='" + folder.string() + "'", "~datasets.tokens.format",
                         "~datasets.tokens.train", "~datasets.tokens.test", "datasets.tokens.test_windows=1000"},
                        {.profiles = {"full"}});
    for (const syncopate::Run& run : experiment.runs) {
      // GPT-2 has 124,439,808 parameters. This model has no position embeddings (1024 x 768).
      EXPECT_EQ(run.training.parameter_bytes.value() / 4, 123'653'376);
      EXPECT_EQ(run.training.memory.test_samples, 1000);
    }
    std::filesystem::remove_all(folder);
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
