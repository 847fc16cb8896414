#include "algorithms/gossip/wagma_sgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

using testing::FloatNear;
using testing::Pointwise;
using Divisor = WagmaOptions::Divisor;
using Order = WagmaOptions::Order;

// All workers in the group of this one.
std::vector<Rank> members(const RotatingGroups& groups, int workers, Rank of, Step round) {
  std::vector<Rank> members;
  for (const Rank worker : Ranks(workers))
    if (groups.group_of(worker, round) == groups.group_of(of, round)) members.push_back(worker);
  return members;
}

TEST(RotatingGroups, AreThoseOfTheButterflyWhereAllIsAPowerOfTwo) {
  const RotatingGroups groups(64, 8);
  ASSERT_EQ(groups.turns(), 2);
  for (const Rank worker : Ranks(64))
    for (const int round : {1, 2, 3}) {
      std::set<int> expected;  // partners differ in three binary digits, shifted by three each round
      for (int mask = 0; mask < 8; ++mask) expected.insert(worker.value ^ (mask << (3 * ((round - 1) % 2))));
      std::set<int> found;
      for (const Rank member : members(groups, 64, worker, round)) found.insert(member.value);
      EXPECT_EQ(found, expected);
    }
}

// Rounds average one number per worker instead of a model. The number of rounds is the number of digits of a rank in
// base `size`.
TEST(RotatingGroups, OfAPowerOfTheirSizeMixAllInAsManyRoundsAsDigits) {
  for (const auto& [workers, size] : {std::pair{4, 2}, {8, 2}, {16, 4}, {64, 8}, {81, 3}, {6, 6}}) {
    const RotatingGroups groups(workers, size);
    std::vector<double> values(static_cast<std::size_t>(workers));
    std::iota(values.begin(), values.end(), 0.0);
    for (int round = 1; round <= groups.turns(); ++round) {
      std::vector<double> next(values.size());
      for (const Rank worker : Ranks(workers))
        for (const Rank member : members(groups, workers, worker, round))
          next[static_cast<std::size_t>(worker.value)] += values[static_cast<std::size_t>(member.value)] / size;
      values = next;
    }
    for (const double value : values) EXPECT_NEAR(value, (workers - 1) / 2.0, 1e-9) << workers << ' ' << size;
  }
}

TEST(RotatingGroups, DivideTheWorkersAndLeaveNobodyApart) {
  for (int workers = 2; workers <= 48; ++workers)
    for (int size = 2; size <= workers; ++size) {
      if (workers % size != 0) continue;
      const RotatingGroups groups(workers, size);
      std::set<int> reached = {0};
      for (int sweep = 0; sweep < workers; ++sweep)
        for (int round = 1; round <= groups.turns(); ++round) {
          std::multiset<int> all;
          for (const Rank worker : Ranks(workers)) {
            if (groups.group_of(worker, round) != worker) continue;
            const auto group = members(groups, workers, worker, round);
            EXPECT_EQ(std::ssize(group), size);
            bool is_reached = false;
            for (const Rank member : group) {
              all.insert(member.value);
              is_reached |= reached.contains(member.value);
            }
            for (const Rank member : group)
              if (is_reached) reached.insert(member.value);
          }
          ASSERT_EQ(std::ssize(all), workers);
          ASSERT_EQ(std::ssize(std::set(all.begin(), all.end())), workers);
        }
      EXPECT_EQ(std::ssize(reached), workers) << workers << ' ' << size;
    }
}

// The first parameter in double precision, for one group of all workers, from the order of their arrivals.
struct Replay {
  int workers = 3;
  std::vector<int> arrivals;
  int steps = 4;
  int global_every = 3;
  Divisor divisor = Divisor::paper;
  Order order = Order::step_first;
  double decay = 0;  // weight decay, at the model that is stepped from

