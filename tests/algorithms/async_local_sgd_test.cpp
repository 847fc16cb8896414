#include "algorithms/asynchronous/async_local_sgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/delta_exchange.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "tests/workers/engine.hpp"
#include "tests/workers/pull_objective.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

// Replays asynchronous Local SGD in double precision: computes the model's first parameter from the order of the
// workers' differences. A difference is the model that a worker received minus the model after its local steps.

struct AsyncLocalReplay {
  // Applies a difference to the model. Returns whether the server's version increases.
  using Rule = std::function<bool(double& theta, double difference, int staleness)>;

  std::vector<int> arrivals;  // the worker of each difference, in order
  int local_steps = 1;
  std::function<double(int step)> rate = [](int) { return 0.1; };  // learning rate at a step of its schedule
  double momentum = 0;                                             // the workers' momentum, kept between rounds
  int workers = 3;

  double theta(const Rule& rule) const {
    struct Own {
      double model = 1, velocity = 0;
      int version = 0, label = 0, taken = 0;
    };
    std::vector<Own> own(static_cast<std::size_t>(workers));
    double theta = 1;
    int version = 0, steps_of_all = 0;
    for (const int worker : arrivals) {
      Own& one = own[static_cast<std::size_t>(worker)];
      double x = one.model;
      for (int h = 0; h < local_steps; ++h) {
        const double gradient = x - PullObjective::target({Rank{worker}, one.taken++, 0}, 0);
        one.velocity = momentum * one.velocity + gradient;
        x -= rate(one.label + h) * one.velocity;
      }
      const bool goes_on = rule(theta, one.model - x, version - one.version);
      version += goes_on ? 1 : 0;
      steps_of_all += local_steps;
      one = {theta, one.velocity, version, steps_of_all / workers, one.taken};
    }
    return theta;
  }
};

using testing::FloatNear;
using testing::Pointwise;

ServerUpdate nesterov(double rate, double momentum) { return make_nesterov_update(rate, momentum); }

// Equal up to rounding, because the arithmetic may be in another order.
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
  for (const int splitting : {1, 2, 5}) {  // the buffer's size is 5, 2, 1
    SimulatedRun setup{.workers = 5,
                       .network_s = 0.25,
                       .budget = {.steps = 12},
                       .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6, 0.35, 0.7})}};
    const UpdateRate rate{.weight = StalenessWeight::inverse_plus_one, .scaling = RateScaling::none};
    const AsyncLocalSgd method(
        {.update = make_buffered_update({.size = 5 / splitting}), .weight = {.staleness_exponent = 1}});
    expect_the_same(setup.run(method), setup.run(Softsync(5 / splitting, rate)));
    setup.data_of = {3, 2, 2, 1, 1};  // all workers leave; with sizes 5 and 2 the last buffer is not full
    const auto found = setup.run(method), expected = setup.run(Softsync(5 / splitting, rate));
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
    const AsyncLocalOptions each{.rounds = {.local_steps = 3}, .update = nesterov(0.5, momentum)};
    AsyncLocalOptions buffered = each;
    buffered.update = make_buffered_update({.size = 1, .rate = 0.5, .momentum = momentum});
    const auto expected = setup.run(AsyncLocalSgd(each)), found = setup.run(AsyncLocalSgd(buffered));
    EXPECT_EQ(found.parameters, expected.parameters);
    expect_the_same(found, expected);
  }
}

