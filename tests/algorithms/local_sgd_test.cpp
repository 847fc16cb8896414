#include "algorithms/local_sgd/local_sgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "algorithms/local_sgd/rounds.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/data/sampler.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {
namespace {

LocalSgd every(int steps, const StatePolicies& policies = {}) {
  return LocalSgd(make_constant_period(steps), policies);
}

TEST(LocalSgd, AveragingEveryStepEqualsSynchronousSgd) {
  // Averages commute with steps, also with momentum, whether momentum is kept or averaged.
  for (const StatePolicy moments : {StatePolicy::keep, StatePolicy::average}) {
    SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 20}};
    const auto local = setup.run(every(1, {.average = {.moments = {moments, moments}}}));
    const auto synchronous = setup.run(SyncSgd());
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(local.parameters[i], synchronous.parameters[i], 1e-5 * std::abs(synchronous.parameters[i]));
  }
}

TEST(LocalSgd, FollowsTheRecursionOfEachWorker) {
  constexpr int workers = 3, period = 4, steps = 12;
  constexpr double rate = 0.1, momentum = 0.5;
  for (const StatePolicy moments : {StatePolicy::keep, StatePolicy::average, StatePolicy::reset}) {
    SimulatedRun setup{.workers = workers, .momentum = momentum, .rate = rate, .budget = {.steps = steps}};
    const auto outcome = setup.run(every(period, {.average = {.moments = {moments, moments}}}));
    for (std::size_t i = 0; i < 4; ++i) {
      std::vector<double> theta(workers, 1.0), velocity(workers, 0.0);
      for (int step = 0; step < steps; ++step) {
        for (int k = 0; k < workers; ++k) {
          velocity[k] = momentum * velocity[k] + theta[k] - PullObjective::target({Rank{k}, step, 0}, i);
          theta[k] -= rate * velocity[k];
        }
        if ((step + 1) % period != 0) continue;
        theta.assign(workers, (theta[0] + theta[1] + theta[2]) / 3);
        if (moments == StatePolicy::average) velocity.assign(workers, (velocity[0] + velocity[1] + velocity[2]) / 3);
        if (moments == StatePolicy::reset) velocity.assign(workers, 0);
      }
      EXPECT_NEAR(outcome.parameters[i], theta[0], 1e-5 * std::abs(theta[0]));
    }
  }
}

TEST(LocalSgd, WaitsOncePerPeriodForTheSlowestSum) {
  SimulatedRun setup{.budget = {.steps = 5}, .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(every(2));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 2 at 4.500 s: kept 6, dropped 0",  // 2 x 2 s of the slowest, 0.5 s to average
                             "step 4 at 9.000 s: kept 6, dropped 0",
                             "step 5 at 11.500 s: kept 3, dropped 0",  // the last round is shorter
                         }));
  EXPECT_EQ(outcome.rounds[0].period, Step{2});
  EXPECT_EQ(outcome.rounds[2].period, Step{1});
  EXPECT_EQ(outcome.samples, 15);
}

