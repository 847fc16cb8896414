#include "algorithms/local_sgd/local_rounds.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

const AlgorithmContext context{
    .workers = 4, .micro_batches = 2, .moment_decays = std::vector{0.5}, .total_steps = Step{24}};

SimulatedRun::Outcome outcome_of(const SimulatedRun& setup, const std::string& keys) {
  const MethodReading reading = read_method("algorithm = " + keys, context);
  EXPECT_EQ(reading.faults, "") << keys;
  return setup.run(*reading.algorithm);
}

std::string faults_of(const std::string& keys) { return read_method("algorithm = " + keys, context).faults; }

// Four workers of different speeds with momentum; only delays and pulls are random.
SimulatedRun four_workers() {
  return {.workers = 4,
          .micro_batches = 2,
          .momentum = 0.5,
          .rate = 0.05,
          .budget = {.steps = 24},
          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.3, 0.6, 1.2}), exponential_delay(0.5)}};
}

constexpr const char* every_4 = "\nperiod = { rule = 'constant', steps = 4 }";

// Each method with a name equals `rounds` with its options: models, times and drops agree bit for bit.
TEST(LocalRounds, AreTheMethodsThatHaveNames) {
  const std::string period = every_4, rounds = "'rounds'" + period;
  const std::vector<std::pair<std::string, std::string>> same = {
      {rounds, "'local-sgd'" + period},
      {rounds + "\nmoments = 'average'", "'local-sgd'\nmoments = 'average'" + period},
      {rounds + "\nlocal_phase = { micro_batches = 1 }", "'local-sgd'\nlocal_phase = { micro_batches = 1 }" + period},
      {rounds + "\nsteps = { kind = 'train' }", "'local-sgd'" + period},
      {rounds + "\nouter = { name = 'slowmo', momentum = 0.5 }",
       "'outer-local-sgd'\nouter = { name = 'slowmo', momentum = 0.5 }" + period},
      {rounds + "\nouter = { name = 'diloco', rate = 0.7, momentum = 0.6 }",
       "'outer-local-sgd'\nouter = { name = 'diloco', rate = 0.7, momentum = 0.6 }" + period},
      {"'diloco'\nrate = 0.7\nmomentum = 0.6" + period,
       "'outer-local-sgd'\nouter = { name = 'diloco', rate = 0.7, momentum = 0.6 }" + period},
      {"'diloco'" + period, "'outer-local-sgd'\nouter = { name = 'diloco', rate = 0.7, momentum = 0.9 }" + period},
      {rounds + "\ngroups = { size = 2, period = 1 }", "'hierarchical-sgd'\ngroup_size = 2\ngroup_period = 1" + period},
      {rounds + "\nsteps = { kind = 'drop', threshold_s = 14.0 }",
       "'dropcompute-local-sgd'\nthreshold_s = 14.0" + period},
      {rounds + "\nsteps = { kind = 'drop', threshold_s = 3.5, clock = 'step' }\nweights = 'steps'",
       "'dropcompute-local-sgd'\nthreshold_s = 3.5\nclock = 'step'\nweights = 'steps'" + period},
      {rounds + "\nsteps = { kind = 'pull', probability = 0.3, strength = 0.4 }\nouter = { name = 'plain' }",
       "'palsgd'\npull_probability = 0.3\npull_strength = 0.4\nouter = { name = 'plain' }" + period},
      {rounds + "\nlate = { next = 'own-steps' }", "'cocod-sgd'" + period},
      {rounds + "\nlate = { next = 'anchor', mixing = 0.6, momentum = 0.4 }",
       "'overlap-local-sgd'\nmixing = 0.6\nmomentum = 0.4" + period},
      {rounds + "\nlate = { next = 'eager' }\nouter = { name = 'slowmo', momentum = 0.5 }",
       "'overlapped-diloco'\nouter = { name = 'slowmo', momentum = 0.5 }" + period},
      {rounds + "\nlate = { next = 'outer-model' }\nouter = { name = 'diloco', rate = 0.7, momentum = 0.6 }",
       "'overlapped-diloco'\nupdate = 'delayed'\nouter = { name = 'diloco', rate = 0.7, momentum = 0.6 }" + period},
      {rounds + "\nlate = { next = 'outer-model', averaged = 'outer-model' }\n"
                "outer = { name = 'heavy-ball', rate = 0.9, momentum = 0.5 }",
       "'co2'\nanchor = 'outer-model'\nrate = 0.9\nmomentum = 0.5" + period},
      {rounds + "\nouter = { name = 'heavy-ball', momentum = 0.5 }", "'co2'\nrounds = 'blocking'" + period},
      {rounds + "\nfragments = 2\ndelay = 1\nmixing = 0.3\nouter = { name = 'diloco', rate = 0.7, momentum = 0.6 }",
       "'streaming-diloco'\nfragments = 2\ndelay = 1\nmixing = 0.3\n"
       "outer = { name = 'diloco', rate = 0.7, momentum = 0.6 }" +
           period},
      {"'rounds'\nperiod = { rule = 'loss', initial_period = 6 }", "'adacomm'\ninitial_period = 6"},
      {"'rounds'\nperiod = { rule = 'loss', initial_period = 6, interval_steps = 8 }\nouter = { name = 'plain' }",
       "'adacomm'\ninitial_period = 6\ninterval_steps = 8"},
      {"'rounds'\nperiod = { rule = 'per-moment', steps = 4, first_moment_period = 6 }",
       "'des-loc'\nperiod = 4\nfirst_moment_period = 6"},
  };
  const SimulatedRun setup = four_workers();
  for (const auto& [choice, named] : same) {
    const auto found = outcome_of(setup, choice), expected = outcome_of(setup, named);
    EXPECT_EQ(found.parameters, expected.parameters) << choice;
    EXPECT_EQ(found.log, expected.log) << choice;
    EXPECT_EQ(found.totals.dropped, expected.totals.dropped) << choice;
    EXPECT_EQ(found.totals.bytes, expected.totals.bytes) << choice;
  }
}

