#include "algorithms/quorum/mindflayer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/quorum/k_batch_sync.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/duration_laws.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using testing::Not;

// Gives a worker's steps the listed times in turn, and then begins the list again.
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

// A message takes a quarter of a second, plus half a second if it is a model of 16 bytes.
std::shared_ptr<const NetworkModel> quarter_and_half() { return make_ring_network(0.25, 32, {.contention = false}); }

TEST(Mindflayer, WithEndlessLimitsAndATrialEachEqualsSynchronousSgdBitForBit) {
  SimulatedRun setup = three_workers(15);
  setup.micro_batches = 2;
  setup.momentum = 0.9;
  const auto outcome = setup.run(Mindflayer({}));
  EXPECT_EQ(outcome.parameters, setup.run(SyncSgd()).parameters);
  EXPECT_EQ(outcome.totals.kept, (Counts{30, 30, 30}));
}

// Two workers, messages of 0.25 s. Worker 0 makes three trials, which would take 1, 3 and 1.5 s, with a limit of 2 s:
// they end at 1.25, 3.25 (given up) and 4.75 s. Worker 1's only trial takes 2.5 s, with a limit of 4 s; it waits from
// 2.75 s on. The step ends at 5 s. The divisor is the expected number of successes, 3 x 0.7 + 0.9 = 3. By chance three
// of the four trials give a gradient. This step is two steps of the budget.
TEST(Mindflayer, StepsWhenEachWorkerHasMadeItsTrials) {
  SimulatedRun setup{.workers = 2,
                     .network_s = 0.25,
                     .rate = 0.3,
                     .budget = {.steps = 2},
                     .delays = {std::make_shared<TimesInTurn>(std::vector{0.0, 2.0, 0.5}),
                                std::make_shared<DelayOfWorker>(std::vector{0.0, 1.5})}};
  MindflayerOptions options{.usual = {.count = 3, .limit = from_seconds(2), .arrival_probability = 0.7}};
  options.of_workers[1] = {.count = 1, .limit = from_seconds(4), .arrival_probability = 0.9};
  const auto outcome = setup.run(Mindflayer(options));
  EXPECT_EQ(outcome.log, Log{"step 2 at 5.000 s: kept 3, dropped 0"});
  EXPECT_EQ(outcome.totals.kept, (Counts{2, 1}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{1, 0}));
  EXPECT_EQ(outcome.totals.messages, 2 + 4);
  EXPECT_EQ(outcome.totals.bytes, Bytes{(2 + 3) * 16}) << "what has failed is no gradient";
  EXPECT_EQ(outcome.totals.accounts.front()[Activity::discarded], from_seconds(2));
  expect_exact_accounts(outcome);
  const auto step_along = [&](std::size_t i) {  // samples are used in turn
    return 3 - PullObjective::target({Rank{0}, 0, 0}, i) - PullObjective::target({Rank{0}, 1, 0}, i) -
           PullObjective::target({Rank{1}, 0, 0}, i);
  };
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(outcome.parameters[i], 1 - 0.3 * step_along(i) / 3, 1e-6);
  options.usual.arrival_probability = 0.5;  // divisor 3 x 0.5 + 0.9
  const auto longer = setup.run(Mindflayer(options));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(longer.parameters[i], 1 - 0.3 * step_along(i) / 2.4, 1e-5);
}

// The first step's trial takes 1 s, the second's would take 3 s and is given up. So the second step has only momentum.
TEST(Mindflayer, StepsAlongZeroWhereAllTrialsHaveFailed) {
  SimulatedRun setup{.workers = 1,
                     .network_s = 0.25,
                     .momentum = 0.5,
                     .rate = 0.3,
                     .budget = {.steps = 2},
                     .delays = {std::make_shared<TimesInTurn>(std::vector{0.0, 2.0})}};
  const auto outcome = setup.run(Mindflayer({.usual = {.limit = from_seconds(2), .arrival_probability = 0.5}}));
  EXPECT_EQ(outcome.log, (Log{"step 1 at 1.500 s: kept 1, dropped 0", "step 2 at 4.000 s: kept 0, dropped 0"}));
  for (std::size_t i = 0; i < 4; ++i) {
    const double step = 0.3 * (1 - PullObjective::target({Rank{0}, 0, 0}, i)) / 0.5;
    EXPECT_NEAR(outcome.parameters[i], 1 - step - 0.5 * step, 1e-5);
  }
}