  double theta() const {
    constexpr double rate = 0.1;
    const auto count = static_cast<std::size_t>(workers);
    std::vector<double> model(count, 1), buffer(count, 1), gradient(count);
    std::vector<int> taken(count), round(count), waiting;
    std::vector<double> means = {0};  // means of rounds, from round 1 on
    const auto compute = [&](std::size_t w) {
      gradient[w] = model[w] - PullObjective::target({Rank{static_cast<int>(w)}, taken[w], 0}, 0);
    };
    const auto step = [&](std::size_t w) {
      model[w] -= rate * (gradient[w] + decay * model[w]);
      ++taken[w];
    };
    const auto go_on = [&](std::size_t w) {  // after a round
      if (order == Order::average_first) step(w);
    };
    const auto receive = [&](std::size_t w, double own) {
      model[w] = (1 - own) * means[static_cast<std::size_t>(round[w])] + own * model[w];
    };
    if (order == Order::average_first)
      for (std::size_t w = 0; w < count; ++w) {
        compute(w);
        step(w);
      }
    for (const int one : arrivals) {
      const auto w = static_cast<std::size_t>(one);
      compute(w);
      if (order == Order::step_first) step(w);
      buffer[w] = model[w];
      const bool is_global = ++round[w] % global_every == 0;
      const bool is_late = round[w] < static_cast<int>(means.size());
      if (is_global) {
        waiting.push_back(one);
        if (std::ssize(waiting) < workers) continue;
        means.push_back(std::accumulate(buffer.begin(), buffer.end(), 0.0) / workers);
        for (const int each : std::exchange(waiting, {})) {
          receive(static_cast<std::size_t>(each), 0);
          go_on(static_cast<std::size_t>(each));
        }
        continue;
      }
      if (!is_late) means.push_back(std::accumulate(buffer.begin(), buffer.end(), 0.0) / workers);
      receive(w, is_late || divisor == Divisor::released ? 1.0 / (workers + 1) : 0);
      go_on(w);
    }
    double sum = 0;
    for (std::size_t w = 0; w < count; ++w) {
      if (order == Order::step_first) {
        compute(w);
        step(w);
      }
      EXPECT_EQ(taken[w], steps);
      sum += model[w];
    }
    return sum / workers;
  }
};

// Steps take 1, 1.1 and 2.6 s, each message 0.25 s. Worker 0 begins rounds 1 and 2, at 1.25 and 2.75 s, with worker 2's
// first model, and round 2 with worker 1's model of round 1. Worker 1 arrives at 1.35 and 2.95 s, worker 2 at 2.85 and
// 5.95 s. Round 3 is global, and takes place at 9.05 s. The last models arrive at 10.55, 10.65 and 12.15 s.
TEST(WagmaSgd, WhoIsLateIsInItsGroupWithWhatItBroughtLast) {
  const SimulatedRun setup = three_workers(4);
  for (const Divisor divisor : {Divisor::paper, Divisor::released}) {
    const auto outcome = setup.run(WagmaSgd({.group_size = 3, .global_every = 3, .divisor = divisor}));
    const Replay replay{.arrivals = {0, 1, 0, 2, 1, 0, 1, 2, 2}, .divisor = divisor};
    EXPECT_NEAR(outcome.parameters[0], replay.theta(), 1e-5);
    EXPECT_EQ(outcome.totals.end, Time{from_seconds(12.15)});
    EXPECT_EQ(outcome.totals.kept, (Counts{4, 4, 4}));
    EXPECT_EQ(outcome.totals.messages, 3 * (2 * 3 + 1));
    EXPECT_EQ(outcome.totals.bytes, Bytes{3 * (3 * (16 + 16 + 8) + 16)});
    EXPECT_EQ(outcome.totals.collectives, 0);
    EXPECT_EQ(outcome.published, Step{4});
    const Account& first = outcome.totals.accounts[0];
    EXPECT_EQ(first[Activity::communicate], from_seconds(2 * 3 * 0.25));  // its own models, and the means
    EXPECT_EQ(first[Activity::wait], from_seconds(4.8 + 1.85));
    expect_exact_accounts(outcome);
  }
}