// The workers are equal, so their differences arrive together, within one grace window.
TEST(AsyncLocalSgd, InAWindowOfAllIsLocalSgdWithAnOuterOptimizer) {
  const SimulatedRun setup{.workers = 4,
                           .network_s = 0.25,
                           .momentum = 0.9,
                           .learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
                               .shape = LearningRate::Shape::cosine, .peak = 0.2, .total_steps = Step{15}}),
                           .budget = {.steps = 15}};
  const auto run = [&](ServerUpdate update) {
    return setup.run(
        AsyncLocalSgd({.rounds = {.local_steps = 5}, .update = std::move(update), .grace = from_seconds(0.1)}));
  };
  const auto expect_parameters_of = [](const SimulatedRun::Outcome& found, const SimulatedRun::Outcome& expected) {
    EXPECT_THAT(found.parameters, Pointwise(FloatNear(2e-5f), expected.parameters));
    // No worker waits for the window's end: a round takes five steps of 1 s and two messages of 0.25 s.
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
  EXPECT_THAT(setup.run(AsyncLocalSgd({.rounds = {.local_steps = 4}})).parameters,
              Pointwise(FloatNear(2e-5f), serial.parameters));
  const auto reset = setup.run(AsyncLocalSgd({.rounds = {.local_steps = 4, .moments = StatePolicy::reset}}));
  double theta = 1, velocity = 0;
  for (int t = 0; t < 12; ++t) {
    const auto target = [&](int m) { return static_cast<double>(PullObjective::target({Rank{0}, t, m}, 0)); };
    velocity = (t % 4 == 0 ? 0 : 0.9 * velocity) + theta - (target(0) + target(1)) / 2;
    theta -= setup.learning_rate->at(t) * velocity;
  }
  EXPECT_NEAR(reset.parameters[0], theta, 1e-5);
  EXPECT_GT(std::abs(reset.parameters[0] - serial.parameters[0]), 0.01);
}

// Rounds of two local steps take 2.5, 2.7 and 5.7 s, of which half a second is for messages.
TEST(AsyncLocalSgd, AServerStepsAlongEachDifferenceAsItComes) {
  const auto outcome = three_workers(4).run(AsyncLocalSgd({.rounds = {.local_steps = 2}}));
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 2.700 s: kept 4, dropped 0",  // differences at 2.5 and 2.7 s
                             "step 2 at 5.000 s: kept 2, dropped 0",  // at 5.0 s
                             "step 3 at 5.700 s: kept 4, dropped 0",  // at 5.4 and 5.7 s
                             "step 4 at 7.500 s: kept 2, dropped 0",
                         }));
  EXPECT_EQ(outcome.totals.kept, (Counts{6, 4, 2}));
  EXPECT_EQ(outcome.totals.staleness, (Counts{1, 3, 1, 0, 1}));
  EXPECT_EQ(outcome.totals.messages, 2 * 6 + 2);  // 6 differences, 3 first models, 5 answers
  EXPECT_EQ(outcome.totals.bytes, Bytes{(2 * 6 + 2) * 16});
  EXPECT_EQ(outcome.publications.size(), 6u);
  EXPECT_EQ(outcome.samples, 12);
  // At 7.5 s worker 1 is in the second step of its round, which began at 5.65 s. Worker 2 is in the first step of its
  // round, which began at 5.95 s.
  EXPECT_EQ(outcome.totals.dropped, (Counts{0, 2, 1}));
  EXPECT_EQ(outcome.totals.accounts[1][Activity::compute], from_seconds(4 * 1.1));
  expect_exact_accounts(outcome);
}

const AsyncLocalReplay of_three{.arrivals = {0, 1, 0, 1, 2, 0}, .local_steps = 2};

constexpr double rate = 0.5, beta = 0.6;

