// Every leaf of a resolved configuration is part of the run's hash, and every key that is written is such a leaf: else
// a run would take another one's results for its own. The walks over all keys see the same of theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "experiments/sections/definition.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/hashed_leaves.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using testing::UnorderedElementsAre;

// Calls visit(run, file) for the first run of each method.
template <typename Visit>
void for_each_method(const std::string& file, Visit visit, const Overrides& overrides = {}) {
  SCOPED_TRACE(file);
  std::set<std::size_t> methods;
  const Experiment experiment = load_experiment(file, overrides);
  for (const auto& run : experiment.runs)
    if (methods.insert(run.method_index).second) visit(run, file);
  EXPECT_EQ(methods.size(), experiment.methods.size());
}

template <typename Visit>
void for_each_example(Visit visit) {
  for (const auto& entry : fs::recursive_directory_iterator(SYNCOPATE_SOURCE_DIR "/experiments"))
    if (entry.path().extension() == ".toml") for_each_method(entry.path(), visit);
}

TEST(ConfigurationHash, EveryLeafOfEveryExampleCountsButTheseFew) {
  std::set<std::string_view> not_hashed;
  for_each_example([&](const auto& run, const auto&) { not_hashed.merge(expect_every_leaf_hashed(run)); });
  EXPECT_THAT(not_hashed, UnorderedElementsAre("it is the title of plots", "its content counts",
                                               "what is recorded beside a run decides nothing of it",
                                               "the number that was found counts"));
}

TEST(ConfigurationHash, EveryKeyThatIsWrittenInAnExampleIsPartOfIt) {
  for_each_example(
      [](const auto& run, const auto& file) { expect_every_written_leaf_resolved(written_document(file), run); });
}

// Runs that were made before a key existed keep their hash.
TEST(ConfigurationHash, LeavesOutAKeyThatCameLaterWhereItSaysWhatHeldBefore) {
  const auto hash = [](const std::string& method) {
    return configuration_hash(parse_toml("[[methods]]\nalgorithm = " + method, "test.toml"));
  };
  EXPECT_EQ(hash("'co2'\nrounds = 'overlapped'"), hash("'co2'"));
  EXPECT_NE(hash("'co2'\nrounds = 'blocking'"), hash("'co2'"));
  EXPECT_EQ(hash("'mindflayer'\nrule = 'clipping-rennala'\ntrials = 3"), hash("'mindflayer'\ntrials = 3"));
  EXPECT_NE(hash("'mindflayer'\nrule = 'mindflayer'"), hash("'mindflayer'"));
  EXPECT_EQ(hash("'local-sgd'\nweights = 'equal'"), hash("'local-sgd'"));
  EXPECT_NE(hash("'local-sgd'\nweights = 'samples'"), hash("'local-sgd'"));
  for (const char* method : {"'dropcompute-local-sgd'", "'stsyn'"})  // they had such a key already
    EXPECT_NE(hash(std::string(method) + "\nweights = 'equal'"), hash(method)) << method;
}

class TheReadmesExperiment : public ExperimentFile {};

// Its block begins with a line that no other one has.
TEST_F(TheReadmesExperiment, HasNoKeyThatIsNotHashed) {
  std::ostringstream readme;
  readme << std::ifstream(SYNCOPATE_SOURCE_DIR "/experiments/README.md").rdbuf();
  const std::string text = readme.str();
  const auto begin = text.find("name = \"my-experiment\"");
  ASSERT_NE(begin, text.npos);
  write(text.substr(begin, text.find("```", begin) - begin));
  std::set<std::string_view> not_hashed;
  for_each_method(file, [&](const auto& run, const auto&) {
    not_hashed.merge(expect_every_leaf_hashed(run));
    expect_every_written_leaf_resolved(written_document(file), run);
  });
  EXPECT_EQ(not_hashed.size(), 4u);
}

}  // namespace
}  // namespace syncopate
