#include "algorithms/asynchronous/async_local_sgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/async_local_replay.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

using testing::FloatNear;
using testing::Pointwise;

std::shared_ptr<const ServerUpdate> nesterov(double rate, double momentum) {
  return make_nesterov_update(rate, momentum);
}

// The same course, and the same arithmetic in another order.
void expect_the_same(const SimulatedRun::Outcome& found, const SimulatedRun::Outcome& expected) {
  EXPECT_THAT(found.parameters, Pointwise(FloatNear(2e-5f), expected.parameters));
  EXPECT_EQ(found.log, expected.log);
  EXPECT_EQ(found.totals.staleness, expected.totals.staleness);
  EXPECT_EQ(found.totals.kept, expected.totals.kept);
  EXPECT_EQ(found.totals.dropped, expected.totals.dropped);
  EXPECT_EQ(found.totals.bytes, expected.totals.bytes);
  EXPECT_EQ(found.totals.messages, expected.totals.messages);
  EXPECT_EQ(found.totals.end, expected.totals.end);
  EXPECT_EQ(found.published, expected.published);
  EXPECT_EQ(found.samples, expected.samples);
}

TEST(AsyncLocalSgd, OfOnePlainStepIsAsynchronousSgd) {
  SimulatedRun setup = three_workers(10);
  setup.micro_batches = 2;
  const UpdateRate rate{.scaling = RateScaling::none};
  expect_the_same(setup.run(AsyncLocalSgd({})), setup.run(AsyncSgd({.rate = rate})));
  expect_the_same(setup.run(AsyncLocalSgd({.maximum_staleness = Step{2}})),
                  setup.run(AsyncSgd({.maximum_staleness = Step{2}, .rate = rate})));
}

TEST(AsyncLocalSgd, OfOnePlainStepWithABufferIsSoftsync) {
  for (const int splitting : {1, 2, 5}) {  // K = 5, 2, 1
    SimulatedRun setup{.workers = 5,
                       .network_s = 0.25,
                       .budget = {.steps = 12},
                       .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6, 0.35, 0.7})}};
    const UpdateRate rate{.weight = StalenessWeight::inverse_plus_one, .scaling = RateScaling::none};
    const AsyncLocalSgd method(
        {.update = make_buffered_update({.size = 5 / splitting}), .weight = {.staleness_exponent = 1}});
    expect_the_same(setup.run(method), setup.run(Softsync(splitting, rate)));
    setup.data_of = {3, 2, 2, 1, 1};  // all leave, in two cases before a last buffer is full
    const auto found = setup.run(method), expected = setup.run(Softsync(splitting, rate));
    EXPECT_THAT(found.parameters, Pointwise(FloatNear(2e-5f), expected.parameters));
    EXPECT_EQ(found.totals.staleness, expected.totals.staleness);
    EXPECT_EQ(found.totals.kept, (Counts{3, 2, 2, 1, 1}));
    EXPECT_EQ(found.samples, 9);
    EXPECT_EQ(found.totals.end, expected.totals.end);
  }
}

TEST(AsyncLocalSgd, ABufferOfOneIsAStepAtEachArrivalBitForBit) {
  SimulatedRun setup = three_workers(12);
  setup.momentum = 0.9;
  for (const double momentum : {0.0, 0.6}) {
    const AsyncLocalOptions each{.local_steps = 3, .update = nesterov(0.5, momentum)};
    AsyncLocalOptions buffered = each;
    buffered.update = make_buffered_update({.size = 1, .rate = 0.5, .momentum = momentum});
    const auto expected = setup.run(AsyncLocalSgd(each)), found = setup.run(AsyncLocalSgd(buffered));
    EXPECT_EQ(found.parameters, expected.parameters);
    expect_the_same(found, expected);
  }
}

