#include "algorithms/quorum/mindflayer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "algorithms/quorum/k_batch_sync.hpp"
#include "tests/algorithms/duration_laws.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/delays/exponential.hpp"
#include "workers/network/ring.hpp"

namespace syncopate {
namespace {

TEST(Mindflayer, WithAnEndlessLimitEqualsKBatchSyncBitForBit) {
  for (const int trials : {1, 3, 5}) {
    SimulatedRun setup = three_workers(15);
    setup.micro_batches = 2;
    setup.momentum = 0.9;
    const auto plain = setup.run(KBatchSync(trials));
    const auto limited = setup.run(Mindflayer({.trials = trials}));
    EXPECT_EQ(limited.parameters, plain.parameters);
    EXPECT_EQ(limited.log, plain.log);
    EXPECT_EQ(limited.totals.bytes, plain.totals.bytes);
  }
}

// The times of a worker's steps, one after the other, and then again.
class TimesInTurn : public DelayProcess {
 public:
  explicit TimesInTurn(std::vector<double> added_s) : added_s_(std::move(added_s)) {}
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    for (double& one : added_s) one += added_s_[static_cast<std::size_t>(stream.step.value()) % added_s_.size()];
  }
  double mean_s() const override { return 0; }

 private:
  std::vector<double> added_s_;
};

// One worker; trials would take 1, 3, 1.5 s in turn, and may take 2 s. Messages of 0.25 s. The model is there at 0.25
// s; the trials end at 1.25, 3.25 (given up) and 4.75 s; the third is there at 5 s. A mean over all three trials: two
// thirds of the mean of the two gradients.
TEST(Mindflayer, GivesUpWhatIsNotDoneInTimeAndCountsIt) {
  SimulatedRun setup{.workers = 1,
                     .network_s = 0.25,
                     .rate = 0.3,
                     .budget = {.steps = 3},
                     .delays = {std::make_shared<TimesInTurn>(std::vector{0.0, 2.0, 0.5})}};
  const auto outcome = setup.run(Mindflayer({.trials = 3, .limit = from_seconds(2)}));
  EXPECT_EQ(outcome.log, Log{"step 3 at 5.000 s: kept 2, dropped 0"});
  EXPECT_EQ(outcome.totals.kept, Counts{2});
  EXPECT_EQ(outcome.totals.dropped, Counts{2}) << "one given up, one under way at the end";
  EXPECT_EQ(outcome.totals.messages, 1 + 3);
  EXPECT_EQ(outcome.totals.bytes, Bytes{(1 + 2) * 16}) << "what has failed is no gradient";
  EXPECT_EQ(outcome.totals.accounts.front()[Activity::discarded], from_seconds(2.25));
  for (std::size_t i = 0; i < 4; ++i) {
    const double targets =
        PullObjective::target({Rank{0}, 0, 0}, i) + PullObjective::target({Rank{0}, 1, 0}, i);  // samples go in turn
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.3 * (2 - targets) / 3, 1e-6);
  }
  expect_exact_accounts(outcome);
  const auto unbiased = setup.run(Mindflayer({.trials = 3, .limit = from_seconds(2), .correction = 1.5}));
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(unbiased.parameters[i] - 1, 1.5 * (outcome.parameters[i] - 1.0f), 1e-6);
}

