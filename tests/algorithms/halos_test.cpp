#include "algorithms/asynchronous/halos.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/asynchronous/async_local_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "tests/workers/engine.hpp"
#include "tests/workers/pull_objective.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

// HALoS in double precision, for the first parameter. This implementation has its own event queue, and assumes
// workers of constant speed whose messages never arrive at the same time.

// A server's delayed Nesterov momentum. With n = 1 it is Nesterov's step, and with beta = 0 the plain step at rate / n.
struct ReplayedUpdate {
  double rate = 1, beta = 0;
  int n = 1;
  double c = 0;
  double momentum = 0, sum = 0;
  int arrivals = 0;

  void step(double& theta, double g) {
    sum += g;
    const bool is_nth = ++arrivals % n == 0;
    if (is_nth) momentum = beta * momentum + std::exchange(sum, 0) / n;
    theta -= rate * ((is_nth ? 1 - c * n + c : c) * beta * momentum + g / n);
  }
};

struct HalosReplay {
  std::vector<double> step_s;  // by worker
  int regions = 1;
  int local_steps = 1;
  ReplayedUpdate local{}, global{};
  int merge_every = 1;
  double mixing = 1;
  double inside_s = 0, between_s = 0;
  double rate = 0.1, momentum = 0;  // the workers' rate and momentum
  int steps = 1;                    // the budget's steps

  struct Update {
    double time_s;
    double theta;
  };
  // The models that the global server has published.
  std::vector<Update> updates() const {
    const int workers = static_cast<int>(step_s.size());
    struct Worker {
      double velocity = 0;
      int taken = 0;
    };
    struct Region {
      double theta = 1, reference = 1;
      ReplayedUpdate update;
      int arrivals = 0, untold = 0;
    };
    struct Event {
      enum class Is { difference, update, answer } is;
      int from;      // a worker, or a region
      double value;  // a difference, a region's update U, or the global model Theta
      int steps;
    };
    std::vector<Worker> worker(step_s.size());
    std::vector<Region> region(static_cast<std::size_t>(regions));
    for (Region& one : region) one.update = local;
    ReplayedUpdate global_update = global;
    std::multimap<double, Event> calendar;
    const auto start_round = [&](int w, double theta, double sent_s) {
      Worker& one = worker[static_cast<std::size_t>(w)];
      double x = theta;
      for (int h = 0; h < local_steps; ++h) {
        one.velocity = momentum * one.velocity + x - PullObjective::target({Rank{w}, one.taken++, 0}, 0);
        x -= rate * one.velocity;
      }
      const double round_s = local_steps * step_s[static_cast<std::size_t>(w)] + 2 * inside_s;
      calendar.emplace(sent_s + round_s, Event{Event::Is::difference, w, theta - x, local_steps});
    };
    for (int w = 0; w < workers; ++w) start_round(w, 1, 0);
    std::vector<Update> result;
    double theta = 1;
    int told = 0;
    while (true) {
      const auto [time_s, event] = *calendar.begin();
      calendar.erase(calendar.begin());
      const int r = event.is == Event::Is::difference ? event.from / (workers / regions) : event.from;
      Region& own = region[static_cast<std::size_t>(r)];
      if (event.is == Event::Is::difference) {
        own.update.step(own.theta, event.value);
        own.untold += event.steps;
        if (++own.arrivals == merge_every)
          calendar.emplace(time_s + between_s,
                           Event{Event::Is::update, r, own.reference - own.theta, std::exchange(own.untold, 0)});
        start_round(event.from, own.theta, time_s);
      } else if (event.is == Event::Is::update) {
        global_update.step(theta, event.value);
        told += event.steps;
        result.push_back({time_s, theta});
        if (told >= steps * workers) return result;
        calendar.emplace(time_s + between_s, Event{Event::Is::answer, r, theta, 0});
      } else {
        own.theta = own.reference = (1 - mixing) * own.theta + mixing * event.value;
        own.arrivals = 0;
      }
    }
  }
};

