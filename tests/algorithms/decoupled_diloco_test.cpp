#include "algorithms/local_sgd/decoupled_diloco.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/base/process.hpp"

namespace syncopate {
namespace {

using testing::FloatNear;
using testing::Pointwise;
using Anchor = DecoupledOptions::Anchor;

DecoupledOptions options_of(OuterOptimizer outer = make_diloco(0.7, 0.6), MergeRule merge = MergeRule::mean) {
  return {.merge = merge, .outer = std::move(outer)};
}

void expect_times(const SimulatedRun::Outcome& outcome, const std::vector<double>& expected_s) {
  std::vector<double> times_s;
  for (const Publication& publication : outcome.publications) times_s.push_back(to_seconds(publication.time));
  EXPECT_THAT(times_s, Pointwise(testing::DoubleNear(1e-9), expected_s));
}

// Each worker has one target for all samples, so that overwritten steps have no effect.
class OwnTargets : public PullObjective {
 public:
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    std::vector<MicroBatch> first(micro_batches.begin(), micro_batches.end());
    for (MicroBatch& one : first) one = {one.worker, 0, 0};
    return PullObjective::gradient(parameters, buffers, first);
  }
};

// The steps that a worker takes in a round before it sends its answer are those of DiLoCo. The steps that it takes
// after that are lost, because the server's new fragment overwrites them.
TEST(DecoupledDiLoCo, OfAllWorkersWithEqualStepsIsDiLoCo) {
  for (const Anchor anchor : {Anchor::server, Anchor::base})
    for (const std::vector<double>& delays_s : {std::vector{0.0, 0.0, 0.0}, std::vector{0.0, 0.1, 1.6}}) {
      SimulatedRun setup = three_workers(12);
      setup.objective = std::make_shared<OwnTargets>();
      setup.delays = {std::make_shared<DelayOfWorker>(delays_s)};
      DecoupledOptions options = options_of();
      options.minimum_steps = 4;
      options.anchor = anchor;
      const auto found = setup.run(DecoupledDiLoCo(options));
      const auto expected = setup.run(OuterLocalSgd(make_constant_period(4), make_diloco(0.7, 0.6), {}));
      EXPECT_THAT(found.parameters, Pointwise(FloatNear(2e-5f), expected.parameters));
      EXPECT_EQ(found.totals.kept, expected.totals.kept);
      EXPECT_EQ(found.published, expected.published);
      EXPECT_EQ(found.totals.staleness, Counts{9});
      EXPECT_EQ(found.totals.messages, 3 * 3 + 2 * 3);  // the last round's fragment is not sent
      EXPECT_EQ(found.totals.bytes, Bytes{(3 * 3 + 2 * 3) * (16 + 24)});
      expect_exact_accounts(found);
    }
}

TEST(DecoupledDiLoCo, OfEqualWorkersLosesTheStepDuringWhichTheFragmentComes) {
  SimulatedRun setup{.network_s = 0.25, .budget = {.steps = 12}};
  DecoupledOptions options = options_of();
  options.minimum_steps = 4;
  const auto outcome = setup.run(DecoupledDiLoCo(options));
  expect_times(outcome, {4.25, 9.25, 14.25});  // in each round four steps that count, and one that is overwritten
  EXPECT_EQ(outcome.totals.dropped, (Counts{3, 3, 3}));  // two overwritten steps, one in progress
  EXPECT_EQ(outcome.totals.accounts[0][Activity::compute], from_seconds(12));
}

// Steps take 1, 1.1 and 2.6 s. Workers 0 and 1 answer at 1.25 and 1.35 s. Worker 2 finds the new model when its first
// step ends, and so on.
TEST(DecoupledDiLoCo, ARoundEndsWithItsQuorum) {
  DecoupledOptions options = options_of();
  options.quorum = 2;
  const auto outcome = three_workers(2).run(DecoupledDiLoCo(options));
  expect_times(outcome, {1.35, 3.55, 5.75});
  EXPECT_EQ(outcome.log, (Log{"step 1 at 3.550 s: kept 4, dropped 0", "step 2 at 5.750 s: kept 2, dropped 0"}));
  EXPECT_EQ(outcome.totals.kept, (Counts{3, 3, 0}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{3, 3, 3}));  // with the steps in progress at the end
  EXPECT_EQ(outcome.totals.end, Time{from_seconds(5.75)});
  expect_exact_accounts(outcome);
}

// A worker's n local steps take the sum of their times.
TEST(DecoupledDiLoCo, NobodyWaitsWhateverQuorumGraceAndNetwork) {
  for (const int quorum : {1, 2, 3})
    for (const double network_s : {0.0, 0.25, 3.0})
      for (const bool has_grace : {false, true}) {
        SimulatedRun setup = three_workers(6);
        setup.network_s = network_s;
        DecoupledOptions options = options_of();
        options.quorum = quorum;
        options.fragments = Fragments(2);
        if (has_grace) options.grace = {.margin = 0.5, .overlap_steps = 8, .initial_s = 0.4};
        const auto outcome = setup.run(DecoupledDiLoCo(options));
        for (const Account& account : outcome.totals.accounts) {
          EXPECT_EQ(account[Activity::wait], Duration{});
          EXPECT_EQ(account[Activity::communicate], Duration{});
          EXPECT_EQ(account[Activity::compute] + account[Activity::discarded], outcome.totals.end.time_since_epoch());
        }
        expect_exact_accounts(outcome);
      }
}

// The quorum is 1. The first window has a fixed length: worker 1 is in it, at 1.35 s. In the second round, from 1.45 s
// on, no worker has reported yet how long a new model took, so worker 1 is too late at 3.55 s. In the third round, from
// 3.45 s on, worker 0 arrives at 5.25 s. Averages are now: a step (1.1 + 1) / 2 = 1.05 s; the time until a quorum (1.25
// / 2 + 1.8 / 2) / 2 + 1.8 / 2 = 1.6625 s; a new model 0.55 s, from the round's end at 1.45 s to worker 0's model at 2
// s. So worker 1 is in time at 5.75 s.
TEST(DecoupledDiLoCo, AnAdaptiveGraceWindowTakesWhoComesWithinIt) {
  DecoupledOptions options = options_of();
  options.quorum = 1;
  options.grace = {.margin = 0.5, .overlap_steps = 4, .averaging = 0.5, .initial_s = 0.2};
  const double window_s = 0.5 * (4 * 1.05 - 1.6625 - 0.55);
  const auto outcome = three_workers(1).run(DecoupledDiLoCo(options));
  expect_times(outcome, {1.45, 3.45});
  const auto longer = three_workers(2).run(DecoupledDiLoCo(options));
  EXPECT_NEAR(to_seconds(longer.publications[2].time), 5.25 + window_s, 1e-6);
  EXPECT_GE(longer.totals.kept[1], 2);
  expect_exact_accounts(longer);
}

TEST(DecoupledDiLoCo, WithoutMarginItTakesTheFirstAndInALongWindowAll) {
  const auto run = [](std::optional<int> quorum, std::optional<GraceOptions> grace) {
    DecoupledOptions options = options_of();
    options.quorum = quorum;
    options.grace = grace;
    options.fragments = Fragments(2);
    return three_workers(6).run(DecoupledDiLoCo(options));
  };
  const auto expect_same = [](const SimulatedRun::Outcome& found, const SimulatedRun::Outcome& expected) {
    EXPECT_EQ(found.parameters, expected.parameters);
    EXPECT_EQ(found.log, expected.log);
    EXPECT_EQ(found.totals.kept, expected.totals.kept);
  };
  for (const int quorum : {1, 2})
    expect_same(run(quorum, GraceOptions{.margin = 0, .overlap_steps = 1e9}), run(quorum, {}));
  expect_same(run(1, GraceOptions{.margin = 1, .overlap_steps = 1e9, .initial_s = 1e9}), run({}, {}));
}

// The first parameter in double precision, for two equal workers with steps of 1 s and messages of 0.25 s. At the
// end of each step a worker finds the last round's fragment, and answers for the other fragment.
TEST(DecoupledDiLoCo, FragmentsAreReplacedInTurn) {
  constexpr double rate = 0.1, outer_rate = 0.7, momentum = 0.6;
  constexpr int rounds = 7, size = 4;
  for (const MergeRule merge : {MergeRule::mean, MergeRule::rda}) {
    std::array<double, size> global{1, 1, 1, 1}, moved{};
    std::array<std::array<double, size>, 2> own{global, global};
    for (int step = 0; step < rounds; ++step) {
      for (int worker = 0; worker < 2; ++worker)
        for (std::size_t i = 0; i < size; ++i) {
          double& x = own[static_cast<std::size_t>(worker)][i];
          x -= rate * (x - PullObjective::target({Rank{worker}, step, 0}, i));
          if (step > 0 && static_cast<int>(i) / 2 == (step - 1) % 2) x = global[i];
        }
      std::array<double, 2> lengths{}, merged{};
      const auto begin = static_cast<std::size_t>(step % 2) * 2;
      for (std::size_t worker = 0; worker < 2; ++worker)
        lengths[worker] = std::hypot(global[begin] - own[worker][begin], global[begin + 1] - own[worker][begin + 1]);
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t worker = 0; worker < 2; ++worker)
          merged[i] += (global[begin + i] - own[worker][begin + i]) / (merge == MergeRule::rda ? lengths[worker] : 2);
      if (merge == MergeRule::rda) {
        const double scale = (lengths[0] + lengths[1]) / 2 / std::hypot(merged[0], merged[1]);
        for (double& one : merged) one *= scale;
      }
      for (std::size_t i = 0; i < 2; ++i) {
        double& m = moved[begin + i];
        m = momentum * m + merged[i];
        global[begin + i] -= outer_rate * (merged[i] + momentum * m);
      }
    }
    DecoupledOptions options = options_of(make_diloco(outer_rate, momentum), merge);
    options.fragments = Fragments(2);
    const SimulatedRun setup{.workers = 2, .network_s = 0.25, .rate = rate, .budget = {.steps = rounds}};
    const auto outcome = setup.run(DecoupledDiLoCo(options));
    expect_times(outcome, {1.25, 2.25, 3.25, 4.25, 5.25, 6.25, 7.25});
    for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(outcome.parameters[i], global[i], 1e-4) << i;
    EXPECT_EQ(outcome.totals.bytes, Bytes{(2 * 7 + 2 * 6) * (8 + 24)});
    EXPECT_EQ(outcome.totals.dropped, (Counts{1, 1}));  // in progress at the end; fragments have all earlier ones
    expect_exact_accounts(outcome);
  }
}