// An option without effect changes nothing: a time limit that is never reached, pulls that are never drawn, an outer
// step that goes the whole way to the mean, groups whose averages are never due. Each is combined with another option.
TEST(LocalRounds, AChoiceThatDoesNothingLeavesTheOthersAsTheyAre) {
  const std::string slowmo = "'rounds'\nouter = { name = 'slowmo', momentum = 0.5 }" + std::string(every_4);
  const std::string groups = "'rounds'\ngroups = { size = 2, period = 1 }" + std::string(every_4);
  const SimulatedRun setup = four_workers();
  for (const char* nothing : {"\nsteps = { kind = 'drop', threshold_s = inf }",
                              "\nsteps = { kind = 'pull', probability = 0.0 }", "\ngroups = { size = 2, period = 4 }"})
    EXPECT_EQ(outcome_of(setup, slowmo + nothing).parameters, outcome_of(setup, slowmo).parameters) << nothing;
  for (const char* nothing : {"\nsteps = { kind = 'pull', probability = 0.0 }", "\nouter = { name = 'plain' }"})
    EXPECT_EQ(outcome_of(setup, groups + nothing).parameters, outcome_of(setup, groups).parameters) << nothing;
}

// Groups of two average after 2 of 4 steps; then all take DiLoCo's outer step. No paper has this combination.
TEST(LocalRounds, OfGroupsWithAnOuterStepFollowTheRecursion) {
  constexpr int workers = 4, steps = 24;
  constexpr double rate = 0.05, outer_rate = 0.7, outer_momentum = 0.6;
  const SimulatedRun setup{.workers = workers, .rate = rate, .budget = {.steps = steps}};
  const auto outcome = outcome_of(setup,
                                  "'rounds'\ngroups = { size = 2, period = 2 }\n"
                                  "outer = { name = 'diloco', rate = 0.7, momentum = 0.6 }" +
                                      std::string(every_4));
  for (std::size_t i = 0; i < 4; ++i) {
    double shared = 1, velocity = 0;
    std::vector<double> theta(workers, shared);
    for (int step = 0; step < steps; ++step) {
      for (int k = 0; k < workers; ++k) theta[k] -= rate * (theta[k] - PullObjective::target({Rank{k}, step, 0}, i));
      if ((step + 1) % 2 == 0)
        theta = {(theta[0] + theta[1]) / 2, (theta[0] + theta[1]) / 2, (theta[2] + theta[3]) / 2,
                 (theta[2] + theta[3]) / 2};
      if ((step + 1) % 4 != 0) continue;
      const double gradient = shared - (theta[0] + theta[2]) / 2;
      velocity = outer_momentum * velocity + gradient;
      shared -= outer_rate * (gradient + outer_momentum * velocity);
      theta.assign(workers, shared);
    }
    EXPECT_NEAR(outcome.parameters[i], shared, 1e-5 * std::max(1.0, std::abs(shared)));
  }
}