// A trial succeeds with probability p = 1 - exp(-1), independently of its gradient, so a step is on average that of
// synchronous SGD. The mean step would be longer if it left out the 1.8 % of steps without success.
TEST(Mindflayer, IsUnbiasedWhereTheProbabilitiesAreRight) {
  constexpr int runs = 2000;
  constexpr double rate = 0.1;
  const double p = 1 - std::exp(-1.0);
  SimulatedRun setup{.workers = 4,
                     .base_s = 1e-9,
                     .network_s = 0,
                     .rate = rate,
                     .budget = {.steps = 1},
                     .delays = {exponential_delay(1)}};
  double mean_moved = 0, whole = 0, variance = 0;
  for (int worker = 0; worker < 4; ++worker) {
    const double part = rate * (1 - PullObjective::target({Rank{worker}, 0, 0}, 1)) / 4;
    whole -= part;
    variance += part * part * (1 - p) / p;
  }
  for (int seed = 1; seed <= runs; ++seed) {
    setup.seed = static_cast<std::uint64_t>(seed);
    const auto outcome = setup.run(Mindflayer({.usual = {.limit = from_seconds(1), .arrival_probability = p}}));
    mean_moved += (outcome.parameters[1] - 1) / runs;
  }
  EXPECT_NEAR(mean_moved, whole, 4 * std::sqrt(variance / runs));
}

// Worker 0's two trials of 1 s end after 1 and 2 s, worker 1's of 1.5 s after 3 s. Worker 2's, of 4 s, are given up
// after 4 s. The last gradient arrives at 3.75 s, the last note of a failed trial at 4.25 s; the next model takes 0.75
// s. The six trials are two steps. Two workers communicate for 0.75 s and one for 0.25 s until their last messages
// arrive, and all for 0.75 s until the model arrives.
TEST(Mindflayer, OfConstantTimesHasAClosedForm) {
  const PredictedRun run{.workers = 3,
                         .micro_batches = 1,
                         .factors = {1, 1.5, 4},
                         .delays = {},
                         .steps = 700,
                         .network = quarter_and_half()};
  const Mindflayer algorithm({.usual = {.count = 2, .limit = from_seconds(2), .arrival_probability = 0.7}});
  const auto simulated = run.simulate(algorithm);
  EXPECT_NEAR(simulated.step_s, 2.5, 0.01);
  EXPECT_NEAR(simulated.communication_s, ((0.75 + 0.75 + 0.25) / 3 + 0.75) / 2, 0.01);
  EXPECT_NEAR(simulated.kept, 4 / 6.0, 0.01);
}

// A trial of two micro-batches takes twice the factor plus a sum of two exponential times of 0.5 s, which is below x
// with probability 1 - (1 + 2x) e^-2x. Seven workers make three trials each, and worker 7 makes one.
TEST(Mindflayer, OfUnlikeWorkersKeepsWhatTheirLawsSay) {
  const PredictedRun run{.workers = 8,
                         .micro_batches = 2,
                         .factors = {1, 1, 1, 1, 1, 1, 2, 3},
                         .delays = {exponential_delay(0.5)},
                         .steps = 4000,
                         .network = quarter_and_half()};
  MindflayerOptions options{.usual = {.count = 3, .limit = from_seconds(3.5), .arrival_probability = 0.6}};
  options.of_workers[7] = {.count = 1, .limit = from_seconds(9), .arrival_probability = 0.9};
  const auto done_within = [](double x) { return x <= 0 ? 0 : 1 - (1 + 2 * x) * std::exp(-2 * x); };
  const double kept = (6 * 3 * done_within(3.5 - 2) + 3 * done_within(3.5 - 4) + done_within(9 - 6)) / 22;
  EXPECT_NEAR(run.simulate(Mindflayer(options)).kept, kept, 0.01);
}

TEST(Mindflayer, ALimitThatNobodyMeetsEndsTheRun) {
  SimulatedRun setup = three_workers(20'000);
  try {
    setup.run(Mindflayer({.usual = {.limit = from_seconds(0.5), .arrival_probability = 0.5}}));
    FAIL();
  } catch (const std::exception& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("finished within limit_s (0.5 s)"));
  }
}