// With a quorum of 1, worker 1's answer to the first round arrives at 1.35 s, after the round's end at 1.25 s, and
// counts in the second round.
TEST(DecoupledDiLoCo, LateAnswersMayCountFromTheServersValueOrFromTheirBase) {
  constexpr double rate = 0.1, outer_rate = 0.5;
  const auto target = [](int worker, int step) { return PullObjective::target({Rank{worker}, step, 0}, 0); };
  for (const Anchor anchor : {Anchor::server, Anchor::base}) {
    DecoupledOptions options = options_of(make_plain_outer(outer_rate));
    options.quorum = 1;
    options.anchor = anchor;
    options.late = LateAnswers::count;
    const auto outcome = three_workers(1).run(DecoupledDiLoCo(options));
    expect_times(outcome, {1.25, 1.35, 3.25});
    const double y0 = 1 - rate * (1 - target(0, 0)), y1 = 1 - rate * (1 - target(1, 0));
    double x = 1 - outer_rate * (1 - y0);
    x -= outer_rate * ((anchor == Anchor::base ? 1 : x) - y1);
    x -= outer_rate * rate * (x - target(0, 2));  // worker 0's second step is overwritten
    EXPECT_NEAR(outcome.parameters[0], x, 1e-5);
    EXPECT_EQ(outcome.totals.staleness, (Counts{2, 1}));
    expect_exact_accounts(outcome);
  }
}