// DES-LOC with DiLoCo's outer step: momentum is averaged after every 2 steps, and parameters after every 4. The outer
// step is along the parameters' mean only. No paper has this combination.
TEST(LocalRounds, WhoseMomentsHaveTheirOwnPeriodFollowTheRecursionUpToTheOuterStep) {
  constexpr int workers = 3, steps = 12;
  constexpr double rate = 0.05, inner = 0.5, outer_rate = 0.7, outer_momentum = 0.6;
  const SimulatedRun setup{.workers = workers, .momentum = inner, .rate = rate, .budget = {.steps = steps}};
  const auto outcome = outcome_of(setup,
                                  "'rounds'\nperiod = { rule = 'per-moment', steps = 4, first_moment_period = 2 }\n"
                                  "outer = { name = 'diloco', rate = 0.7, momentum = 0.6 }");
  const auto mean = [](const std::vector<double>& of) { return (of[0] + of[1] + of[2]) / workers; };
  for (std::size_t i = 0; i < 4; ++i) {
    double shared = 1, velocity = 0;
    std::vector<double> theta(workers, shared), momentum(workers, 0.0);
    for (int step = 0; step < steps; ++step) {
      for (int k = 0; k < workers; ++k) {
        momentum[k] = inner * momentum[k] + theta[k] - PullObjective::target({Rank{k}, step, 0}, i);
        theta[k] -= rate * momentum[k];
      }
      if ((step + 1) % 2 == 0) momentum.assign(workers, mean(momentum));
      if ((step + 1) % 4 != 0) continue;
      const double gradient = shared - mean(theta);
      velocity = outer_momentum * velocity + gradient;
      shared -= outer_rate * (gradient + outer_momentum * velocity);
      theta.assign(workers, shared);
    }
    EXPECT_NEAR(outcome.parameters[i], shared, 1e-5 * std::max(1.0, std::abs(shared)));
  }
}

// CoCoD-SGD with pulls: at probability 0 it equals CoCoD-SGD, and pulls of strength 0 only leave steps out.
TEST(LocalRounds, ThatAreLateMayHaveOtherSteps) {
  const SimulatedRun setup = four_workers();
  const std::string late = "'rounds'\nlate = { next = 'own-steps' }" + std::string(every_4);
  EXPECT_EQ(outcome_of(setup, late + "\nsteps = { kind = 'pull', probability = 0.0 }").parameters,
            outcome_of(setup, late).parameters);
  EXPECT_EQ(outcome_of(setup, late + "\nsteps = { kind = 'drop', threshold_s = inf }").parameters,
            outcome_of(setup, late).parameters);
  const auto pulled = outcome_of(setup, late + "\nsteps = { kind = 'pull', probability = 0.5, strength = 0.0 }");
  EXPECT_EQ(pulled.published, Step{24});
  EXPECT_GT(pulled.totals.dropped[0], 0);
  const auto stopped = outcome_of(setup, late + "\nsteps = { kind = 'drop', threshold_s = 6.0 }");
  EXPECT_EQ(stopped.published, Step{24});
  EXPECT_GT(stopped.totals.dropped[3], stopped.totals.dropped[0]);
}

