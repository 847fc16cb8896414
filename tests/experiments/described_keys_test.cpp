// Every key of an experiment file says what it means.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "algorithms/registry.hpp"
#include "experiments/commands/commands.hpp"
#include "experiments/sections/definition.hpp"
#include "experiments/sections/experiment.hpp"
#include "workers/config/key_path.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

const fs::path source = SYNCOPATE_SOURCE_DIR;

TEST(DescribedKeys, HaveASentenceOfOneLineEach) {
  const auto keys = keys_of_file();
  EXPECT_GT(keys.size(), 200u);
  for (const KeyDescription& key : keys) {
    ASSERT_FALSE(key.sentence.empty()) << key.path << " has no sentence where it is read";
    EXPECT_FALSE(std::islower(static_cast<unsigned char>(key.sentence.front()))) << key.path << ": " << key.sentence;
    EXPECT_EQ(key.sentence.back(), '.') << key.path << ": " << key.sentence;
    EXPECT_EQ(key.sentence.find('\n'), key.sentence.npos) << key.path;
    EXPECT_LE(key.sentence.size(), 110u) << key.path << ": " << key.sentence;
  }
}

TEST(DescribedKeys, WhoseNamesEndInAUnitAreInThatUnit) {
  for (const KeyDescription& key : keys_of_file()) {
    if (key.path.ends_with("bytes_per_s")) {
      EXPECT_EQ(key.unit, "bytes/s") << key.path;
    } else if (key.path.ends_with("_s")) {
      EXPECT_EQ(key.unit, "s") << key.path;
    } else if (key.path.ends_with("_steps") && key.words.empty()) {
      EXPECT_EQ(key.unit, "steps") << key.path;
    } else if (key.path.ends_with("_epochs")) {
      EXPECT_EQ(key.unit, "epochs") << key.path;
    }
  }
}

TEST(DescribedKeys, SayWhereTheyAreFoundOnceForEachMeaning) {
  std::set<std::pair<std::string, std::vector<std::vector<Condition>>>> seen;
  for (const KeyDescription& key : keys_of_file())
    EXPECT_TRUE(seen.emplace(key.path, key.conditions).second) << key.path << " is described twice for one case";
}

// Only methods that exchange what can be compressed have the keys for it.
TEST(DescribedKeys, OfAMethodAreThoseThatItTakes) {
  for (const NameGroup& group : name_groups()) {
    if (group.place != "methods.algorithm") continue;
    const auto has_compression = [&](const char* method) {
      const auto keys = keys_of(group, method);
      return std::ranges::any_of(keys, [](const KeyDescription& key) { return key.path == "methods.compression"; });
    };
    EXPECT_TRUE(has_compression("sync-sgd"));
    EXPECT_TRUE(has_compression("dropcompute"));
    EXPECT_FALSE(has_compression("gradient-coding"));
    const auto has_residual = [&](const char* method) {
      const auto keys = keys_of(group, method);
      return std::ranges::any_of(keys,
                                 [](const KeyDescription& key) { return key.path == "methods.compression.residual"; });
    };
    EXPECT_TRUE(has_residual("sync-sgd"));
    for (const char* method : {"local-sgd", "co2", "one-bit-adam", "streaming-diloco", "k-sync", "halos"}) {
      EXPECT_TRUE(has_compression(method)) << method;
      EXPECT_FALSE(has_residual(method)) << method;  // messages, differences and moments have units of their own
    }
    EXPECT_FALSE(has_compression("ad-psgd"));
    return;
  }
  FAIL() << "no group of methods";
}

// A key's path without the numbers of entries; the workers of cluster.trace.like are names of its user's.
std::string without_numbers(const std::string& path) {
  std::string result;
  for (const std::string& part : split_key(path)) {
    if (!part.empty() && std::isdigit(static_cast<unsigned char>(part.front()))) continue;
    result += (result.empty() ? "" : ".") + part;
  }
  return result;
}

TEST(DescribedKeys, AreAllThatTheReadersOfTheExamplesKnow) {
  std::set<std::string> described;
  for (const KeyDescription& key : keys_of_file()) described.insert(key.path);
  std::vector<fs::path> files = {source / "experiments/quickstart.toml"};
  for (const auto& entry : fs::directory_iterator(source / "experiments/examples"))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  EXPECT_GT(files.size(), 20u);
  // Tables that have tables alone, and keys that are known so as to be refused.
  const std::set<std::string> without_description = {"models", "datasets", "models.linear"};
  for (const fs::path& file : files)
    for (const KnownKey& key : load_experiment(file, {}).known_keys) {
      const std::string path = without_numbers(key.path);
      EXPECT_TRUE(described.contains(path) || without_description.contains(path)) << path << " in " << file;
    }
}

// A bound or a default that follows from other keys must be said in words: it is another number in each file.
TEST(DescribedKeys, DoNotDependOnTheRestOfTheFile) {
  const auto keys_in = [](const AlgorithmContext& context) {
    return describe([&](Settings& table) { make_algorithm(table, context); });
  };
  const auto in_small = keys_in({.workers = 6, .micro_batches = 3, .steps_per_epoch = 10, .total_steps = 100});
  const auto in_large = keys_in({.workers = 24,
                                 .micro_batches = 12,
                                 .learning_rate_warmup = 50,
                                 .steps_per_epoch = 1000,
                                 .total_steps = 5000,
                                 .shortest_micro_batch_s = 0.5});
  ASSERT_EQ(in_small.size(), in_large.size());
  for (std::size_t i = 0; i < in_small.size(); ++i) {
    EXPECT_EQ(in_small[i].takes, in_large[i].takes) << in_small[i].path;
    EXPECT_EQ(in_small[i].fallback, in_large[i].fallback) << in_small[i].path;
  }
}

}  // namespace
}  // namespace syncopate