TEST(DecoupledDiLoCo, WhereLateAnswersAreDroppedBothAnchorsAreTheSame) {
  for (const int quorum : {1, 2, 3}) {
    DecoupledOptions options = options_of();
    options.quorum = quorum;
    options.fragments = Fragments(3);
    const auto server = three_workers(8).run(DecoupledDiLoCo(options));
    options.anchor = Anchor::base;
    const auto base = three_workers(8).run(DecoupledDiLoCo(options));
    EXPECT_THAT(base.parameters, Pointwise(FloatNear(2e-5f), server.parameters));
    EXPECT_EQ(base.log, server.log);
    EXPECT_EQ(base.totals.staleness, server.totals.staleness);
  }
}

// Worker 1 takes two steps of 0.5 s while worker 0 takes one, so it has twice the weight.
TEST(DecoupledDiLoCo, WorkersWeighAsMuchAsTheyHaveStepped) {
  SimulatedRun setup{.workers = 2, .network_s = 0.2, .budget = {.steps = 3}};
  setup.objective = std::make_shared<OwnTargets>();
  setup.worker_factors = {1, 0.5};
  DecoupledOptions options = options_of(make_plain_outer(1));
  options.local_steps = Step{4};
  const auto outcome = setup.run(DecoupledDiLoCo(options));
  // The first round ends at 1.2 s, after one step of each worker. The slower step's time is then known, so the second
  // round begins at 4 s. The new model replaces the workers' models at 2 and 1.5 s; two and five steps follow.
  expect_times(outcome, {1.2, 4.2});
  const auto step = [](double x, int worker) { return x - 0.1 * (x - PullObjective::target({Rank{worker}, 0, 0}, 0)); };
  double x = (step(1, 0) + step(1, 1)) / 2, y0 = x, y1 = x;
  for (int i = 0; i < 2; ++i) y0 = step(y0, 0);
  for (int i = 0; i < 5; ++i) y1 = step(y1, 1);
  EXPECT_NEAR(outcome.parameters[0], (2 * y0 + 5 * y1) / 7, 1e-5);
  EXPECT_EQ(outcome.totals.kept, (Counts{3, 6}));
  expect_exact_accounts(outcome);
}