using testing::DoubleNear;
using testing::FloatNear;
using testing::Pointwise;

constexpr double inf = std::numeric_limits<double>::infinity();

// A message takes a quarter of a second inside a region, and `between_s` between regions. Servers' links add nothing.
std::shared_ptr<const NetworkModel> regions_of(int region_size, int workers, double between_s) {
  return make_two_level_network(
      {0.25, inf}, CollectiveShape::ring,
      {.workers = workers, .server = Link{0, inf}, .group_size = region_size, .uplink = {between_s, inf}});
}

// The three workers take 1, 1.1 and 2.6 s per step.
SimulatedRun three_in_regions(int region_size, double between_s, int steps) {
  SimulatedRun setup = three_workers(steps);
  setup.network = regions_of(region_size, 3, between_s);
  return setup;
}

std::vector<double> times_of(const SimulatedRun::Outcome& outcome) {
  std::vector<double> times_s;
  for (const Publication& publication : outcome.publications) times_s.push_back(to_seconds(publication.time));
  return times_s;
}

// If messages between regions take no time, updates of the global server take none either.
TEST(Halos, OfOneRegionWithoutMixingIsAsynchronousLocalSgd) {
  SimulatedRun setup = three_workers(12);
  setup.momentum = 0.9;
  setup.rate = 0.01;
  const ServerUpdate update = make_delayed_nesterov_update({.rate = 0.8, .momentum = 0.6, .every = 4, .share = 0.2});
  for (const Step local_steps : {1, 3}) {
    const auto expected = setup.run(AsyncLocalSgd({.rounds = {.local_steps = local_steps}, .update = update}));
    SimulatedRun in_region = setup;
    in_region.network = regions_of(3, 3, 0);
    const auto outcome = in_region.run(
        Halos({.rounds = {.local_steps = local_steps}, .local_update = update, .merge_every = 1, .mixing = 0}));
    EXPECT_THAT(outcome.parameters, Pointwise(FloatNear(2e-5f), expected.parameters));
    EXPECT_EQ(outcome.log, expected.log);
    EXPECT_EQ(times_of(outcome), times_of(expected));
    EXPECT_EQ(outcome.totals.kept, expected.totals.kept);
    EXPECT_EQ(outcome.totals.staleness, expected.totals.staleness);
    EXPECT_EQ(outcome.totals.end, expected.totals.end);
    EXPECT_EQ(outcome.samples, expected.samples);
    EXPECT_EQ(outcome.published, expected.published);
  }
}

// The schedule and the moments are also the same, because the only local server knows all steps.
TEST(Halos, OfOneRegionThatTakesUpTheGlobalModelAtOnceIsAsynchronousLocalSgd) {
  SimulatedRun setup = three_in_regions(3, 0, 12);
  setup.momentum = 0.5;
  setup.learning_rate = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.2, .total_steps = Step{12}});
  const ServerUpdate update = make_nesterov_update(0.5, 0.6);
  SimulatedRun alone = setup;
  alone.network = nullptr;
  alone.network_s = 0.25;
  const auto expected = alone.run(AsyncLocalSgd({.rounds = {.local_steps = 2}, .update = update}));
  const auto outcome = setup.run(Halos({.rounds = {.local_steps = 2}, .local_update = update}));
  EXPECT_THAT(outcome.parameters, Pointwise(FloatNear(2e-5f), expected.parameters));
  EXPECT_EQ(times_of(outcome), times_of(expected));
  EXPECT_EQ(outcome.learning_rate, expected.learning_rate);
}

