#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/registry.hpp"
#include "experiments/commands/commands.hpp"
#include "experiments/sections/definition.hpp"
#include "experiments/sections/experiment.hpp"
#include "workers/config/key_path.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns the text with single blanks between words.
std::string unwrapped(const std::string& text) {
  std::istringstream stream(text);
  std::string result;
  for (std::string word; stream >> word;) result += word + " ";
  return result;
}

TEST(Listing, LinesFitIntoAUsualTerminal) {
  for (const std::string& line : lines_of(listing_of(""))) EXPECT_LE(line.size(), 110u) << line;
}

TEST(Listing, HasTheWholeSentenceAndPaperOfEveryAlgorithm) {
  const std::string text = unwrapped(listing_of("algorithms"));
  for (const AlgorithmRow& row : algorithms()) {
    EXPECT_THAT(text, HasSubstr(fmt::format(" {} {} [{}] ", row.name, row.sentence, row.source)));
  }
}

TEST(Listing, EveryAlgorithmStandsOnceBelowItsFamily) {
  std::vector<std::string> families;
  std::vector<std::pair<std::string, std::string>> listed;  // family and name
  const auto lines = lines_of(listing_of("algorithms"));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto indent = lines[i].find_first_not_of(' ');
    if (indent == 2) families.push_back(lines[i].substr(2));
    if (indent == 4)
      listed.emplace_back(families.at(families.size() - 1), lines[i].substr(4, lines[i].find(' ', 4) - 4));
  }
  EXPECT_EQ(listed.size(), algorithms().size());
  for (const AlgorithmRow& row : algorithms()) {
    EXPECT_THAT(listed, testing::Contains(testing::Pair(std::string(row.family) + ":", row.name)));
  }
  for (const std::string& family : families) EXPECT_EQ(std::count(families.begin(), families.end(), family), 1);
}

TEST(Listing, IsThatOfTheKindAskedFor) {
  EXPECT_THAT(listing_of("algorithms"), testing::Not(HasSubstr("[network] kind")));
  for (const std::string_view kind : listed_kinds)
    EXPECT_THAT(listing_of(""), HasSubstr(listing_of(kind).substr(0, 40)));
}

// A name of each group, and a text that occurs only in the listing of this name.
TEST(Listing, OfANameHasItsSentenceItsPaperAndItsKeys) {
  const std::vector<std::pair<const char*, const char*>> keys = {
      {"dropcompute", "threshold_s: a number above 0, in s; may be left out After what time"},
      {"pareto", "minimum: a number of at least 0 and at most 1000000000, in its `unit`; required"},
      {"two-level", "between: \"ring\" or \"tree\"; default \"ring\""},
      {"cnn", "kernel: an integer from 1 to 1024, in pixels; default 5"},
      {"gaussian-mixture", "classes: an integer from 2 to 65536; default 10"},
      {"post-local", "switch_step: an integer of at least 0, in steps; required"},
      {"diloco", "momentum: a number of at least 0 and below 1; required"},
      {"adaptive-mad", "deviations: a finite number of at least 0; default 3.0"},
      {"larger-batch", "redundancy: a number of at least 0 and at most 1000; required"},
      {"cosine", "peak: a finite number above 0; required"},
      {"adamw", "beta2: a number of at least 0 and below 1; default 0.999"},
      {"rmsprop", "mean_square_start: a finite number of at least 0; default 1, or 0 with form = \"pytorch\""},
      {"lars", "exclude: a list, each element a string; default []"},
  };
  for (const auto& [name, line] : keys) EXPECT_THAT(unwrapped(listing_of(name)), HasSubstr(line)) << name;
  for (const AlgorithmRow& row : algorithms())
    EXPECT_THAT(unwrapped(listing_of(row.name)), HasSubstr(fmt::format("{} [{}]", row.sentence, row.source)));
}