TEST(DecoupledDiLoCo, ALaunchFloorSpacesRounds) {
  for (const int fragments : {1, 2}) {
    SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 24}};
    DecoupledOptions options = options_of();
    options.fragments = Fragments(fragments);
    options.local_steps = Step{6};
    const auto outcome = setup.run(DecoupledDiLoCo(options));
    const double period_s = 6.0 / fragments;  // rounds begin at multiples of period_s, where steps also end
    ASSERT_GE(outcome.publications.size(), 4u);
    for (std::size_t round = 1; round < outcome.publications.size(); ++round)
      EXPECT_NEAR(to_seconds(outcome.publications[round].time), static_cast<double>(round) * period_s + 0.25, 1e-9);
    expect_exact_accounts(outcome);
  }
}

TEST(DecoupledDiLoCo, RunsWithoutAModel) {
  SimulatedRun setup = three_workers(8);
  DecoupledOptions options = options_of();
  options.quorum = 2;
  options.fragments = Fragments(2);
  const auto expected = setup.run(DecoupledDiLoCo(options));
  setup.objective = nullptr;
  const auto outcome = setup.run(DecoupledDiLoCo(options));
  EXPECT_EQ(outcome.log, expected.log);
  EXPECT_EQ(outcome.totals.kept, expected.totals.kept);
}

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

DecoupledOptions quorum_options(std::optional<int> quorum, int fragments = 1) {
  DecoupledOptions options{.quorum = quorum, .outer = make_diloco(0.7, 0.6)};
  options.fragments = Fragments(fragments);
  return options;
}

TEST(DecoupledEnds, AQuorumIsNeverMoreThanTheWorkersLeft) {
  for (const std::optional<int> quorum : {std::optional<int>{}, std::optional(2), std::optional(3)}) {
    SimulatedRun setup = three_workers(4);
    setup.data_of = {std::nullopt, 1, 1};
    DecoupledOptions options = quorum_options(quorum);
    options.grace = GraceOptions{.margin = 1, .overlap_steps = 1e6, .initial_s = 100};
    const auto outcome = setup.run(DecoupledDiLoCo(options));
    // All workers answer once, within the first window, which then ends. Worker 0 continues alone.
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
    const auto outcome = setup.run(DecoupledDiLoCo(quorum_options({}, fragments)));
    EXPECT_GE(outcome.totals.kept[1], 1);
    EXPECT_LT(to_seconds(outcome.totals.end), 4);
    EXPECT_FALSE(outcome.publications.empty());
    expect_exact_accounts(outcome);
  }
}

// Worker 1 is down from 1 to 61 s. The window ends without worker 1. Only a quorum of all workers waits for it.
TEST(DecoupledEnds, OneThatIsDownIsWaitedForByAQuorumOfAllAlone) {
  for (const bool loses_state : {false, true}) {
    SimulatedRun setup = three_workers(2);
    setup.outages = outage(1, 1, 60, loses_state);
    DecoupledOptions options = quorum_options(1);
    options.grace = GraceOptions{.margin = 0.5, .overlap_steps = 4, .initial_s = 0.5};
    const auto quick = setup.run(DecoupledDiLoCo(options));
    EXPECT_LT(to_seconds(quick.totals.end), 20);
    EXPECT_EQ(quick.totals.kept[1], 0);
    expect_exact_accounts(quick);
    const auto all = setup.run(DecoupledDiLoCo(quorum_options({})));
    EXPECT_GT(to_seconds(all.totals.end), 61);
    EXPECT_GT(all.totals.kept[1], 0);
    expect_exact_accounts(all);
  }
}