void expect_rule(AsyncLocalOptions options, const AsyncLocalReplay::Rule& rule) {
  options.rounds.local_steps = 2;
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
  const auto run = [&](ServerUpdate update) {
    return setup.run(AsyncLocalSgd({.rounds = {.local_steps = 2}, .update = std::move(update)})).parameters;
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

// FLSim divides weights by the weight at the average staleness, so a difference of average staleness has weight 1.
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

// A local step takes its learning rate from the schedule. The position in the schedule is the mean number of steps of
// all workers when the model was sent, plus the worker's own steps since then.
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
  EXPECT_NEAR(setup.run(AsyncLocalSgd({.rounds = {.local_steps = 2}})).parameters[0], expected, 1e-5);
}

TEST(AsyncLocalSgd, StaleDifferencesAreDroppedAndTheirWorkerGetsTheNewestModel) {
  const auto outcome =
      three_workers(4).run(AsyncLocalSgd({.rounds = {.local_steps = 2}, .maximum_staleness = Step{3}}));
  // Worker 2's difference is four updates late at 5.7 s and is dropped, so the sixth update is at 8.1 s.
  EXPECT_EQ(outcome.log.back(), "step 4 at 8.100 s: kept 2, dropped 0");
  EXPECT_EQ(outcome.totals.kept, (Counts{6, 6, 0}));
  EXPECT_EQ(outcome.totals.staleness, (Counts{1, 5}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{1, 0, 3}));  // two stale steps, and two in progress at the end
  expect_exact_accounts(outcome);
}

// The statistics are those of the last step of the round that was delivered last. With a budget of four steps, this is
// worker 0's step 5, at 7.5 s. With a budget of one step, it is worker 1's step 1, at 2.7 s.
TEST(AsyncLocalSgd, StatisticsAreThoseOfTheWorkerThatDeliveredLast) {
  const std::vector<ServerUpdate> updates = {nesterov(0.5, 0.6), make_delayed_nesterov_update({0.5, 0.6, 2, 0.2}),
                                             make_buffered_update({2, 0.5, 0.6})};
  for (const auto& update : updates) {
    SimulatedRun setup = three_workers(4);
    setup.objective = std::make_shared<PullWithStatistics>();
    EXPECT_EQ(setup.run(AsyncLocalSgd({.rounds = {.local_steps = 2}, .update = update})).buffers,
              PullWithStatistics::statistics_of(std::vector{MicroBatch{Rank{0}, 5, 0}}));
    setup.budget.steps = 1;
    EXPECT_EQ(setup.run(AsyncLocalSgd({.rounds = {.local_steps = 2}, .update = update})).buffers,
              PullWithStatistics::statistics_of(std::vector{MicroBatch{Rank{1}, 1, 0}}));
  }
}

TEST(AsyncLocalSgd, NoSampleIsComputedTwice) {
  auto objective = std::make_shared<PullObjective>();
  SimulatedRun setup = three_workers(12);
  setup.objective = objective;
  setup.run(AsyncLocalSgd({.rounds = {.local_steps = 3}}));
  EXPECT_GE(objective->evaluations, 12 * 3);
  EXPECT_EQ(static_cast<std::int64_t>(objective->evaluated.size()), objective->evaluations);
}

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

void expect_times(const SimulatedRun::Outcome& outcome, const std::vector<double>& expected_s) {
  std::vector<double> times_s;
  for (const Publication& publication : outcome.publications) times_s.push_back(to_seconds(publication.time));
  EXPECT_THAT(times_s, testing::Pointwise(testing::DoubleNear(1e-9), expected_s));
}

// Steps take 1, 1.1 and 2.65 s. With two messages of 0.25 s, a round of one step takes 1.5, 1.6 and 3.15 s.
SimulatedRun with_window(int steps) {
  return {.network_s = 0.25,
          .budget = {.steps = steps},
          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.65})}};
}
AsyncLocalOptions grace(double seconds, Step local_steps = 1) {
  return {.rounds = {.local_steps = local_steps}, .grace = from_seconds(seconds)};
}

TEST(GraceWindow, WhoComesWithinItGoesOnFromTheSameModelAtItsEnd) {
  const auto outcome = with_window(2).run(AsyncLocalSgd(grace(0.2)));
  // Workers 0 and 1 deliver at 1.5 and 1.6 s, within one window, and get their models at its end, at 1.7 s. Worker 2
  // opens the next window at 3.15 s. With workers 0 and 1, at 3.2 and 3.3 s, all have delivered in it, so it ends at
  // 3.3 s. Worker 0 delivers next at 4.8 s.
  expect_times(outcome, {1.5, 1.6, 3.15, 3.2, 3.3, 4.8});
  EXPECT_EQ(outcome.totals.staleness, (Counts{2, 2, 2}));
  EXPECT_EQ(outcome.log, (Log{"step 1 at 3.150 s: kept 3, dropped 0", "step 2 at 4.800 s: kept 3, dropped 0"}));
  expect_exact_accounts(outcome);
}

