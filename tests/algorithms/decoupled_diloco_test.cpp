#include "algorithms/local_sgd/decoupled_diloco.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

using testing::FloatNear;
using testing::Pointwise;
using Anchor = DecoupledOptions::Anchor;

DecoupledOptions options_of(std::shared_ptr<const OuterOptimizer> outer = make_diloco(0.7, 0.6),
                            MergeRule merge = MergeRule::mean) {
  return {.merge = merge, .outer = std::move(outer)};
}

void expect_times(const SimulatedRun::Outcome& outcome, const std::vector<double>& expected_s) {
  std::vector<double> times_s;
  for (const Publication& publication : outcome.publications) times_s.push_back(to_seconds(publication.time));
  EXPECT_THAT(times_s, Pointwise(testing::DoubleNear(1e-9), expected_s));
}

// Each worker has a target of its own, whatever the sample: steps that are overwritten leave no trace.
class OwnTargets : public PullObjective {
 public:
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    std::vector<MicroBatch> first(micro_batches.begin(), micro_batches.end());
    for (MicroBatch& one : first) one = {one.worker, 0, 0};
    return PullObjective::gradient(parameters, buffers, first);
  }
};

// A round's steps up to the answer are DiLoCo's; those after it are overwritten.
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
  expect_times(outcome, {4.25, 9.25, 14.25});            // four steps, and the one that is overwritten
  EXPECT_EQ(outcome.totals.dropped, (Counts{3, 3, 3}));  // two, and the one under way at the end
  EXPECT_EQ(outcome.totals.accounts[0][Activity::compute], from_seconds(12));
}

// Steps of 1, 1.1 and 2.6 s. The first two answer at 1.25 and 1.35 s; the third finds the new model at the end of its
// first step, and so on.
TEST(DecoupledDiLoCo, ARoundEndsWithItsQuorum) {
  DecoupledOptions options = options_of();
  options.quorum = 2;
  const auto outcome = three_workers(2).run(DecoupledDiLoCo(options));
  expect_times(outcome, {1.35, 3.55, 5.75});
  EXPECT_EQ(outcome.log, (Log{"step 1 at 3.550 s: kept 4, dropped 0", "step 2 at 5.750 s: kept 2, dropped 0"}));
  EXPECT_EQ(outcome.totals.kept, (Counts{3, 3, 0}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{3, 3, 3}));  // with the steps under way at the end
  EXPECT_EQ(outcome.totals.end, Time{from_seconds(5.75)});
  expect_exact_accounts(outcome);
}

// n local steps take the sum of their times.
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

// K = 1. The first window is fixed: worker 1 is in it, at 1.35 s. In the second round, from 1.45 s on, no worker has
// told yet how long a new model took: worker 1 comes at 3.55 s, too late. In the third, from 3.45 s, worker 0 comes at
// 5.25 s. The averages are then: steps (1.1 + 1) / 2, quorum (1.25 / 2 + 1.8 / 2) / 2 + 1.8 / 2, and 0.55 s from the
// round's end at 1.45 s to worker 0's model at 2 s, so that worker 1, at 5.75 s, is in time.
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

// The first coordinate's like in double precision: two equal workers, steps of 1 s, a message 0.25 s. At the end of
// each step a worker finds the fragment that the last round has made, and answers for the other.
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
    EXPECT_EQ(outcome.totals.dropped, (Counts{1, 1}));  // under way at the end: the others are in some fragment
    expect_exact_accounts(outcome);
  }
}

// K = 1: worker 1's answer to the first round comes at 1.35 s, after its end at 1.25 s, and is the second round's.
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
    x -= outer_rate * rate * (x - target(0, 2));  // its second step is overwritten
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

// Worker 1 takes two steps of 0.5 s while worker 0 takes one: it weighs twice as much.
TEST(DecoupledDiLoCo, WorkersWeighAsMuchAsTheyHaveStepped) {
  SimulatedRun setup{.workers = 2, .network_s = 0.2, .budget = {.steps = 3}};
  setup.objective = std::make_shared<OwnTargets>();
  setup.worker_factors = {1, 0.5};
  DecoupledOptions options = options_of(make_plain_outer(1));
  options.local_steps = Step{4};
  const auto outcome = setup.run(DecoupledDiLoCo(options));
  // The first round is answered after one step of each, and ends at 1.2 s, when the slower step's time is known: the
  // second begins at 4 s. The new model replaces what they have at 2 and 1.5 s; two and five steps follow.
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
    const double period_s = 6.0 / fragments;  // rounds begin at multiples of it, which ends of steps are too
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

}  // namespace
}  // namespace syncopate
