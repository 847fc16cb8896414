// Promises of the class Worker: extended budgets, a worker's own view of the budget, the state from which a worker
// continues after it has lost its own, and the end of a run that makes no progress.
#include "workers/worker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/algorithms/script.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

// A learning rate that falls from 0.8 to 0 in four steps.
std::shared_ptr<const LearningRate> falling_rate() {
  return std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.8, .total_steps = Step{4}});
}

TEST(Worker, AnExtendedBudgetIsAsMuchLongerAsAllExtensionsTogether) {
  for (const bool stretch : {false, true}) {
    const SimulatedRun setup{.workers = 1, .learning_rate = falling_rate(), .budget = {.steps = 4}};
    setup.run(Script([&](Worker& worker) {
      EXPECT_EQ(worker.steps_left(), Step{4});
      worker.extend_budget(1, stretch);
      worker.extend_budget(3, stretch);
      for (int s = 0; s < 8; ++s) {
        EXPECT_EQ(worker.steps_left(), Step{8 - s});
        EXPECT_TRUE(worker.budget_left()) << s;
        EXPECT_TRUE(worker.budget_left(BudgetView::local)) << s;
        const int of_schedule = stretch ? s / 2 : std::min(s, 4);
        EXPECT_NEAR(worker.learning_rate(), 0.2 * (4 - of_schedule), 1e-12) << s;
        worker.descend({});
      }
      EXPECT_EQ(worker.steps_left(), Step{0});
      EXPECT_FALSE(worker.budget_left());
      EXPECT_FALSE(worker.budget_left(BudgetView::local));
    }));
  }
}

TEST(Worker, ABudgetOfSecondsIsNotExtended) {
  const SimulatedRun setup{.workers = 1, .learning_rate = falling_rate(), .budget = {.seconds = 2}};
  setup.run(Script([&](Worker& worker) {
    worker.extend_budget(4, true);
    for (int s = 0; s < 2; ++s) {
      EXPECT_TRUE(worker.budget_left() && worker.budget_left(BudgetView::local));
      EXPECT_NEAR(worker.learning_rate(), 0.2 * (4 - s), 1e-12);
      worker.descend(*worker.compute_gradient());
    }
    EXPECT_FALSE(worker.budget_left() || worker.budget_left(BudgetView::local));  // the budget is met exactly
  }));
}

// 24 samples for three workers. If they average after 3 samples each, 15 samples are left: 5 for each worker.
TEST(Worker, OnItsOwnItTakesTheOthersForAsFastAsItself) {
  for (const bool agrees : {false, true}) {
    const SimulatedRun setup{.budget = {.samples = 24}};
    setup.run(Script([&](Worker& worker) {
      const auto take = [&](int steps) {
        for (int i = 0; i < steps; ++i) {
          EXPECT_TRUE(worker.budget_left(BudgetView::local)) << i;
          worker.descend(*worker.compute_gradient());
        }
      };
      if (agrees) {
        take(3);
        worker.average_model({});
        EXPECT_TRUE(worker.budget_left());
        take(5);
      } else {
        for (int i = 0; i < 8; ++i) {
          EXPECT_TRUE(worker.budget_left()) << i;
          take(1);
        }
        EXPECT_FALSE(worker.budget_left());
      }
      EXPECT_FALSE(worker.budget_left(BudgetView::local));
    }));
  }
}

// Runs rounds in which no worker finishes a micro-batch.
std::string idle_rounds(const Budget& budget, int rounds, int between = 0) {
  const SimulatedRun setup{.workers = 2, .budget = budget};
  try {
    setup.run(Script([&](Worker& worker) {
      for (int round = 0; round < rounds; ++round) {
        Gradient sum;
        if (round == 0 || (between > 0 && round % between == 0)) sum = *worker.compute_gradient();
        worker.all_reduce_sum(sum);
        worker.descend(sum);
      }
    }));
  } catch (const RunFailure& failure) {
    return failure.what();
  }
  return "";
}

TEST(Worker, ABudgetOfSamplesThatNobodyUsesUpIsAFailureAfterAThousandIdleRounds) {
  EXPECT_EQ(idle_rounds({.samples = 100}, 1001), "");
  EXPECT_THAT(idle_rounds({.samples = 100}, 1002), testing::HasSubstr("no worker has finished a micro-batch"));
  EXPECT_EQ(idle_rounds({.samples = 100}, 2500, 600), "");  // the idle rounds are not in a row
}