TEST(Mindflayer, GoesOnWhileWorkersAreDownLeaveOrLoseTheirState) {
  const Mindflayer algorithm({.usual = {.count = 2, .limit = from_seconds(2), .arrival_probability = 0.5}});
  for (const bool loses : {false, true}) {
    SimulatedRun setup = three_workers(20);
    setup.data_of = {{}, 4, {}};
    setup.outages = std::make_shared<OutagePlan>(
        1,
        std::vector<OutageEntry>{
            {.workers = {Rank{0}}, .when = ScheduledOutage{from_seconds(2), from_seconds(3)}, .loses_state = loses}});
    const auto outcome = setup.run(algorithm);
    EXPECT_EQ(outcome.published, Step{20});
    EXPECT_EQ(outcome.totals.kept[1], 4);
    EXPECT_EQ(outcome.totals.kept[2], 0) << "it needs 2.6 s";
    expect_exact_accounts(outcome);
  }
  SimulatedRun setup = three_workers(20);
  setup.data_of = {3, 2, 2};
  expect_exact_accounts(setup.run(algorithm));
}

TEST(Mindflayer, NeedsALimitAndAProbability) {
  const std::string name = "algorithm = \"mindflayer\"\n";
  EXPECT_THAT(read_method(name).faults, HasSubstr("limit_s"));
  EXPECT_THAT(read_method(name + "limit_s = 1").faults, HasSubstr("arrival_probability"));
  EXPECT_EQ(read_method(name + "limit_s = inf").faults, "");
  EXPECT_EQ(read_method(name + "limit_s = 1\narrival_probability = 0.5\ntrials_per_worker = 3").faults, "");
  for (const char* keys :
       {"arrival_probability = 0", "arrival_probability = 1.1", "arrival_probability = 1\ntrials_per_worker = 0"})
    EXPECT_NE(read_method(name + "limit_s = 1\n" + keys).faults, "") << keys;
}

// A file written for the other rule would have another meaning.
TEST(Mindflayer, RefusesTheKeysOfTheOtherRule) {
  for (const char* keys : {"trials = 3", "trials = 3\ncorrection = 1.2", "correction = 1.2"}) {
    const std::string faults = read_method(std::string("algorithm = \"mindflayer\"\nlimit_s = 1\n") + keys).faults;
    EXPECT_THAT(faults, HasSubstr("is a key of rule = \"clipping-rennala\"")) << keys;
    EXPECT_THAT(faults, Not(HasSubstr("\n"))) << "one fault is enough";
  }
}

TEST(Mindflayer, TakesGroupsOfWorkersThatDiffer) {
  const auto with = [](const std::string& groups) {
    return read_method("algorithm = \"mindflayer\"\nlimit_s = 1\narrival_probability = 0.5\ngroups = [" + groups + "]");
  };
  const auto reading = with(
      "{ workers = [1, 3], limit_s = 2, arrival_probability = 0.8 }, "
      "{ workers = [2], trials_per_worker = 4 }");
  ASSERT_EQ(reading.faults, "");
  const SimulatedRun setup{
      .workers = 4, .budget = {.steps = 7}, .delays = {exponential_delay(0.7)}, .objective = nullptr};
  MindflayerOptions options{.usual = {.limit = from_seconds(1), .arrival_probability = 0.5}};
  options.of_workers[1] = options.of_workers[3] = {.limit = from_seconds(2), .arrival_probability = 0.8};
  options.of_workers[2] = {.count = 4, .limit = from_seconds(1), .arrival_probability = 0.5};
  EXPECT_EQ(setup.run(*reading.algorithm).log, setup.run(Mindflayer(options)).log);
  EXPECT_THAT(with("{ workers = [] }").faults, HasSubstr("must name at least one worker"));
  EXPECT_THAT(with("{ workers = [4] }").faults, HasSubstr("workers"));
  EXPECT_THAT(with("{ workers = [1] }, { workers = [2, 1] }").faults, HasSubstr("worker 1 is listed twice"));
  EXPECT_THAT(with("{ workers = [1], limit_s = 2 }").faults,
              HasSubstr("must be given, because the group has its own limit_s"));
  EXPECT_EQ(with("{ workers = [1], limit_s = inf }").faults, "");
}