// Two workers take steps of 1 s, messages take 0.2 s, and with two fragments there is a round per step. Worker 1 loses
// its state at 2.3 s, while the second round's fragment is under way to it. It is up again at 2.8 s, asks for the
// model, and begins a step at 3.2 s. At the end of this step it asks which round is open. It receives the answer during
// the next step. When that step ends, at 5.2 s, worker 1 answers the third round.
TEST(DecoupledEnds, ALostStateTakesTheStepsSinceTheLastAnswerAndTheWorkerAsksWhichRoundIsOpen) {
  SimulatedRun setup{.workers = 2, .network_s = 0.2, .budget = {.steps = 6}, .outages = outage(1, 2.3, 0.5, true)};
  const auto outcome = setup.run(DecoupledDiLoCo(quorum_options({}, 2)));
  ASSERT_GE(outcome.publications.size(), 4u);
  const std::vector<double> times_s = {1.2, 2.2, 5.4, 6.4};
  for (std::size_t round = 0; round < times_s.size(); ++round)
    EXPECT_NEAR(to_seconds(outcome.publications[round].time), times_s[round], 1e-9);
  EXPECT_EQ(outcome.totals.accounts[1][Activity::down], from_seconds(0.5));
  EXPECT_GE(outcome.totals.accounts[1][Activity::discarded], from_seconds(0.3));
  expect_exact_accounts(outcome);
}

