// SWAP's second phase: another batch, an order of the data and a learning rate of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/rounds.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/data/sampler.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

LocalSgd swap_with(const LocalPhase& phase) { return LocalSgd(make_swap_period(4), {}, phase); }

TEST(LocalPhase, TheFirstPhasesBatchAndRateChangeNothing) {
  const SimulatedRun setup{.workers = 3, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 12}};
  const auto expected = setup.run(LocalSgd(make_swap_period(4), {}));
  for (const LocalPhase& phase :
       {LocalPhase{.micro_batches = 2}, LocalPhase{.learning_rate = LearningRate::Options{.peak = 0.05}}}) {
    const auto found = setup.run(swap_with(phase));
    EXPECT_EQ(found.parameters, expected.parameters);
    EXPECT_EQ(found.log, expected.log);
  }
}

// 4 steps of all together, then 8 of one micro-batch: half the time, and nothing counts as dropped.
TEST(LocalPhase, AStepHasAsManyMicroBatchesAsAreAskedFor) {
  const auto objective = std::make_shared<PullObjective>();
  const SimulatedRun setup{.workers = 3, .micro_batches = 2, .budget = {.steps = 12}, .objective = objective};
  const auto outcome = setup.run(swap_with({.micro_batches = 1}));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>(3, 4 * 2 + 8)));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>(3, 0)));
  EXPECT_EQ(outcome.log.back(), "step 12 at 18.500 s: kept 24, dropped 0");  // 4 x 2.5 + 8 + 0.5
  std::set<MicroBatch> expected;                                             // its samples follow each other
  for (int worker = 0; worker < 3; ++worker)
    for (int step = 0; step < 8; ++step)
      for (int index = 0; index < 2; ++index) expected.insert({Rank{worker}, step, index});
  EXPECT_EQ(objective->evaluated, expected);
}

// Steps that an outage takes with the state are counted and not taken again, and so is what they were planned with: of
// 12 steps the last 8 have one micro-batch of two.
TEST(LocalPhase, WhatAStepIsPlannedWithIsCountedAlsoWhereItIsLost) {
  SimulatedRun setup{.workers = 3, .micro_batches = 2, .budget = {.steps = 12}};
  const auto without = setup.run(swap_with({.micro_batches = 1}));
  EXPECT_EQ(without.publications.back().surplus_steps, -4);
  // Its third step alone, which begins at 12 s.
  setup.outages = std::make_shared<OutagePlan>(
      1,
      std::vector<OutageEntry>{
          {.workers = {Rank{0}}, .when = ScheduledOutage{from_seconds(12.5), from_seconds(1)}, .loses_state = true}});
  const auto lost = setup.run(swap_with({.micro_batches = 1}));
  EXPECT_EQ(lost.totals.dropped.front(), 2);
  EXPECT_EQ(lost.publications.back().step, Step{12});
  EXPECT_EQ(lost.publications.back().surplus_steps, -4);
}

// Of each worker in double precision: x <- x - rate (x - target), the last rates being those of the phase.
TEST(LocalPhase, ItsLearningRateGoesByStepsSinceItBegan) {
  const SimulatedRun setup{.workers = 3, .rate = 0.05, .budget = {.steps = 12}};
  const auto outcome = setup.run(swap_with(
      {.learning_rate = LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.4, .final = 0.04}}));
  for (std::size_t i = 0; i < 4; ++i) {
    double together = 1, sum = 0;
    for (int step = 0; step < 4; ++step) {
      double gradient = 0;
      for (int worker = 0; worker < 3; ++worker)
        gradient += (together - PullObjective::target({Rank{worker}, step, 0}, i)) / 3;
      together -= 0.05 * gradient;
    }
    for (int worker = 0; worker < 3; ++worker) {
      double own = together;
      for (int step = 4; step < 12; ++step)
        own -= (0.4 - 0.36 * (step - 4) / 8) * (own - PullObjective::target({Rank{worker}, step, 0}, i));
      sum += own / 3;
    }
    EXPECT_NEAR(outcome.parameters[i], sum, 1e-5 * std::abs(sum));
  }
}

// The file's schedule ends at 0 where the phase begins: the phase has its own rate all the same.
TEST(LocalPhase, ItsLearningRateIsNoShareOfTheSchedules) {
  const auto falling = std::make_shared<const LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.05, .final = 0, .total_steps = 4});
  const SimulatedRun setup{.workers = 1, .learning_rate = falling, .budget = {.steps = 12}};
  const auto outcome = setup.run(swap_with({.learning_rate = LearningRate::Options{.peak = 0.2}}));
  for (std::size_t i = 0; i < 4; ++i) {
    double model = 1;
    for (int step = 0; step < 12; ++step)
      model -= (step < 4 ? 0.05 * (4 - step) / 4 : 0.2) * (model - PullObjective::target({Rank{0}, step, 0}, i));
    EXPECT_NEAR(outcome.parameters[i], model, 1e-5 * std::abs(model));
  }
}

// That of the next step, as before the phase.
TEST(LocalPhase, WhatIsPublishedHasTheRateOfThePhase) {
  const SimulatedRun setup{.workers = 2, .rate = 0.05, .budget = {.steps = 8}};
  const LocalPhase phase{.learning_rate =
                             LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.4, .final = 0}};
  const auto outcome = setup.run(LocalSgd(make_post_local_period(4, 2), {}, phase));
  std::vector<double> rates;
  for (const Publication& publication : outcome.publications) rates.push_back(publication.learning_rate);
  ASSERT_EQ(rates.size(), 6u);  // 4 steps together, 2 rounds of 2
  for (const std::size_t together : {0, 1, 2}) EXPECT_EQ(rates[together], 0.05);
  EXPECT_DOUBLE_EQ(rates[3], 0.4);
  EXPECT_DOUBLE_EQ(rates[4], 0.2);
  EXPECT_DOUBLE_EQ(rates[5], 0);
}

