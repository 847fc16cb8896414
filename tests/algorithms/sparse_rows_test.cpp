// Sums whose embeddings are sent as the rows that were touched, on the simulated cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/listed_gradients.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

// A bias of 5, a table of 20 rows of 4, a matrix of 6 x 3, a table of 7 rows of 2.
constexpr std::size_t size = 5 + 80 + 18 + 14;
const std::vector<ParameterTensor> tensors = {{.name = "bias", .offset = 0, .size = 5},
                                              {.name = "words.weight", .offset = 5, .size = 80, .rows = 20},
                                              {.name = "linear1.weight", .offset = 85, .size = 18, .rows = 6},
                                              {.name = "places.weight", .offset = 103, .size = 14, .rows = 7}};

std::mt19937 engine_of(const MicroBatch& at) {
  return std::mt19937(static_cast<unsigned>(1000 * at.worker.value + 10 * at.step.value() + at.index));
}

// Worker i touches i + 1 words, some of them twice, and one place.
std::vector<std::size_t> rows_of(const MicroBatch& at) {
  auto engine = engine_of(at);
  std::vector<std::size_t> rows;
  for (int i = 0; i <= at.worker.value; ++i) rows.push_back(engine() % 20);
  rows.push_back(20 + engine() % 7);
  return rows;
}

std::vector<float> listed(const MicroBatch& at) {
  std::vector<float> values(size);
  std::uniform_real_distribution<float> noise(0.5f, 1);
  auto engine = engine_of(at);
  for (std::size_t i = 0; i < size; ++i)
    if (i < 5 || (i >= 85 && i < 103)) values[i] = noise(engine);
  for (const std::size_t row : rows_of(at)) {
    const std::size_t begin = row < 20 ? 5 + 4 * row : 103 + 2 * (row - 20), columns = row < 20 ? 4 : 2;
    for (std::size_t i = begin; i < begin + columns; ++i) values[i] += noise(engine);
  }
  return values;
}

CompressionOptions rows(std::vector<std::string> tables = {"words.weight", "places.weight"}) {
  CompressionOptions options{.kind = CompressionOptions::Kind::rows, .error_feedback = false};
  options.tables = std::move(tables);
  return options;
}
SyncSgd sparse(const CompressionOptions& options = rows()) {
  SyncSgd method;
  method.compress(options);
  return method;
}

SimulatedRun of_texts(int workers, int steps) {
  return {.workers = workers,
          .budget = {.steps = steps},
          .objective = std::make_shared<ListedGradients>(size, listed, tensors)};
}

// What a worker's packet holds of a step of so many micro-batches.
std::int64_t words_of(int worker, int step, int micro_batches) {
  std::vector<bool> touched(27);
  for (int m = 0; m < micro_batches; ++m)
    for (const std::size_t row : rows_of({Rank{worker}, Step{step}, m})) touched[row] = true;
  std::int64_t words = 1;
  for (std::size_t row = 0; row < 27; ++row)
    if (touched[row]) words += 1 + (row < 20 ? 4 : 2);
  return words;
}

TEST(SparseRows, GiveTheStepOfTheDenseSum) {
  for (const int workers : {1, 4})
    for (const bool is_adam : {false, true}) {
      SimulatedRun setup = of_texts(workers, 15);
      setup.micro_batches = 2;
      setup.momentum = 0.9;
      if (is_adam) setup.optimizer = make_adamw({});
      const auto dense = setup.run(SyncSgd()).parameters, found = setup.run(sparse()).parameters;
      for (std::size_t i = 0; i < size; ++i)
        EXPECT_NEAR(found[i], dense[i], 2e-5 * std::max(1.0f, std::abs(dense[i]))) << i;
    }
}

// Ring: 2 (N - 1) of 4 bytes for each of 23 dense parameters, and N - 1 times each worker's rows.
TEST(SparseRows, SendWhatHasBeenTouched) {
  constexpr int workers = 4, steps = 6, micro_batches = 3;
  SimulatedRun setup = of_texts(workers, steps);
  setup.micro_batches = micro_batches;
  std::int64_t words = 0;
  for (int step = 0; step < steps; ++step)
    for (int worker = 0; worker < workers; ++worker) words += words_of(worker, step, micro_batches);
  const auto outcome = setup.run(sparse());
  EXPECT_EQ(outcome.totals.bytes, Bytes{4 * (workers - 1) * (2 * 23 * steps + words)});
  EXPECT_EQ(outcome.totals.collectives, 2 * steps);
  EXPECT_EQ(outcome.rounds.size(), static_cast<std::size_t>(steps));
  expect_exact_accounts(outcome);
}