// The first step has no average. After that a worker sends the model from before its step, at 2, 3.5 and 5 s.
// Weights decay at the average.
TEST(WagmaSgd, MayAverageBeforeAStepWhoseGradientWasTakenBefore) {
  for (const Divisor divisor : {Divisor::paper, Divisor::released})
    for (const double decay : {0.0, 0.7}) {
      SimulatedRun setup = three_workers(4);
      setup.optimizer = make_sgd({.weight_decay = {.rate = decay}});
      const auto outcome =
          setup.run(WagmaSgd({.group_size = 3, .global_every = 3, .divisor = divisor, .order = Order::average_first}));
      const Replay replay{
          .arrivals = {0, 1, 0, 1, 0, 2, 1, 2, 2}, .divisor = divisor, .order = Order::average_first, .decay = decay};
      EXPECT_NEAR(outcome.parameters[0], replay.theta(), 1e-5);
      EXPECT_EQ(outcome.totals.end, Time{from_seconds(12.15)});
      expect_exact_accounts(outcome);
    }
}

SimulatedRun four_equal_workers(double network_s) {
  return {.workers = 4,
          .micro_batches = 2,
          .network_s = network_s,
          .momentum = 0.9,
          .learning_rate = std::make_shared<LearningRate>(
              LearningRate::Options{.shape = LearningRate::Shape::cosine, .peak = 0.2, .total_steps = Step{9}}),
          .budget = {.steps = 9}};
}

TEST(WagmaSgd, OfOneGroupInTimeIsLocalSgdWithAnAverageAfterEachStep) {
  for (const double network_s : {0.0, 0.25}) {
    const SimulatedRun setup = four_equal_workers(network_s);
    const auto outcome = setup.run(WagmaSgd({.group_size = 4, .global_every = 0}));
    EXPECT_THAT(outcome.parameters,
                Pointwise(FloatNear(2e-5f), setup.run(LocalSgd(make_constant_period(1), {})).parameters));
    EXPECT_EQ(outcome.totals.end, Time{from_seconds(9 * 2 + (2 * 8 + 1) * network_s)});
    expect_exact_accounts(outcome);
  }
}

TEST(WagmaSgd, OfGlobalRoundsAloneIsLocalSgdUnderAnyDelays) {
  SimulatedRun setup = four_equal_workers(0.25);
  setup.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 2.0, 0.3, 5.0})};
  for (const Divisor divisor : {Divisor::paper, Divisor::released})
    EXPECT_THAT(setup.run(WagmaSgd({.group_size = 2, .global_every = 1, .divisor = divisor})).parameters,
                Pointwise(FloatNear(2e-5f), setup.run(LocalSgd(make_constant_period(1), {})).parameters));
}

// Workers 0-1 and 2-3 are pairs, then 0-2 and 1-3, and so on. No worker is late.
TEST(WagmaSgd, GroupsChangeFromRoundToRound) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 6}, .individual_models_every = Step{5}};
  const auto outcome = setup.run(WagmaSgd({.group_size = 2}));
  std::vector<double> x(4, 1);
  for (int t = 0; t < 5; ++t) {
    for (int w = 0; w < 4; ++w) x[w] -= 0.1 * (x[w] - PullObjective::target({Rank{w}, t, 0}, 0));
    const int mask = t % 2 == 0 ? 1 : 2;
    const std::vector<double> before = x;
    for (int w = 0; w < 4; ++w) x[w] = (before[w] + before[w ^ mask]) / 2;
  }
  ASSERT_EQ(outcome.own_values.at(Step{5}).size(), 4u);
  for (int w = 0; w < 4; ++w) EXPECT_NEAR(outcome.own_values.at(Step{5}).at(Rank{w})[0], x[w], 1e-5) << w;
}

TEST(WagmaSgd, EqualModelsStayAsTheyAre) {
  for (const Divisor divisor : {Divisor::paper, Divisor::released})
    for (const Order order : {Order::step_first, Order::average_first}) {
      SimulatedRun setup = three_workers(9);
      setup.rate = 0;
      const WagmaSgd method({.group_size = 3, .global_every = 4, .divisor = divisor, .order = order});
      for (const float value : setup.run(method).parameters) EXPECT_NEAR(value, 1, 1e-6);
    }
}