TEST(Worker, OtherBudgetsEndWithoutProgressToo) {
  EXPECT_EQ(idle_rounds({.steps = 5000, .samples = 100}, 1200), "");
  EXPECT_EQ(idle_rounds({.seconds = 5000, .samples = 100}, 1200), "");
  EXPECT_EQ(idle_rounds({.samples = 100, .bytes = Bytes{1 << 30}}, 1200), "");
}

std::shared_ptr<const OutagePlan> loss(int worker, double at_s, double duration_s) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = true}});
}

const std::vector<std::string> agreements = {"all-reduce", "average", "group", "barrier", "report_steps", "partial"};

void agree(Worker& worker, const std::string& kind) {
  Gradient none;
  if (kind == "all-reduce") {
    worker.all_reduce_sum(none);
    worker.descend(none);
  }
  if (kind == "average") worker.average_model({});
  if (kind == "group") worker.average_model({.group_size = 2});
  if (kind == "barrier") worker.barrier();
  if (kind == "report_steps") worker.report_steps();
  if (kind == "partial") {
    for (const PartialSum& partial : worker.partial_all_reduce_sum(none, {.quorum = 2}, LateGradient::drop))
      worker.descend(partial.sum);
  }
}

// Worker 1 takes a local step until 1 s and takes part in an agreement, which ends at 1.5 s at the latest. Then it
// takes `after` local steps, and has an outage 0.25 s into the next micro-batch. It loses that micro-batch and the
// steps after the agreement, but not the step before the agreement.
TEST(Worker, LocalStepsBeforeTheLastAgreementAreNotLost) {
  for (const std::string& kind : agreements)
    for (const int after : {0, 2}) {
      SCOPED_TRACE(kind + ", " + std::to_string(after) + " steps after it");
      const double agreed_s = kind == "report_steps" ? 1 : 1.5;
      const SimulatedRun setup{
          .workers = 2, .budget = {.steps = 100}, .outages = loss(1, agreed_s + after + 0.25, 0.5)};
      ModelStatePtr agreed, restarted;
      int lost = 0;
      const auto outcome = setup.run(Script([&](Worker& worker) {
        ResetOnOutage<int> kept(worker, 7);
        worker.descend(*worker.compute_gradient());
        agree(worker, kind);
        EXPECT_EQ(worker.now(), Time{from_seconds(agreed_s)});
        const ModelStatePtr here = worker.model();
        for (int i = 0; i < after; ++i) worker.descend(*worker.compute_gradient());
        EXPECT_TRUE(worker.compute_gradient());
        if (worker.rank() == Rank{1}) {
          agreed = here;
          restarted = worker.model();
          lost = *kept == 7 ? 0 : 1;
          EXPECT_EQ(*kept, lost == 0 ? 7 : 0);
          *kept = 8;
          EXPECT_EQ(*kept, 8);  // reset once
          EXPECT_EQ(worker.now(), Time{from_seconds(agreed_s + after + 0.75 + 1)});
        }
        worker.barrier();
      }));
      EXPECT_EQ(lost, 1);
      EXPECT_TRUE(restarted == agreed);
      const Account& account = outcome.totals.accounts.at(1);
      EXPECT_EQ(account[Activity::discarded], from_seconds(after + 0.25));
      EXPECT_EQ(account[Activity::compute], from_seconds(2));
      EXPECT_EQ(account[Activity::down], from_seconds(0.5));
    }
}

// Both workers compute four micro-batches. Worker 0 has an outage in the third one, and loses its first two, which are
// not booked yet. It keeps the third and the fourth.
TEST(Worker, WhatIsLostIsNoLongerInWhatItBooks) {
  for (const bool has_server : {false, true}) {
    const SimulatedRun setup{.workers = 2, .budget = {.steps = 100}, .outages = loss(0, 2.25, 0.5)};
    const auto work = [&](Worker& worker) {
      for (int i = 0; i < 4; ++i) worker.descend(*worker.compute_gradient());
      worker.report_steps();
      worker.publish();
    };
    const auto serve = [](Server& server) {
      while (server.receive_until_all_left()) continue;
    };
    const auto outcome = setup.run(has_server ? Script(work, serve) : Script(work));
    EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{2, 4}));
    EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{2, 0}));
    const Account& account = outcome.totals.accounts.at(0);
    EXPECT_EQ(account[Activity::compute], from_seconds(2));
    EXPECT_EQ(account[Activity::discarded], from_seconds(2.25));
    EXPECT_EQ(outcome.totals.accounts.at(1)[Activity::compute], from_seconds(4));
    ASSERT_EQ(outcome.publications.size(), 1u);
    EXPECT_EQ(outcome.publications[0].samples, 4);  // two per worker, as worker 0 kept two
  }
}