TEST(GraceWindow, OfNoLengthIsNone) {
  EXPECT_EQ(with_window(4).run(AsyncLocalSgd(grace(0))).log, with_window(4).run(AsyncLocalSgd({})).log);
}

TEST(GraceWindow, IsNotKeptOpenForWorkersThatHaveLeft) {
  SimulatedRun setup = with_window(3);
  setup.data_of = {std::nullopt, 1, 1};
  const auto outcome = setup.run(AsyncLocalSgd(grace(100)));
  // The first window opens at 1.5 s, and ends at 3.15 s, when all have delivered. Then workers 1 and 2 leave.
  expect_times(outcome, {1.5, 1.6, 3.15, 4.65, 6.15, 7.65, 9.15, 10.65, 12.15});
  EXPECT_EQ(outcome.totals.kept, (Counts{7, 1, 1}));
  expect_exact_accounts(outcome);
}

TEST(GraceWindow, EndsWithTheLastWorkers) {
  SimulatedRun setup = with_window(30);
  setup.data_of = {2, 1, 1};
  for (const double seconds : {0.2, 100.0}) {
    const auto outcome = setup.run(AsyncLocalSgd(grace(seconds)));
    EXPECT_EQ(outcome.totals.kept, (Counts{2, 1, 1})) << seconds;
    EXPECT_LT(to_seconds(outcome.totals.end), 5) << seconds;
    expect_exact_accounts(outcome);
  }
}

// Worker 1 is down from 1 to 61 s, with or without losing its state. The window that worker 0 opens at 1.5 s lasts 2 s.
TEST(GraceWindow, DoesNotWaitBeyondItsEndForAWorkerThatIsDown) {
  for (const bool loses_state : {false, true}) {
    SimulatedRun setup = with_window(2);
    setup.workers = 2;
    setup.delays.clear();
    setup.outages = outage(1, 1, 60, loses_state);
    const auto outcome = setup.run(AsyncLocalSgd(grace(2)));
    expect_times(outcome, {1.5, 5, 8.5, 12});
    EXPECT_EQ(outcome.totals.kept, (Counts{4, 0}));
    expect_exact_accounts(outcome);
  }
}

// The only worker receives the model at 0.25 s. At 2.5 s it has taken two steps and a quarter of the third, and loses
// them with its state. It is up again at 2.75 s, asks for the model and has it at 3.25 s. Its three new steps use the
// next samples, not those of the two lost steps.
TEST(AsyncLocalRounds, ALostStateTakesTheRoundAndTheMomentsWithIt) {
  constexpr double rate = 0.1, momentum = 0.6;
  const SimulatedRun setup{.workers = 1,
                           .network_s = 0.25,
                           .momentum = momentum,
                           .rate = rate,
                           .budget = {.steps = 3},
                           .outages = outage(0, 2.5, 0.25, true)};
  const auto outcome = setup.run(AsyncLocalSgd({.rounds = {.local_steps = 3}}));
  EXPECT_EQ(outcome.log, Log{"step 3 at 6.500 s: kept 3, dropped 0"});
  EXPECT_EQ(outcome.totals.kept, Counts{3});
  EXPECT_EQ(outcome.totals.dropped, Counts{2});
  EXPECT_EQ(outcome.totals.messages, 4);  // model, question after the loss, answer, difference
  EXPECT_EQ(outcome.totals.accounts[0][Activity::discarded], from_seconds(2.25));
  EXPECT_EQ(outcome.totals.accounts[0][Activity::compute], from_seconds(3));
  EXPECT_EQ(outcome.totals.accounts[0][Activity::down], from_seconds(0.25));
  double theta = 1, velocity = 0;
  for (const int turn : {2, 3, 4}) {
    velocity = momentum * velocity + theta - PullObjective::target({Rank{0}, turn, 0}, 0);
    theta -= rate * velocity;
  }
  EXPECT_NEAR(outcome.parameters[0], theta, 1e-5);
  expect_exact_accounts(outcome);
}

