#include "algorithms/local_sgd/streaming_diloco.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/late_averages.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/compressions.hpp"
#include "tests/workers/engine.hpp"
#include "tests/workers/listed_gradients.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

// Streaming DiLoCo in double precision, independent of the method's code. Workers are pulled to their targets
// (PullObjective). One parameter is computed at a time, and belongs to one fragment.

// The next outer value from the last one, the mean of the workers, and the mean rate of their steps.
using OuterRule = std::function<double(double last, double mean, double rate)>;

struct FragmentRun {
  int workers = 3;
  int fragments = 2;
  int period = 4;
  int delay = 1;
  double mixing = 0;
  std::vector<double> rates{};           // learning rates, by step of the run
  std::set<std::pair<int, int>> lost{};  // steps that an outage took: worker and step
  OuterRule outer{};                     // has its own state
  std::vector<double> workers_models{};  // the workers' models at the end

  // The steps after which a parameter's fragment p is averaged: (p + 1) H / P of each round of H steps,
  // rounded up, for P fragments.
  std::set<int> turns(std::size_t coordinate) const {
    int fragment = 0;
    while (static_cast<int>(coordinate) >= 4 * (fragment + 1) / fragments) ++fragment;
    std::set<int> result;
    const int steps = static_cast<int>(rates.size());
    for (int begin = 0; begin < steps; begin += period) {
      const int round = std::min(period, steps - begin);
      result.insert(begin + ((fragment + 1) * round + fragments - 1) / fragments);
    }
    return result;
  }

  // The outer model's parameter at the end.
  double model(std::size_t coordinate) {
    const std::set<int> starts = turns(coordinate);
    std::vector<double> theta(static_cast<std::size_t>(workers), 1.0);
    std::deque<std::pair<double, double>> under_way;  // means of the models, and of the rates
    double outer_model = 1, sum_of_rates = 0;
    int steps = 0;
    const auto take_in = [&] {
      outer_model = outer(outer_model, under_way.front().first, under_way.front().second);
      under_way.pop_front();
      for (double& own : theta) own = mixing * own + (1 - mixing) * outer_model;
    };
    for (int step = 1; step <= static_cast<int>(rates.size()); ++step) {
      const double rate = rates[static_cast<std::size_t>(step - 1)];
      for (int w = 0; w < workers; ++w)
        if (!lost.contains({w, step - 1})) {
          double& own = theta[static_cast<std::size_t>(w)];
          own -= rate * (own - PullObjective::target({Rank{w}, step - 1, 0}, coordinate));
        }
      sum_of_rates += rate;
      ++steps;
      if (starts.contains(step)) {
        under_way.emplace_back(std::accumulate(theta.begin(), theta.end(), 0.0) / workers, sum_of_rates / steps);
        sum_of_rates = steps = 0;
      }
      if (starts.contains(step - delay)) take_in();
    }
    while (!under_way.empty()) take_in();
    workers_models = theta;
    return outer_model;
  }
};

using testing::AllOf;
using testing::HasSubstr;
using Outer = OuterOptimizer;

struct Streams {
  int fragments = 2;
  int delay = 1;
  double mixing = 0;
};

StreamingDiloco streaming(int period, const Streams& of, Outer outer = make_plain_outer(1)) {
  return {make_constant_period(period), std::move(outer), {Fragments(of.fragments), of.delay, of.mixing}, {}};
}

OuterRule plain(double rate) {
  return [=](double last, double mean, double) { return last - rate * (last - mean); };
}
OuterRule slowmo(double rate, double momentum) {
  return [=, u = 0.0](double last, double mean, double inner) mutable {
    u = momentum * u + (last - mean) / inner;
    return last - rate * inner * u;
  };
}
OuterRule nesterov(double rate, double momentum) {
  return [=, buffer = 0.0](double last, double mean, double) mutable {
    buffer = momentum * buffer + (last - mean);
    return last - rate * ((last - mean) + momentum * buffer);
  };
}

TEST(StreamingDiloco, OfOneFragmentWithoutDelayOrMixingEqualsDiLoCoBitForBit) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 18}};
  for (const Outer& outer :
       {Outer(make_diloco(0.7, 0.9)), Outer(make_slowmo(0.9, 0.6)), Outer(make_plain_outer(0.8))}) {
    const auto diloco = setup.run(OuterLocalSgd(make_constant_period(4), outer, {}));
    const auto streamed = setup.run(streaming(4, {.fragments = 1, .delay = 0}, outer));
    EXPECT_EQ(streamed.parameters, diloco.parameters);
    EXPECT_EQ(streamed.log, diloco.log);
    EXPECT_EQ(streamed.totals.bytes, diloco.totals.bytes);
  }
}

// The first round ends at the fragment's turn, whole rounds follow, and the last turn lies before the end of the run.
class Shifted : public SyncPeriod {
 public:
  Shifted(Step offset, Step steps) : offset_(offset), steps_(steps) {}
  Step at(Step done, double, Step left) const override { return std::min(done == Step{0} ? offset_ : steps_, left); }

 private:
  Step offset_, steps_;
};