// Both workers average until 1.5 s, exchange models until 2 s, and then take one more step.
TEST(Worker, APublicationSaysWhatWasAgreedLast) {
  const SimulatedRun setup{.workers = 2, .budget = {.steps = 100}};
  const auto outcome = setup.run(Script([&](Worker& worker) {
    worker.descend(*worker.compute_gradient());
    worker.average_model({});
    worker.send(Rank{1 - worker.rank().value}, {.model = worker.model(), .kind = Message::Kind::model});
    EXPECT_TRUE(worker.receive());
    worker.descend(*worker.compute_gradient());
    worker.publish();
  }));
  ASSERT_EQ(outcome.publications.size(), 1u);
  EXPECT_EQ(outcome.publications[0].samples, 2);
  EXPECT_EQ(outcome.publications[0].step, Step{2});
  EXPECT_EQ(outcome.publications[0].bytes,
            all_reduce_bytes(
                2, Bytes{4 * static_cast<std::int64_t>(setup.objective->parameters() + setup.objective->buffers())}));
  EXPECT_EQ(outcome.publications[0].time, Time{from_seconds(3)});
}

// The worker computes from 0.25 s on and is down from 1 to 1.5 s. At 2 s it has the server's newer model, and restarts.
TEST(Worker, WhoHasAskedAServerForItsModelKnowsHowFarTheTrainingHasCome) {
  const SimulatedRun setup{.workers = 1, .network_s = 0.25, .budget = {.steps = 100}, .outages = loss(0, 1, 0.5)};
  const auto outcome = setup.run(Script(
      [](Worker& worker) {
        ASSERT_TRUE(worker.receive_model());
        EXPECT_EQ(worker.step(), Step{3});
        const Gradient gradient = worker.compute_step_gradient();
        EXPECT_EQ(worker.now(), Time{from_seconds(3)});
        EXPECT_EQ(worker.step(), Step{4});
        worker.publish();
        worker.send_gradient(gradient);
      },
      [](Server& server) {
        server.record_steps(Rank{0}, 3);
        server.send_model(Receivers::all);
        EXPECT_FALSE(server.receive(Time{from_seconds(0.5)}));
        server.record_steps(Rank{0}, 4);
        const auto message = server.receive();
        ASSERT_TRUE(message);
        EXPECT_EQ(message->step, Step{4});
        EXPECT_TRUE(server.accept(*message, {.maximum_staleness = 0}));
      }));
  ASSERT_EQ(outcome.publications.size(), 1u);
  EXPECT_EQ(outcome.publications[0].samples, 4);
}

// Worker 1 makes three rounds alone until 4.5 s. Worker 0 arrives after 5 s.
TEST(Worker, WhoIsLateForSeveralRoundsGoesByTheLastOne) {
  const SimulatedRun setup{.workers = 2, .budget = {.samples = 3}};
  const auto outcome = setup.run(Script([](Worker& worker) {
    const bool is_late = worker.rank() == Rank{0};
    for (int round = 0; round < (is_late ? 1 : 3); ++round) {
      EXPECT_TRUE(worker.budget_left());
      Gradient gradient;
      for (int i = 0; i < (is_late ? 5 : 1); ++i) gradient = *worker.compute_gradient();
      const auto sums = worker.partial_all_reduce_sum(gradient, {.rank = Rank{1}}, LateGradient::drop);
      ASSERT_EQ(sums.size(), is_late ? 3u : 1u);
      for (const PartialSum& each : sums) worker.descend(each.sum);
    }
    EXPECT_FALSE(worker.budget_left());
    worker.publish();
  }));
  ASSERT_EQ(outcome.publications.size(), 1u);
  EXPECT_EQ(outcome.publications[0].samples, 3);
  EXPECT_EQ(outcome.publications[0].step, Step{3});
}

// A single micro-batch usually ends, but an outage hits at least one of a step's 40. So the step restarts for ever, and
// the server never gets its gradient.
TEST(Worker, AServersStepThatIsAlwaysBegunAnewIsAFailureWhateverEndsOfIt) {
  const auto outages = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{2, 0.001}, .loses_state = true}});
  const SimulatedRun setup{
      .workers = 1, .micro_batches = 40, .network_s = 0.25, .budget = {.steps = 100}, .outages = outages};
  std::string failure;
  try {
    setup.run(Script(
        [](Worker& worker) {
          worker.receive_model();
          worker.compute_step_gradient();
        },
        [](Server& server) {
          server.send_model(Receivers::all);
          server.receive(Time{from_seconds(1e6)});
        }));
  } catch (const RunFailure& error) {
    failure = error.what();
  }
  EXPECT_THAT(failure, testing::HasSubstr("step 0 (40 micro-batches) was restarted 100000 times"));
}

