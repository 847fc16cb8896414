#include "algorithms/local_sgd/streaming_diloco.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/fragment_recursion.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Outer = std::shared_ptr<const OuterOptimizer>;

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

// A first round that ends at the fragment's turn, then whole ones; the last turn lies before the end of the run.
class Shifted : public SyncPeriod {
 public:
  Shifted(Step offset, Step steps) : offset_(offset), steps_(steps) {}
  Step at(Step done, double, Step left) const override { return std::min(done == Step{0} ? offset_ : steps_, left); }

 private:
  Step offset_, steps_;
};

// Momentum and all: a coordinate's course does not depend on the others.
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

// The weighted average of all models is worker `chosen`'s.
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

// Rounds of 6 steps under a rate that falls at every step; the last one has 4.
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

// A worker's statistics after step s, from 0, are its rank and 8 s. The first fragment's last turn is after step 5,
// where there is one alone after step 7.
TEST(StreamingDiloco, BatchNormStatisticsAreThoseOfTheFirstFragmentsTurn) {
  SimulatedRun setup{.workers = 3, .budget = {.steps = 8}};
  setup.objective = std::make_shared<PullWithStatistics>();
  for (const int delay : {0, 3})
    EXPECT_EQ(setup.run(streaming(4, {.fragments = 2, .delay = delay})).buffers, (std::vector<float>{1, 40}));
  EXPECT_EQ(setup.run(streaming(4, {.fragments = 1, .delay = 0})).buffers, (std::vector<float>{1, 56}));
}

// Steps of 1, 1.25 and 2 s; turns after steps 2, 4, 6, 8, each average taken in after one step more. Worker 2 comes to
// its turns at 4, 8, 12 and 16 s. The others wait for it a step later, worker 0 at 3 s, since they are slower by no
// jitter but for good.
TEST(StreamingDiloco, WaitsForWhatIsLateAStepAfterItsTurn) {
  const SimulatedRun setup{.budget = {.steps = 8},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(streaming(4, {.fragments = 2, .delay = 1}));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 2 at 4.500 s: kept 6, dropped 0", "step 4 at 8.500 s: kept 6, dropped 0",
                             "step 6 at 12.500 s: kept 6, dropped 0", "step 8 at 16.500 s: kept 6, dropped 0"}));
  EXPECT_EQ(to_seconds(outcome.totals.accounts[2][Activity::wait]), 0);
  EXPECT_EQ(to_seconds(outcome.totals.accounts[2][Activity::communicate]), 0.5);  // the last one
  // Step 3 ends at 3 s, then always 2 s before worker 2's turn and at the end.
  EXPECT_EQ(to_seconds(outcome.totals.accounts[0][Activity::wait]), 1 + 1.5 + 1.5 + 2.5);
  EXPECT_EQ(to_seconds(outcome.totals.accounts[0][Activity::communicate]), 4 * 0.5);
  expect_exact_accounts(outcome);
}

// Averages of 2.5 s, one step of 1 s under way: each holds its workers up for 1.5 s.
TEST(StreamingDiloco, StallsForWhatADelayDoesNotHide) {
  const SimulatedRun setup{.network_s = 2.5, .budget = {.steps = 8}};
  EXPECT_EQ(
      setup.run(streaming(4, {.fragments = 2, .delay = 1})).log,
      (std::vector<std::string>{"step 2 at 4.500 s: kept 6, dropped 0", "step 4 at 8.000 s: kept 6, dropped 0",
                                "step 6 at 11.500 s: kept 6, dropped 0", "step 8 at 15.000 s: kept 6, dropped 0"}));
}

// The same for three steps: the second average starts while the first is on its way, and goes after it. Nobody waits
// until the end.
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

// Worker 1 is down for 1 s in its second step, and from then on 1 s later than the others. An average of 0.5 s that is
// taken in two steps after its turn leaves them 1.5 s.
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
              HasSubstr("test.toml:5:9: delay = 9; must be at most 8, the steps of the shortest round"));
  EXPECT_EQ(faults("fragments = 3\ndelay = 8\nmixing = 1"), "");
  // Longer rounds of a warm-up, and then shorter ones; at the end of the run the rate asks for longer ones again.
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
  EXPECT_THAT(scheduled(4), HasSubstr("delay = 4; must be at most 2, the steps of the shortest round"));
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

}  // namespace
}  // namespace syncopate