// 1 s of computing; 2 (N - 1) (L + 92 / (N B)), and (N - 1) (L + all rows / (N B)).
TEST(SparseRows, TakeTheTimeOfWhatIsSent) {
  SimulatedRun setup = of_texts(3, 1);
  setup.network = make_ring_network(0.01, 1000);
  const double words = static_cast<double>(words_of(0, 0, 1) + words_of(1, 0, 1) + words_of(2, 0, 1));
  const auto outcome = setup.run(sparse());
  EXPECT_NEAR(to_seconds(outcome.totals.end), 1 + 4 * (0.01 + 92.0 / 3000) + 2 * (0.01 + 4 * words / 3000), 1e-9);
}

// Of one table the other is dense.
TEST(SparseRows, OfOneTableLeaveTheOthersDense) {
  SimulatedRun setup = of_texts(2, 4);
  const auto dense = setup.run(SyncSgd()).parameters;
  const auto found = setup.run(sparse(rows({"words"})));
  for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(found.parameters[i], dense[i], 1e-5) << i;
  EXPECT_NE(found.totals.bytes, setup.run(sparse()).totals.bytes);
}

TEST(SparseRows, OfDroppedMicroBatchesAreThoseThatCount) {
  SimulatedRun setup = of_texts(3, 8);
  setup.micro_batches = 4;
  setup.worker_factors = {1, 1, 1.7};
  const DropCompute dense(from_seconds(4.5), Preempt::discard, 1.0 / 3);
  DropCompute method(from_seconds(4.5), Preempt::discard, 1.0 / 3);
  method.compress(rows());
  const auto expected = setup.run(dense), found = setup.run(method);
  EXPECT_THAT(found.totals.dropped, testing::Contains(testing::Gt(0)));
  for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(found.parameters[i], expected.parameters[i], 1e-5) << i;
}

TEST(SparseRows, DoNotDependOnThreads) {
  SimulatedRun setup = of_texts(5, 8);
  setup.threads = 0;
  const auto alone = setup.run(sparse());
  setup.threads = 3;
  const auto together = setup.run(sparse());
  EXPECT_EQ(together.parameters, alone.parameters);
  EXPECT_EQ(together.log, alone.log);
}

TEST(SparseRows, ANotANumberIsSent) {
  SimulatedRun setup = of_texts(2, 1);
  setup.objective = std::make_shared<ListedGradients>(
      size,
      [](const MicroBatch& at) {
        auto values = listed(at);
        values[5 + 4 * 3] = std::numeric_limits<float>::quiet_NaN();
        return values;
      },
      tensors);
  EXPECT_TRUE(std::isnan(setup.run(sparse()).parameters[5 + 4 * 3]));
}

TEST(SparseRows, OfNoTableAreAFault) {
  try {
    of_texts(2, 1).run(sparse(rows({"tokens"})));
    FAIL() << "there is no such table";
  } catch (const RunFailure& failure) {
    EXPECT_THAT(failure.what(), testing::AllOf(testing::HasSubstr("tokens"), testing::HasSubstr("words.weight")));
  }
}

// Settings.
using testing::HasSubstr;

std::string faults_of(const std::string& compression, bool time_only = false) {
  return read_method("algorithm = \"sync-sgd\"\ncompression = " + compression, {.workers = 4, .time_only = time_only})
      .faults;
}

TEST(SparseRows, AreReadWithTheirDefaults) {
  const auto reading = read_method("algorithm = \"sync-sgd\"\ncompression = { name = \"sparse-rows\" }");
  ASSERT_EQ(reading.faults, "");
  EXPECT_EQ(reading.algorithm->compression()->tables,
            (std::vector<std::string>{"words.weight", "places.weight", "bag_of_words"}));
  EXPECT_FALSE(read_method("algorithm = \"sync-sgd\"\ncompression = { name = \"sparse-rows\", exchange = \"dense\" }")
                   .algorithm->compression());
}

TEST(SparseRows, AreRefusedWithTheirPlace) {
  EXPECT_THAT(faults_of("{ name = \"sparse-rows\" }", true), HasSubstr("needs a model"));
  EXPECT_EQ(faults_of("{ name = \"sparse-rows\", exchange = \"dense\" }", true), "");
  EXPECT_THAT(faults_of("{ name = \"sparse-rows\", exchange = \"reduce\" }"), HasSubstr("gather"));
  EXPECT_THAT(faults_of("{ name = \"sparse-rows\", tables = [] }"), HasSubstr("tables"));
  EXPECT_THAT(faults_of("{ name = \"sparse-rows\", error_feedback = true }"), HasSubstr("error_feedback"));
}

}  // namespace
}  // namespace syncopate