// Each of three regions has one worker, whose differences arrive every 1.5, 1.6 and 3.1 s. A message between regions
// takes 2 s. Region 0 sends updates at 3 s (answered at 7 s) and 9 s, region 1 at 3.2 s (7.2 s) and 9.6 s, region 2 at
// 6.2 s (10.2 s). Differences that arrive before the answer count in the next update.
TEST(Halos, ALocalServerSendsWhatKDifferencesSinceItsLastMergeHaveComeTo) {
  const SimulatedRun setup = three_in_regions(1, 2, 4);
  const auto outcome = setup.run(Halos({.regions = 3, .merge_every = 2, .mixing = 0.5}));
  EXPECT_EQ(outcome.log, (Log{
                             "step 1 at 5.200 s: kept 4, dropped 0",  // updates at 5.0 and 5.2 s
                             "step 2 at 8.200 s: kept 2, dropped 0",
                             "step 3 at 11.000 s: kept 4, dropped 0",  // differences of 4.5, 6.0, 7.5 and 9.0 s
                             "step 4 at 11.600 s: kept 4, dropped 0",
                         }));
  EXPECT_THAT(times_of(outcome), Pointwise(DoubleNear(1e-9), {5.0, 5.2, 8.2, 11.0, 11.6}));
  EXPECT_EQ(outcome.samples, 14);
  // Local servers learn at 13 s, from the answer of 11 s, that the global server has ended. They process the
  // differences that arrive until then. Worker 1's model of 12.8 s is still under way, and nobody waits for it.
  EXPECT_EQ(outcome.totals.end, Time{from_seconds(13)});
  EXPECT_EQ(outcome.totals.kept, (Counts{8, 8, 4}));
  EXPECT_EQ(outcome.totals.staleness, Counts{20});  // each worker is alone with its local server
  // Inside regions 3 first models and 20 differences and answers, between regions 5 updates and 4 answers.
  EXPECT_EQ(outcome.totals.messages, 3 + 2 * 20 + 5 + 4);
  EXPECT_EQ(outcome.totals.bytes, Bytes{(3 + 2 * 20 + 5 + 4) * 16});
  EXPECT_EQ(outcome.totals.dropped, (Counts{1, 1, 1}));  // steps in progress; worker 1's began at the very end
  expect_exact_accounts(outcome);
}

HalosReplay replayed(const SimulatedRun& setup, double between_s, std::vector<double> step_s) {
  return {.step_s = std::move(step_s),
          .inside_s = 0.25,
          .between_s = between_s,
          .rate = setup.rate,
          .momentum = setup.momentum,
          .steps = static_cast<int>(setup.budget.steps->value())};
}

TEST(Halos, FollowsARecursionInDoublePrecision) {
  struct Case {
    int regions, merge_every;
    Step local_steps;
    double mixing, between_s;
    DelayedNesterov local, global;
  };
  const std::vector<Case> cases = {
      {1, 3, 2, 0.25, 0.9, {1.6, 0.9, 4, 0}, {0.5, 0.5, 2, 0}},
      {2, 2, 1, 0.5, 3.3, {0.8, 0.6, 2, 0.25}, {0.3, 0.5, 2, 0.5}},
      {2, 4, 3, 0.25, 7.7, {3.2, 0.9, 16, 0}, {0.3, 0.5, 2, 0}},  // the published rates
      {3, 1, 2, 1, 0.13, {1, 0, 1, 0}, {1, 0, 1, 0}},
      {6, 2, 2, 0.7, 1.7, {0.7, 0.5, 1, 0}, {0.9, 0.3, 1, 0}},
  };
  const std::vector<double> step_s = {1, 1.13, 2.61, 1.77, 1.393, 3.071};
  for (const Case& of : cases) {
    SCOPED_TRACE(testing::Message() << of.regions << " regions");
    SimulatedRun setup{.workers = 6,
                       .network = regions_of(6 / of.regions, 6, of.between_s),
                       .momentum = 0.4,
                       .rate = 0.05,
                       .budget = {.steps = 40},
                       .worker_factors = step_s};
    if (of.regions == 1) setup.network = regions_of(6, 6, of.between_s);
    const auto outcome = setup.run(Halos({.regions = of.regions,
                                          .rounds = {.local_steps = of.local_steps},
                                          .local_update = make_delayed_nesterov_update(of.local),
                                          .global_update = make_delayed_nesterov_update(of.global),
                                          .merge_every = of.merge_every,
                                          .mixing = of.mixing}));
    HalosReplay replay = replayed(setup, of.between_s, step_s);
    replay.regions = of.regions;
    replay.local_steps = static_cast<int>(of.local_steps.value());
    replay.merge_every = of.merge_every;
    replay.mixing = of.mixing;
    replay.local = {of.local.rate, of.local.momentum, of.local.every, of.local.share};
    replay.global = {of.global.rate, of.global.momentum, of.global.every, of.global.share};
    const auto updates = replay.updates();
    ASSERT_EQ(outcome.publications.size(), updates.size());
    for (std::size_t i = 0; i < updates.size(); ++i)
      EXPECT_NEAR(times_of(outcome)[i], updates[i].time_s, 1e-6) << "update " << i;
    EXPECT_NEAR(outcome.parameters[0] / updates.back().theta, 1, 1e-4);
    expect_exact_accounts(outcome);
  }
}