// Equal to the bit, also with momentum, because a parameter's values do not depend on the other parameters.
TEST(StreamingDiloco, OfFragmentsWithoutDelayIsALocalSgdOfEachFragment) {
  constexpr int period = 8, fragments = 4, rounds = 3;
  SimulatedRun setup{.workers = 3, .momentum = 0.9, .rate = 0.05, .budget = {.steps = period * rounds}};
  const auto streamed = setup.run(streaming(period, {.fragments = fragments, .delay = 0}));
  for (int p = 0; p < fragments; ++p) {
    const int offset = 2 * (p + 1);
    setup.budget.steps = period * (rounds - 1) + offset;
    const auto local = setup.run(LocalSgd(std::make_shared<Shifted>(offset, period), {}));
    const auto i = static_cast<std::size_t>(p);
    EXPECT_EQ(streamed.parameters[i], local.parameters[i]) << "fragment " << p;
  }
}

// Publishes worker `chosen`'s model as the average of all models.
class OwnModelOf : public Algorithm {
 public:
  OwnModelOf(const Algorithm& method, Rank chosen) : method_(method), chosen_(chosen) {}
  void run(Worker& worker) const override {
    method_.run(worker);
    worker.average_model({.weight = worker.rank() == chosen_ ? 1.0 : 0.0});
    worker.publish();
  }

 private:
  const Algorithm& method_;
  Rank chosen_;
};

TEST(StreamingDiloco, MixedWhollyLeavesWorkersThatTrainAlone) {
  constexpr int steps = 12;
  const SimulatedRun setup{.workers = 3, .rate = 0.1, .budget = {.steps = steps}};
  const StreamingDiloco method = streaming(4, {.fragments = 2, .delay = 1, .mixing = 1}, make_diloco(0.7, 0.9));
  for (int w = 0; w < 3; ++w) {
    const auto outcome = setup.run(OwnModelOf(method, Rank{w}));
    for (std::size_t i = 0; i < 4; ++i) {
      double theta = 1;
      for (int step = 0; step < steps; ++step) theta -= 0.1 * (theta - PullObjective::target({Rank{w}, step, 0}, i));
      EXPECT_NEAR(outcome.parameters[i], theta, 1e-5 * std::abs(theta));
    }
  }
  EXPECT_EQ(setup.run(streaming(steps, {.fragments = 1, .delay = 0, .mixing = 1})).parameters,
            setup.run(LocalSgd(make_constant_period(steps), {})).parameters)
      << "a single average at the end";
}

// Rounds have 6 steps, at a learning rate that falls at every step. The last round has 4.
TEST(StreamingDiloco, FollowsTheRecursion) {
  constexpr int steps = 22, period = 6;
  SimulatedRun setup{.budget = {.steps = steps}};
  setup.learning_rate = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.2, .total_steps = steps});
  FragmentRun run{.period = period};
  for (int s = 0; s < steps; ++s) run.rates.push_back(0.2 * (steps - s) / steps);
  struct Rule {
    Outer outer;
    OuterRule expected;
  };
  for (const auto& [outer, expected] :
       {Rule{make_plain_outer(0.8), plain(0.8)}, Rule{make_slowmo(0.9, 0.6), slowmo(0.9, 0.6)},
        Rule{make_diloco(0.7, 0.9), nesterov(0.7, 0.9)}})
    for (const int fragments : {1, 2, 3, 4})
      for (const int delay : {0, 1, 2, 4, 6})
        for (const double mixing : {0.0, 0.5}) {
          SCOPED_TRACE(testing::Message() << fragments << " fragments, delay " << delay << ", mixing " << mixing);
          const auto outcome = setup.run(streaming(period, {fragments, delay, mixing}, outer));
          run.fragments = fragments;
          run.delay = delay;
          run.mixing = mixing;
          for (std::size_t i = 0; i < 4; ++i) {
            run.outer = expected;
            const double model = run.model(i);
            EXPECT_NEAR(outcome.parameters[i], model, 2e-5 * std::max(1.0, std::abs(model))) << i;
          }
          EXPECT_EQ(outcome.totals.collectives, 4 * fragments);
          EXPECT_EQ(outcome.totals.bytes, Bytes{4 * 2 * 2 * 16});
          EXPECT_EQ(outcome.published, Step{steps});
          expect_exact_accounts(outcome);
        }
}

// A worker's statistics after step s (counted from 0) are its rank and 8 s. The first fragment's last turn is after
// step 5, and a single fragment's is after step 7.
TEST(StreamingDiloco, BatchNormStatisticsAreThoseOfTheFirstFragmentsTurn) {
  SimulatedRun setup{.workers = 3, .budget = {.steps = 8}};
  setup.objective = std::make_shared<PullWithStatistics>();
  for (const int delay : {0, 3})
    EXPECT_EQ(setup.run(streaming(4, {.fragments = 2, .delay = delay})).buffers, (std::vector<float>{1, 40}));
  EXPECT_EQ(setup.run(streaming(4, {.fragments = 1, .delay = 0})).buffers, (std::vector<float>{1, 56}));
}

