// The worked examples of algorithms/README.md, compiled and run. Their files lie in worked_example/, as if that were
// the source's root; a test keeps what the README prints equal to them. Parity of the second one is among that of all
// methods (tests/workers/parity_mpi_test.cpp).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "algorithms/k_batch_sync.cpp"
#include "algorithms/k_batch_sync.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/one_shot.cpp"
#include "algorithms/one_shot.hpp"
#include "algorithms/registry.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/delays/exponential.hpp"
#include "workers/settings/settings_document.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {
namespace {

constexpr AlgorithmRow rows[] = {
#include "algorithms/one_shot_row.inc"
// The second example's.
#include "algorithms/k_batch_sync_row.inc"
};

std::string text_of(const std::string& path) {
  std::ifstream file(SYNCOPATE_SOURCE_DIR "/" + path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// What stands between ```cpp and ```, block by block.
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
  const std::string folder = "tests/algorithms/worked_example/algorithms/";
  const auto printed = code_blocks(text_of("algorithms/README.md"));
  ASSERT_GE(printed.size(), 8u);
  EXPECT_EQ(printed[0], text_of(folder + "one_shot.hpp"));
  EXPECT_EQ(printed[1], text_of(folder + "one_shot.cpp"));
  EXPECT_EQ(printed[2], text_of(folder + "one_shot_row.inc"));
  EXPECT_EQ(printed[4], text_of(folder + "k_batch_sync.hpp"));
  EXPECT_EQ(printed[5], text_of(folder + "k_batch_sync.cpp"));
  EXPECT_EQ(printed[6], text_of(folder + "k_batch_sync_row.inc"));
  const std::string tests = text_of("tests/algorithms/worked_example_test.cpp");
  for (const int test : {3, 7}) EXPECT_THAT(tests, testing::HasSubstr("\n" + printed[static_cast<std::size_t>(test)]));
}

TEST(WorkedExample, HasFewerThanSixtyLines) {
  const auto printed = code_blocks(text_of("algorithms/README.md"));
  ASSERT_GE(printed.size(), 3u);
  const std::string all = printed[0] + printed[1] + printed[2];
  EXPECT_LT(std::count(all.begin(), all.end(), '\n'), 60);
}

// Neither blank nor comments.
int lines_of_code(const std::string& text) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find_first_not_of(' ');
    if (begin != std::string::npos && line.compare(begin, 2, "//") != 0) ++count;
  }
  return count;
}

TEST(WorkedExample, OfAServerHasAtMostFortyLinesOfCode) {
  const auto printed = code_blocks(text_of("algorithms/README.md"));
  ASSERT_GE(printed.size(), 6u);
  EXPECT_LE(lines_of_code(printed[4] + printed[5]), 40);
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
  // Steps of 1 s, 1.25 s and 2 s; the average takes 0.5 s.
  const SimulatedRun setup{.budget = {.steps = 4},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  EXPECT_EQ(setup.run(*algorithm).log, (std::vector<std::string>{"step 4 at 8.500 s: kept 12, dropped 0"}));
}

std::unique_ptr<Algorithm> k_batch_sync(int gradients) {
  SettingsDocument document(
      parse_toml(fmt::format("algorithm = \"k-batch-sync\"\ngradients = {}", gradients), "test.toml"));
  Settings settings = document.root();
  EXPECT_EQ(settings.text("algorithm"), rows[1].name);
  auto algorithm = rows[1].make(settings, {.workers = 3});
  EXPECT_EQ(document.check().report(), "");
  return algorithm;
}

TEST(KBatchSync, WithEqualWorkersAndAllOfThemEqualsSynchronousSgd) {
  const SimulatedRun setup{.workers = 4, .network_s = 0.25, .momentum = 0.9, .budget = {.steps = 20}};
  EXPECT_EQ(setup.run(KBatchSync(4)).parameters, setup.run(SyncSgd()).parameters);
}

// Exponential times have no memory, so that gradients come at the rate N / mu, whoever is cancelled: K of them take
// K mu / N, and N of them, a step of the experiment file, take mu. Of 24,000 the mean has an error of 0.65 %.
TEST(KBatchSync, AStepTakesAsLongAsKArrivalsOfAllWorkersTogether) {
  for (const int gradients : {1, 4, 9}) {
    SimulatedRun setup{.workers = 6,
                       .base_s = 1e-9,
                       .network_s = 0,
                       .budget = {.steps = 4000},
                       .delays = {exponential_delay(2)},
                       .objective = nullptr};
    const auto outcome = setup.run(*k_batch_sync(gradients));
    const double updates = 4000 * 6.0 / gradients;
    EXPECT_NEAR(to_seconds(outcome.totals.end) / updates, gradients * 2 / 6.0, 0.02 * gradients * 2 / 6.0) << gradients;
  }
}

// Micro-batches of 1 s and 4.25 s, messages of 0.25 s. The model is there at 0.25 s; worker 0 gives both gradients,
// which arrive at 1.5 and 2.5 s. At 2.75 s the next model cancels its third and worker 1's first.
TEST(KBatchSync, OneWorkerMayGiveAllGradientsOfAStep) {
  const SimulatedRun setup{
      .workers = 2, .network_s = 0.25, .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 3.25})}};
  const auto outcome = setup.run(*k_batch_sync(2));
  EXPECT_EQ(outcome.log,
            (std::vector<std::string>{"step 1 at 2.500 s: kept 2, dropped 0", "step 2 at 5.000 s: kept 2, dropped 0"}));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{4, 0}));
  for (const Account& account : outcome.totals.accounts) EXPECT_EQ(account.total(), from_seconds(5));
}

// Of 1 s and 1.1 s: worker 1's gradient arrives at 1.6 s, 0.1 s after the update, and again 0.1 s after the next one,
// which ends the experiment file's step of two gradients.
TEST(KBatchSync, AGradientThatArrivesAfterTheUpdateIsDropped) {
  const SimulatedRun setup{.workers = 2,
                           .network_s = 0.25,
                           .budget = {.steps = 1},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1})}};
  const auto outcome = setup.run(*k_batch_sync(1));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{"step 1 at 3.000 s: kept 2, dropped 1"}));
}

// What is cancelled has no gradient, so that its samples are not used up: worker 0 leaves after eight steps that are
// through, however many are cancelled in between, and worker 1 goes on alone.
TEST(KBatchSync, WorkersLeaveOnceTheirOwnDataAreUsedUp) {
  const SimulatedRun setup{.workers = 2,
                           .network_s = 0.25,
                           .budget = {.steps = 6},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 3.25})},
                           .data_of = {Step{8}, std::nullopt}};
  const auto outcome = setup.run(*k_batch_sync(2));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{8, 4}));
}

}  // namespace
}  // namespace syncopate