TEST(Halos, DropsNothingThatALocalServerHasTakenIn) {
  const auto outcome = three_in_regions(1, 2, 30).run(Halos({.regions = 3, .merge_every = 4, .mixing = 0.5}));
  EXPECT_GE(sum(outcome.totals.kept), outcome.samples);
  std::int64_t differences = 0;
  for (const std::int64_t count : outcome.totals.staleness) differences += count;
  EXPECT_EQ(differences, sum(outcome.totals.kept));
}

// A region's server has the statistics of the worker that delivered last. Mixing models also mixes their statistics.
TEST(Halos, StatisticsAreThoseOfTheRegionThatDeliveredLast) {
  SimulatedRun setup = three_in_regions(1, 2, 1);
  setup.objective = std::make_shared<PullWithStatistics>();
  // One step of the budget is two updates of two differences each. The second update is region 1's, sent at 3.2 s.
  EXPECT_EQ(setup.run(Halos({.regions = 3, .merge_every = 2})).buffers,
            PullWithStatistics::statistics_of(std::vector{MicroBatch{Rank{1}, 1, 0}}));
}

// Region 0 has steps of 1 and 3 s, region 1 of 2 and 6 s. The fastest worker of a region takes H = 4 steps, the other
// one a third of that, rounded up: 2.
TEST(Halos, DyluGoesByTheFastestOfTheRegion) {
  SimulatedRun setup{
      .workers = 4, .network = regions_of(2, 4, 1), .budget = {.seconds = 600}, .worker_factors = {1, 3, 2, 6}};
  const Halos method({.regions = 2, .rounds = {.local_steps = 4, .dylu = DynamicSteps{}}, .merge_every = 3});
  const auto outcome = setup.run(method);
  // The first round, which ends at first_s, has four steps; later rounds have `steps`.
  const auto kept_after = [&](double round_s, std::int64_t steps, double first_s) {
    return 4 + steps * static_cast<std::int64_t>((600 - first_s) / round_s);
  };
  EXPECT_NEAR(outcome.totals.kept[0], kept_after(4.5, 4, 4.5), 4);
  EXPECT_NEAR(outcome.totals.kept[1], kept_after(6.5, 2, 12.5), 4);
  EXPECT_NEAR(outcome.totals.kept[2], kept_after(8.5, 4, 8.5), 4);
  EXPECT_NEAR(outcome.totals.kept[3], kept_after(12.5, 2, 24.5), 4);
  expect_exact_accounts(outcome);
}

// The published speeds, four regions of four workers.
const std::vector<double> speeds = {.232, .907, .828, .347, .574, .531, .722, .194,
                                    .852, .132, .896, .107, .827, .515, .527, .788};