TEST(LocalRounds, ThatStopMayEndWithAnOuterStep) {
  constexpr double rate = 0.1, outer_rate = 0.5;
  const SimulatedRun setup{.workers = 2,
                           .network_s = 0.5,
                           .rate = rate,
                           .budget = {.steps = 9},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 1.0})}};
  const auto outcome = outcome_of(setup,
                                  "'rounds'\nsteps = { kind = 'drop', threshold_s = 3.5 }\n"
                                  "outer = { name = 'plain', rate = 0.5 }\n"
                                  "period = { rule = 'constant', steps = 3 }");
  // Micro-batches take 1 s and 2 s: of its three steps, worker 1 finishes the first and is stopped in the second.
  EXPECT_NEAR(to_seconds(outcome.totals.end), 3 * (3.5 + 0.5), 1e-9);
  for (std::size_t i = 0; i < 4; ++i) {
    double shared = 1;
    for (int round = 0; round < 3; ++round) {
      double sum = 0;
      for (int k = 0; k < 2; ++k) {
        double theta = shared;
        for (int step = 3 * round; step < 3 * round + (k == 0 ? 3 : 1); ++step)
          theta -= rate * (theta - PullObjective::target({Rank{k}, step, 0}, i));
        sum += theta;
      }
      shared += outer_rate * (sum / 2 - shared);
    }
    EXPECT_NEAR(outcome.parameters[i], shared, 1e-6 * std::max(1.0, std::abs(shared)));
  }
}

TEST(LocalRounds, RefuseWhatHasNoMeaning) {
  const std::string rounds = "'rounds'" + std::string(every_4), drop = "\nsteps = { kind = 'drop', threshold_s = 9.0 }";
  EXPECT_THAT(faults_of(rounds + drop + "\ngroups = { size = 2, period = 1 }"), HasSubstr("stop at a time"));
  EXPECT_THAT(faults_of(rounds + drop + "\nlocal_phase = { micro_batches = 1 }"), HasSubstr("local_phase"));
  EXPECT_THAT(faults_of(rounds + "\nweights = 'steps'"), HasSubstr("weights"));
  EXPECT_THAT(faults_of(rounds + "\nsteps = { kind = 'trian' }"), HasSubstr("\"train\""));
  EXPECT_THAT(faults_of(rounds + drop + "\ncompression = { name = 'int8' }"), HasSubstr("different numbers of steps"));
  EXPECT_THAT(faults_of(rounds + "\nlate = { next = 'own-steps' }\nouter = { name = 'plain' }"),
              HasSubstr("do not begin the next round at a shared model"));
  EXPECT_THAT(faults_of(rounds + "\nlate = { next = 'eager' }"), HasSubstr("an outer step uses the average"));
  EXPECT_THAT(faults_of(rounds + "\nfragments = 2"), HasSubstr("an outer step uses the average"));
  EXPECT_THAT(faults_of(rounds + "\nlate = { next = 'own-steps' }\ngroups = { size = 2, period = 1 }"),
              HasSubstr("would wait for their group"));
  EXPECT_THAT(faults_of(rounds + "\nlate = { next = 'eager' }\nfragments = 2\nouter = { name = 'plain' }"),
              HasSubstr("a `delay` of their own"));
  EXPECT_THAT(faults_of(rounds + "\ngroups = { size = 5, period = 1 }"), HasSubstr("groups.size"));
  const std::string by_loss = "'rounds'\nperiod = { rule = 'loss', initial_period = 6 }";
  const std::string per_moment = "'rounds'\nperiod = { rule = 'per-moment', steps = 4 }";
  EXPECT_THAT(faults_of(by_loss + "\nlate = { next = 'own-steps' }"), HasSubstr("need all periods in advance"));
  EXPECT_THAT(faults_of(by_loss + drop), HasSubstr("skipped steps have no loss"));
  EXPECT_THAT(faults_of(per_moment + "\nlate = { next = 'own-steps' }"), HasSubstr("averaged together"));
  EXPECT_THAT(faults_of(per_moment + drop), HasSubstr("averaged together"));
  EXPECT_THAT(faults_of(per_moment + "\nmoments = 'average'"), HasSubstr("unknown key"));
  EXPECT_THAT(faults_of(per_moment + "\ncompression = { name = 'int8' }"), HasSubstr("with separate periods"));
  EXPECT_THAT(faults_of("'local-sgd'\nperiod = { rule = 'loss', initial_period = 6 }"), HasSubstr("must be one of"));
  EXPECT_THAT(read_method("algorithm = " + by_loss, {.workers = 4, .time_only = true}).faults,
              HasSubstr("needs a model"));
}

}  // namespace
}  // namespace syncopate