// Equal workers whose differences come together, and a window that waits for all of them.
TEST(AsyncLocalSgd, InAWindowOfAllIsLocalSgdWithAnOuterOptimizer) {
  const SimulatedRun setup{.workers = 4,
                           .network_s = 0.25,
                           .momentum = 0.9,
                           .learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
                               .shape = LearningRate::Shape::cosine, .peak = 0.2, .total_steps = Step{15}}),
                           .budget = {.steps = 15}};
  const auto run = [&](std::shared_ptr<const ServerUpdate> update) {
    return setup.run(AsyncLocalSgd({.local_steps = 5, .update = std::move(update), .grace = from_seconds(0.1)}));
  };
  const auto expect_parameters_of = [](const SimulatedRun::Outcome& found, const SimulatedRun::Outcome& expected) {
    EXPECT_THAT(found.parameters, Pointwise(FloatNear(2e-5f), expected.parameters));
    // Nobody waits for the window's end: five steps and two messages.
    EXPECT_EQ(found.totals.end, Time{from_seconds(3 * 5.5)});
    EXPECT_EQ(found.totals.staleness, (Counts{3, 3, 3, 3}));
  };
  const LocalSgd average(make_constant_period(5), {});
  expect_parameters_of(run(nesterov(0.25, 0)), setup.run(average));
  const OuterLocalSgd diloco(make_constant_period(5), make_diloco(0.7, 0.6), {});
  expect_parameters_of(run(make_delayed_nesterov_update({.rate = 0.7, .momentum = 0.6, .every = 4})),
                       setup.run(diloco));
  const auto buffered = run(make_buffered_update({.size = 4, .rate = 0.7, .momentum = 0.6}));
  EXPECT_THAT(buffered.parameters, Pointwise(FloatNear(2e-5f), setup.run(diloco).parameters));
  EXPECT_EQ(buffered.totals.staleness, Counts{12});
  EXPECT_EQ(buffered.publications.size(), 3u);
}

TEST(AsyncLocalSgd, OfOneWorkerIsSerialTrainingWithItsScheduleAndMoments) {
  SimulatedRun setup{.workers = 1,
                     .micro_batches = 2,
                     .momentum = 0.9,
                     .learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
                         .shape = LearningRate::Shape::linear, .peak = 0.2, .total_steps = Step{12}}),
                     .budget = {.steps = 12}};
  const auto serial = setup.run(SyncSgd());
  EXPECT_THAT(setup.run(AsyncLocalSgd({.local_steps = 4})).parameters, Pointwise(FloatNear(2e-5f), serial.parameters));
  const auto reset = setup.run(AsyncLocalSgd({.local_steps = 4, .moments = StatePolicy::reset}));
  double theta = 1, velocity = 0;
  for (int t = 0; t < 12; ++t) {
    const auto target = [&](int m) { return static_cast<double>(PullObjective::target({Rank{0}, t, m}, 0)); };
    velocity = (t % 4 == 0 ? 0 : 0.9 * velocity) + theta - (target(0) + target(1)) / 2;
    theta -= setup.learning_rate->at(t) * velocity;
  }
  EXPECT_NEAR(reset.parameters[0], theta, 1e-5);
  EXPECT_GT(std::abs(reset.parameters[0] - serial.parameters[0]), 0.01);
}