// H = floor((0.4 / rate)^2): at the phase's 0.2 rounds of 4, at the file's 0.4 of 1.
TEST(LocalPhase, RoundsThatGoByTheRateGoByThatOfThePhase) {
  const SimulatedRun setup{.workers = 2, .rate = 0.4, .budget = {.steps = 12}};
  const LocalSgd method(make_power_period({.coefficient = 0.4000001}), {},
                        {.learning_rate = LearningRate::Options{.peak = 0.2}});
  std::vector<Step> ends;
  for (const StepRow& round : setup.run(method).rounds) ends.push_back(round.step);
  EXPECT_EQ(ends, (std::vector<Step>{4, 8, 12}));
}

// The forecast too: an average of 0.5 s in every 4 steps.
TEST(LocalPhase, FormulasGoByTheRateOfThePhase) {
  const PredictedRun setting{.micro_batches = 1};
  const LocalSgd method(make_power_period({.coefficient = 0.4000001}), {},
                        {.learning_rate = LearningRate::Options{.peak = 0.2}});
  const auto predictions = setting.predict(method);
  ASSERT_FALSE(predictions.empty());
  EXPECT_DOUBLE_EQ(predictions.front().communication_s, 0.5 / 4);
}

// Keeps the micro-batches that each worker took, in the order in which it asked for them, by steps of a linear walk.
class OwnOrder : public testing::TestWithParam<int> {};

TEST_P(OwnOrder, HasAllSamplesOnceForEachWorkerWhateverLiesBefore) {
  const int first_step = GetParam();
  constexpr int workers = 3, micro_batches = 2, size = 4, samples = 96;  // 4 steps per epoch
  const auto objective = std::make_shared<PullObjective>();
  const SimulatedRun setup{
      .workers = workers, .micro_batches = micro_batches, .budget = {.steps = 12}, .objective = objective};
  // A pass is 24 micro-batches, 12 steps; none are taken together.
  const LocalPhase phase{.sampling = LocalPhase::Sampling::own, .steps_per_epoch = 4, .first_step = first_step};
  setup.run(LocalSgd(make_swap_period(0), {}, phase));
  const Sampler sampler({.samples = samples,
                         .workers = workers,
                         .micro_batches = micro_batches,
                         .micro_batch_size = size,
                         .seed = 1,
                         .first_step = first_step});
  ASSERT_EQ(sampler.steps_per_epoch(), 4);
  std::map<std::int64_t, std::vector<std::uint32_t>> orders;  // by epoch: whose order it is
  for (const MicroBatch& micro_batch : objective->evaluated) {
    std::vector<std::uint32_t> numbers(size);
    sampler.sample_numbers(micro_batch, numbers);
    auto& order = orders[sampler.epoch(micro_batch)];
    order.insert(order.end(), numbers.begin(), numbers.end());
  }
  ASSERT_EQ(orders.size(), 3u);
  std::set<std::vector<std::uint32_t>> unlike;
  for (auto& [epoch, order] : orders) {
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), static_cast<std::size_t>(samples));
    EXPECT_EQ(std::ssize(order), samples);
    unlike.insert(order);
  }
  EXPECT_EQ(unlike.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(LocalPhase, OwnOrder, testing::Values(0, 5, 8));  // an epoch has 4 steps

TEST(LocalPhaseSettings, TheTableIsRead) {
  const std::string method = "algorithm = \"local-sgd\"\nperiod = { rule = \"swap\", switch_step = 4 }\n";
  const auto reading = read_method(
      method + "local_phase = { micro_batches = 1, sampling = \"own-order\", peak = 0.1, schedule = \"cosine\" }",
      {.workers = 4, .steps_per_epoch = 10, .total_steps = 12});
  EXPECT_EQ(reading.faults, "");
  const std::string power = "algorithm = \"local-sgd\"\nperiod = { rule = \"power\", coefficient = 0.1 }\n";
  const AlgorithmContext warmed{.workers = 4, .learning_rate_warmup = 5, .total_steps = 12};
  EXPECT_THAT(read_method(power, warmed).resolved, HasSubstr("warmup_steps = 5"));
  EXPECT_THAT(read_method(power + "local_phase = { peak = 0.1 }", warmed).resolved, HasSubstr("warmup_steps = 0"));
  const auto faults = [&](const std::string& keys, const AlgorithmContext& context) {
    return read_method(method + "local_phase = {" + keys + "}", context).faults;
  };
  EXPECT_THAT(faults("sampling = \"own-order\"", {.workers = 4, .total_steps = 12}),
              HasSubstr("sampling = \"own-order\"; needs a data set"));
  EXPECT_THAT(faults("sampling = \"own-order\"", {.workers = 4, .steps_per_epoch = 3, .divides_data = true}),
              HasSubstr("must be \"shards\" where training.partition"));
  EXPECT_THAT(faults("peak = 0.1, schedule = \"linear\"", {.workers = 4}), HasSubstr("must be constant where"));
  EXPECT_THAT(faults("micro_batches = 0", {.workers = 4}), HasSubstr("micro_batches = 0; must be"));
}

}  // namespace
}  // namespace syncopate
