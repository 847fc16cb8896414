#include "algorithms/local_sgd/dropcompute_local_sgd.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using Clock = DropOptions::Clock;

const StatePolicies by_steps{.weights = ModelWeights::steps};

std::shared_ptr<const SyncPeriod> every(int steps) { return make_constant_period(steps); }

TEST(DropLocalSgd, WithoutAThresholdEqualsLocalSgdBitForBit) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 21}};
  const auto expected = setup.run(LocalSgd(every(4), {})).parameters;
  for (const Clock clock : {Clock::period, Clock::step})
    for (const StatePolicies& policies : {StatePolicies(), by_steps})
      EXPECT_EQ(setup.run(DropLocalSgd(every(4), {.clock = clock}, policies)).parameters, expected);
}

// Steps take 1 s, 1.4 s and 2 s; an average takes 0.5 s.
const SimulatedRun uneven{.budget = {.steps = 6},
                          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.4, 1.0})}};

TEST(DropLocalSgd, OneClockPerPeriodCutsThePeriodShort) {
  const auto outcome = uneven.run(DropLocalSgd(every(3), {.threshold = from_seconds(3.5)}));
  // After 3.5 s the workers have taken 3, 2 and 1 steps.
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 3 at 4.000 s: kept 6, dropped 3",
                             "step 6 at 8.000 s: kept 6, dropped 3",
                         }));
  EXPECT_EQ(outcome.totals.accounts[2][Activity::discarded], from_seconds(2 * 1.5));
}

TEST(DropLocalSgd, OneClockPerStepDropsEachStepThatIsLate) {
  const auto outcome = uneven.run(DropLocalSgd(every(3), {.threshold = from_seconds(1.5), .clock = Clock::step}));
  // Worker 2 gives up each step after 1.5 s; the period lasts for its three attempts.
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 3 at 5.000 s: kept 6, dropped 3",
                             "step 6 at 10.000 s: kept 6, dropped 3",
                         }));
}

// No step is skipped in a round without an end. After 3.5 s the workers have taken 3, 2 and 1 steps, and lose the step
// in progress. The budget ends the last round, after 2, 2 and 1 steps, at 10.0, 10.8 and 10.0 s.
TEST(DropLocalSgd, ARoundThatLastsUntilTheBudgetIsUsedUpPassesNothingOver) {
  SimulatedRun setup = uneven;
  setup.budget = {.seconds = 10};
  auto once = make_constant_period(std::numeric_limits<std::int64_t>::max() / 2);
  const auto outcome = setup.run(DropLocalSgd(std::move(once), {.threshold = from_seconds(3.5)}));
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 4 at 4.000 s: kept 6, dropped 3",
                             "step 8 at 8.000 s: kept 6, dropped 3",
                             "step 10 at 11.300 s: kept 5, dropped 0",
                         }));
}

// The first parameter after one round, in double precision.
TEST(DropLocalSgd, WeightsByStepsTakenWeighTheModels) {
  const auto after = [](int worker, int steps) {
    double x = 1;
    for (int t = 0; t < steps; ++t) x -= 0.1 * (x - PullObjective::target({Rank{worker}, t, 0}, 0));
    return x;
  };
  SimulatedRun setup = uneven;
  setup.budget.steps = Step{3};
  const auto equal = setup.run(DropLocalSgd(every(3), {.threshold = from_seconds(3.5)}));
  EXPECT_NEAR(equal.parameters[0], (after(0, 3) + after(1, 2) + after(2, 1)) / 3, 1e-5);
  const auto weighted = setup.run(DropLocalSgd(every(3), {.threshold = from_seconds(3.5)}, by_steps));
  EXPECT_NEAR(weighted.parameters[0], (3 * after(0, 3) + 2 * after(1, 2) + 1 * after(2, 1)) / 6, 1e-5);
}

// The budget cuts the second round to one step. All workers take this step, so their models have equal weights.
TEST(DropLocalSgd, WeightsAreTheStepsOfTheSameRound) {
  const auto step = [](double x, int worker, int t) {
    return x - 0.1 * (x - PullObjective::target({Rank{worker}, t, 0}, 0));
  };
  SimulatedRun setup = uneven;
  setup.budget.steps = Step{4};
  double first = 0, second = 0;
  for (int worker = 0; worker < 3; ++worker) {
    double x = 1;
    for (int t = 0; t < 3 - worker; ++t) x = step(x, worker, t);
    first += (3 - worker) * x / 6;
  }
  for (int worker = 0; worker < 3; ++worker) second += step(first, worker, 3) / 3;
  const auto outcome = setup.run(DropLocalSgd(every(3), {.threshold = from_seconds(3.5)}, by_steps));
  EXPECT_NEAR(outcome.parameters[0], second, 1e-5);
}

TEST(DropLocalSgd, ARoundInWhichNobodyTookAStepKeepsTheModel) {
  for (const StatePolicies& policies : {StatePolicies(), by_steps}) {
    const auto outcome = uneven.run(DropLocalSgd(every(3), {.threshold = from_seconds(0.5)}, policies));
    EXPECT_EQ(outcome.rounds.size(), 2u);
    EXPECT_EQ(outcome.rounds.back().kept, 0);
    EXPECT_FLOAT_EQ(outcome.parameters[0], 1.0f);
  }
}

// A step takes 1 s, and 3 s more with probability p, by the splitmix64 numbers of the recipe in tests/golden with seed
// 11, in the order worker, period, step.
class Straggle : public DelayProcess {
 public:
  static constexpr int periods = 100, steps = 8;
  Straggle(double probability, int slow_workers) : probability_(probability), slow_workers_(slow_workers) {}
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    const auto k = static_cast<std::uint64_t>(stream.worker.value * periods * steps + stream.step.value()) + 1;
    std::uint64_t z = 11 + k * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    const double u = static_cast<double>(z >> 11) * 0x1p-53;
    if (stream.worker.value < slow_workers_ && u < probability_) added_s[0] += 3;
  }
  double mean_s() const override { return 3 * probability_; }

 private:
  double probability_;
  int slow_workers_;
};

// The expected values are from an independent computation of this toy experiment: the mean period with and without a
// threshold, and the threshold's drop rate.
TEST(DropLocalSgd, TimesAndDropsMatchTheTabulatedToyExperiment) {
  struct Row {
    double probability;
    int slow_workers;
    double local_s, threshold_s, period_s, drop_rate;
  };
  for (const Row& row : {Row{0.04, 32, 14.17, 8.045226131, 8.545226131, 0.097539062},
                         Row{0.16, 8, 16.99, 8.050251256, 8.550251256, 0.081523438}}) {
    const SimulatedRun setup{.workers = 32,
                             .budget = {.steps = Straggle::periods * Straggle::steps},
                             .delays = {std::make_shared<Straggle>(row.probability, row.slow_workers)},
                             .objective = nullptr};
    const auto local = setup.run(LocalSgd(every(Straggle::steps), {}));
    EXPECT_NEAR(to_seconds(local.totals.end) / Straggle::periods, row.local_s, 0.0051);  // tabulated to two decimals
    const auto dropping = setup.run(DropLocalSgd(every(Straggle::steps), {.threshold = from_seconds(row.threshold_s)}));
    EXPECT_NEAR(to_seconds(dropping.totals.end) / Straggle::periods, row.period_s, 1e-8);
    const auto& dropped = dropping.totals.dropped;
    EXPECT_NEAR(std::accumulate(dropped.begin(), dropped.end(), 0.0) / (32 * 800), row.drop_rate, 1e-9);
  }
}

}  // namespace
}  // namespace syncopate