TEST(ClippingRennala, WithAnEndlessLimitEqualsKBatchSyncBitForBit) {
  for (const int trials : {1, 3, 5}) {
    SimulatedRun setup = three_workers(15);
    setup.micro_batches = 2;
    setup.momentum = 0.9;
    const auto plain = setup.run(KBatchSync(trials));
    const auto limited = setup.run(ClippingRennala({.trials = trials}));
    EXPECT_EQ(limited.parameters, plain.parameters);
    EXPECT_EQ(limited.log, plain.log);
    EXPECT_EQ(limited.totals.bytes, plain.totals.bytes);
  }
}

// One worker's trials would take 1, 3, 1.5 s in turn, with a limit of 2 s; messages take 0.25 s. The model arrives at
// 0.25 s. The trials end at 1.25, 3.25 (given up) and 4.75 s, and the third result arrives at 5 s. The mean over all
// three trials is two thirds of the mean of the two gradients.
TEST(ClippingRennala, GivesUpWhatIsNotDoneInTimeAndCountsIt) {
  SimulatedRun setup{.workers = 1,
                     .network_s = 0.25,
                     .rate = 0.3,
                     .budget = {.steps = 3},
                     .delays = {std::make_shared<TimesInTurn>(std::vector{0.0, 2.0, 0.5})}};
  const auto outcome = setup.run(ClippingRennala({.trials = 3, .limit = from_seconds(2)}));
  EXPECT_EQ(outcome.log, Log{"step 3 at 5.000 s: kept 2, dropped 0"});
  EXPECT_EQ(outcome.totals.kept, Counts{2});
  EXPECT_EQ(outcome.totals.dropped, Counts{2}) << "one given up, one under way at the end";
  EXPECT_EQ(outcome.totals.messages, 1 + 3);
  EXPECT_EQ(outcome.totals.bytes, Bytes{(1 + 2) * 16}) << "what has failed is no gradient";
  EXPECT_EQ(outcome.totals.accounts.front()[Activity::discarded], from_seconds(2.25));
  for (std::size_t i = 0; i < 4; ++i) {
    const double targets =
        PullObjective::target({Rank{0}, 0, 0}, i) + PullObjective::target({Rank{0}, 1, 0}, i);  // samples in turn
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.3 * (2 - targets) / 3, 1e-6);
  }
  expect_exact_accounts(outcome);
  const auto unbiased = setup.run(ClippingRennala({.trials = 3, .limit = from_seconds(2), .correction = 1.5}));
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(unbiased.parameters[i] - 1, 1.5 * (outcome.parameters[i] - 1.0f), 1e-6);
}