// Steps take 1, 1.25 and 2 s. Turns are after steps 2, 4, 6, 8, and each average is used one step later. Worker 2
// reaches its turns at 4, 8, 12 and 16 s. The other workers wait for it one step after their own turns, worker 0 from 3
// s on, because they are always faster.
TEST(StreamingDiloco, WaitsForWhatIsLateAStepAfterItsTurn) {
  const SimulatedRun setup{.budget = {.steps = 8},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(streaming(4, {.fragments = 2, .delay = 1}));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 2 at 4.500 s: kept 6, dropped 0", "step 4 at 8.500 s: kept 6, dropped 0",
                             "step 6 at 12.500 s: kept 6, dropped 0", "step 8 at 16.500 s: kept 6, dropped 0"}));
  EXPECT_EQ(to_seconds(outcome.totals.accounts[2][Activity::wait]), 0);
  EXPECT_EQ(to_seconds(outcome.totals.accounts[2][Activity::communicate]), 0.5);  // for the last average
  // Worker 0 waits for worker 2's turns at 4, 8, 12 and 16 s from 3, 6.5, 10.5 and 13.5 s on.
  EXPECT_EQ(to_seconds(outcome.totals.accounts[0][Activity::wait]), 1 + 1.5 + 1.5 + 2.5);
  EXPECT_EQ(to_seconds(outcome.totals.accounts[0][Activity::communicate]), 4 * 0.5);
  expect_exact_accounts(outcome);
}

// Averages take 2.5 s, and one step of 1 s hides a part of them, so each delays its workers by 1.5 s.
TEST(StreamingDiloco, StallsForWhatADelayDoesNotHide) {
  const SimulatedRun setup{.network_s = 2.5, .budget = {.steps = 8}};
  EXPECT_EQ(
      setup.run(streaming(4, {.fragments = 2, .delay = 1})).log,
      (std::vector<std::string>{"step 2 at 4.500 s: kept 6, dropped 0", "step 4 at 8.000 s: kept 6, dropped 0",
                                "step 6 at 11.500 s: kept 6, dropped 0", "step 8 at 15.000 s: kept 6, dropped 0"}));
}

// An average may take three steps. So the second average is requested while the first is in progress, and follows it.
// No worker waits before the end.
TEST(StreamingDiloco, HasSeveralAveragesUnderWay) {
  const SimulatedRun setup{.network_s = 2.5, .budget = {.steps = 8}};
  const auto outcome = setup.run(streaming(4, {.fragments = 2, .delay = 3}));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 2 at 4.500 s: kept 6, dropped 0", "step 4 at 7.000 s: kept 6, dropped 0",
                             "step 6 at 9.500 s: kept 6, dropped 0", "step 8 at 12.000 s: kept 6, dropped 0"}));
  for (const Account& account : outcome.totals.accounts) {
    EXPECT_EQ(to_seconds(account[Activity::wait]), 0);
    EXPECT_EQ(to_seconds(account[Activity::communicate]), 4);
  }
}

// Worker 1 is down for 1 s in its second step, and from then on 1 s behind the others. An average takes 0.5 s and is
// used two steps of 1 s after its turn, so the others tolerate a delay of 1.5 s.
TEST(StreamingDiloco, WhoIsLateByLessThanADelayLeavesHoldsNobodyUp) {
  SimulatedRun setup{.budget = {.steps = 12}};
  setup.outages = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{1}}, .when = ScheduledOutage{from_seconds(1.5), from_seconds(1)}}});
  const auto outcome = setup.run(streaming(6, {.fragments = 2, .delay = 2}));
  EXPECT_EQ(to_seconds(outcome.totals.end), 12 + 1 + 0.5);
  EXPECT_EQ(to_seconds(outcome.totals.accounts[0][Activity::wait]), 1);  // at the end
  EXPECT_EQ(to_seconds(outcome.totals.accounts[1][Activity::wait]), 0);
  expect_exact_accounts(outcome);
}

TEST(StreamingDiloco, PublishesItsOuterModelAfterEachOuterStep) {
  const SimulatedRun setup{.budget = {.steps = 8}};
  const auto outcome = setup.run(streaming(4, {.fragments = 2, .delay = 1}));
  std::vector<std::int64_t> steps;
  for (const Publication& publication : outcome.publications) steps.push_back(publication.step.value());
  EXPECT_EQ(steps, (std::vector<std::int64_t>{3, 5, 7, 8}));
  EXPECT_EQ(outcome.publications.back().samples, 24);
}

TEST(StreamingDilocoSettings, AreReadWithTheirDefaults) {
  const std::string keys = "algorithm = \"streaming-diloco\"\nouter = { name = \"plain\" }\n";
  const auto reading = read_method(keys + "period = { rule = \"constant\", steps = 8 }\nfragments = 2");
  ASSERT_EQ(reading.faults, "");
  EXPECT_THAT(reading.resolved, AllOf(HasSubstr("delay = 0"), HasSubstr("mixing = 0.0")));
  const SimulatedRun setup{.budget = {.steps = 16}};
  EXPECT_EQ(setup.run(*reading.algorithm).parameters, setup.run(streaming(8, {.fragments = 2, .delay = 0})).parameters);
}