// A state is lost at various times, with messages of all kinds in progress.
TEST(DecoupledEnds, LossesAtAnyTimeHangNothing) {
  for (const int fragments : {1, 3})
    for (const std::optional<int> quorum : {std::optional<int>{}, std::optional(1), std::optional(2)})
      for (const LateAnswers late : {LateAnswers::drop, LateAnswers::count})
        for (double at_s = 0.1; at_s < 6; at_s += 0.3) {
          SimulatedRun setup = three_workers(5);
          setup.outages = outage(at_s < 3 ? 0 : 1, at_s, 0.7, true);
          DecoupledOptions options = quorum_options(quorum, fragments);
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
  DecoupledOptions options = quorum_options(1);
  options.minimum_steps = 1000;
  const auto outcome = setup.run(DecoupledDiLoCo(options));
  EXPECT_TRUE(outcome.publications.empty());
  EXPECT_LT(to_seconds(outcome.totals.end), 9);
  EXPECT_EQ(outcome.totals.kept, (Counts{0, 0, 0}));
  expect_exact_accounts(outcome);
}

TEST(DecoupledEnds, MoreFragmentsThanParametersAreAFailure) {
  EXPECT_THROW(three_workers(2).run(DecoupledDiLoCo(quorum_options({}, 5))), RunFailure);
  EXPECT_NO_THROW(three_workers(2).run(DecoupledDiLoCo(quorum_options({}, 4))));
}

TEST(DecoupledSettings, WrongOnesAreFaultsWithTheirPlace) {
  const auto faults = [](const std::string& keys) {
    return read_method("algorithm = \"decoupled-diloco\"\n" + keys).faults;
  };
  const std::string outer = "outer = { name = \"diloco\", rate = 0.7, momentum = 0.9 }\n";
  EXPECT_EQ(faults(outer), "");
  EXPECT_EQ(faults(outer + "quorum = 3\ngrace = { margin = 0.5 }"), "");
  EXPECT_NE(faults(""), "");
  EXPECT_NE(faults("outer = { name = \"diloco\" }"), "");  // rate and momentum are required
  for (const char* const keys :
       {"quorum = 0", "quorum = 5", "grace = { margin = 0.5 }", "quorum = 2\ngrace = {}",
        "quorum = 2\ngrace = { margin = 1.5 }", "quorum = 2\ngrace = { margin = 0.5, overlap_steps = -1 }",
        "quorum = 2\ngrace = { margin = 0.5, averaging = 0 }", "quorum = 2\ngrace = { margin = 0.5, initial_s = -1 }",
        "fragments = 0", "local_steps = 0", "minimum_steps = 0", "merge = \"median\"", "anchor = \"worker\"",
        "late = \"maybe\""})
    EXPECT_NE(faults(outer + keys), "") << keys;
  EXPECT_THAT(faults(outer + "grace = { margin = 0.5 }"), testing::HasSubstr("needs a `quorum`"));
  EXPECT_THAT(faults(outer + "quorum = 4\ngrace = { margin = 0.5 }"),
              testing::HasSubstr("must be left out: with a quorum of all workers there is nobody left to wait for"));
  EXPECT_THAT(faults(outer + "quorum = 5"), testing::HasSubstr("test.toml:3"));
}

TEST(OpenRound, IsWhatItsNumbersSay) {
  const OpenRound round{.number = Step{5}, .begins = Time{from_seconds(1.5)}, .last_ended = Time{from_seconds(1.25)}};
  const OpenRound found = OpenRound::from(round.numbers());
  EXPECT_EQ(found.number, Step{5});
  EXPECT_EQ(found.begins, round.begins);
  EXPECT_EQ(found.last_ended, round.last_ended);
}

TEST(OpenRound, FragmentsAreDueInTurn) {
  std::vector<int> due;
  for (int number = 0; number < 5; ++number) due.push_back(OpenRound{.number = Step{number}}.fragment(3).index);
  EXPECT_EQ(due, (std::vector{0, 1, 2, 0, 1}));
}

TEST(FragmentAnswer, IsWhatItsMessageSays) {
  for (const std::optional<double> sync_s : {std::optional<double>(), std::optional(0.0), std::optional(0.75)}) {
    const FragmentAnswer answer{
        .work = {.micro_batches = 6, .time = from_seconds(9)}, .micro_batches = 4, .steps = Step{2}, .sync_s = sync_s};
    Message message = answer.message({.number = Step{7}}, {.index = 1, .count = 3});
    message.from = Rank{2};
    EXPECT_EQ(message.step, Step{7}) << "of its round";
    EXPECT_EQ(message.slice.index, 1);
    EXPECT_EQ(message_bytes(message, Bytes{48}), Bytes{48 / 3 + 24});
    const FragmentAnswer found = FragmentAnswer::from_message(message);
    EXPECT_EQ(found.from, Rank{2});
    EXPECT_EQ(found.work.micro_batches, 6);
    EXPECT_EQ(found.work.time, from_seconds(9));
    EXPECT_EQ(found.micro_batches, 4);
    EXPECT_EQ(found.steps, Step{2});
    EXPECT_EQ(found.sync_s, sync_s);
  }
}

// With two micro-batches a step, the workers took 2, 1 and 3 steps of 3, 4 and 2 s.
TEST(AnswerTotals, AreTheSlowestStepTheLongestWayAndAllWork) {
  std::vector<FragmentAnswer> answers(3);
  answers[0].work = {.micro_batches = 4, .time = from_seconds(6)};
  answers[1].work = {.micro_batches = 2, .time = from_seconds(4)};
  answers[2].work = {.micro_batches = 6, .time = from_seconds(6)};
  EXPECT_EQ(AnswerTotals(answers, 2).slowest_sync_s, std::nullopt) << "nobody has had a fragment yet";
  answers[1].sync_s = 0.25;
  answers[2].sync_s = 0.5;
  const AnswerTotals totals(answers, 2);
  EXPECT_DOUBLE_EQ(totals.slowest_step_s, 4);
  EXPECT_EQ(totals.slowest_sync_s, 0.5);
  EXPECT_EQ(totals.micro_batches, 12);
}

void take_steps(FragmentProgress& progress, int steps) {
  for (int i = 0; i < steps; ++i) progress.add_step({.micro_batches = 2, .time = Duration{10}});
}

void expect_work(const BookedTime& work, int steps) {
  EXPECT_EQ(work.micro_batches, 2 * steps);
  EXPECT_EQ(work.time, Duration{10 * steps});
}

TEST(FragmentProgress, CountsTheStepsSinceEachFragmentWasReceived) {
  FragmentProgress progress(2);
  take_steps(progress, 3);
  progress.receive(0);
  take_steps(progress, 1);
  EXPECT_EQ(progress.steps(0), Step{1});
  EXPECT_EQ(progress.steps(1), Step{4});
}

TEST(FragmentProgress, TellsEachStepOnce) {
  FragmentProgress progress(2);
  take_steps(progress, 3);
  expect_work(progress.report(), 3);
  expect_work(progress.report(), 0);
  take_steps(progress, 2);
  expect_work(progress.report(), 2);
  EXPECT_EQ(progress.steps(1), Step{5});
}

TEST(FragmentProgress, OfOneFragmentLosesWhatNobodyWasTold) {
  FragmentProgress progress(1);
  take_steps(progress, 3);
  progress.report();
  take_steps(progress, 2);
  expect_work(progress.receive(0), 2);
}

TEST(FragmentProgress, LosesStepsThatAreInNoFragmentAnyMore) {
  FragmentProgress progress(3);
  take_steps(progress, 2);
  expect_work(progress.receive(0), 0);
  take_steps(progress, 1);
  expect_work(progress.receive(1), 0);
  take_steps(progress, 4);
  expect_work(progress.receive(2), 2);  // the first fragment has had five steps since it was received
  expect_work(progress.receive(0), 1);  // the second fragment has had four
  expect_work(progress.report(), 4);
  take_steps(progress, 1);
  expect_work(progress.receive_all(), 1);
  EXPECT_EQ(progress.steps(2), Step{0});
}

TEST(MergeWeights, AreQuantityTimesQuality) {
  EXPECT_EQ(weight_of(12, Step{4}), 12 * (12.0 / 4));
  EXPECT_EQ(weight_of(5, Step{2}), 12.5);
  EXPECT_EQ(weight_of(0, Step{0}), 0);
  EXPECT_EQ(weight_of(8, Step{4}) / weight_of(2, Step{1}), 4);  // equal batches weigh in proportion to steps
}

TEST(GraceWindowLength, IsThePartOfWhatOverlappedStepsLeave) {
  GraceWindow window({.margin = 0.5, .overlap_steps = 4, .averaging = 1});
  window.record_step(2);
  window.record_quorum(3);
  window.record_sync(1.5);
  EXPECT_DOUBLE_EQ(window.length_s(), 0.5 * (4 * 2 - 3 - 1.5));
  window.record_quorum(6.75);  // no spare time is left
  EXPECT_DOUBLE_EQ(window.length_s(), 0);
}

TEST(GraceWindowLength, OfNoMarginIsNone) {
  for (const double overlap_steps : {1e6, std::numeric_limits<double>::infinity()}) {
    GraceWindow window({.margin = 0, .overlap_steps = overlap_steps});
    window.record_step(2);
    window.record_quorum(0);
    window.record_sync(0);
    EXPECT_EQ(window.length_s(), 0);
  }
}

TEST(GraceWindowLength, IsFixedUntilAllThreeTimesHaveBeenMeasured) {
  GraceWindow window({.margin = 1, .overlap_steps = 2, .initial_s = 0.3});
  EXPECT_EQ(window.length_s(), 0.3);
  window.record_step(2);
  window.record_quorum(1);
  EXPECT_EQ(window.length_s(), 0.3);
  window.record_sync(0.5);
  EXPECT_DOUBLE_EQ(window.length_s(), 2.5);
}

TEST(GraceWindowLength, IsNoLongerThanTheLongest) {
  GraceWindow window({.margin = 1, .overlap_steps = 100, .initial_s = 9, .longest_s = 0.75});
  EXPECT_EQ(window.length_s(), 0.75);
  window.record_step(1);
  window.record_quorum(1);
  window.record_sync(1);
  EXPECT_EQ(window.length_s(), 0.75);
}

// The exponential average with factor a of x_0, ..., x_n is (1 - a)^n x_0 + the sum of a (1 - a)^(n - k) x_k.
TEST(GraceWindowLength, GoesByExponentialAverages) {
  GraceWindow window({.margin = 1, .overlap_steps = 10, .averaging = 0.25});
  for (const double step_s : {1.0, 2.0, 4.0}) window.record_step(step_s);
  for (const double quorum_s : {3.0, 1.0}) window.record_quorum(quorum_s);
  window.record_sync(0.5);
  const double step_s = 0.75 * 0.75 * 1 + 0.25 * 0.75 * 2 + 0.25 * 4, quorum_s = 0.75 * 3 + 0.25 * 1;
  EXPECT_DOUBLE_EQ(*window.step_s(), step_s);
  EXPECT_DOUBLE_EQ(window.length_s(), 10 * step_s - quorum_s - 0.5);
}

}  // namespace
}  // namespace syncopate