// Exponential times of mean mu: a trial takes mu (1 - exp(-t / mu)), which is also mu times its probability to succeed.
// Many trials, so that it does not matter that all begin together.
TEST(Mindflayer, TrialsOfExponentialTimesTakeAndKeepWhatTheirLawSays) {
  constexpr double mu_s = 2;
  for (const double limit_s : {0.5, 2.0, 6.0}) {
    const SimulatedRun setup{.workers = 6,
                             .base_s = 1e-9,
                             .network_s = 0,
                             .budget = {.steps = 10'000},
                             .delays = {exponential_delay(mu_s)},
                             .objective = nullptr};
    const auto outcome = setup.run(Mindflayer({.trials = 600, .limit = from_seconds(limit_s)}));
    const double share = 1 - std::exp(-limit_s / mu_s), trials = 10'000 * 6.0;
    EXPECT_NEAR(to_seconds(outcome.totals.end) / trials, mu_s * share / 6, 0.02 * mu_s * share / 6) << limit_s;
    EXPECT_NEAR(static_cast<double>(sum(outcome.totals.kept)) / trials, share, 0.02) << limit_s;
  }
}

TEST(Mindflayer, TakesAndKeepsAsMuchAsPredicted) {
  for (const double limit_s : {1.5, 3.0}) {
    constexpr int seeds = 16;
    double more_kept = 0;  // than predicted, on average
    for (int seed = 1; seed <= seeds; ++seed) {
      PredictedRun run{
          .workers = 4, .micro_batches = 1, .delays = {exponential_delay(1)}, .steps = 4000, .network_s = 0.1};
      run.seed = static_cast<std::uint64_t>(seed);
      const Mindflayer algorithm({.trials = 8, .limit = from_seconds(limit_s)});
      const auto predictions = run.predict(algorithm);
      ASSERT_EQ(predictions.size(), 1u);
      const auto simulated = run.simulate(algorithm);
      EXPECT_NEAR(predictions.front().step_time_s, simulated.step_s, 0.03 * simulated.step_s) << limit_s;
      more_kept += (simulated.kept - predictions.front().kept) / seeds;
    }
    EXPECT_NEAR(more_kept, 0, 0.01) << limit_s;
  }
}

// Of several workers' trials the first ones to end are rather the done ones. One worker's are all that there are; one
// of them counts where all have failed.
TEST(Mindflayer, OfOneWorkerThePredictionKeepsWhatTheLawSays) {
  for (const double limit_s : {1.5, 3.0}) {
    const PredictedRun run{
        .workers = 1, .micro_batches = 1, .delays = {exponential_delay(1)}, .steps = 512, .network_s = 0.1};
    const auto predictions = run.predict(Mindflayer({.trials = 8, .limit = from_seconds(limit_s)}));
    ASSERT_EQ(predictions.size(), 1u);
    const double failed = std::exp(-(limit_s - 1));
    EXPECT_NEAR(predictions[0].kept, 1 - failed + std::pow(failed, 8) / 8, 4 * predictions[0].kept_error) << limit_s;
    EXPECT_LT(predictions[0].kept_error, 0.04) << limit_s;
  }
}

// A quarter of a second, and half a second more for the model's 16 bytes.
std::shared_ptr<const NetworkModel> quarter_and_half() { return make_ring_network(0.25, 32); }

// Gradients of 1 s are there after 1.75, 2.75 and 3.75 s, those of 1.5 s after 2.25 and 3.75 s, notes of a worker that
// needs 4 s after 2.25 and 4.25 s: the seventh. The next model takes 0.75 s.
TEST(Mindflayer, OfConstantTimesThePredictionIsTheClosedForm) {
  const PredictedRun run{.workers = 3,
                         .micro_batches = 1,
                         .factors = {1, 1.5, 4},
                         .delays = {},
                         .steps = 700,
                         .network = quarter_and_half()};
  const Mindflayer algorithm({.trials = 7, .limit = from_seconds(2)});
  const auto predictions = run.predict(algorithm);
  ASSERT_EQ(predictions.size(), 1u);
  EXPECT_NEAR(predictions[0].step_time_s, 3 / 7.0 * 5, 1e-9);
  EXPECT_NEAR(predictions[0].kept, 5 / 7.0, 1e-9);
  const auto simulated = run.simulate(algorithm);
  EXPECT_NEAR(simulated.step_s, 3 / 7.0 * 5, 0.01);
  EXPECT_NEAR(simulated.kept, 5 / 7.0, 0.01);
}

// The first note is there after 2 s, the first gradient after 2.25 s.
TEST(Mindflayer, IsPredictedToGoOnUntilAGradientComes) {
  const PredictedRun run{
      .workers = 2, .micro_batches = 1, .factors = {1.5, 4}, .delays = {}, .steps = 400, .network = quarter_and_half()};
  const Mindflayer algorithm({.trials = 1, .limit = from_seconds(1.75)});
  const auto predictions = run.predict(algorithm);
  ASSERT_EQ(predictions.size(), 1u);
  EXPECT_NEAR(predictions[0].step_time_s, 2 * (2.25 + 0.75), 1e-9);
  EXPECT_EQ(predictions[0].kept, 1);
  EXPECT_NEAR(run.simulate(algorithm).step_s, 6, 0.02);
}

// Fast workers make more trials, and more of theirs are done in time.
TEST(Mindflayer, OfUnlikeWorkersItTakesAndKeepsAsMuchAsPredicted) {
  PredictedRun run{.workers = 8,
                   .micro_batches = 2,
                   .factors = {1, 1, 1, 1, 1, 1, 2, 3},
                   .delays = {exponential_delay(0.5)},
                   .steps = 4000,
                   .network = quarter_and_half()};
  for (const double limit_s : {3.0, 4.5, 6.0}) {
    const Mindflayer algorithm({.trials = 16, .limit = from_seconds(limit_s)});
    const auto predictions = run.predict(algorithm);
    ASSERT_EQ(predictions.size(), 1u);
    const auto simulated = run.simulate(algorithm);
    EXPECT_NEAR(predictions[0].step_time_s, simulated.step_s, 4 * predictions[0].step_error_s) << limit_s;
    EXPECT_LT(predictions[0].step_error_s, 0.01 * simulated.step_s) << limit_s;
    EXPECT_NEAR(predictions[0].kept, simulated.kept, 4 * predictions[0].kept_error) << limit_s;
    EXPECT_LT(predictions[0].kept_error, 0.02 * simulated.kept) << limit_s;
  }
}

TEST(Mindflayer, ALimitThatNobodyMeetsEndsTheRun) {
  SimulatedRun setup = three_workers(2);
  try {
    setup.run(Mindflayer({.trials = 3, .limit = from_seconds(0.5)}));
    FAIL();
  } catch (const std::exception& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("was done by limit_s (0.5 s)"));
  }
}