TEST(WagmaSgd, SendsWhatItSaysBeforehand) {
  for (const Order order : {Order::step_first, Order::average_first}) {
    const WagmaSgd method({.group_size = 3, .global_every = 4, .order = order});
    const LearningRate rate(LearningRate::Options{.peak = 0.1});
    for (const int steps : {1, 9}) {
      const auto said = method.communication(
          {.workers = 3, .parameter_bytes = Bytes{16}, .steps = Step{steps}, .learning_rate = rate});
      const auto outcome = three_workers(steps).run(method);
      ASSERT_TRUE(said);
      EXPECT_EQ(said->bytes, outcome.totals.bytes);
      EXPECT_EQ(said->rounds, std::ssize(outcome.rounds));
    }
  }
}

// A step of eight workers takes 3 +- 0.2 sqrt(2) s, with two messages of 0.1 s each. In a global round, or at the end,
// all wait for the slowest sum of steps. The maximum of eight normal times lies 1.423600306 deviations above the mean.
TEST(WagmaSgd, WaitsForTheSlowestSumWhereARoundIsGlobal) {
  for (const int global_every : {8, 0}) {
    const PredictedRun run{.workers = 8, .micro_batches = 2, .steps = 400, .network_s = 0.1};
    const auto simulated = run.simulate(WagmaSgd({.group_size = 4, .global_every = Step{global_every}}));
    const int together = global_every == 0 ? 400 : global_every;
    const double expected_s = 3 + 0.2 * std::sqrt(2.0 / together) * 1.423600306 + 2 * 0.1;
    EXPECT_NEAR(simulated.step_s, expected_s, 0.01 * expected_s);
    EXPECT_NEAR(simulated.communication_s, 2 * 0.1, 0.02 * 2 * 0.1);
  }
}

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

// Worker 2 is down from 2 to 12 s. The others continue until the global round, which waits for worker 2: its first step
// ends at 12.6 s, its rounds 1 and 2 are at 12.85 and 15.95 s, and round 3 is at 19.05 s.
TEST(WagmaSgd, AGlobalRoundWaitsForAWorkerThatIsDown) {
  SimulatedRun setup = three_workers(4);
  setup.outages = outage(2, 2, 10, false);
  const auto outcome = setup.run(WagmaSgd({.group_size = 3, .global_every = 3}));
  EXPECT_EQ(outcome.totals.end, Time{from_seconds(22.15)});
  EXPECT_EQ(outcome.totals.kept, (Counts{4, 4, 4}));
  const Replay replay{.arrivals = {0, 1, 0, 1, 0, 1, 2, 2, 2}};
  EXPECT_NEAR(outcome.parameters[0], replay.theta(), 1e-5);
  expect_exact_accounts(outcome);
}

// Two workers arrive at 1.25 s in round 1. In the second step worker 1 loses its state at 2 s. It begins again at 3 s
// from the last global mean, or from the first model if no round was global.
TEST(WagmaSgd, WhoLosesItsStateTakesUpTheLastGlobalMean) {
  for (const Step global_every : {Step{0}, Step{1}}) {
    const SimulatedRun setup{
        .workers = 2, .network_s = 0.25, .budget = {.steps = 2}, .outages = outage(1, 2, 0.5, true)};
    const auto outcome = setup.run(WagmaSgd({.group_size = 2, .global_every = global_every}));
    const auto step = [](double x, int worker, int t) {
      return x - 0.1 * (x - PullObjective::target({Rank{worker}, t, 0}, 0));
    };
    const double mean = (step(1, 0, 0) + step(1, 1, 0)) / 2, applied = global_every > Step{0} ? mean : 1;
    EXPECT_NEAR(outcome.parameters[0], (step(mean, 0, 1) + step(applied, 1, 1)) / 2, 1e-5);
    EXPECT_EQ(outcome.totals.end, Time{from_seconds(4.25)});
    EXPECT_EQ(outcome.totals.accounts[1][Activity::discarded], from_seconds(0.5));
    expect_exact_accounts(outcome);
  }
}

