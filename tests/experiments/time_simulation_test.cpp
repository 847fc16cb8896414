// Runs that are too long to be simulated as a whole, and whose rounds change. Samples of their rounds are compared with
// simulations of the whole runs.
#include "experiments/execution/time_simulation.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/scheduled_experiment.hpp"

namespace syncopate {
namespace {

constexpr int steps = 20'000;

// Rounds grow from 4 to 64 steps as the learning rate falls.
constexpr const char* growing = "period={rule='power',power=2,coefficient=0.2,minimum=4,maximum=64}";

struct SampledRounds : ExperimentFile {
  syncopate::Run run(const std::string& method, Overrides more = {}) {
    write(scheduled_experiment(8, steps));
    more.insert(more.begin(), fmt::format("methods=[{{{}}}]", method));
    return load(more).runs.at(0);
  }
  static SimulatedTime sample(const syncopate::Run& run, int affordable = 4000) {
    const auto sampled = sample_time(run, ScheduledRounds(run), Step{affordable});
    EXPECT_TRUE(sampled && sampled->is_sampled && !sampled->whole);
    return sampled.value_or(SimulatedTime{});
  }
};

// With constant times a step takes 0.1 s, and a round 1 s more.
TEST_F(SampledRounds, OfConstantTimesTakeWhatTheirStepsAndAveragesTake) {
  const syncopate::Run of = run(fmt::format("algorithm='local-sgd',{}", growing));
  const auto rounds = static_cast<double>(ScheduledRounds(of).until(Step{steps}).rounds);
  ASSERT_GT(rounds, steps / 64.0 * 1.5);
  ASSERT_LT(rounds, steps / 4.0 * 0.7);
  const SimulatedTime sampled = sample(of);
  EXPECT_EQ(sampled.rounds, rounds);
  EXPECT_LT(sampled.steps, Step{steps});
  ASSERT_TRUE(sampled.error_s && *sampled.error_s > 0);
  EXPECT_LT(*sampled.error_s, 0.01 * sampled.step_time_s);
  EXPECT_NEAR(sampled.step_time_s, 0.1 + rounds / steps, 4 * *sampled.error_s);
  EXPECT_NEAR(sampled.communication_share * sampled.step_time_s, rounds / steps, 4 * *sampled.error_s);
  EXPECT_NEAR(sampled.computing_share + sampled.communication_share, 1, 1e-6);
}

// If all rounds are equal, the sample has no error.
TEST_F(SampledRounds, OfEqualRoundsAreExact) {
  const SimulatedTime sampled = sample(run("algorithm='local-sgd',period={rule='constant',steps=10}"));
  EXPECT_NEAR(sampled.step_time_s, 0.2, 1e-9);
  EXPECT_NEAR(*sampled.error_s, 0, 1e-9);
  EXPECT_NEAR(*sampled.total_time_s, 0.2 * steps, 1e-5);
}

// Workers of these methods wait for averages, or continue for a round meanwhile. Averages are over all workers, over
// groups, or of fragments. Steps may be dropped or replaced by pulls.
TEST_F(SampledRounds, AreThoseOfTheWholeRunWithinTheirError) {
  for (const char* method :
       {"algorithm='local-sgd',", "algorithm='outer-local-sgd',outer={name='plain'},",
        "algorithm='overlap-local-sgd',mixing=0.5,", "algorithm='cocod-sgd',",
        "algorithm='hierarchical-sgd',group_size=4,group_period=2,",
        "algorithm='streaming-diloco',fragments=2,outer={name='plain'},",
        "algorithm='dropcompute-local-sgd',threshold_s=0.8,", "algorithm='palsgd',outer={name='plain'},"}) {
    SCOPED_TRACE(method);
    const syncopate::Run of = run(std::string(method) + growing, {"delays=[{kind='exponential',mean=0.05}]"});
    const SimulatedTime sampled = sample(of), whole = simulate_time(of, Step{steps});
    ASSERT_TRUE(whole.whole && sampled.error_s && sampled.pace_error);
    EXPECT_LT(*sampled.error_s, 0.02 * whole.step_time_s);
    EXPECT_NEAR(sampled.step_time_s, whole.step_time_s, 4 * *sampled.error_s);
    EXPECT_NEAR(sampled.micro_batches_per_s, whole.micro_batches_per_s, 4 * *sampled.pace_error);
    EXPECT_NEAR(sampled.drop_rate, whole.drop_rate, 0.01);
    EXPECT_NEAR(sampled.communication_share, whole.communication_share, 0.03);
    EXPECT_EQ(sampled.rounds, whole.rounds);
    EXPECT_EQ(sampled.bytes, whole.bytes);
  }
}

// With this rule, the last round is a large part of the run. Each sampled place within it takes the whole round.
TEST_F(SampledRounds, MayBeLongerThanThePlacesAreApart) {
  const syncopate::Run of = run("algorithm='local-sgd',period={rule='power',power=2,coefficient=0.2,minimum=4}",
                                {"delays=[{kind='exponential',mean=0.05}]"});
  const auto span = ScheduledRounds(of).round_with(Step{steps - 1}, Step{steps});
  ASSERT_EQ(span.end, Step{steps});
  ASSERT_GT(span.end - span.begin, Step{steps / 64});
  const SimulatedTime sampled = sample(of), whole = simulate_time(of, Step{steps});
  EXPECT_NEAR(sampled.step_time_s, whole.step_time_s, 4 * *sampled.error_s);
}

// With a budget in seconds, the number of steps depends on the mean time of a step. This time depends in turn on the
// number of steps, because the rounds grow.
TEST_F(SampledRounds, EndWithABudgetThatDoesNotCountSteps) {
  const syncopate::Run of =
      run(fmt::format("algorithm='local-sgd',{}", growing), {"~budget.steps", "budget.seconds=3000"});
  const SimulatedTime sampled = sample(of), whole = simulate_time(of, Step{steps});
  ASSERT_TRUE(whole.whole);
  EXPECT_NEAR(*sampled.total_time_s, 3000, 1e-6);
  EXPECT_NEAR(sampled.step_time_s, whole.step_time_s, 4 * *sampled.error_s + 1e-3 * whole.step_time_s);
  EXPECT_NEAR(sampled.rounds, whole.rounds, 0.02 * whole.rounds);
}

TEST_F(SampledRounds, AreFoundByAnyOfTheirSteps) {
  const syncopate::Run of = run(fmt::format("algorithm='local-sgd',{}", growing));
  const ScheduledRounds rounds(of);
  Step begin{};
  for (std::int64_t number = 0; number < 200; ++number) {
    const auto first = rounds.round_with(begin, Step{steps});
    ASSERT_EQ(first.begin, begin);
    ASSERT_EQ(rounds.until(first.end).rounds, number + 1);
    ASSERT_EQ(rounds.until(first.end + Step{1}).rounds, number + 2);
    const auto last = rounds.round_with(first.end - Step{1}, Step{steps});
    ASSERT_EQ(last.begin, begin);
    ASSERT_EQ(last.end, first.end);
    begin = first.end;
  }
}

// With outages, rounds are not sampled, because later rounds depend on earlier ones.
TEST_F(SampledRounds, ThereAreNoneUnderOutages) {
  const syncopate::Run of = run(fmt::format("algorithm='local-sgd',{}", growing),
                                {"outages=[{mean_time_between_s=500.0,mean_duration_s=5.0}]"});
  EXPECT_FALSE(sample_time(of, ScheduledRounds(of), Step{4000}));
}

}  // namespace
}  // namespace syncopate