// Workers step along the previous step's gradients. A step takes 1 s, the all-reduce of gradients 0.5 s.
TEST(Worker, ASumUnderWayCostsNothingWhileTheNextStepIsComputed) {
  const SimulatedRun setup{.budget = {.steps = 4}};
  const auto outcome = setup.run(Script([](Worker& worker) {
    std::optional<StartedCollective> before;
    const auto step_along = [&] { worker.descend(worker.finish(std::move(*before)).gradient / worker.size()); };
    for (int s = 0; s < 4; ++s) {
      StartedCollective started = worker.start(Collective::all_reduce(worker.compute_step_gradient()));
      if (before) step_along();
      before.emplace(std::move(started));
    }
    EXPECT_TRUE(worker.budget_left());
    step_along();
    EXPECT_FALSE(worker.budget_left());
  }));
  EXPECT_THAT(outcome.log,
              testing::ElementsAre("step 1 at 1.500 s: kept 3, dropped 0", "step 2 at 2.500 s: kept 3, dropped 0",
                                   "step 3 at 3.500 s: kept 3, dropped 0", "step 4 at 4.500 s: kept 3, dropped 0"));
  for (const StepRow& round : outcome.rounds) EXPECT_EQ(round.period, Step{1});
  for (const Account& account : outcome.totals.accounts) {
    EXPECT_EQ(account[Activity::compute], from_seconds(4));
    EXPECT_EQ(account[Activity::wait], Duration{});
    EXPECT_EQ(account[Activity::communicate], from_seconds(0.5));  // for the last sum only
  }
}

// A group's average makes no row. The next row of all workers has the steps of the group's workers, also if the average
// was started and finished separately.
TEST(Worker, StepsBeforeAGroupsAverageStandInTheNextRowOfAll) {
  for (const bool is_started : {false, true}) {
    const SimulatedRun setup{.workers = 4, .budget = {.steps = 4}};
    const auto outcome = setup.run(Script([&](Worker& worker) {
      const Averaging in_pairs{.group_size = 2};
      for (int s = 0; s < 4; ++s) {
        worker.descend(worker.compute_step_gradient());
        if (s == 1 && is_started)
          worker.finish(worker.start(Collective::average(worker.model(), in_pairs)));
        else if (s == 1)
          worker.average_model(in_pairs);
      }
      worker.average_model();
    }));
    ASSERT_EQ(outcome.rounds.size(), 1u) << is_started;
    EXPECT_EQ(outcome.rounds.front().kept, 16) << is_started;
    EXPECT_EQ(outcome.rounds.front().period, Step{4}) << is_started;
  }
}

TEST(Worker, ACollectiveIsFinishedOnce) {
  std::string failure;
  try {
    SimulatedRun{.budget = {.steps = 1}}.run(Script([](Worker& worker) {
      StartedCollective started = worker.start(Collective::all_reduce(worker.compute_step_gradient()));
      worker.finish(std::move(started));
      worker.finish(std::move(started));
    }));
  } catch (const RunFailure& error) {
    failure = error.what();
  }
  EXPECT_THAT(failure, testing::HasSubstr("already finished"));
}

// MethodCalls: single functions of Worker and Server. Unusual steps, values that all workers derive identically,
// computing until a message arrives, models without moments, and gradients that are too stale to be kept.

TEST(MethodCalls, AStepIsScaledAsItIsToldAndTheNextOneIsNot) {
  const SimulatedRun setup{.workers = 1, .rate = 0.1, .budget = {.steps = 4}};
  const auto outcome = setup.run(Script([](Worker& worker) {
    worker.descend(*worker.compute_gradient(), {.rate_factor = 0.5});
    worker.descend(*worker.compute_gradient());
    EXPECT_EQ(worker.learning_rate(), 0.1);
    worker.publish();
  }));
  double theta = 1;
  for (const double rate : {0.05, 0.1}) {
    const int step = rate == 0.05 ? 0 : 1;
    theta -= rate * (theta - PullObjective::target({Rank{0}, step, 0}, 0));
  }
  EXPECT_NEAR(outcome.parameters[0], theta, 1e-6);
  EXPECT_EQ(outcome.learning_rate, 0.1);
}