TEST(LocalSgd, ALongRoundEndsWithTheBudget) {
  // Workers end their round of 20,000 steps once their own clock passes 10 s.
  SimulatedRun setup{.budget = {.seconds = 10},
                     .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(every(20'000));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{"step 10 at 10.500 s: kept 23, dropped 0"}));  // 10 + 8 + 5 steps
  setup.budget = {.samples = 12};
  EXPECT_EQ(setup.run(every(20'000)).log.front(), "step 4 at 8.500 s: kept 12, dropped 0");
}

TEST(LocalSgd, MomentsThatAreAveragedAreSentToo) {
  SimulatedRun setup{.momentum = 0.9, .budget = {.steps = 4}};
  EXPECT_EQ(setup.run(every(2)).totals.bytes, Bytes{2 * 2 * 2 * 16});
  EXPECT_EQ(setup.run(every(2, {.average = {.moments = {StatePolicy::average, StatePolicy::average}}})).totals.bytes,
            Bytes{2 * 2 * 2 * 32});
}

// Tests the whole path from the learning rate's schedule to the rounds of a run.
TEST(LocalSgd, SynchronisesAtTheStepsOfTheGoldenSequences) {
  std::ifstream file(SYNCOPATE_SOURCE_DIR "/tests/golden/qsr_golden.json");
  const auto golden = nlohmann::json::parse(file);
  int cases = 0;
  for (const auto& [name, entry] : golden.items()) {
    if (!entry.contains("rle")) continue;
    const auto& config = entry["config"];
    const std::string kind = config["kind"];
    SimulatedRun setup{.workers = 2, .budget = {.steps = config["T"].get<int>()}, .objective = nullptr};
    setup.learning_rate = std::make_shared<LearningRate>(
        LearningRate::Options{.shape = kind == "cosine" ? LearningRate::Shape::cosine : LearningRate::Shape::linear,
                              .peak = config["peak"],
                              .final = config["final"],
                              .warmup_steps = config["W"].get<int>(),
                              .total_steps = config["T"].get<int>()});
    const LocalSgd algorithm(make_power_period({.power = config["power"],
                                                .coefficient = config["coef"],
                                                .minimum = config["min_h"].get<int>(),
                                                .warmup_steps = config["W"].get<int>(),
                                                .warmup_period = Step{config["init_h"].get<int>()}}),
                             {});
    std::vector<int> expected;  // the steps after which models are averaged
    for (const auto& [length, count] : entry["rle"].get<std::vector<std::pair<int, int>>>())
      for (int i = 0; i < count; ++i) expected.push_back((expected.empty() ? 0 : expected.back()) + length);
    std::vector<int> steps;
    for (const StepRow& round : setup.run(algorithm).rounds) steps.push_back(static_cast<int>(round.step.value()));
    EXPECT_EQ(steps, expected) << name;
    ++cases;
  }
  EXPECT_GE(cases, 5);
}

// Local SGD that begins as synchronous SGD: post-local SGD and SWAP, in every method that has periods.

constexpr int switch_step = 6;

using Period = std::shared_ptr<const SyncPeriod>;

std::vector<std::shared_ptr<const Algorithm>> methods_with(const Period& period, const StatePolicies& policies) {
  return {std::make_shared<LocalSgd>(period, policies),
          std::make_shared<OuterLocalSgd>(period, make_slowmo(1, 0.5), policies),
          std::make_shared<HierarchicalSgd>(GroupsOfRound{2, Step{1}}, period, policies),
          std::make_shared<DropLocalSgd>(period, DropOptions{}, policies)};
}

TEST(PostLocal, EqualsSynchronousSgdBitForBitBeforeTheSwitch) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 2,
                           .optimizer = make_adamw({}),
                           .budget = {.steps = switch_step},
                           .delays = {exponential_delay(1)}};
  const auto synchronous = setup.run(SyncSgd());
  const StatePolicies averaged{.average = {.moments = {StatePolicy::average, StatePolicy::average}}};
  for (const StatePolicies& policies : {StatePolicies{}, averaged})
    for (const Period& period : {Period(make_post_local_period(switch_step, 4)), Period(make_swap_period(switch_step))})
      for (const auto& method : methods_with(period, policies)) {
        const auto outcome = setup.run(*method);
        EXPECT_EQ(outcome.parameters, synchronous.parameters);
        EXPECT_EQ(outcome.log, synchronous.log);
        EXPECT_EQ(outcome.totals.bytes, synchronous.totals.bytes);
      }
}

// With and without drops: late micro-batches are left out of the sum, whose divisor stays the same.
TEST(PostLocal, InsideDropComputeIsDropComputeBeforeTheSwitch) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 3,
                           .momentum = 0.9,
                           .budget = {.steps = switch_step},
                           .delays = {exponential_delay(1)}};
  const Duration threshold = from_seconds(5);
  const auto dropping = setup.run(DropCompute(threshold, Preempt::discard, 1.0 / 3));
  const auto outcome =
      setup.run(DropLocalSgd(make_post_local_period(switch_step, 4), DropOptions{.threshold = threshold}));
  EXPECT_EQ(outcome.parameters, dropping.parameters);
  EXPECT_EQ(outcome.log, dropping.log);
  EXPECT_NE(outcome.totals.dropped, std::vector<std::int64_t>(4, 0));
}

// Adam in double precision, for one parameter.
struct Adam {
  double theta = 1, first = 0, second = 0;
  int steps = 0;
  void descend(double gradient, double rate) {
    constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    ++steps;
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    const double divisor = std::sqrt(second / (1 - std::pow(beta2, steps))) + epsilon;
    theta -= rate * first / (1 - std::pow(beta1, steps)) / divisor;
  }
};

// Before the switch the moments are those of the mean gradient, and all workers begin their local steps with these
// moments. Adam is not linear, so averaging the moments of each worker's own gradients would give others.
TEST(PostLocal, StartsLocalStepsFromTheMomentsOfSynchronousSgd) {
  constexpr int workers = 3, period = 2, steps = switch_step + 2 * period;
  constexpr double rate = 0.1;
  const SimulatedRun setup{.workers = workers,
                           .rate = rate,
                           .optimizer = make_adamw({.weight_decay = {.rate = 0}}),
                           .budget = {.steps = steps}};
  const auto outcome = setup.run(LocalSgd(make_post_local_period(switch_step, period), {}));
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<Adam> all(workers);
    for (int step = 0; step < steps; ++step) {
      std::vector<double> gradient(workers);
      double mean = 0;
      for (int k = 0; k < workers; ++k) {
        gradient[k] = all[k].theta - PullObjective::target({Rank{k}, step, 0}, i);
        mean += gradient[k] / workers;
      }
      for (int k = 0; k < workers; ++k) all[k].descend(step < switch_step ? mean : gradient[k], rate);
      if (step < switch_step || (step + 1 - switch_step) % period != 0) continue;
      const double average = (all[0].theta + all[1].theta + all[2].theta) / 3;
      for (Adam& one : all) one.theta = average;
    }
    EXPECT_NEAR(outcome.parameters[i], all[0].theta, 1e-5 * std::abs(all[0].theta));
  }
}

// On a ring an all-reduce of P bytes takes 2 (N - 1) (L + P / (N B)). Averaged moments are only sent along with models.
TEST(PostLocal, IsPredictedToSendGradientsBeforeTheSwitchAndModelsAfterIt) {
  constexpr double latency_s = 0.01, bytes_per_s = 8;
  const auto ring_s = [&](double bytes) { return 2 * (4 - 1) * (latency_s + bytes / 4 / bytes_per_s); };
  const PredictedRun setting{
      .workers = 4, .steps = 10, .network = make_ring_network(latency_s, bytes_per_s), .moments = 1};
  const LocalSgd method(make_post_local_period(switch_step, 2),
                        {.average = {.moments = {StatePolicy::average, StatePolicy::average}}});
  const double expected = (switch_step * ring_s(16) + 2 * ring_s(2 * 16)) / 10;
  EXPECT_NEAR(setting.predict(method).at(0).communication_s.value(), expected, 1e-8);
}

// The local phase (SWAP's second phase) has its own batch size, order of data and learning rate.

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

// After 4 common steps, 8 steps have one micro-batch. They take half the time, and nothing counts as dropped.
TEST(LocalPhase, AStepHasAsManyMicroBatchesAsAreAskedFor) {
  const auto objective = std::make_shared<PullObjective>();
  const SimulatedRun setup{.workers = 3, .micro_batches = 2, .budget = {.steps = 12}, .objective = objective};
  const auto outcome = setup.run(swap_with({.micro_batches = 1}));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>(3, 4 * 2 + 8)));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>(3, 0)));
  EXPECT_EQ(outcome.log.back(), "step 12 at 18.500 s: kept 24, dropped 0");  // 4 of 2.5 s, 8 of 1 s, an average
  std::set<MicroBatch> expected;                                             // samples are consecutive
  for (int worker = 0; worker < 3; ++worker)
    for (int step = 0; step < 8; ++step)
      for (int index = 0; index < 2; ++index) expected.insert({Rank{worker}, step, index});
  EXPECT_EQ(objective->evaluated, expected);
}