TEST(AsyncLocalRounds, AfterALossStalenessCountsFromTheNewModel) {
  SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 4}, .outages = outage(1, 1.5, 2.75, true)};
  const auto outcome = setup.run(AsyncLocalSgd({.rounds = {.local_steps = 2}}));
  // Worker 0 delivers at 2.5, 5 and 7.5 s. Worker 1 asks for a model at 4.25 s, is sent version 1 at 4.5 s, and
  // delivers at 7 s, when the version is 2.
  expect_times(outcome, {2.5, 5, 7, 7.5});
  EXPECT_EQ(outcome.totals.staleness, (Counts{2, 2}));
  EXPECT_EQ(outcome.totals.kept, (Counts{6, 2}));
  expect_exact_accounts(outcome);
}

TEST(AsyncLocalRounds, WhoseDataAreUsedUpSendsTheStepsThatThereAre) {
  SimulatedRun setup = three_workers(6);
  setup.data_of = {6, 1, std::nullopt};
  const auto outcome = setup.run(AsyncLocalSgd({.rounds = {.local_steps = 4}}));
  EXPECT_EQ(outcome.totals.kept[0], 6);  // rounds of 4 and 2 steps
  EXPECT_EQ(outcome.totals.kept[1], 1);
  EXPECT_EQ(outcome.totals.kept[2], 12);
  EXPECT_EQ(outcome.published, Step{6});
  expect_exact_accounts(outcome);
}

// After 3 s workers start no more steps: worker 0's third step ends at 3.25 s, worker 1's at 3.55 s.
TEST(AsyncLocalRounds, ABudgetOfSecondsEndsThem) {
  SimulatedRun setup = three_workers(1);
  setup.budget = {.seconds = 3};
  const auto outcome = setup.run(AsyncLocalSgd({.rounds = {.local_steps = 1000}}));
  EXPECT_EQ(outcome.totals.end, Time{from_seconds(3.5)});
  EXPECT_EQ(outcome.totals.kept, (Counts{3, 0, 0}));
  expect_exact_accounts(outcome);
}

TEST(AsyncLocalRounds, MoreStepsThanTheBudgetHasLeftAreSamplesAndNoSteps) {
  const SimulatedRun setup{.workers = 2, .budget = {.steps = 5}};
  const auto outcome = setup.run(AsyncLocalSgd({.rounds = {.local_steps = 8}}));
  EXPECT_EQ(outcome.published, Step{5});
  EXPECT_EQ(outcome.samples, 16);
  ASSERT_EQ(outcome.rounds.size(), 2u);
  EXPECT_EQ(outcome.rounds[0].step, Step{4});
  EXPECT_EQ(outcome.rounds[1].step, Step{5});
}

TEST(AsyncLocalSettings, WrongOnesAreFaultsWithTheirPlace) {
  const auto faults = [](const std::string& keys) {
    return read_method("algorithm = \"async-local-sgd\"\n" + keys).faults;
  };
  const std::string plain = "local_steps = 4\nupdate = { name = \"plain\" }\n";
  EXPECT_EQ(faults(plain), "");
  EXPECT_NE(faults("update = { name = \"plain\" }\n"), "");
  EXPECT_NE(faults("local_steps = 0\nupdate = { name = \"plain\" }\n"), "");
  EXPECT_NE(faults("local_steps = 4\n"), "");
  for (const char* const key : {"staleness_exponent = -1", "maximum_staleness = -1", "grace_s = -0.5",
                                "moments = \"average\"", "rate_scaling = \"linear\"", "steps_by_speed = \"yes\"",
                                "minimum_steps = 2", "steps_by_speed = \"up\"\nminimum_steps = 5"})
    EXPECT_NE(faults(plain + key), "") << key;
  for (const char* const update :
       {"name = \"nesterof\"", "name = \"nesterov\", rate = 0.5, momentum = 1", "name = \"nesterov\", momentum = 0.9",
        "name = \"buffered\", size = 0", "name = \"buffered\", size = 2, reduce = \"median\"",
        "name = \"delayed-nesterov\", rate = 1, momentum = 0.9, every = 0",
        "name = \"delayed-nesterov\", rate = 1, momentum = 0.9, every = 4, share = 0.3"})
    EXPECT_NE(faults("local_steps = 4\nupdate = { " + std::string(update) + " }"), "") << update;
  EXPECT_EQ(faults("local_steps = 4\nupdate = { name = \"delayed-nesterov\", rate = 1, momentum = 0.9, every = 4, "
                   "share = 0.25 }"),
            "");
}