TEST(StreamingDilocoSettings, FaultsHaveTheirPlaces) {
  const auto faults = [](const std::string& keys) {
    return read_method(
               "algorithm = \"streaming-diloco\"\nouter = { name = \"plain\" }\n"
               "period = { rule = \"constant\", steps = 8 }\n" +
               keys)
        .faults;
  };
  EXPECT_THAT(faults(""), HasSubstr("fragments is missing"));
  EXPECT_THAT(faults("fragments = 0"), HasSubstr("test.toml:4:13: fragments = 0; must be"));
  EXPECT_THAT(faults("fragments = 2\nmixing = 1.5"), HasSubstr("test.toml:5:10: mixing = 1.5; must be"));
  EXPECT_THAT(faults("fragments = 2\nmixing = -0.1"), HasSubstr("mixing = -0.1"));
  EXPECT_THAT(faults("fragments = 2\ndelay = -1"), HasSubstr("delay = -1"));
  EXPECT_THAT(faults("fragments = 2\ndelay = 9"),
              HasSubstr("test.toml:5:9: delay = 9; must be at most 8, the length of the shortest round"));
  EXPECT_EQ(faults("fragments = 3\ndelay = 8\nmixing = 1"), "");
  // Rounds are longer during warm-up, then shorter; at the end the falling rate requires longer ones again.
  const LearningRate rate(
      {.shape = LearningRate::Shape::linear, .peak = 0.1, .warmup_steps = 4, .total_steps = Step{100}});
  const auto scheduled = [&](int delay) {
    return read_method(
               fmt::format("algorithm = \"streaming-diloco\"\nouter = {{ name = \"plain\" }}\nfragments = 1\n"
                           "period = {{ rule = \"power\", minimum = 2, coefficient = 0.05, warmup_period = 4 }}\n"
                           "delay = {}",
                           delay),
               {.workers = 4, .learning_rate_warmup = Step{4}, .total_steps = Step{100}, .learning_rate = &rate})
        .faults;
  };
  EXPECT_EQ(scheduled(2), "");
  EXPECT_THAT(scheduled(4), HasSubstr("delay = 4; must be at most 2, the length of the shortest round"));
  EXPECT_THAT(
      read_method("algorithm = \"streaming-diloco\"\nfragments = 2\nperiod = { rule = \"constant\", steps = 8 }")
          .faults,
      HasSubstr("outer"));
}

TEST(StreamingDilocoSettings, MoreFragmentsThanParametersAreFoundOutWithTheModel) {
  const auto reading = read_method(
      "algorithm = \"streaming-diloco\"\nouter = { name = \"plain\" }\n"
      "period = { rule = \"constant\", steps = 8 }\nfragments = 5");
  ASSERT_EQ(reading.faults, "");
  try {
    SimulatedRun{}.run(*reading.algorithm);
    ADD_FAILURE() << "has no fault";
  } catch (const std::exception& fault) {
    EXPECT_THAT(fault.what(), HasSubstr("test.toml:4:13: fragments = 5; the model has 4 parameters"));
  }
}

using testing::AllOf;
using testing::HasSubstr;

StreamingDiloco streaming_run(int period, int fragments, int delay) {
  return {make_constant_period(period), make_plain_outer(0.8), {Fragments(fragments), delay, 0.25}, {}};
}

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

// Two fragments, rounds of 8 steps of 1 s. Averages start after steps 4 and 8 of a round, and are used 3 steps later.
TEST(StreamingRuns, AWorkerThatLosesItsStateGoesOnFromItsCopyOfTheLastStartOrFinish) {
  struct Loss {
    double at_s;
    std::set<std::pair<int, int>> lost;
  };
  // The state is lost in the first step, in step 7 or in step 10. In step 7 the worker's copy is of step 4, whose
  // average is under way. In step 10 the copy is of step 8, whose average is under way.
  for (const Loss& loss : {Loss{0.5, {}}, Loss{6.5, {{1, 4}, {1, 5}}}, Loss{9.5, {{1, 8}}}}) {
    SCOPED_TRACE(loss.at_s);
    SimulatedRun setup{.budget = {.steps = 16}};
    setup.outages = outage(1, loss.at_s, 0.25, true);
    const auto outcome = setup.run(streaming_run(8, 2, 3));
    FragmentRun run{.period = 8, .delay = 3, .mixing = 0.25, .rates = std::vector(16, 0.1), .lost = loss.lost};
    run.outer = [](double last, double mean, double) { return last - 0.8 * (last - mean); };
    for (std::size_t i = 0; i < 4; ++i) {
      const double model = run.model(i);
      EXPECT_NEAR(outcome.parameters[i], model, 1e-5 * std::abs(model));
    }
    EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, std::ssize(loss.lost), 0}));
    EXPECT_EQ(outcome.published, Step{16});
    expect_exact_accounts(outcome);
  }
}

TEST(StreamingRuns, AnOutageThatKeepsTheStateChangesTimeAlone) {
  SimulatedRun setup{.budget = {.steps = 16}};
  const auto whole = setup.run(streaming_run(8, 2, 3));
  setup.outages = outage(1, 5.5, 4, false);
  const auto outcome = setup.run(streaming_run(8, 2, 3));
  EXPECT_EQ(outcome.parameters, whole.parameters);
  EXPECT_EQ(to_seconds(outcome.totals.end), 16 + 4 + 0.5);
  expect_exact_accounts(outcome);
}