// Steps lost with the state in an outage are counted and not repeated, and their planned micro-batches are counted,
// too. Of 12 steps the last 8 have one micro-batch instead of two, which is a surplus of -4 steps.
TEST(LocalPhase, WhatAStepIsPlannedWithIsCountedAlsoWhereItIsLost) {
  SimulatedRun setup{.workers = 3, .micro_batches = 2, .budget = {.steps = 12}};
  const auto without = setup.run(swap_with({.micro_batches = 1}));
  EXPECT_EQ(without.publications.back().surplus_steps, -4);
  // The outage hits only worker 0's third local step, which begins at 12 s.
  setup.outages = std::make_shared<OutagePlan>(
      1,
      std::vector<OutageEntry>{
          {.workers = {Rank{0}}, .when = ScheduledOutage{from_seconds(12.5), from_seconds(1)}, .loses_state = true}});
  const auto lost = setup.run(swap_with({.micro_batches = 1}));
  EXPECT_EQ(lost.totals.dropped.front(), 2);
  EXPECT_EQ(lost.publications.back().step, Step{12});
  EXPECT_EQ(lost.publications.back().surplus_steps, -4);
}

// Each worker takes steps x <- x - rate (x - target) in double precision; the last rates are those of the phase.
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

// The file's schedule is 0 from the phase's begin on, but the phase has its own rate.
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