// Two local steps, and half a second of messages: rounds of 2.5, 2.7 and 5.7 s.
TEST(AsyncLocalSgd, AServerStepsAlongEachDifferenceAsItComes) {
  const auto outcome = three_workers(4).run(AsyncLocalSgd({.local_steps = 2}));
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 2.700 s: kept 4, dropped 0",  // 2.5, 2.7
                             "step 2 at 5.000 s: kept 2, dropped 0",  // 5.0
                             "step 3 at 5.700 s: kept 4, dropped 0",  // 5.4, 5.7
                             "step 4 at 7.500 s: kept 2, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.kept, (Counts{6, 4, 2}));
  EXPECT_EQ(outcome.totals.staleness, (Counts{1, 3, 1, 0, 1}));
  EXPECT_EQ(outcome.totals.messages, 2 * 6 + 2);  // differences and models, of which the last is not answered
  EXPECT_EQ(outcome.totals.bytes, Bytes{(2 * 6 + 2) * 16});
  EXPECT_EQ(outcome.publications.size(), 6u);
  EXPECT_EQ(outcome.samples, 12);
  // At 7.5 s worker 1 is in the second step of the round that it began at 5.65 s, worker 2 in the first since 5.95 s.
  EXPECT_EQ(outcome.totals.dropped, (Counts{0, 2, 1}));
  EXPECT_EQ(outcome.totals.accounts[1][Activity::compute], from_seconds(4 * 1.1));
  expect_exact_accounts(outcome);
}

const AsyncLocalReplay of_three{.arrivals = {0, 1, 0, 1, 2, 0}, .local_steps = 2};

constexpr double rate = 0.5, beta = 0.6;

void expect_rule(AsyncLocalOptions options, const AsyncLocalReplay::Rule& rule) {
  options.local_steps = 2;
  EXPECT_NEAR(three_workers(4).run(AsyncLocalSgd(options)).parameters[0], of_three.theta(rule), 1e-5);
}

TEST(AsyncLocalSgd, NesterovActsAtEachArrival) {
  double m = 0;
  expect_rule({.update = nesterov(rate, beta)}, [&](double& theta, double g, int) {
    m = beta * m + g;
    theta -= rate * (g + beta * m);
    return true;
  });
}

TEST(AsyncLocalSgd, DelayedNesterovTakesInTheMomentumAtEveryNthArrival) {
  constexpr int n = 2;
  for (const double c : {0.0, 0.25, 0.5}) {
    double m = 0, sum = 0;
    int arrivals = 0;
    expect_rule({.update = make_delayed_nesterov_update({rate, beta, n, c})}, [&](double& theta, double g, int) {
      sum += g;
      const bool is_nth = ++arrivals % n == 0;
      if (is_nth) m = beta * m + std::exchange(sum, 0) / n;
      theta -= rate * ((is_nth ? 1 - c * n + c : c) * beta * m + g / n);
      return true;
    });
  }
}

TEST(AsyncLocalSgd, DelayedNesterovAtEachArrivalIsNesterovAndWithoutMomentumPlain) {
  SimulatedRun setup = three_workers(8);
  const auto run = [&](std::shared_ptr<const ServerUpdate> update) {
    return setup.run(AsyncLocalSgd({.local_steps = 2, .update = std::move(update)})).parameters;
  };
  for (const double c : {0.0, 0.4})
    EXPECT_THAT(run(make_delayed_nesterov_update({rate, beta, 1, c})),
                Pointwise(FloatNear(2e-5f), run(nesterov(rate, beta))));
  EXPECT_THAT(run(make_delayed_nesterov_update({rate, 0, 4, 0.2})),
              Pointwise(FloatNear(2e-5f), run(nesterov(rate / 4, 0))));
}

TEST(AsyncLocalSgd, DifferencesAreWeightedByStalenessAndNumberOfWorkers) {
  expect_rule({.weight = {.by_workers = true, .staleness_exponent = 0.5}}, [](double& theta, double g, int staleness) {
    theta -= g / std::sqrt(3 * (1.0 + staleness));
    return true;
  });
}

// FLSim's division: what is as stale as on average weighs 1.
TEST(AsyncLocalSgd, WeightsMayBeThoseRelativeToAnAverageStaleness) {
  expect_rule({.weight = {.staleness_exponent = 0.5, .average_staleness = 2}},
              [](double& theta, double g, int staleness) {
                theta -= g * std::pow(1.0 + staleness, -0.5) / std::pow(1.0 + 2, -0.5);
                return true;
              });
}