std::string reason(const SimulatedRun& setup, const Algorithm& algorithm) {
  try {
    setup.run(algorithm);
  } catch (const std::exception& fault) {
    return fault.what();
  }
  return "";
}

// A worker leaves at the end of its data, with or without averages under way, while the others go on.
TEST(StreamingRuns, AWorkerWhoseDataAreUsedUpEndsTheRunWithAReason) {
  for (const int steps : {3, 5, 9, 12}) {
    const SimulatedRun setup{.budget = {.steps = 24}, .data_of = {std::nullopt, Step{steps}, std::nullopt}};
    for (const int delay : {0, 3, 8})
      EXPECT_THAT(reason(setup, streaming_run(8, 2, delay)),
                  AllOf(HasSubstr("worker 1 left at"), HasSubstr("every worker")))
          << steps << ", " << delay;
  }
}

TEST(StreamingRuns, WorkersWhoseDataAreUsedUpTogetherEndTogether) {
  for (const int steps : {1, 3, 4, 5, 8, 11})
    for (const int delay : {0, 3, 8}) {
      const SimulatedRun setup{.budget = {.steps = 16}, .data_of = {Step{steps}, Step{steps}, Step{steps}}};
      EXPECT_EQ(reason(setup, streaming_run(8, 2, delay)), "") << steps << ", " << delay;
      const auto outcome = setup.run(streaming_run(8, 2, delay));
      EXPECT_EQ(outcome.published, Step{steps});
      EXPECT_EQ(sum(outcome.totals.kept), 3 * steps);
    }
}

// With any length and kind of budget all workers take part in the same averages. This holds even if a budget of seconds
// has ended for only some of them.
TEST(StreamingRuns, EndTogetherUnderEveryBudget) {
  std::vector<Budget> budgets;
  for (const double seconds : {0.5, 2.0, 3.0, 4.5, 7.2, 20.0}) {
    budgets.push_back({.seconds = seconds});
    for (const int steps : {4, 7, 8}) budgets.push_back({.steps = steps, .seconds = seconds});
  }
  for (const std::int64_t samples : {1, 5, 6, 7, 40}) budgets.push_back({.samples = samples});
  for (const std::int64_t averages : {1, 2, 5}) budgets.push_back({.bytes = Bytes{averages * 2 * 2 * 8}});
  budgets.push_back({.steps = 1});
  for (const auto& delays : {std::vector{0.0, 0.4, 1.3}, std::vector{0.0, 0.9, 0.9}})
    for (const Budget& budget : budgets)
      for (const double network_s : {0.3, 0.5, 5.0})
        for (const auto& [period, delay] : {std::pair{4, 0}, std::pair{4, 1}, std::pair{4, 4}, std::pair{2, 1}}) {
          SCOPED_TRACE(testing::Message() << "network " << network_s << ", " << period << ", " << delay);
          const SimulatedRun setup{
              .network_s = network_s, .budget = budget, .delays = {std::make_shared<DelayOfWorker>(delays)}};
          const StreamingDiloco method = streaming_run(period, 2, delay);
          ASSERT_EQ(reason(setup, method), "");
          const auto outcome = setup.run(method);
          expect_exact_accounts(outcome);
          EXPECT_GT(sum(outcome.totals.kept), 0);
          EXPECT_EQ(outcome.publications.back().time, outcome.totals.end);
          EXPECT_EQ(outcome.publications.back().samples, sum(outcome.totals.kept));
          EXPECT_EQ(outcome.totals.bytes, Bytes{outcome.totals.collectives * 2 * 2 * 8});
          EXPECT_EQ(outcome.totals.collectives % 2, 0);
          if (budget.bytes) {
            EXPECT_GE(outcome.totals.bytes, *budget.bytes);
          }
          if (budget.samples) {
            EXPECT_GE(sum(outcome.totals.kept), *budget.samples);
          }
        }
}

// If the period depends on the learning rate, a worker that the budget stops gets the same period as the others.
TEST(StreamingRuns, EndTogetherWhereTheRateDecidesHowLongRoundsAre) {
  SimulatedRun setup{.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.9, 0.4})}};
  setup.learning_rate = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.2, .total_steps = 30});
  const std::shared_ptr<const SyncPeriod> rule = make_power_period({.power = 1, .coefficient = 0.5});
  for (const int delay : {0, 1, 2})
    for (double seconds = 1; seconds < 40; seconds += 0.7) {
      setup.budget = {.steps = 30, .seconds = seconds};
      const StreamingDiloco method(rule, make_plain_outer(0.8), {Fragments(2), delay, 0.0}, {});
      EXPECT_EQ(reason(setup, method), "") << seconds << " s, delay " << delay;
    }
}

