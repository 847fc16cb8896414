#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "experiments/commands/commands.hpp"
#include "experiments/sections/definition.hpp"

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

// One blank between words, whatever stood there.
std::string unwrapped(const std::string& text) {
  std::istringstream stream(text);
  std::string result;
  for (std::string word; stream >> word;) result += word + " ";
  return result;
}

TEST(Listing, LinesFitIntoAUsualTerminal) {
  for (const std::string& line : lines_of(listing(""))) EXPECT_LE(line.size(), 110u) << line;
}

TEST(Listing, HasTheWholeSentenceAndPaperOfEveryAlgorithm) {
  const std::string text = unwrapped(listing("algorithms"));
  for (const AlgorithmRow& row : algorithms()) {
    EXPECT_THAT(text, HasSubstr(fmt::format(" {} {} [{}] ", row.name, row.sentence, row.source)));
  }
}

TEST(Listing, EveryAlgorithmStandsOnceBelowItsFamily) {
  std::vector<std::string> families;
  std::vector<std::pair<std::string, std::string>> listed;  // family and name
  const auto lines = lines_of(listing("algorithms"));
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
  EXPECT_THAT(listing("algorithms"), testing::Not(HasSubstr("[network] kind")));
  for (const std::string_view kind : listed_kinds) EXPECT_THAT(listing(""), HasSubstr(listing(kind).substr(0, 40)));
}

// A name of each group, and what only its listing has.
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
  EXPECT_EQ(listing_of("frobnicate"), "");
  const std::string staleness = unwrapped(listing_of("staleness"));
  EXPECT_THAT(staleness, AllOf(HasSubstr("methods.staleness: a number"), HasSubstr("it is mentioned here too:"),
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
  EXPECT_THAT(slow, HasSubstr("methods.steps_by_speed Slower workers take fewer steps"));
  EXPECT_THAT(slow, testing::Not(HasSubstr(" cnn "))) << "it mentions nothing slow";
  const std::string rack = unwrapped(listing_of("rack"));
  EXPECT_THAT(rack, HasSubstr("group_size Ranks 0 to group_size - 1, and so on, share their draws: a server, a rack."));
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
  EXPECT_THAT(unlisted("dropcompte"), testing::EndsWith("did you mean \"dropcompute\"?"));
  EXPECT_THAT(unlisted("cluster.worker"), testing::EndsWith("did you mean \"cluster.workers\"?"));
}

}  // namespace
}  // namespace syncopate