// A publication has the rate of the step that follows, in the phase as before it.
TEST(LocalPhase, WhatIsPublishedHasTheRateOfThePhase) {
  const SimulatedRun setup{.workers = 2, .rate = 0.05, .budget = {.steps = 8}};
  const LocalPhase phase{.learning_rate =
                             LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.4, .final = 0}};
  const auto outcome = setup.run(LocalSgd(make_post_local_period(4, 2), {}, phase));
  std::vector<double> rates;
  for (const Publication& publication : outcome.publications) rates.push_back(publication.learning_rate);
  ASSERT_EQ(rates.size(), 6u);  // after 4 common steps, and after 2 rounds of 2
  for (const std::size_t together : {0, 1, 2}) EXPECT_EQ(rates[together], 0.05);
  EXPECT_DOUBLE_EQ(rates[3], 0.4);
  EXPECT_DOUBLE_EQ(rates[4], 0.2);
  EXPECT_DOUBLE_EQ(rates[5], 0);
}

// Rounds have floor((0.4 / rate)^2) steps: 4 at the phase's rate of 0.2, and 1 at the file's rate of 0.4.
TEST(LocalPhase, RoundsThatGoByTheRateGoByThatOfThePhase) {
  const SimulatedRun setup{.workers = 2, .rate = 0.4, .budget = {.steps = 12}};
  const LocalSgd method(make_power_period({.coefficient = 0.4000001}), {},
                        {.learning_rate = LearningRate::Options{.peak = 0.2}});
  std::vector<Step> ends;
  for (const StepRow& round : setup.run(method).rounds) ends.push_back(round.step);
  EXPECT_EQ(ends, (std::vector<Step>{4, 8, 12}));
}

// The prediction also uses the phase's rate: an average of 0.5 s every 4 steps.
TEST(LocalPhase, FormulasGoByTheRateOfThePhase) {
  const PredictedRun setting{.micro_batches = 1};
  const LocalSgd method(make_power_period({.coefficient = 0.4000001}), {},
                        {.learning_rate = LearningRate::Options{.peak = 0.2}});
  const auto predictions = setting.predict(method);
  ASSERT_FALSE(predictions.empty());
  EXPECT_DOUBLE_EQ(predictions.front().communication_s.value(), 0.5 / 4);
}

// The test's parameter is the phase's first step.
class OwnOrder : public testing::TestWithParam<int> {};

TEST_P(OwnOrder, HasAllSamplesOnceForEachWorkerWhateverLiesBefore) {
  const int first_step = GetParam();
  constexpr int workers = 3, micro_batches = 2, size = 4, samples = 96;  // 4 steps per epoch
  const auto objective = std::make_shared<PullObjective>();
  const SimulatedRun setup{
      .workers = workers, .micro_batches = micro_batches, .budget = {.steps = 12}, .objective = objective};
  // A worker's pass over all samples has 24 micro-batches, in 12 steps. Epochs number these passes.
  const LocalPhase phase{.sampling = LocalPhase::Sampling::own, .steps_per_epoch = 4, .first_step = first_step};
  setup.run(LocalSgd(make_swap_period(0), {}, phase));
  const Sampler sampler({.samples = samples,
                         .workers = workers,
                         .micro_batches = micro_batches,
                         .micro_batch_size = size,
                         .seed = 1,
                         .first_step = first_step});
  ASSERT_EQ(sampler.steps_per_epoch(), 4);
  std::map<std::int64_t, std::vector<std::uint32_t>> orders;  // by epoch
  for (const MicroBatch& micro_batch : objective->evaluated) {
    sampler.append_samples(micro_batch, orders[sampler.epoch(micro_batch)]);
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
              HasSubstr("must be \"shards\" if training.partition"));
  EXPECT_THAT(faults("peak = 0.1, schedule = \"linear\"", {.workers = 4}), HasSubstr("must be \"constant\" if"));
  EXPECT_THAT(faults("micro_batches = 0", {.workers = 4}), HasSubstr("micro_batches = 0; must be"));
}

}  // namespace
}  // namespace syncopate