// Without a delay all workers behave alike, also if several fragments have their turn after the same step.
TEST(StreamingRuns, WithoutADelayTakeAsLongOnOneProgramForAllWorkers) {
  for (const auto& [period, fragments] : {std::pair{4, 2}, std::pair{2, 3}, std::pair{5, 4}}) {
    const StreamingDiloco method = streaming_run(period, fragments, 0);
    EXPECT_EQ(method.traits().lockstep_from_step, Step{0});
    EXPECT_EQ(streaming_run(period, fragments, 1).traits().lockstep_from_step, std::nullopt);
    SimulatedRun setup{.budget = {.steps = 13},
                       .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.4, 1.3})}};
    setup.objective = nullptr;
    const auto on_fibers = setup.run(method);
    setup.in_lockstep = true;
    const auto on_one = setup.run(method);
    EXPECT_EQ(on_one.log, on_fibers.log);
    EXPECT_EQ(on_one.totals.end, on_fibers.totals.end);
  }
}

TEST(StreamingRuns, BeginAfterSynchronousStepsWhereTheRuleSaysSo) {
  const SimulatedRun setup{.budget = {.steps = 7}};
  const auto reading = read_method(
      "algorithm = \"streaming-diloco\"\nfragments = 2\ndelay = 1\nouter = { name = \"plain\" }\n"
      "period = { rule = \"post-local\", switch_step = 3, steps = 2 }");
  ASSERT_EQ(reading.faults, "");
  EXPECT_EQ(setup.run(*reading.algorithm).log,
            (std::vector<std::string>{"step 1 at 1.500 s: kept 3, dropped 0", "step 2 at 3.000 s: kept 3, dropped 0",
                                      "step 3 at 4.500 s: kept 3, dropped 0", "step 4 at 6.000 s: kept 3, dropped 0",
                                      "step 5 at 7.000 s: kept 3, dropped 0", "step 6 at 8.000 s: kept 3, dropped 0",
                                      "step 7 at 9.000 s: kept 3, dropped 0"}));
}

// Times of averages of fragments are compared with closed forms. If the averages of all fragments take less than a
// round's computing, this computing hides them.

constexpr int period = 8;
constexpr double step_s = 2;  // two micro-batches
constexpr double round_s = period * step_s;

StreamingDiloco in_fragments(int fragments, int delay, int steps = period) {
  return {make_constant_period(steps), make_diloco(0.7, 0.9), {Fragments(fragments), delay, 0}, {}};
}

// A ring without latency, on which the average of a whole model of 16 bytes takes this share of a round. A quarter of
// the model takes a quarter of the time.
PredictedRun on_ring(double share, std::vector<std::shared_ptr<const DelayProcess>> delays) {
  constexpr int workers = 6;
  PredictedRun run{.workers = workers, .micro_batches = 2, .delays = std::move(delays), .steps = 400};
  run.network = make_ring_network(0, 2.0 * (workers - 1) / workers * 16 / (share * round_s));
  return run;
}

TEST(StreamingTimes, AveragesOfFourFifthsOfARoundAreHidden) {
  for (const double share : {0.3, 0.8, 1.0, 1.7})
    for (const auto& [fragments, delay] : {std::pair{1, 8}, std::pair{2, 4}, std::pair{4, 2}, std::pair{4, 5}}) {
      PredictedRun run = on_ring(share, {});
      run.steps = 4000;  // the first averages wait for nothing, and the last ones are waited for
      const double expected_s = step_s * std::max(1.0, share);
      EXPECT_NEAR(run.simulate(in_fragments(fragments, delay)).step_s, expected_s, 0.01 * expected_s)
          << share << " of a round, " << fragments << " fragments, delay " << delay;
      const OuterLocalSgd waits(make_constant_period(period), make_plain_outer(1), {});
      EXPECT_NEAR(run.simulate(waits).step_s, step_s * (1 + share), 1e-6);
    }
}

// A round has H steps of c seconds, and P fragments whose averages take A and are used tau steps later. For tau <= H /
// P the round takes H c + P max(0, A - tau c). At the end workers wait A for the last average, which no step hides.
TEST(StreamingTimes, WithoutSpreadHaveAClosedForm) {
  for (const double share : {0.3, 0.8, 1.7})
    for (const int fragments : {1, 2, 4})
      for (int delay = 0; delay < period / fragments; ++delay) {
        SCOPED_TRACE(testing::Message() << share << ", " << fragments << ", " << delay);
        const PredictedRun run = on_ring(share, {});
        const double average_s = share * round_s / fragments, stall_s = std::max(0.0, average_s - delay * step_s);
        const double total_s = 50 * (round_s + fragments * stall_s) - stall_s + average_s;
        const auto simulated = run.simulate(in_fragments(fragments, delay));
        EXPECT_NEAR(simulated.step_s, total_s / 400, 1e-6);
        EXPECT_NEAR(simulated.communication_s, (total_s - 400 * step_s) / 400, 1e-6);
      }
}

