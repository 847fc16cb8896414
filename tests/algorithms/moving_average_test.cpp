// The moving average of what a method publishes: Chen et al.'s averaged parameters, for every method.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/training/model_average.hpp"

namespace syncopate {
namespace {

using Of = MovingAverageOptions::Of;

// The golden sequence of TensorFlow's rule: from 0 over models of 1, 2, 3, 4, exactly 0.9, 1.8, 2.7, 3.6.
TEST(MovingAverage, WithNumUpdatesFollowsTensorFlowsGoldenSequence) {
  Executor executor(0);
  Training training(std::make_shared<PullObjective>(), make_sgd({}), {}, executor);
  const ModelStatePtr ones = training.initial_state();
  const auto times = [&](double factor) { return training.combine(std::vector<WeightedState>{{factor, ones}}); };
  MovingAverage average({.decay = 0.9999, .of = Of::after_update, .num_updates = true}, times(0));
  for (int n = 0; n < 4; ++n)
    for (const float found : training.values(average.take_in(times(n + 1), training)))
      EXPECT_NEAR(found, 0.9 * (n + 1), 1e-6);
}

TEST(MovingAverage, ReachesItsDecayAfterSoManyUpdates) {
  const MovingAverageOptions rule{.decay = 0.9999, .num_updates = true};
  EXPECT_DOUBLE_EQ(rule.decay_of(0), 0.1);
  EXPECT_LT(rule.decay_of(89'989), 0.9999);
  EXPECT_DOUBLE_EQ(rule.decay_of(89'990), 0.9999);
  EXPECT_DOUBLE_EQ(rule.decay_of(1'000'000), 0.9999);
  EXPECT_DOUBLE_EQ(MovingAverageOptions{.decay = 0.9999}.decay_of(0), 0.9999);
}

// One worker is serial SGD: the recursion of the model and of its average, in double precision.
TEST(MovingAverage, OfAsynchronousSgdIsThatOfChensAlgorithm2OrOneUpdateLater) {
  constexpr double rate = 0.3, decay = 0.8;
  constexpr int steps = 12;
  const SimulatedRun setup{.workers = 1, .rate = rate, .budget = {.steps = steps}};
  for (const bool num_updates : {false, true})
    for (const std::string of : {"before-update", "after-update"}) {
      const auto reading = read_method(fmt::format("algorithm = \"async-sgd\"\naverage = {{ decay = {}, of = \"{}\", "
                                                   "num_updates = {} }}",
                                                   decay, of, num_updates),
                                       {.workers = 1});
      ASSERT_EQ(reading.faults, "");
      const auto outcome = setup.run(*reading.algorithm);
      for (std::size_t i = 0; i < 4; ++i) {
        double theta = 1, average = 1;
        for (int n = 0; n < steps; ++n) {
          const double before = theta;
          theta -= rate * (theta - PullObjective::target({Rank{0}, n, 0}, i));
          const double d = num_updates ? std::min(decay, (1.0 + n) / (10 + n)) : decay;
          average = d * average + (1 - d) * (of == "before-update" ? before : theta);
        }
        EXPECT_NEAR(outcome.parameters[i], average, 1e-4) << of;
      }
    }
}

// Without memory it is what is published, or, one late, what was published before.
TEST(MovingAverage, OfEveryMethodIsOfWhatItPublishes) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.5, .budget = {.steps = 12}};
  for (const AlgorithmRow& row : algorithms()) {
    const std::string text = fmt::format("algorithm = \"{}\"\n{}\n", row.name, row.example);
    SCOPED_TRACE(text);
    const auto run = [&](const std::string& average) {
      const auto reading = read_method(text + average, {.workers = 4, .micro_batches = 2, .total_steps = Step{12}});
      EXPECT_EQ(reading.faults, "");
      return setup.run(*reading.algorithm);
    };
    const auto itself = run(""), now = run("average = { decay = 0, of = \"after-update\" }"),
               kept = run("average = { decay = 0.999999, of = \"after-update\" }");
    EXPECT_EQ(now.parameters, itself.parameters);
    EXPECT_EQ(now.log, itself.log) << "an average costs no time";
    EXPECT_NE(kept.parameters, itself.parameters);
    for (const float value : kept.parameters) EXPECT_NEAR(value, 1, 1e-3) << "the initial model, nearly";
  }
}

TEST(MovingAverage, OfAnEnsembleIsAFault) {
  const std::string text = "algorithm = \"branch-train-merge\"\nmerge = \"ensemble\"\n";
  const auto faults = [&](const std::string& more) {
    return read_method(text + more, {.workers = 2, .total_steps = Step{4}}).faults;
  };
  EXPECT_EQ(faults(""), "");
  EXPECT_THAT(faults("average = { decay = 0.9 }"), testing::HasSubstr("must be left out where merge"));
}

// SWAP publishes its only merge at the very end, and branch-train-merge nothing but that: half of it is in the average.
TEST(MovingAverage, OfRoundsTakesInTheLastOne) {
  const SimulatedRun setup{.workers = 3, .momentum = 0.5, .budget = {.steps = 6}};
  for (const std::string method :
       {"algorithm = \"local-sgd\"\nperiod = { rule = \"swap\", switch_step = 0 }\n",
        "algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 6 }\n",
        "algorithm = \"dropcompute-local-sgd\"\nthreshold_s = 100\nperiod = { rule = \"constant\", steps = 6 }\n",
        "algorithm = \"hierarchical-sgd\"\ngroup_size = 2\ngroup_period = 1\n"
        "period = { rule = \"constant\", steps = 6 }\n",
        "algorithm = \"outer-local-sgd\"\nouter = { name = \"plain\" }\n"
        "period = { rule = \"constant\", steps = 6 }\n",
        "algorithm = \"branch-train-merge\"\n"}) {
    SCOPED_TRACE(method);
    const auto run = [&](const std::string& average) {
      const auto reading = read_method(method + average, {.workers = 3, .total_steps = Step{6}});
      EXPECT_EQ(reading.faults, "");
      return setup.run(*reading.algorithm).parameters;
    };
    const auto merged = run(""), average = run("average = { decay = 0.5 }");
    ASSERT_EQ(average.size(), merged.size());
    for (std::size_t i = 0; i < merged.size(); ++i) EXPECT_NEAR(average[i], (1 + merged[i]) / 2, 1e-6);
    EXPECT_THAT(
        read_method(method + "average = { of = \"before-update\" }", {.workers = 3, .total_steps = Step{6}}).faults,
        testing::HasSubstr("of = \"before-update\"; must be \"after-update\": this method publishes"));
  }
}

TEST(MovingAverage, IsCheckedWhereItIsRead) {
  const auto faults_of = [](const std::string& average) {
    return read_method("algorithm = \"softsync\"\nsplitting = 2\naverage = " + average).faults;
  };
  EXPECT_EQ(faults_of("{ decay = 0.9999, num_updates = true }"), "");
  EXPECT_EQ(faults_of("{}"), "");
  EXPECT_THAT(faults_of("{ decay = 1.0 }"), testing::HasSubstr("decay = 1"));
  EXPECT_THAT(faults_of("{ of = \"later\" }"), testing::HasSubstr("of = \"later\""));
  EXPECT_THAT(faults_of("{ decay = 0.5, updates = true }"), testing::HasSubstr("updates"));
}

}  // namespace
}  // namespace syncopate