TEST(MethodCalls, AServersPublicationShowsTheRateOfItsLastStep) {
  const SimulatedRun setup{.workers = 1, .rate = 0.1, .budget = {.steps = 4}};
  const auto outcome = setup.run(Script([](Worker&) {},
                                        [](Server& server) {
                                          server.descend({}, {.rate_factor = 0.25});
                                          server.publish();
                                        }));
  EXPECT_EQ(outcome.learning_rate, 0.025);
}

TEST(MethodCalls, AnUnplannedStepIsNeitherTheBudgetsNorTheSchedules) {
  const auto falling = std::make_shared<LearningRate>(
      LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.8, .total_steps = Step{4}});
  const SimulatedRun setup{.workers = 1, .learning_rate = falling, .budget = {.steps = 4}};
  const auto outcome = setup.run(Script([](Worker& worker) {
    worker.descend(*worker.compute_gradient());
    worker.descend(*worker.compute_gradient(), {.is_planned = false});
    EXPECT_EQ(worker.step(), Step{2});
    EXPECT_EQ(worker.steps_left(), Step{3});
    EXPECT_NEAR(worker.learning_rate(), 0.6, 1e-12);
    worker.publish();
  }));
  EXPECT_EQ(outcome.published, Step{1});
}

TEST(MethodCalls, WhatAllDeriveFromTheSameNumbersIsDerivedOnce) {
  int derived = 0;
  const SimulatedRun setup{.workers = 5, .budget = {.steps = 3}};
  setup.run(Script([&](Worker& worker) {
    for (int round = 0; round < 3; ++round) {
      const double mine = worker.rank().value + 10.0 * round;
      const auto total = worker.all_gather({&mine, 1}, [&](std::span<const double> all) {
        ++derived;
        EXPECT_EQ(all.size(), 5u);
        return std::accumulate(all.begin(), all.end(), 0.0);
      });
      EXPECT_EQ(*total, 10 + 50.0 * round);
    }
  }));
  EXPECT_EQ(derived, 3);
}

TEST(MethodCalls, AModelIsHandedOutWithoutItsMomentsAndTheyStay) {
  const SimulatedRun setup{.workers = 1, .momentum = 0.9, .budget = {.steps = 3}};
  const auto outcome = setup.run(Script([](Worker& worker) {
    for (int s = 0; s < 3; ++s) {
      const ModelStatePtr before = worker.model();
      EXPECT_EQ(before->moments, (std::array<Moment, most_moments>()));  // no moments, and no counts of their steps
      worker.set_model(before);
      worker.descend(*worker.compute_gradient());
    }
    worker.publish();
  }));
  double theta = 1, velocity = 0;
  for (int s = 0; s < 3; ++s) {
    velocity = 0.9 * velocity + theta - PullObjective::target({Rank{0}, s, 0}, 0);
    theta -= 0.1 * velocity;
  }
  EXPECT_NEAR(outcome.parameters[0], theta, 1e-6);
}

// The server ends after 2.5 s, while the worker computes its third step.
TEST(MethodCalls, WhoWaitsForAMessageThatNobodyCanSendComputesOnNoFurther) {
  const SimulatedRun setup{.workers = 1, .budget = {.steps = 3}};
  int steps = 0;
  setup.run(Script(
      [&](Worker& worker) {
        while (worker.compute_step_gradient(Deadline::until_message(), Samples::in_turn)) ++steps;
        EXPECT_EQ(worker.now(), Time{from_seconds(3)});
      },
      [](Server& server) { server.receive(Time{from_seconds(2.5)}); }));
  EXPECT_EQ(steps, 3);
}

// Both gradients are one step old. The server accepts them with a maximum staleness of 0 and of 1.
TEST(MethodCalls, AGradientThatIsStalerThanItMayBeIsDiscarded) {
  const SimulatedRun setup{.workers = 2, .network_s = 0, .budget = {.steps = 10}};
  std::vector<bool> kept;
  const auto outcome = setup.run(Script(
      [](Worker& worker) {
        worker.receive_model();
        worker.send_gradient(worker.compute_step_gradient());
      },
      [&](Server& server) {
        server.send_model(Receivers::all);
        server.descend({});
        for (const int most : {0, 1}) {
          const auto message = server.receive_until_all_left();
          ASSERT_TRUE(message);
          kept.push_back(server.accept(*message, {.maximum_staleness = Step{most}}).has_value());
        }
      }));
  EXPECT_EQ(kept, (std::vector<bool>{false, true}));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{1, 0}));
}

}  // namespace
}  // namespace syncopate