using Rounding = DynamicSteps::Rounding;
// Seconds per step of the four workers in the toy example of the authors' code.
constexpr double toys[] = {0.58, 0.75, 1.51, 3.33};

TEST(Dylu, AreThoseOfTheFastestTimesTheShareOfItsSpeed) {
  // A worker whose steps take c seconds has 20 x 0.58 / c of them: 20, 15.47, 7.68, 3.48.
  const std::vector<std::int64_t> up = {20, 16, 8, 4}, down = {20, 15, 7, 3};
  Dylu rounded_up({.local_steps = 20, .dylu = DynamicSteps{.rounding = Rounding::up}}, 4),
      rounded_down({.local_steps = 20, .dylu = DynamicSteps{.rounding = Rounding::down}}, 4);
  for (const Rank worker : Ranks(4)) {
    EXPECT_EQ(rounded_up.of(worker), Step{20}) << "before its first difference";
    for (Dylu* const steps : {&rounded_up, &rounded_down}) steps->measure(worker, 20, 20 * toys[worker.value]);
  }
  for (const Rank worker : Ranks(4)) {
    const auto i = static_cast<std::size_t>(worker.value);
    EXPECT_EQ(rounded_up.of(worker), Step{up[i]});
    EXPECT_EQ(rounded_down.of(worker), Step{down[i]});
  }
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::down, .minimum = Step{5}}.at(0.58 / 3.33, 20)), Step{5});
}

TEST(Dylu, GoByAllThatAWorkerHasDelivered) {
  Dylu steps({.local_steps = 10, .dylu = DynamicSteps{}}, 2);
  steps.measure(Rank{0}, 10, 10);
  steps.measure(Rank{1}, 10, 5);
  EXPECT_EQ(steps.of(Rank{0}), Step{5});
  steps.measure(Rank{1}, 5, 20);  // 15 steps in 25 s, so worker 0 is now the fastest
  EXPECT_EQ(steps.of(Rank{0}), Step{10});
  EXPECT_EQ(steps.of(Rank{1}), Step{6});
}

TEST(Dylu, OfEqualWorkersAreAllOfThem) {
  for (const auto rounding : {Rounding::up, Rounding::down}) {
    const SimulatedRun setup{.workers = 5, .base_s = 0.7, .budget = {.steps = 30}};
    const auto fixed = setup.run(AsyncLocalSgd({.rounds = {.local_steps = 3}}));
    const auto dynamic =
        setup.run(AsyncLocalSgd({.rounds = {.local_steps = 3, .dylu = DynamicSteps{.rounding = rounding}}}));
    EXPECT_EQ(dynamic.log, fixed.log);
    EXPECT_EQ(dynamic.parameters, fixed.parameters);
    EXPECT_EQ(dynamic.totals.bytes.value(), fixed.totals.bytes.value() + 8 * fixed.totals.messages);
  }
}