// With exponential times of mean mu, a trial with limit t takes mu (1 - exp(-t / mu)) on average, which is mu times its
// probability of success. There are so many trials that their common begin does not matter.
TEST(ClippingRennala, TrialsOfExponentialTimesTakeAndKeepWhatTheirLawSays) {
  constexpr double mu_s = 2;
  for (const double limit_s : {0.5, 2.0, 6.0}) {
    const SimulatedRun setup{.workers = 6,
                             .base_s = 1e-9,
                             .network_s = 0,
                             .budget = {.steps = 10'000},
                             .delays = {exponential_delay(mu_s)},
                             .objective = nullptr};
    const auto outcome = setup.run(ClippingRennala({.trials = 600, .limit = from_seconds(limit_s)}));
    const double share = 1 - std::exp(-limit_s / mu_s), trials = 10'000 * 6.0;
    EXPECT_NEAR(to_seconds(outcome.totals.end) / trials, mu_s * share / 6, 0.02 * mu_s * share / 6) << limit_s;
    EXPECT_NEAR(static_cast<double>(sum(outcome.totals.kept)) / trials, share, 0.02) << limit_s;
  }
}

// With several workers, successful trials are overrepresented among the first ones, because they end earlier. With one
// worker all trials count. If all have failed, one of them counts.
TEST(ClippingRennala, OfOneWorkerKeepsWhatTheLawSays) {
  for (const double limit_s : {1.5, 3.0}) {
    const PredictedRun run{
        .workers = 1, .micro_batches = 1, .delays = {exponential_delay(1)}, .steps = 8000, .network_s = 0.1};
    const auto simulated = run.simulate(ClippingRennala({.trials = 8, .limit = from_seconds(limit_s)}));
    const double failed = std::exp(-(limit_s - 1));
    EXPECT_NEAR(simulated.kept, 1 - failed + std::pow(failed, 8) / 8, 0.02) << limit_s;
  }
}

// Times of a step's messages, in seconds after its begin. Gradients arrive from worker 0 (1 s) at 1.75, 2.75 and 3.75,
// and from worker 1 (1.5 s) at 2.25 and 3.75. Worker 2's (4 s) notes of failed trials arrive at 2.25 and 4.25. The
// seventh message is the last of these. The next model takes 0.75 s.
TEST(ClippingRennala, OfConstantTimesHasAClosedForm) {
  const PredictedRun run{.workers = 3,
                         .micro_batches = 1,
                         .factors = {1, 1.5, 4},
                         .delays = {},
                         .steps = 700,
                         .network = quarter_and_half()};
  const ClippingRennala algorithm({.trials = 7, .limit = from_seconds(2)});
  const auto simulated = run.simulate(algorithm);
  EXPECT_NEAR(simulated.step_s, 3 / 7.0 * 5, 0.01);
  EXPECT_NEAR(simulated.kept, 5 / 7.0, 0.01);
}

// The first note arrives after 2 s, the first gradient after 2.25 s.
TEST(ClippingRennala, GoesOnUntilAGradientComes) {
  const PredictedRun run{
      .workers = 2, .micro_batches = 1, .factors = {1.5, 4}, .delays = {}, .steps = 400, .network = quarter_and_half()};
  const ClippingRennala algorithm({.trials = 1, .limit = from_seconds(1.75)});
  const auto simulated = run.simulate(algorithm);
  EXPECT_NEAR(simulated.step_s, 2 * (2.25 + 0.75), 0.02);
  EXPECT_NEAR(simulated.kept, 1, 0.01);
}

TEST(ClippingRennala, ALimitThatNobodyMeetsEndsTheRun) {
  SimulatedRun setup = three_workers(2);
  try {
    setup.run(ClippingRennala({.trials = 3, .limit = from_seconds(0.5)}));
    FAIL();
  } catch (const std::exception& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("finished within limit_s (0.5 s)"));
  }
}

TEST(ClippingRennala, GoesOnWhileWorkersAreDownLeaveOrLoseTheirState) {
  for (const bool loses : {false, true}) {
    SimulatedRun setup = three_workers(10);
    setup.data_of = {{}, 4, {}};
    setup.outages = std::make_shared<OutagePlan>(
        1,
        std::vector<OutageEntry>{
            {.workers = {Rank{0}}, .when = ScheduledOutage{from_seconds(2), from_seconds(3)}, .loses_state = loses}});
    const auto outcome = setup.run(ClippingRennala({.trials = 2, .limit = from_seconds(2)}));
    EXPECT_EQ(outcome.published, Step{10});
    EXPECT_EQ(outcome.totals.kept[2], 0) << "it needs 2.6 s";
    expect_exact_accounts(outcome);
  }
  SimulatedRun setup = three_workers(20);
  setup.data_of = {3, 2, 2};
  expect_exact_accounts(setup.run(ClippingRennala({.trials = 2, .limit = from_seconds(3)})));
}

TEST(ClippingRennala, NeedsTrialsAndALimit) {
  const std::string name = "algorithm = \"mindflayer\"\nrule = \"clipping-rennala\"\n";
  EXPECT_NE(read_method(name + "trials = 3").faults, "");
  EXPECT_NE(read_method(name + "limit_s = 3").faults, "");
  EXPECT_NE(read_method(name + "trials = 0\nlimit_s = 1").faults, "");
  EXPECT_NE(read_method(name + "trials = 1\nlimit_s = 0").faults, "");
  EXPECT_NE(read_method(name + "trials = 1\nlimit_s = 1\ncorrection = 0").faults, "");
  EXPECT_EQ(read_method(name + "trials = 1\nlimit_s = inf").faults, "");
}

}  // namespace
}  // namespace syncopate
