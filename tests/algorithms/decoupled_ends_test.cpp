// Rounds of Decoupled DiLoCo that do not go as planned: workers that leave, are down, or lose their state, within a
// grace window or while a fragment is under way; and settings that cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "algorithms/local_sgd/decoupled_diloco.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/base/process.hpp"

namespace syncopate {
namespace {

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

DecoupledOptions options_of(std::optional<int> quorum, int fragments = 1) {
  DecoupledOptions options{.quorum = quorum, .outer = make_diloco(0.7, 0.6)};
  options.fragments = Fragments(fragments);
  return options;
}

TEST(DecoupledEnds, AQuorumIsNeverMoreThanTheWorkersLeft) {
  for (const std::optional<int> quorum : {std::optional<int>{}, std::optional(2), std::optional(3)}) {
    SimulatedRun setup = three_workers(4);
    setup.data_of = {std::nullopt, 1, 1};
    DecoupledOptions options = options_of(quorum);
    options.grace = GraceOptions{.margin = 1, .overlap_steps = 1e6, .initial_s = 100};
    const auto outcome = setup.run(DecoupledDiLoCo(options));
    // All answer once: within the first window, whose end nobody waits for. Then worker 0 goes on alone.
    EXPECT_EQ(outcome.totals.kept, (Counts{10, 1, 1}));
    EXPECT_NEAR(to_seconds(outcome.publications[0].time), 2.85, 1e-9);
    EXPECT_EQ(outcome.published, Step{4});
    expect_exact_accounts(outcome);
  }
}

TEST(DecoupledEnds, WhenAllHaveLeftWhatTheyAnsweredCounts) {
  SimulatedRun setup = three_workers(30);
  setup.data_of = {3, 1, 1};
  for (const int fragments : {1, 2}) {
    const auto outcome = setup.run(DecoupledDiLoCo(options_of({}, fragments)));
    EXPECT_GE(outcome.totals.kept[1], 1);
    EXPECT_LT(to_seconds(outcome.totals.end), 4);
    EXPECT_FALSE(outcome.publications.empty());
    expect_exact_accounts(outcome);
  }
}

// Worker 1 is down from 1 to 61 s. The others' window ends without it; a quorum of all waits for it.
TEST(DecoupledEnds, OneThatIsDownIsWaitedForByAQuorumOfAllAlone) {
  for (const bool loses_state : {false, true}) {
    SimulatedRun setup = three_workers(2);
    setup.outages = outage(1, 1, 60, loses_state);
    DecoupledOptions options = options_of(1);
    options.grace = GraceOptions{.margin = 0.5, .overlap_steps = 4, .initial_s = 0.5};
    const auto quick = setup.run(DecoupledDiLoCo(options));
    EXPECT_LT(to_seconds(quick.totals.end), 20);
    EXPECT_EQ(quick.totals.kept[1], 0);
    expect_exact_accounts(quick);
    const auto all = setup.run(DecoupledDiLoCo(options_of({})));
    EXPECT_GT(to_seconds(all.totals.end), 61);
    EXPECT_GT(all.totals.kept[1], 0);
    expect_exact_accounts(all);
  }
}

// Two workers, steps of 1 s, messages of 0.2 s, two fragments: a round per step. Worker 1 loses its state at 2.3 s,
// while the second round's fragment is under way to it. Up at 2.8 s it asks for the model, and begins anew at 3.2 s. At
// that step's end it asks which round is open; it knows at the next one's, at 5.2 s, and answers the third round.
TEST(DecoupledEnds, ALostStateTakesTheStepsSinceTheLastAnswerAndTheWorkerAsksWhichRoundIsOpen) {
  SimulatedRun setup{.workers = 2, .network_s = 0.2, .budget = {.steps = 6}, .outages = outage(1, 2.3, 0.5, true)};
  const auto outcome = setup.run(DecoupledDiLoCo(options_of({}, 2)));
  ASSERT_GE(outcome.publications.size(), 4u);
  const std::vector<double> times_s = {1.2, 2.2, 5.4, 6.4};
  for (std::size_t round = 0; round < times_s.size(); ++round)
    EXPECT_NEAR(to_seconds(outcome.publications[round].time), times_s[round], 1e-9);
  EXPECT_EQ(outcome.totals.accounts[1][Activity::down], from_seconds(0.5));
  EXPECT_GE(outcome.totals.accounts[1][Activity::discarded], from_seconds(0.3));
  expect_exact_accounts(outcome);
}

// Whatever is under way when a state is lost: all ends, and each second is booked once.
TEST(DecoupledEnds, LossesAtAnyTimeHangNothing) {
  for (const int fragments : {1, 3})
    for (const std::optional<int> quorum : {std::optional<int>{}, std::optional(1), std::optional(2)})
      for (const LateAnswers late : {LateAnswers::drop, LateAnswers::count})
        for (double at_s = 0.1; at_s < 6; at_s += 0.3) {
          SimulatedRun setup = three_workers(5);
          setup.outages = outage(at_s < 3 ? 0 : 1, at_s, 0.7, true);
          DecoupledOptions options = options_of(quorum, fragments);
          options.late = late;
          if (quorum) options.grace = GraceOptions{.margin = 0.9, .overlap_steps = 5, .initial_s = 0.5};
          const auto outcome = setup.run(DecoupledDiLoCo(options));
          EXPECT_EQ(outcome.published, Step{5}) << at_s;
          expect_exact_accounts(outcome);
        }
}

TEST(DecoupledEnds, ABudgetOfSecondsEndsARunInWhichNobodyAnswers) {
  SimulatedRun setup = three_workers(1);
  setup.budget = {.seconds = 5};
  DecoupledOptions options = options_of(1);
  options.minimum_steps = 1000;
  const auto outcome = setup.run(DecoupledDiLoCo(options));
  EXPECT_TRUE(outcome.publications.empty());
  EXPECT_LT(to_seconds(outcome.totals.end), 9);
  EXPECT_EQ(outcome.totals.kept, (Counts{0, 0, 0}));
  expect_exact_accounts(outcome);
}

TEST(DecoupledEnds, MoreFragmentsThanParametersAreAFailure) {
  EXPECT_THROW(three_workers(2).run(DecoupledDiLoCo(options_of({}, 5))), RunFailure);
  EXPECT_NO_THROW(three_workers(2).run(DecoupledDiLoCo(options_of({}, 4))));
}

TEST(DecoupledSettings, WrongOnesAreFaultsWithTheirPlace) {
  const auto faults = [](const std::string& keys) {
    return read_method("algorithm = \"decoupled-diloco\"\n" + keys).faults;
  };
  const std::string outer = "outer = { name = \"diloco\", rate = 0.7, momentum = 0.9 }\n";
  EXPECT_EQ(faults(outer), "");
  EXPECT_EQ(faults(outer + "quorum = 3\ngrace = { margin = 0.5 }"), "");
  EXPECT_NE(faults(""), "");
  EXPECT_NE(faults("outer = { name = \"diloco\" }"), "");  // its rate and momentum are not published
  for (const char* const keys :
       {"quorum = 0", "quorum = 5", "grace = { margin = 0.5 }", "quorum = 2\ngrace = {}",
        "quorum = 2\ngrace = { margin = 1.5 }", "quorum = 2\ngrace = { margin = 0.5, overlap_steps = -1 }",
        "quorum = 2\ngrace = { margin = 0.5, averaging = 0 }", "quorum = 2\ngrace = { margin = 0.5, initial_s = -1 }",
        "fragments = 0", "local_steps = 0", "minimum_steps = 0", "merge = \"median\"", "anchor = \"worker\"",
        "late = \"maybe\""})
    EXPECT_NE(faults(outer + keys), "") << keys;
  EXPECT_THAT(faults(outer + "grace = { margin = 0.5 }"), testing::HasSubstr("needs a quorum"));
  EXPECT_THAT(faults(outer + "quorum = 4\ngrace = { margin = 0.5 }"),
              testing::HasSubstr("must be left out: a quorum of all workers leaves nobody to wait for"));
  EXPECT_THAT(faults(outer + "quorum = 5"), testing::HasSubstr("test.toml:3"));
}

}  // namespace
}  // namespace syncopate