// Steps take 1, 1.1 and 2.6 s, and rounds have at most 4 steps. After a first round of four steps each (4.5, 4.9 and
// 10.9 s) worker 2 takes ceil(4 / 2.6) = 2 steps, and delivers again 5.7 s later. Workers 0 and 1 continue with four.
TEST(Dylu, AreToldWithTheNextModel) {
  SimulatedRun setup = three_workers(13);
  const auto outcome = setup.run(AsyncLocalSgd({.rounds = {.local_steps = 4, .dylu = DynamicSteps{}}}));
  std::vector<double> times;
  for (const Publication& publication : outcome.publications) times.push_back(to_seconds(publication.time));
  const std::vector<double> expected = {4.5, 4.9, 9, 9.8, 10.9, 13.5, 14.7, 16.6, 18, 19.6, 22.3};
  ASSERT_EQ(times.size(), expected.size());
  for (std::size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(times[i], expected[i], 1e-6);
  EXPECT_EQ(outcome.totals.kept, (Counts{16, 16, 8}));
}

// Golden value: without communication, the four workers of the authors' toy example together take 3.35 times the steps
// of synchronous SGD.
TEST(AsyncLocalPace, IsTheToysSpeedUpOverSynchronousSgd) {
  const PredictedRun toy{.workers = 4,
                         .micro_batches = 1,
                         .factors = {toys[0], toys[1], toys[2], toys[3]},
                         .delays = {},
                         .steps = 2000,
                         .network_s = 0};
  for (const bool dynamic : {false, true}) {
    AsyncLocalOptions options{.rounds = {.local_steps = 20}};
    if (dynamic) options.rounds.dylu = DynamicSteps{};
    EXPECT_NEAR(3.33 / toy.simulate(AsyncLocalSgd(options)).step_s, 3.35, 0.02);
  }
}

struct Case {
  AsyncLocalOptions options;
  std::array<int, 3> steps;  // steps of a round, for workers of each speed
  double mean_staleness;
};

// Ten workers of three speeds with random times. A message takes half a second, and a round has two. While one
// difference is computed, each of the other nine workers delivers one on average, whatever their speeds.
TEST(AsyncLocalPace, IsThatOfEachWorkersOwnRounds) {
  const std::vector<Case> cases = {
      {{.rounds = {.local_steps = 4}}, {4, 4, 4}, 9},
      {{.rounds = {.local_steps = 7}, .update = make_buffered_update({.size = 3})}, {7, 7, 7}, 3},
      {{.rounds = {.local_steps = 12, .dylu = DynamicSteps{}}}, {12, 8, 5}, 9}};
  const PredictedRun setting{.workers = 10,
                             .micro_batches = 2,
                             .factors = {1, 1, 1, 1, 1.7, 1.7, 1.7, 3.1, 3.1, 3.1},
                             .delays = {exponential_delay(0.4)},
                             .steps = 6000};
  for (const auto& [options, steps, mean_staleness] : cases) {
    const AsyncLocalSgd method(options);
    double steps_per_s = 0, communicating = 0;  // sums over workers: steps/s, and shares of time in messages
    for (std::size_t worker = 0; worker < 10; ++worker) {
      const int own = steps[worker < 4 ? 0 : worker < 7 ? 1 : 2];
      const double round_s = own * 2 * (setting.factors[worker] + 0.4) + 2 * 0.5;
      steps_per_s += own / round_s;
      communicating += 2 * 0.5 / round_s;
    }
    const auto simulated = setting.simulate(method);
    EXPECT_NEAR(simulated.step_s * steps_per_s / 10, 1, 0.01);
    EXPECT_NEAR(simulated.communication_s * steps_per_s / communicating, 1, 0.01);
    const SimulatedRun run{.workers = 10,
                           .micro_batches = 2,
                           .budget = {.steps = 6000},
                           .worker_factors = setting.factors,
                           .delays = setting.delays,
                           .objective = nullptr};
    const Counts counts = run.run(method).totals.staleness;
    double sum = 0, differences = 0;
    for (std::size_t s = 0; s < counts.size(); ++s) {
      sum += static_cast<double>(s) * static_cast<double>(counts[s]);
      differences += static_cast<double>(counts[s]);
    }
    EXPECT_NEAR(sum / differences, mean_staleness, 0.05 * mean_staleness);
  }
}

// Rounds have 12, 7 and 5 steps: 12 / 1.7 = 7.06 is rounded down, and 12 / 3.1 = 3.87 is below the minimum of 5.
TEST(AsyncLocalPace, HasEachWorkersLeastSteps) {
  const DynamicSteps rule{.rounding = Rounding::down, .minimum = Step{5}};
  const AsyncLocalSgd method({.rounds = {.local_steps = 12, .dylu = rule}});
  const PredictedRun setting{
      .workers = 3, .micro_batches = 2, .factors = {1, 1.7, 3.1}, .delays = {}, .steps = 4000, .network_s = 0.5};
  const double pace = 12 / (12 * 2.0 + 1) + 7 / (7 * 3.4 + 1) + 5 / (5 * 6.2 + 1);
  EXPECT_NEAR(setting.simulate(method).step_s * pace / 3, 1, 0.005);
}

using testing::ElementsAre;
using testing::IsEmpty;

TEST(DynamicSteps, AreAShareOfTheMostRounded) {
  const DynamicSteps up{.rounding = Rounding::up}, down{.rounding = Rounding::down};
  EXPECT_EQ(up.at(1, 8), Step{8});
  EXPECT_EQ(down.at(1, 8), Step{8});
  EXPECT_EQ(up.at(0.5, 8), Step{4});
  EXPECT_EQ(up.at(0.51, 8), Step{5});
  EXPECT_EQ(down.at(0.51, 8), Step{4});
  EXPECT_EQ(down.at(0.74, 8), Step{5});
}

TEST(DynamicSteps, OfASumOfTimesThatIsAlmostWholeAreWhole) {
  const double almost_half = 0.5 + 1e-12;
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::up}.at(almost_half, 8)), Step{4});
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::down}.at(1 - almost_half, 8)), Step{4});
}

