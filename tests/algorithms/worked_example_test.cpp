// The worked examples of algorithms/README.md. The files of the first example lie in tests/worked_example/, as if that
// were the root, and are compiled and run here. The second example is one of the methods. A test checks that the README
// prints the code of both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "algorithms/one_shot.hpp"
#include "algorithms/registry.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

constexpr AlgorithmRow rows[] = {
#include "algorithms/one_shot_row.inc"
};

std::string text_of(const std::string& path) {
  std::ifstream file(SYNCOPATE_SOURCE_DIR "/" + path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the text between ```cpp and ```, block by block.
std::vector<std::string> code_blocks(const std::string& markdown) {
  const std::string opening = "```cpp\n";
  std::vector<std::string> blocks;
  for (std::size_t at = markdown.find(opening); at != std::string::npos; at = markdown.find(opening, at)) {
    at += opening.size();
    blocks.push_back(markdown.substr(at, markdown.find("```", at) - at));
  }
  return blocks;
}

TEST(WorkedExample, IsPrintedInTheReadmeAsItIsCompiledHere) {
  const std::string folder = "tests/worked_example/algorithms/";
  const auto printed = code_blocks(text_of("algorithms/README.md"));
  ASSERT_GE(printed.size(), 6u);
  EXPECT_EQ(printed[0], text_of(folder + "one_shot.hpp"));
  EXPECT_EQ(printed[1], text_of(folder + "one_shot_row.inc"));
  EXPECT_THAT(text_of("tests/algorithms/worked_example_test.cpp"), testing::HasSubstr("\n" + printed[2]));
  EXPECT_EQ(printed[3], text_of("algorithms/quorum/k_batch_sync.hpp"));
  EXPECT_THAT(text_of("algorithms/registry.cpp"), testing::HasSubstr(printed[4]));
  EXPECT_THAT(text_of("tests/algorithms/k_batch_sync_test.cpp"), testing::HasSubstr("\n" + printed[5]));
}

TEST(WorkedExample, HasFewerThanSixtyLines) {
  const auto printed = code_blocks(text_of("algorithms/README.md"));
  ASSERT_GE(printed.size(), 2u);
  const std::string all = printed[0] + printed[1];
  EXPECT_LT(std::count(all.begin(), all.end(), '\n'), 60);
}

// The number of lines that are neither blank nor comments.
int lines_of_code(const std::string& text) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && line.compare(begin, 2, "//") != 0) ++count;
  }
  return count;
}

TEST(WorkedExample, OfAServerHasAtMostFortyFiveLinesOfCode) {
  const auto printed = code_blocks(text_of("algorithms/README.md"));
  ASSERT_GE(printed.size(), 6u);
  EXPECT_LE(lines_of_code(printed[4] + printed[5]), 45);  // including the method's prediction
}

TEST(OneShot, EqualsLocalSgdWithAPeriodAsLongAsTheRun) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .budget = {.steps = 20}};
  EXPECT_EQ(setup.run(OneShot()).parameters, setup.run(LocalSgd(make_constant_period(20), {})).parameters);
}

TEST(WorkedExample, RunsFromItsRow) {
  SettingsDocument document(parse_toml("algorithm = \"one-shot\"", "test.toml"));
  Settings settings = document.root();
  EXPECT_EQ(settings.text("algorithm"), rows[0].name);
  const auto algorithm = rows[0].make(settings, {.workers = 3});
  EXPECT_EQ(document.check().report(), "");
  // Steps take 1 s, 1.25 s and 2 s, and the average takes 0.5 s.
  const SimulatedRun setup{.budget = {.steps = 4},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  EXPECT_EQ(setup.run(*algorithm).log, (std::vector<std::string>{"step 4 at 8.500 s: kept 12, dropped 0"}));
}

}  // namespace
}  // namespace syncopate