TEST(AsyncLocalSgd, ABufferTakesTheMeanOrTheSumOfWeightedDifferences) {
  using Reduce = Buffered::Reduce;
  for (const auto reduce : {Reduce::mean, Reduce::sum}) {
    double m = 0, sum = 0;
    int arrivals = 0;
    expect_rule({.update = make_buffered_update({2, rate, beta, reduce}), .weight = {.staleness_exponent = 0.5}},
                [&](double& theta, double g, int staleness) {
                  sum += g / std::sqrt(1.0 + staleness);
                  if (++arrivals % 2 == 1) return false;
                  const double along = std::exchange(sum, 0) / (reduce == Reduce::mean ? 2 : 1);
                  m = beta * m + along;
                  theta -= rate * (along + beta * m);
                  return true;
                });
  }
}

// A local step's rate is that of the steps which all had come to on average when the model was sent, and of its own.
TEST(AsyncLocalSgd, TheScheduleGoesByTheStepsOfAllAndTheOwnOnesSince) {
  SimulatedRun setup = three_workers(4);
  setup.learning_rate = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.4, .total_steps = Step{8}});
  setup.momentum = 0.5;
  AsyncLocalReplay replay = of_three;
  replay.rate = [&](int step) { return 0.4 * (1 - step / 8.0); };
  replay.momentum = 0.5;
  const double expected = replay.theta([](double& theta, double g, int) {
    theta -= g;
    return true;
  });
  EXPECT_NEAR(setup.run(AsyncLocalSgd({.local_steps = 2})).parameters[0], expected, 1e-5);
}

TEST(AsyncLocalSgd, StaleDifferencesAreDroppedAndTheirWorkerGetsTheNewestModel) {
  const auto outcome = three_workers(4).run(AsyncLocalSgd({.local_steps = 2, .maximum_staleness = Step{3}}));
  // Worker 2 is four updates late at 5.7 s; without it the sixth update is at 8.1 s.
  EXPECT_EQ(outcome.log.back(), "step 4 at 8.100 s: kept 2, dropped 0");
  EXPECT_EQ(outcome.totals.kept, (Counts{6, 6, 0}));
  EXPECT_EQ(outcome.totals.staleness, (Counts{1, 5}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{1, 0, 3}));  // with a step of each that is under way at the end
  expect_exact_accounts(outcome);
}

// Worker 0 delivers its steps 4 and 5 last, at 7.5 s; of one step of the file worker 1 its steps 0 and 1, at 2.7 s.
TEST(AsyncLocalSgd, StatisticsAreThoseOfTheWorkerThatDeliveredLast) {
  const std::vector<std::shared_ptr<const ServerUpdate>> updates = {
      nesterov(0.5, 0.6), make_delayed_nesterov_update({0.5, 0.6, 2, 0.2}), make_buffered_update({2, 0.5, 0.6})};
  for (const auto& update : updates) {
    SimulatedRun setup = three_workers(4);
    setup.objective = std::make_shared<PullWithStatistics>();
    EXPECT_EQ(setup.run(AsyncLocalSgd({.local_steps = 2, .update = update})).buffers,
              PullWithStatistics::statistics_of(std::vector{MicroBatch{Rank{0}, 5, 0}}));
    setup.budget.steps = 1;
    EXPECT_EQ(setup.run(AsyncLocalSgd({.local_steps = 2, .update = update})).buffers,
              PullWithStatistics::statistics_of(std::vector{MicroBatch{Rank{1}, 1, 0}}));
  }
}

TEST(AsyncLocalSgd, NoSampleIsComputedTwice) {
  auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup = three_workers(12);
  setup.objective = objective;
  setup.run(AsyncLocalSgd({.local_steps = 3}));
  EXPECT_GE(objective->evaluations, 12 * 3);
  EXPECT_EQ(static_cast<std::int64_t>(objective->evaluated.size()), objective->evaluations);
}

}  // namespace
}  // namespace syncopate