TEST(DynamicSteps, AreNeverLessThanTheMinimum) {
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::up}.at(1e-6, 8)), Step{1});
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::down}.at(1e-6, 8)), Step{1});
  EXPECT_EQ((DynamicSteps{.rounding = Rounding::down, .minimum = 3}.at(0.2, 8)), Step{3});
}

TEST(Dylu, AreTheMostUntilSomethingIsMeasured) {
  Dylu steps({.local_steps = 8, .dylu = DynamicSteps{}}, 3);
  for (const Rank worker : Ranks(3)) EXPECT_EQ(steps.of(worker), Step{8});
  steps.measure(Rank{1}, 8, 4.0);
  EXPECT_EQ(steps.of(Rank{1}), Step{8}) << "the only one that is known is the fastest";
  EXPECT_EQ(steps.of(Rank{0}), Step{8});
}

TEST(Dylu, GoByStepsOverSecondsOfAllThatWasDelivered) {
  Dylu steps({.local_steps = 8, .dylu = DynamicSteps{}}, 2);
  steps.measure(Rank{0}, 8, 4.0);   // 2 steps/s
  steps.measure(Rank{1}, 8, 16.0);  // 0.5 steps/s
  EXPECT_EQ(steps.of(Rank{1}), Step{2});
  steps.measure(Rank{1}, 8, 4.0);  // in all 16 steps in 20 s: 0.8 steps/s, and 8 x 0.8 / 2 = 3.2 steps
  EXPECT_EQ(steps.of(Rank{1}), Step{4});
  EXPECT_THAT(steps.numbers_for(Rank{1}), ElementsAre(4.0));
}

TEST(Dylu, FollowWhoIsTheFastestNow) {
  Dylu steps({.local_steps = 12, .dylu = DynamicSteps{}}, 3);
  steps.measure(Rank{0}, 12, 3.0);   // 4 steps/s
  steps.measure(Rank{1}, 12, 6.0);   // 2 steps/s
  steps.measure(Rank{2}, 12, 12.0);  // 1 step/s
  EXPECT_EQ(steps.of(Rank{1}), Step{6});
  EXPECT_EQ(steps.of(Rank{2}), Step{3});
  steps.measure(Rank{0}, 12, 21.0);  // in all 24 steps in 24 s: 1 step/s, so worker 1 is the fastest
  EXPECT_EQ(steps.of(Rank{0}), Step{6});
  EXPECT_EQ(steps.of(Rank{1}), Step{12});
  EXPECT_EQ(steps.of(Rank{2}), Step{6});
}

TEST(Dylu, WithoutARuleAreTheMostAndNothingIsTold) {
  Dylu steps({.local_steps = 8}, 2);
  steps.measure(Rank{0}, 8, 1.0);
  steps.measure(Rank{1}, 8, 9.0);
  EXPECT_EQ(steps.of(Rank{1}), Step{8});
  EXPECT_THAT(steps.numbers_for(Rank{1}), IsEmpty());
}

}  // namespace
}  // namespace syncopate