TEST(Listing, OfANameHasNoKeysOfOthers) {
  EXPECT_THAT(listing_of("larger-batch"), testing::Not(HasSubstr("preempt")));
  EXPECT_THAT(listing_of("exponential"), testing::Not(HasSubstr("standard_deviation")));
  EXPECT_THAT(listing_of("adamw"), testing::Not(HasSubstr("nesterov")));
}

TEST(Listing, OfANameWithTwoMeaningsHasBoth) {
  const std::string linear = listing_of("linear");
  EXPECT_THAT(linear, HasSubstr("linear (models"));
  EXPECT_THAT(linear, HasSubstr("linear (learning-rate schedules"));
}

TEST(Listing, OfAKeyOrAWordIsThatOfTheKeysThatHaveIt) {
  EXPECT_THAT(listing_of("cluster.workers"), HasSubstr("How many workers there are."));
  EXPECT_THAT(listing_of("mean_off_steps"), HasSubstr("delays.bursts.mean_off_steps"));
  EXPECT_THAT(listing_of("emulate"), HasSubstr("cluster.pace"));
  EXPECT_THROW(listing_of("frobnicate"), ConfigurationFault);
  const std::string staleness = unwrapped(listing_of("staleness"));
  EXPECT_THAT(staleness, AllOf(HasSubstr("methods.staleness: a number"), HasSubstr("it is also mentioned here:"),
                               HasSubstr("methods.staleness_weight")));
  const std::string text = listing_of("text");
  EXPECT_THAT(text, AllOf(HasSubstr("models.text-transformer.task"), testing::Not(HasSubstr(".norm = \"post\""))))
      << "a value is not meant where only its key is called so";
  EXPECT_THAT(lines_of(text + listing_of("classification")), testing::Not(testing::Contains("      ")));
  EXPECT_THAT(listing_of("network.inside"), testing::Not(HasSubstr("mentioned"))) << "what its own listing has";
}

TEST(Listing, OfAnotherWordHasAllThatMentionItAndWhere) {
  const std::string slow = unwrapped(listing_of("slow"));
  EXPECT_THAT(slow,
              HasSubstr("algorithms: [[methods]] algorithm sync-sgd Synchronous SGD: all gradients are averaged"));
  EXPECT_THAT(slow, HasSubstr("cluster.slow_workers.count How many workers are slow"));
  EXPECT_THAT(slow, HasSubstr("methods.steps_by_speed Whether slower workers take fewer local steps"));
  EXPECT_THAT(slow, testing::Not(HasSubstr(" cnn "))) << "it mentions nothing slow";
  const std::string rack = unwrapped(listing_of("rack"));
  EXPECT_THAT(
      rack,
      HasSubstr(
          "group_size Number of consecutive ranks that share their draws, like the workers of a server or rack."));
  EXPECT_THAT(rack, testing::Not(HasSubstr("track")));
  EXPECT_THAT(unwrapped(listing_of("communication")),
              HasSubstr("network models: [network] kind free Communication takes no time."));
  EXPECT_THAT(unwrapped(listing_of("GIladi")), HasSubstr("dropcompute")) << "papers are sought too";
  for (const char* const word : {"slow", "rack", "communication"})
    for (const std::string& line : lines_of(listing_of(word))) EXPECT_LE(line.size(), 110u) << line;
}

TEST(Listing, OfATableHasTheKeysThatStandInIt) {
  const std::string cluster = unwrapped(listing_of("cluster"));
  EXPECT_THAT(cluster, HasSubstr("cluster.workers: an integer"));
  EXPECT_THAT(cluster, HasSubstr("cluster.micro_batch_s"));
}

TEST(Listing, OfAMethodSaysWhatTheWordsOfItsKeysMean) {
  EXPECT_THAT(unwrapped(listing_of("dropcompute")),
              HasSubstr("\"carry-over\": dropped micro-batches come first in the next step"));
}