// Golden value: without communication workers take mean(v) / min(v) = 5.24 times synchronous SGD's steps.
TEST(Halos, HasTheSpeedUpOverSynchronousSgdOfThePapersSpeeds) {
  std::vector<double> factors;
  for (const double speed : speeds) factors.push_back(1 / speed);
  const PredictedRun published{
      .workers = 16, .micro_batches = 1, .factors = factors, .delays = {}, .steps = 4000, .network_s = 0};
  HalosOptions options{.regions = 4, .rounds = {.local_steps = 8}, .merge_every = 32, .mixing = 0.25};
  for (const bool dynamic : {false, true}) {
    if (dynamic) options.rounds.dylu = DynamicSteps{};
    EXPECT_NEAR(1 / speeds[11] / published.simulate(Halos(options)).step_s, 5.24, 0.06);
  }
}

// A round takes five steps of 2 x 1.5 s, and two messages of 0.25 s inside the region.
TEST(Halos, TakesTheMessagesInsideItsRegionsAlone) {
  PredictedRun setting{.workers = 12, .micro_batches = 2, .steps = 6000};
  setting.network = regions_of(4, 12, 40);
  const Halos method({.regions = 3, .rounds = {.local_steps = 5}, .merge_every = 4, .mixing = 0.5});
  const auto simulated = setting.simulate(method);
  EXPECT_NEAR(simulated.step_s / ((5 * 2 * 1.5 + 0.5) / 5), 1, 0.02);
  EXPECT_NEAR(simulated.communication_s / (0.5 / 5), 1, 0.02);
}

// The rounds are those of DyluGoesByTheFastestOfTheRegion: 4 steps in 4.5 s, 2 in 6.5 s, 4 in 8.5 s and 2 in 12.5 s.
TEST(Halos, GoesByTheFastestOfEachRegion) {
  PredictedRun setting{.workers = 4, .micro_batches = 1, .factors = {1, 3, 2, 6}, .delays = {}, .steps = 4000};
  setting.network = regions_of(2, 4, 1);
  const Halos method({.regions = 2, .rounds = {.local_steps = 4, .dylu = DynamicSteps{}}, .merge_every = 3});
  const double steps_per_s = 4 / 4.5 + 2 / 6.5 + 4 / 8.5 + 2 / 12.5;
  const double rounds_per_s = 1 / 4.5 + 1 / 6.5 + 1 / 8.5 + 1 / 12.5;
  const auto simulated = setting.simulate(method);
  EXPECT_NEAR(simulated.step_s * steps_per_s / 4, 1, 0.01);
  EXPECT_NEAR(simulated.communication_s * steps_per_s / (2 * 0.25 * rounds_per_s), 1, 0.01);
}

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

// Four workers in two regions; each worker of the first region has data for three steps.
TEST(HalosEnds, ARegionWhoseWorkersHaveAllLeftSendsWhatItHasAndTheOthersGoOn) {
  for (const double between_s : {0.0, 2.0, 50.0}) {
    SimulatedRun setup{.workers = 4, .network = regions_of(2, 4, between_s), .budget = {.steps = 12}};
    setup.worker_factors = {1, 1.1, 1.3, 1.7};
    setup.data_of = {3, 3, std::nullopt, std::nullopt};
    for (const int merge_every : {1, 4, 100}) {
      const auto outcome =
          setup.run(Halos({.regions = 2, .rounds = {.local_steps = 2}, .merge_every = merge_every, .mixing = 0.5}));
      EXPECT_EQ(outcome.totals.kept[0], 3) << merge_every;  // rounds of two steps and of one
      EXPECT_EQ(outcome.totals.kept[1], 3) << merge_every;
      EXPECT_EQ(outcome.published, Step{12});
      EXPECT_GE(sum(outcome.totals.kept), 48);
      expect_exact_accounts(outcome);
    }
  }
}