// All steps of the run are drawn, so the recursion uses the run's own steps.
TEST(StreamingTimes, OfRandomStepsAreThoseOfARecursion) {
  constexpr int steps = 400, length = 7;  // the last round is shorter
  for (const auto& delay : {noise, exponential_delay(1), pareto_delay(1.5, 0.5)})
    for (const double share : {0.1, 0.9, 1.5})
      for (const auto& [fragments, late] : {std::pair{1, 0}, std::pair{3, 2}, std::pair{4, 7}}) {
        PredictedRun run = on_ring(share, {delay});
        run.factors = {1, 1.2, 1, 1.1, 1, 1};
        std::vector<LateAverage> averages;
        for (int begin = 0; begin < steps; begin += length)
          for (int p = 0; p < fragments; ++p) {
            const Step turn = begin + Fragments(fragments).offset(p, std::min(length, steps - begin));
            const Bytes slice = Fragments(fragments).slice(p).bytes_of(Bytes{16});
            averages.push_back({static_cast<std::size_t>(turn.value()), static_cast<std::size_t>((turn + late).value()),
                                to_seconds(run.network->all_reduce(run.workers, slice))});
          }
        const double end_s =
            run.with_input([&](const PredictionInput& input) { return end_with_late_averages(input.times, averages); });
        EXPECT_NEAR(run.simulate(in_fragments(fragments, late, length)).step_s, end_s / steps, 1e-6)
            << share << " of a round, " << fragments << " fragments, delay " << late;
      }
}

using testing::HasSubstr;

CompressionOptions of(std::string_view kind, double ratio = 0.01) {
  CompressionOptions options = compression(kind, Compresses::averages, ratio);
  options.error_feedback = kind != "qsgd";
  return options;
}

StreamingDiloco compressed_streaming(Step period, int fragments, Step delay = {}, double mixing = 0,
                                     OuterOptimizer outer = make_plain_outer(1)) {
  return {make_constant_period(period), std::move(outer), {Fragments(fragments), delay, mixing}, {}};
}

template <typename Method>
SimulatedRun::Outcome compressed(const SimulatedRun& setup, Method method, const CompressionOptions& options) {
  method.compress(options);
  return setup.run(method);
}

TEST(CompressedFragments, OfEverythingAreDense) {
  const SimulatedRun setup{.workers = 3, .micro_batches = 2, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 22}};
  for (const int fragments : {1, 3, 4})
    for (const Step delay : {Step{0}, Step{2}, Step{5}})
      for (const double mixing : {0.0, 0.3}) {
        const auto method = compressed_streaming(5, fragments, delay, mixing, make_diloco(0.7, 0.5));
        const auto dense = setup.run(method);
        for (const std::string_view kind : {"top-k", "random-k"}) {
          const auto found = compressed(setup, method, of(kind, 1));
          EXPECT_LT(largest_difference(found.parameters, dense.parameters), 3e-5) << fragments << " " << delay.value();
          EXPECT_EQ(found.totals.collectives, dense.totals.collectives);
        }
      }
}

// With one fragment, packets have the residuals of compressed DiLoCo, and all workers make the same outer steps.
TEST(CompressedFragments, OfOneWithoutDelayIsCompressedDiLoCo) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 24}};
  for (const std::string_view kind : {"top-k", "random-k", "sign", "qsgd", "int8", "fp4"}) {
    const OuterLocalSgd diloco(make_constant_period(4), make_diloco(0.7, 0.9), {});
    const auto expected = compressed(setup, diloco, of(kind, 0.5));
    const auto found = compressed(setup, compressed_streaming(4, 1, 0, 0, make_diloco(0.7, 0.9)), of(kind, 0.5));
    EXPECT_EQ(found.parameters, expected.parameters) << kind;
    EXPECT_EQ(found.totals.bytes, expected.totals.bytes) << kind;
  }
}

// Rounds have two steps, and in each one of two fragments has its turn. In the first step both fragments have the
// round's gradient; the second fragment's is a third of it.
TEST(CompressedFragments, TopOneHasTheGoldenStepsOfEach) {
  const auto listed = [](const MicroBatch& at) {
    std::vector<float> values(6, 0.0f);
    if (at.step.value() % 2 == 1) return values;
    const auto& round =
        golden[static_cast<std::size_t>(at.worker.value)][static_cast<std::size_t>(at.step.value()) / 2];
    for (std::size_t i = 0; i < 3; ++i) values[i] = round[i], values[3 + i] = round[i] / 3;
    return values;
  };
  std::vector<double> x(3);
  for (int rounds = 1; rounds <= 4; ++rounds) {
    for (std::size_t i = 0; i < 3; ++i) x[i] -= 0.1 * golden_steps[static_cast<std::size_t>(rounds - 1)][i];
    const SimulatedRun setup{
        .workers = 2, .budget = {.steps = 2 * rounds}, .objective = std::make_shared<ListedGradients>(6, listed)};
    const auto found = compressed(setup, compressed_streaming(2, 2), of("top-k")).parameters;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(found[i], x[i], 1e-6) << rounds;
      EXPECT_NEAR(found[3 + i], x[i] / 3, 1e-6) << rounds;
    }
  }
}

TEST(CompressedFragments, ErrorFeedbackLosesNothing) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(25, 12)};
  for (const int fragments : {2, 3}) {
    const auto method = compressed_streaming(3, fragments);
    setup.budget = {.steps = 600};
    const auto dense = setup.run(method).parameters;
    setup.budget = {.steps = 12};
    const auto early_dense = setup.run(method).parameters;
    for (const std::string_view kind : {"top-k", "random-k", "int8", "fp4"}) {
      setup.budget = {.steps = 12};
      const auto early = compressed(setup, method, of(kind, 0.1)).parameters;
      setup.budget = {.steps = 600};
      const auto late = compressed(setup, method, of(kind, 0.1)).parameters;
      EXPECT_LT(largest_difference(late, dense), 1e-5) << fragments << " " << kind;
      EXPECT_GT(largest_difference(early, early_dense), 1e-6) << fragments << " " << kind;
    }
    CompressionOptions without = of("top-k", 0.1);
    without.error_feedback = false;
    EXPECT_GT(largest_difference(compressed(setup, method, without).parameters, dense), 1e-3) << fragments;
  }
}