TEST(Listing, LinesOfEveryNameFitIntoAUsualTerminal) {
  for (const NameGroup& group : name_groups())
    for (const ListedName& name : group.names)
      for (const std::string& line : lines_of(listing_of(name.name))) EXPECT_LE(line.size(), 110u) << line;
}

TEST(Listing, AnUnknownNameGetsTheNearestKnownOne) {
  const std::pair<const char*, const char*> cases[] = {{"dropcompte", "dropcompute"},
                                                       {"cluster.wrokers", "cluster.workers"}};
  for (const auto& [name, nearest] : cases) {
    try {
      const std::string listed = listing_of(name);
      ADD_FAILURE() << listed;
    } catch (const ConfigurationFault& fault) {
      EXPECT_THAT(fault.what(), testing::EndsWith(fmt::format("did you mean \"{}\"?", nearest)));
    }
  }
}

// Pages generated from the program's tables are up to date.

using testing::HasSubstr;

const std::filesystem::path source = SYNCOPATE_SOURCE_DIR;

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(GeneratedPages, AreUpToDate) {
  const std::string reference = text_of(source / "experiments/reference.md"), page = reference_page();
  EXPECT_TRUE(reference == page) << "experiments/reference.md is out of date; " << command_that_writes;
  const std::string methods = text_of(source / "algorithms/README.md");
  EXPECT_TRUE(methods == with_table_of_methods(methods))
      << "the table in algorithms/README.md is out of date; " << command_that_writes;
}

TEST(GeneratedPages, HaveEveryKeyWithItsSentence) {
  const std::string page = reference_page();
  for (const KeyDescription& key : keys_of_file()) EXPECT_THAT(page, HasSubstr(key.sentence)) << key.path;
  for (const AlgorithmRow& row : algorithms())
    EXPECT_THAT(page, HasSubstr("### algorithm = \"" + std::string(row.name) + "\""));
}

TEST(GeneratedPages, TheTableOfMethodsReplacesWhatIsBetweenItsMarks) {
  const std::string page =
      with_table_of_methods("before\n<!-- methods: before -->\nan obsolete row\n<!-- end of methods -->\nafter\n");
  EXPECT_TRUE(page.starts_with("before\n<!-- methods: written by"));
  EXPECT_TRUE(page.ends_with("\n<!-- end of methods -->\nafter\n"));
  EXPECT_THAT(page, testing::Not(HasSubstr("obsolete")));
  for (const AlgorithmRow& row : algorithms()) EXPECT_THAT(page, HasSubstr("| `" + std::string(row.name) + "` |"));
}

TEST(GeneratedPages, APageWithoutTheMarksIsRefused) {
  EXPECT_THROW(with_table_of_methods("no marks"), std::runtime_error);
}

namespace fs = std::filesystem;

const fs::path checkout = SYNCOPATE_SOURCE_DIR;

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

// Only methods with compressible exchanges have keys for compression.
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
      EXPECT_FALSE(has_residual(method)) << method;  // units of its residuals cannot be chosen
    }
    EXPECT_FALSE(has_compression("ad-psgd"));
    return;
  }
  FAIL() << "no group of methods";
}

// Returns a key's path without the numbers of entries. In cluster.trace.like, it also leaves out workers' numbers.
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
  std::vector<fs::path> files = {checkout / "experiments/quickstart.toml"};
  for (const auto& entry : fs::directory_iterator(checkout / "experiments/examples"))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  EXPECT_GT(files.size(), 20u);
  // These keys need no description: they are tables of tables, or the program knows them only to refuse them.
  const std::set<std::string> without_description = {"models", "datasets", "models.linear"};
  for (const fs::path& file : files)
    for (const KnownKey& key : load_experiment(file, {}).known_keys) {
      const std::string path = without_numbers(key.path);
      EXPECT_TRUE(described.contains(path) || without_description.contains(path)) << path << " in " << file;
    }
}

// Bounds and defaults that depend on other keys must be described in words, because their numbers differ between files.
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