TEST(Mindflayer, GoesOnWhileWorkersAreDownLeaveOrLoseTheirState) {
  for (const bool loses : {false, true}) {
    SimulatedRun setup = three_workers(10);
    setup.data_of = {{}, 4, {}};
    setup.outages = std::make_shared<OutagePlan>(
        1,
        std::vector<OutageEntry>{
            {.workers = {Rank{0}}, .when = ScheduledOutage{from_seconds(2), from_seconds(3)}, .loses_state = loses}});
    const auto outcome = setup.run(Mindflayer({.trials = 2, .limit = from_seconds(2)}));
    EXPECT_EQ(outcome.published, Step{10});
    EXPECT_EQ(outcome.totals.kept[2], 0) << "it needs 2.6 s";
    expect_exact_accounts(outcome);
  }
  SimulatedRun setup = three_workers(20);
  setup.data_of = {3, 2, 2};
  expect_exact_accounts(setup.run(Mindflayer({.trials = 2, .limit = from_seconds(3)})));
}

TEST(Mindflayer, NeedsTrialsAndALimit) {
  const std::string name = "algorithm = \"mindflayer\"\n";
  EXPECT_NE(read_method(name + "trials = 3").faults, "");
  EXPECT_NE(read_method(name + "limit_s = 3").faults, "");
  EXPECT_NE(read_method(name + "trials = 0\nlimit_s = 1").faults, "");
  EXPECT_NE(read_method(name + "trials = 1\nlimit_s = 0").faults, "");
  EXPECT_NE(read_method(name + "trials = 1\nlimit_s = 1\ncorrection = 0").faults, "");
  EXPECT_EQ(read_method(name + "trials = 1\nlimit_s = inf").faults, "");
}

}  // namespace
}  // namespace syncopate
