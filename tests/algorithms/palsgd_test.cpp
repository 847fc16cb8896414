#include "algorithms/local_sgd/palsgd.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

PalSgd palsgd(const PullOptions& pull, int period = 4) {
  return PalSgd(make_constant_period(period), make_diloco(0.7, 0.9), pull);
}

TEST(PalSgd, WithoutPullsEqualsDiLoCoBitForBit) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 18}};
  const auto diloco = setup.run(OuterLocalSgd(make_constant_period(4), make_diloco(0.7, 0.9), {}));
  const auto pulled = setup.run(palsgd({.probability = 0}));
  EXPECT_EQ(pulled.parameters, diloco.parameters);
  EXPECT_EQ(pulled.log, diloco.log);
}

// The random number that decides whether a step is pulled, drawn as by Participant::uniform from SimulatedRun's seed.
double drawn(int worker, int step, Drawn draws) {
  const bool is_own = draws == Drawn::alone;
  return RandomStream{.seed = 1,
                      .purpose = Purpose::algorithm,
                      .stream = static_cast<std::uint8_t>(is_own ? 0 : 1),
                      .worker = is_own ? Rank{worker} : Rank{},
                      .step = Step{step}}
      .uniform(0);
}

// In double precision. A pull covers the share `strength` x rate / probability of the way to the outer model; rate /
// probability is 0.1 / 0.4.
TEST(PalSgd, IsTheRecursionOfStepsAndPulls) {
  constexpr int workers = 3, period = 5, rounds = 4;
  constexpr double rate = 0.1, p = 0.4;
  for (const Drawn draws : {Drawn::alone, Drawn::together})
    for (const double strength : {0.0, 0.5, 1.0}) {
      const SimulatedRun setup{.workers = workers, .rate = rate, .budget = {.steps = period * rounds}};
      const auto outcome = setup.run(palsgd({.probability = p, .strength = strength, .draws = draws}, period));
      int pulls = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        double outer = 1, momentum = 0;
        pulls = 0;
        for (int round = 0; round < rounds; ++round) {
          double average = 0;
          for (int k = 0; k < workers; ++k) {
            double theta = outer;
            for (int step = round * period; step < (round + 1) * period; ++step) {
              const bool is_pulled = drawn(k, step, draws) < p;
              pulls += is_pulled ? 1 : 0;
              theta -= is_pulled ? rate / p * strength * (theta - outer)
                                 : rate / (1 - p) * (theta - PullObjective::target({Rank{k}, step, 0}, i));
            }
            average += theta / workers;
          }
          const double difference = outer - average;
          momentum = 0.9 * momentum + difference;
          outer -= 0.7 * (difference + 0.9 * momentum);
        }
        EXPECT_NEAR(outcome.parameters[i], outer, 1e-6 * std::abs(outer)) << strength;
      }
      EXPECT_GT(pulls, 5);
      EXPECT_EQ(sum(outcome.totals.dropped), pulls);
      EXPECT_EQ(sum(outcome.totals.kept), workers * period * rounds - pulls);
      expect_exact_accounts(outcome);
    }
}

// Steps take 1 s, an average 0.5 s. A round takes as long as the unpulled steps of the worker that has most of these.
TEST(PalSgd, APulledStepTakesNoTime) {
  constexpr int workers = 3, period = 6;
  const SimulatedRun setup{.workers = workers, .budget = {.steps = 2 * period}};
  const auto outcome = setup.run(palsgd({.probability = 0.5}, period));
  double end_s = 0;
  for (int round = 0; round < 2; ++round) {
    int most = 0;
    for (int k = 0; k < workers; ++k) {
      int steps = 0;
      for (int step = round * period; step < (round + 1) * period; ++step)
        steps += drawn(k, step, Drawn::alone) < 0.5 ? 0 : 1;
      most = std::max(most, steps);
    }
    end_s += most + 0.5;
    EXPECT_EQ(outcome.rounds.at(static_cast<std::size_t>(round)).end, start_time + from_seconds(end_s));
  }
}

// A step that is not pulled takes 6 +- 0.4 s. A round's sum varies by these deviations and by the binomial number of
// such steps. The largest of 16 such sums lies 1.765991393 deviations above the mean.
TEST(PalSgd, TakesTheBinomialNumberOfItsSteps) {
  for (const double p : {0.0, 0.1, 0.4}) {
    const PredictedRun setting{.workers = 16, .steps = 64 * 64};
    const auto simulated = setting.simulate(palsgd({.probability = p}, 64));
    const double deviation_s = std::sqrt(64 * (1 - p) * (0.4 * 0.4 + p * 6 * 6));
    const double step_s = (64 * (1 - p) * 6 + deviation_s * 1.765991393 + 0.5) / 64;
    EXPECT_NEAR(simulated.step_s, step_s, 0.01 * step_s) << p;
    EXPECT_NEAR(simulated.drop_rate, p, 0.01) << p;
  }
}

TEST(PalSgd, GoesOnWithAWorkerThatHasLostItsState) {
  SimulatedRun setup{.workers = 3, .budget = {.steps = 24}};
  setup.outages = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{
             {.workers = {Rank{1}}, .when = ScheduledOutage{from_seconds(2.5), from_seconds(3)}, .loses_state = true}});
  const auto outcome = setup.run(palsgd({.probability = 0.3}, 6));
  EXPECT_EQ(outcome.published, Step{24});
  EXPECT_EQ(sum(outcome.totals.kept) + sum(outcome.totals.dropped),
            3 * 24);  // lost steps count as dropped, and are not repeated
  expect_exact_accounts(outcome);
}

TEST(PalSgd, AProbabilityIsBelowOne) {
  const std::string keys =
      "algorithm = \"palsgd\"\nperiod = { rule = \"constant\", steps = 4 }\nouter = { name = \"diloco\", rate = 0.7, "
      "momentum = 0.9 }\n";
  EXPECT_EQ(read_method(keys).faults, "");
  EXPECT_NE(read_method(keys + "pull_probability = 1.0").faults, "");
  EXPECT_NE(read_method(keys + "pull_probability = -0.1").faults, "");
  EXPECT_NE(read_method(keys + "pull_strength = -1").faults, "");
  EXPECT_NE(read_method(keys + "draws = \"theirs\"").faults, "");
}

}  // namespace
}  // namespace syncopate
