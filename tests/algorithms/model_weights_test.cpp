// Averages in which models count by their workers' training samples, as in FedAvg.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/overlapped_recursions.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

// Each worker has so many samples, and those of the worker that it is like.
class DividedPull : public PullObjective, public DividedData {
 public:
  DividedPull(std::vector<std::int64_t> samples, std::vector<int> like)
      : samples_(std::move(samples)), like_(std::move(like)) {}

  std::int64_t samples_of(Rank worker) const override { return samples_.at(static_cast<std::size_t>(worker.value)); }
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    std::vector<MicroBatch> own(micro_batches.begin(), micro_batches.end());
    for (MicroBatch& one : own) one.worker = Rank{like_.at(static_cast<std::size_t>(one.worker.value))};
    return PullObjective::gradient(parameters, buffers, own);
  }

 private:
  std::vector<std::int64_t> samples_;
  std::vector<int> like_;
};

SimulatedRun with_data(int workers, std::shared_ptr<const Objective> objective) {
  SimulatedRun setup{.workers = workers, .momentum = 0.5, .rate = 0.05, .budget = {.steps = 12}};
  setup.objective = std::move(objective);
  return setup;
}

std::unique_ptr<Algorithm> algorithm_of(const std::string& keys, int workers) {
  MethodReading reading = read_method("algorithm = " + keys, {.workers = workers, .divides_data = true});
  EXPECT_EQ(reading.faults, "") << keys;
  return std::move(reading.algorithm);
}

const std::string every_3 = "\nperiod = { rule = \"constant\", steps = 3 }";
const std::string diloco = "\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.5 }";
const std::vector<std::string> methods = {"\"local-sgd\"\nmoments = \"average\"" + every_3,
                                          "\"local-sgd\"\nperiod = { rule = \"swap\", switch_step = 0 }",
                                          "\"outer-local-sgd\"" + every_3 + diloco,
                                          "\"adacomm\"\ninitial_period = 3\nminimum = 3\nmaximum = 3",
                                          "\"des-loc\"\nperiod = 3",
                                          "\"palsgd\"\ndraws = \"shared\"\npull_probability = 0.3" + every_3 + diloco,
                                          "\"dropcompute-local-sgd\"\nthreshold_s = inf" + every_3,
                                          "\"branch-train-merge\"",
                                          "\"cocod-sgd\"" + every_3,
                                          "\"overlap-local-sgd\"\nmixing = 0.5\nmomentum = 0.5" + every_3,
                                          "\"co2\"" + every_3,
                                          "\"co2\"\nanchor = \"outer-model\"" + every_3,
                                          "\"co2\"\nrounds = \"blocking\"" + every_3,
                                          "\"overlapped-diloco\"\nupdate = \"delayed\"" + every_3 + diloco,
                                          "\"streaming-diloco\"\nfragments = 2\ndelay = 1" + every_3 + diloco};

// Two workers, of which the first has twice as many samples, are as three that count alike, two of which are the first.
TEST(ModelWeights, OfTwiceTheSamplesAreThoseOfTwoWorkers) {
  const auto weighted = std::make_shared<DividedPull>(std::vector<std::int64_t>{40, 20}, std::vector{0, 1});
  const auto repeated = std::make_shared<DividedPull>(std::vector<std::int64_t>{1, 1, 1}, std::vector{0, 0, 1});
  std::vector<std::pair<std::string, std::string>> cases;  // of two workers, and of three
  for (const std::string& keys : methods) cases.emplace_back(keys, keys);
  const std::string in_groups = "\"hierarchical-sgd\"\ngroup_period = 1" + every_3 + "\ngroup_size = ";
  cases.emplace_back(in_groups + "2", in_groups + "3");
  for (const auto& [two, three] : cases) {
    const auto found = with_data(2, weighted).run(*algorithm_of(two + "\nweights = \"samples\"", 2)).parameters;
    const auto expected = with_data(3, repeated).run(*algorithm_of(three, 3)).parameters;
    const auto alike = with_data(2, weighted).run(*algorithm_of(two, 2)).parameters;
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-5 * std::abs(expected[i])) << two;
      EXPECT_GT(std::abs(alike[i] - expected[i]), 1e-3 * std::abs(expected[i])) << two;
    }
  }
}

// Rounds of two plain steps, in double precision: the next model is sum of n_i y_i / sum of n_i.
TEST(ModelWeights, OfLocalSgdAreTheSharesOfTheSamples) {
  const std::vector<double> samples = {1, 2, 5};
  const auto objective = std::make_shared<DividedPull>(std::vector<std::int64_t>{1, 2, 5}, std::vector{0, 1, 2});
  Pulled run;
  SimulatedRun setup{.budget = {.steps = run.rounds * Pulled::period}};
  setup.objective = objective;
  const auto method =
      algorithm_of("\"local-sgd\"\nweights = \"samples\"\nperiod = { rule = \"constant\", steps = 2 }", 3);
  const auto outcome = setup.run(*method);
  for (run.coordinate = 0; run.coordinate < 4; ++run.coordinate) {
    double model = 1;
    for (int r = 0; r < run.rounds; ++r) {
      const Pulled::Models y = run.trained(Pulled::Models(3, model), r);
      model = std::inner_product(y.begin(), y.end(), samples.begin(), 0.0) / 8;
    }
    EXPECT_NEAR(outcome.parameters[run.coordinate], model, 1e-5 * std::abs(model));
  }
}

TEST(ModelWeights, CostNothing) {
  const auto objective = std::make_shared<DividedPull>(std::vector<std::int64_t>{4, 1}, std::vector{0, 1});
  for (const std::string& keys : methods) {
    const auto weighted = with_data(2, objective).run(*algorithm_of(keys + "\nweights = \"samples\"", 2));
    const auto alike = with_data(2, objective).run(*algorithm_of(keys, 2));
    EXPECT_EQ(weighted.log, alike.log) << keys;
    EXPECT_EQ(weighted.totals.bytes, alike.totals.bytes) << keys;
    EXPECT_EQ(weighted.totals.collectives, alike.totals.collectives) << keys;
  }
}

TEST(ModelWeights, OfSamplesWithoutAModelAreAlike) {
  SimulatedRun setup = with_data(2, nullptr);
  const std::string keys = "\"local-sgd\"" + every_3;
  EXPECT_EQ(setup.run(*algorithm_of(keys + "\nweights = \"samples\"", 2)).log, setup.run(*algorithm_of(keys, 2)).log);
}

TEST(ModelWeights, BySamplesAreRefusedWhereTheyMeanNothing) {
  const auto faults = [](const std::string& keys, bool divides_data) {
    return read_method("algorithm = " + keys + "\nweights = \"samples\"", {.workers = 2, .divides_data = divides_data})
        .faults;
  };
  for (const std::string& keys : methods) {
    EXPECT_THAT(faults(keys, false), HasSubstr("weights = \"samples\"; must be \"equal\" unless training.partition"));
    EXPECT_EQ(faults(keys, true), "") << keys;
  }
  EXPECT_THAT(faults("\"overlapped-diloco\"" + every_3 + diloco, true),
              HasSubstr("must be \"equal\" with update = \"eager\""));
  EXPECT_THAT(faults("\"local-sgd\"\ncompression = { name = \"sign\" }" + every_3, true),
              HasSubstr("must be \"equal\" with a table compression"));
  EXPECT_THAT(faults("\"branch-train-merge\"\nmerge = \"ensemble\"", true), HasSubstr("weights"));
  EXPECT_THAT(faults("\"sync-sgd\"", true), HasSubstr("weights"));
}

}  // namespace
}  // namespace syncopate