TEST(WagmaSgd, NobodyWaitsForWhoHasLeft) {
  for (const Order order : {Order::step_first, Order::average_first})
    for (const Step global_every : {Step{1}, Step{3}, Step{0}}) {
      SimulatedRun setup = three_workers(10);
      setup.workers = 4;
      setup.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 1.6, 0.4})};
      setup.data_of = {std::nullopt, 4, 2, std::nullopt};
      const WagmaSgd method({.group_size = 2, .global_every = global_every, .order = order});
      const auto outcome = setup.run(method);
      EXPECT_EQ(outcome.totals.kept, (Counts{10, 4, 2, 10}));
      EXPECT_EQ(outcome.published, Step{10});
      expect_exact_accounts(outcome);
      setup.data_of = {3, 4, 2, 1};
      const auto all_left = setup.run(method);
      EXPECT_EQ(all_left.totals.kept, (Counts{3, 4, 2, 1}));
      expect_exact_accounts(all_left);
    }
}

// A worker without partners continues with its own model; the last mean is over the workers whose budget was used up.
TEST(WagmaSgd, WhoIsAloneInItsGroupKeepsItsModel) {
  SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 5}};
  setup.data_of = {std::nullopt, 1};
  const auto outcome = setup.run(WagmaSgd({.group_size = 2, .global_every = 0}));
  double x = 1;
  for (int t = 0; t < 5; ++t) x -= 0.1 * (x - PullObjective::target({Rank{0}, t, 0}, 0));
  EXPECT_NEAR(outcome.parameters[0], x, 1e-5);
}

TEST(WagmaSgd, ABudgetOfSecondsEndsEachWorkerByItsClock) {
  SimulatedRun setup = three_workers(1);
  setup.budget = {.seconds = 6};
  const auto outcome = setup.run(WagmaSgd({.group_size = 3, .global_every = 3}));
  EXPECT_GT(outcome.totals.kept[0], 0);
  expect_exact_accounts(outcome);
}

// With global rounds the other workers would wait for ever, so the run fails.
TEST(WagmaSgd, AMicroBatchThatNeverEndsIsNoHang) {
  SimulatedRun setup = three_workers(6);
  setup.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, std::numeric_limits<double>::infinity()})};
  EXPECT_THROW(setup.run(WagmaSgd({.group_size = 3, .global_every = 3})), RunFailure);
}

TEST(WagmaSettings, WrongOnesAreFaultsWithTheirPlace) {
  const auto faults = [](const std::string& keys, int workers = 4) {
    return read_method("algorithm = \"wagma-sgd\"\n" + keys, {.workers = workers}).faults;
  };
  EXPECT_EQ(faults("group_size = 2"), "");
  EXPECT_EQ(faults("group_size = 4\nglobal_every = 0\ndivisor = \"released\"\norder = \"average-first\"\n"
                   "evaluated = \"own\""),
            "");
  EXPECT_EQ(faults("group_size = 3", 6), "");
  EXPECT_NE(faults(""), "");
  EXPECT_THAT(faults("group_size = 4", 6),
              testing::AllOf(testing::HasSubstr("test.toml:2"), testing::HasSubstr("group_size = 4"),
                             testing::HasSubstr("must divide the number of workers, 6")));
  EXPECT_THAT(faults("group_size = 8"), testing::HasSubstr("group_size = 8"));
  EXPECT_NE(faults("group_size = 1"), "");
  EXPECT_NE(faults("group_size = 2\nglobal_every = -1"), "");
  EXPECT_NE(faults("group_size = 2\ndivisor = 3"), "");
  EXPECT_NE(faults("group_size = 2\norder = \"both\""), "");
  EXPECT_NE(faults("group_size = 2", 1), "");
}

}  // namespace
}  // namespace syncopate