// A worker leaves after its first step; the region's other worker continues alone.
TEST(HalosEnds, ARegionGoesOnWithItsLastWorker) {
  SimulatedRun setup = three_in_regions(3, 1, 8);
  setup.workers = 4;
  setup.network = regions_of(2, 4, 1);
  setup.delays.clear();
  setup.data_of = {1, std::nullopt, std::nullopt, std::nullopt};
  const auto outcome = setup.run(Halos({.regions = 2, .merge_every = 2, .mixing = 0.5}));
  EXPECT_EQ(outcome.totals.kept[0], 1);
  EXPECT_GT(outcome.totals.kept[1], 6);
  EXPECT_EQ(outcome.published, Step{8});
  expect_exact_accounts(outcome);
}

// Every computed difference is sent. The last updates contain those that arrived while the server waited for an answer.
TEST(HalosEnds, AllDataUsedUpAreAllSamples) {
  for (const double between_s : {0.0, 3.0, 100.0})
    for (const int merge_every : {1, 3, 1000}) {
      SimulatedRun setup = three_in_regions(1, between_s, 1000);
      setup.data_of = {7, 5, 2};
      const auto outcome = setup.run(Halos({.regions = 3, .merge_every = merge_every, .mixing = 0.5}));
      EXPECT_EQ(outcome.totals.kept, (Counts{7, 5, 2}));
      EXPECT_EQ(outcome.totals.dropped, (Counts{0, 0, 0}));
      if (between_s == 0 || merge_every == 1000) {
        EXPECT_EQ(outcome.samples, 14);
      }
      expect_exact_accounts(outcome);
    }
}

// Worker 1 is down from 1 to 61 s. The other workers of its region and the other region do not wait.
TEST(HalosEnds, NobodyWaitsForAWorkerThatIsDown) {
  for (const bool loses_state : {false, true}) {
    SimulatedRun setup{.workers = 4, .network = regions_of(2, 4, 2), .budget = {.steps = 10}};
    setup.outages = outage(1, 1, 60, loses_state);
    const auto outcome = setup.run(Halos({.regions = 2, .rounds = {.local_steps = 2}, .merge_every = 2}));
    EXPECT_EQ(outcome.totals.kept[1], 0);
    EXPECT_LT(to_seconds(outcome.totals.end), 61);
    EXPECT_EQ(outcome.published, Step{10});
    expect_exact_accounts(outcome);
  }
}

// Region 1 has only worker 1, which receives the model at 0.25 s. At 1.5 s it loses one step and a quarter of the next.
// Up again at 1.75 s, it asks its own server, and has the model at 2.25 s. The global server has not answered yet.
TEST(HalosEnds, ALostStateBeginsAnewFromTheRegionsModel) {
  SimulatedRun setup{.workers = 2, .network = regions_of(1, 2, 30), .budget = {.steps = 4}};
  setup.outages = outage(1, 1.5, 0.25, true);
  const auto outcome = setup.run(Halos({.regions = 2, .rounds = {.local_steps = 2}, .merge_every = 2}));
  // Worker 0 delivers at 2.5 and 5 s, and its region's update arrives at 35 s. Worker 1 delivers at 4.5 and 7 s, and
  // its region's update arrives at 37 s. These updates end steps 2 and 4 of the budget.
  EXPECT_THAT(times_of(outcome), Pointwise(DoubleNear(1e-9), {35, 37}));
  EXPECT_EQ(outcome.totals.accounts[1][Activity::down], from_seconds(0.25));
  EXPECT_EQ(outcome.published, Step{4});
  expect_exact_accounts(outcome);
}

