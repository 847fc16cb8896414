#include "algorithms/asynchronous/throttle.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "tests/algorithms/duration_laws.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

using Repeats = ThrottleOptions::Repeats;

constexpr double endless = std::numeric_limits<double>::infinity();

std::int64_t total(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

TEST(Throttle, WithADivisorOfOneEqualsAsynchronousSgdBitForBit) {
  SimulatedRun setup = three_workers(10);
  setup.micro_batches = 2;
  setup.momentum = 0.9;
  const auto async = setup.run(AsyncSgd({}));
  const auto throttle = setup.run(Throttle({.divisor = 1}));
  EXPECT_EQ(throttle.parameters, async.parameters);
  EXPECT_EQ(throttle.log, async.log);
  EXPECT_EQ(throttle.totals.bytes, async.totals.bytes);
}

TEST(Throttle, WithoutRepeatsTheDivisorDoesNotMatter) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 20}};  // equal times: each gives one gradient per round
  const auto async = setup.run(AsyncSgd({}));
  for (const double divisor : {2.0, 10.0, endless})
    for (const Repeats repeats : {Repeats::of_first, Repeats::alone})
      EXPECT_EQ(setup.run(Throttle({divisor, repeats})).parameters, async.parameters);
}

// The nine updates of asynchronous SGD's timeline: worker, its step, the version of the gradient's model, and how many
// gradients the worker has sent in the round. The fourth update, worker 2's first, ends the first round.
struct Update {
  int worker, own_step, version, repeats;
};
constexpr Update updates[] = {{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 1, 1}, {2, 0, 0, 0}, {1, 1, 2, 0},
                              {0, 2, 3, 0}, {1, 2, 5, 1}, {0, 3, 6, 1}, {2, 1, 4, 0}};

TEST(Throttle, ARepeatedGradientWeighsLess) {
  for (const Repeats repeats : {Repeats::of_first, Repeats::alone})
    for (const double divisor : {2.0, 5.0}) {
      SimulatedRun setup = three_workers(3);
      setup.rate = 0.3;
      const auto outcome = setup.run(Throttle({divisor, repeats}));
      for (std::size_t i = 0; i < 4; ++i) {
        std::vector<double> theta{1};  // theta[v] is the parameter at version v
        for (const Update& update : updates) {
          const double repeated = repeats == Repeats::of_first ? 1 / (3 * divisor) : 1 / divisor;
          const double gradient = theta.at(static_cast<std::size_t>(update.version)) -
                                  PullObjective::target({Rank{update.worker}, update.own_step, 0}, i);
          theta.push_back(theta.back() - 0.3 * (update.repeats == 0 ? 1.0 / 3 : repeated) * gradient);
        }
        EXPECT_NEAR(outcome.parameters[i], theta.back(), 1e-5);
      }
    }
}

// The times are those of the nine updates, except that repeats are no updates. Worker 2's gradients arrive every 3.1 s
// and end the rounds, the third one at 9.3 s.
TEST(Throttle, AnEndlessDivisorTakesOneGradientOfEachWorkerPerRound) {
  const auto outcome = three_workers(3).run(Throttle({.divisor = endless}));
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 3.100 s: kept 3, dropped 1",
                             "step 2 at 6.200 s: kept 3, dropped 2",
                             "step 3 at 9.300 s: kept 3, dropped 2",
                         }));
  EXPECT_EQ(outcome.totals.kept, (Counts{3, 3, 3}));
  expect_accounts_sum_to_the_time(outcome.totals);
}

TEST(Throttle, DoesNotWaitForWhoHasLeft) {
  for (const double divisor : {2.0, endless}) {
    SimulatedRun setup = three_workers(10);
    setup.data_of = {30, 30, 1};
    const auto outcome = setup.run(Throttle({.divisor = divisor}));
    EXPECT_EQ(total(outcome.totals.kept), 30);
    EXPECT_EQ(outcome.totals.kept[2], 1);
    EXPECT_GE(outcome.totals.kept[1], 10);
    expect_accounts_sum_to_the_time(outcome.totals);
  }
  SimulatedRun setup = three_workers(20);
  setup.data_of = {3, 2, 2};
  EXPECT_EQ(total(setup.run(Throttle({.divisor = 2})).totals.kept), 7) << "all have left";
}

TEST(Throttle, GoesOnWithAWorkerThatHasLostItsState) {
  SimulatedRun setup = three_workers(10);
  setup.outages = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{
             {.workers = {Rank{0}}, .when = ScheduledOutage{from_seconds(2), from_seconds(1)}, .loses_state = true}});
  const auto outcome = setup.run(Throttle({.divisor = 2}));
  EXPECT_EQ(total(outcome.totals.kept), 30);
  expect_accounts_sum_to_the_time(outcome.totals);
}

TEST(Throttle, NeedsADivisorOfAtLeastOne) {
  EXPECT_NE(read_method("algorithm = \"throttle\"").faults, "");
  EXPECT_NE(read_method("algorithm = \"throttle\"\ndivisor = 0.5").faults, "");
  EXPECT_NE(read_method("algorithm = \"throttle\"\ndivisor = 2\nrepeats = \"none\"").faults, "");
  EXPECT_EQ(read_method("algorithm = \"throttle\"\ndivisor = inf\nrepeats = \"alone\"").faults, "");
}

}  // namespace
}  // namespace syncopate