// Four values in two fragments. Worker 1 is down in the second round and loses its state and both residuals.
TEST(CompressedFragments, ALostStateTakesAllResidualsAlong) {
  const auto listed = [](const MicroBatch& at) {
    return at.step < 2 ? std::vector<float>{2, 1.5f, 1, 0.5f} : std::vector<float>(4, 0.0f);
  };
  SimulatedRun setup{.workers = 2, .budget = {.steps = 8}, .objective = std::make_shared<ListedGradients>(4, listed)};
  for (const bool loses_state : {false, true}) {
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                     .when = ScheduledOutage{from_seconds(3.5), from_seconds(1)},
                                     .loses_state = loses_state}});
    const auto found = compressed(setup, compressed_streaming(2, 2), of("top-k", 0.5)).parameters;
    // The first fragment's turn is between the two steps, so its residual is from the first step, 0.15 of each worker.
    // The second fragment's residual is from both steps, 0.1. Half of each is worker 1's.
    EXPECT_FLOAT_EQ(found[0], -0.4f);
    EXPECT_FLOAT_EQ(found[1], loses_state ? -0.225f : -0.3f);
    EXPECT_FLOAT_EQ(found[2], -0.2f);
    EXPECT_FLOAT_EQ(found[3], loses_state ? -0.05f : -0.1f);
  }
}

std::string with_compression(const std::string& compression, int fragments = 2, int delay = 0) {
  return "algorithm = \"streaming-diloco\"\nfragments = " + std::to_string(fragments) +
         "\ndelay = " + std::to_string(delay) +
         "\nperiod = { rule = \"constant\", steps = 4 }\nouter = { name = \"plain\" }\ncompression = " + compression;
}

TEST(CompressedFragments, AreReadAndRefusedWithTheirPlace) {
  for (const char* compression :
       {"{ name = \"top-k\", ratio = 0.1 }", "{ name = \"random-k\", ratio = 0.1 }", "{ name = \"sign\" }",
        "{ name = \"qsgd\" }", "{ name = \"int8\", error_feedback = true }", "{ name = \"fp4\" }"}) {
    const auto reading = read_method(with_compression(compression));
    EXPECT_EQ(reading.faults, "") << compression;
    EXPECT_TRUE(reading.algorithm->compression()->of_averages());
  }
  const auto faults = [](const std::string& compression, int fragments = 2) {
    return read_method(with_compression(compression, fragments)).faults;
  };
  EXPECT_THAT(faults("{ name = \"int8\", scope = \"tensor\" }"), HasSubstr("each of the 2 slices of the model"));
  EXPECT_EQ(faults("{ name = \"int8\", scope = \"tensor\" }", 1), "");
  EXPECT_THAT(faults("{ name = \"fp4\", exchange = \"two-phase\" }"), HasSubstr("exchange"));
  EXPECT_THAT(faults("{ name = \"powersgd\" }"), HasSubstr("which only sums of gradients support"));
}

// Bytes by formula, and the time of rounds of 4 steps of 1 s and two fragments' exchanges.
TEST(CompressedFragments, FormulasAreThoseOfRuns) {
  constexpr std::int64_t steps = 12;
  for (const char* compression :
       {"{ name = \"top-k\", ratio = 0.5 }", "{ name = \"random-k\", ratio = 0.5 }", "{ name = \"sign\" }",
        "{ name = \"qsgd\" }", "{ name = \"int8\" }", "{ name = \"fp4\" }"}) {
    const auto reading = read_method(with_compression(compression));
    ASSERT_EQ(reading.faults, "");
    const std::shared_ptr<const NetworkModel> network = make_ring_network(0.01, 1000);
    const auto outcome =
        SimulatedRun{.workers = 4, .network = network, .budget = {.steps = steps}}.run(*reading.algorithm);
    const Exchange of_fragment =
        exchanges_of(reading.algorithm->compression(), {}, Bytes{8}, 4).back().exchanges.front();
    const LearningRate rate(LearningRate::Options{.peak = 0.1});
    const CommunicationInput input{.workers = 4,
                                   .parameter_bytes = Bytes{16},
                                   .steps = steps,
                                   .learning_rate = rate,
                                   .average_exchanges = {of_fragment, of_fragment}};
    EXPECT_EQ(reading.algorithm->communication(input), (Communicated{2 * steps / 4, outcome.totals.bytes}))
        << compression;
    const SampledTimes times;
    const PredictionInput prediction{
        .workers = 4, .times = times, .network = *network, .parameter_bytes = Bytes{16}, .learning_rate = rate};
    EXPECT_NEAR(2 * prediction.exchanges_s({of_fragment}), to_seconds(outcome.totals.end) / 3 - 4, 1e-8) << compression;
  }
}

}  // namespace
}  // namespace syncopate