// All regions are equal, so each has made the same progress when the first one reports. Each region exceeds the budget
// by the differences that it has not reported and by those that its workers are computing.
TEST(HalosEnds, ABudgetIsOverrunByNoMoreThanRegionsHaveNotTold) {
  constexpr std::int64_t steps = 12, workers = 6;
  for (const int regions : {1, 2, 3, 6})
    for (const int merge_every : {1, 3, 9, 36}) {
      const SimulatedRun setup{
          .workers = workers, .network = regions_of(workers / regions, workers, 0), .budget = {.steps = steps}};
      const Halos method({.regions = regions, .rounds = {.local_steps = 2}, .merge_every = merge_every, .mixing = 0.5});
      const auto outcome = setup.run(method);
      const std::int64_t computed = sum(outcome.totals.kept), budget = steps * workers;
      EXPECT_GE(computed, budget);
      EXPECT_LE(computed, budget + 2 * (regions * merge_every + workers)) << regions << " " << merge_every;
      if (merge_every == 36) {
        EXPECT_GE(computed, regions * budget) << regions;  // the method's header warns of this
      }
    }
}

TEST(HalosEnds, ABudgetOfSecondsEndsEachServerByItsClock) {
  SimulatedRun setup = three_in_regions(1, 2, 1);
  setup.budget = {.seconds = 20};
  const auto outcome = setup.run(Halos({.regions = 3, .merge_every = 2, .mixing = 0.5}));
  // Differences arrive at 21, 20.8 and 21.7 s. Region 0's makes an update, which arrives at 23 s.
  EXPECT_EQ(outcome.totals.end, Time{from_seconds(23)});
  EXPECT_EQ(outcome.totals.kept, (Counts{14, 13, 7}));
  expect_exact_accounts(outcome);
}

TEST(HalosEnds, ABudgetOfBytesOrSamplesEndsAtTheGlobalServer) {
  SimulatedRun setup = three_in_regions(1, 2, 1);
  setup.budget = {.samples = 100};
  const auto samples = setup.run(Halos({.regions = 3, .merge_every = 2, .mixing = 0.5}));
  EXPECT_GE(samples.samples, 100);
  EXPECT_LT(samples.samples, 110);
  setup.budget = {.bytes = Bytes{5000}};
  const auto bytes = setup.run(Halos({.regions = 3, .merge_every = 2, .mixing = 0.5}));
  EXPECT_GE(bytes.totals.bytes, Bytes{5000});
  expect_exact_accounts(bytes);
}

TEST(HalosSettings, WrongOnesAreFaultsWithTheirPlace) {
  const auto faults = [](const std::string& keys) {
    return read_method("algorithm = \"halos\"\nlocal_steps = 4\n" + keys, {.workers = 4}).faults;
  };
  const std::string updates = "local_update = { name = \"plain\" }\nglobal_update = { name = \"plain\" }\n";
  const std::string rest = updates + "merge_every = 2\nmixing = 0.5\n";
  EXPECT_EQ(faults("regions = 2\n" + rest), "");
  EXPECT_EQ(faults("regions = 4\n" + rest), "");
  EXPECT_THAT(faults("regions = 3\n" + rest),
              testing::HasSubstr("test.toml:3:11: regions = 3; must divide the number of workers, 4"));
  EXPECT_NE(faults("regions = 0\n" + rest), "");
  EXPECT_NE(faults("regions = 5\n" + rest), "");
  EXPECT_NE(faults(rest), "");
  EXPECT_NE(faults("regions = 2\n" + updates + "merge_every = 0\nmixing = 0.5"), "");
  EXPECT_NE(faults("regions = 2\n" + updates + "merge_every = 2\nmixing = 1.5"), "");
  EXPECT_NE(faults("regions = 2\n" + updates + "merge_every = 2\nmixing = -0.1"), "");
  EXPECT_NE(faults("regions = 2\nmerge_every = 2\nmixing = 0.5\nlocal_update = { name = \"plain\" }"), "");
  EXPECT_NE(faults("regions = 2\n" + rest + "moments = \"average\""), "");
}

}  // namespace
}  // namespace syncopate
