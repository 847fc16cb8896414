#include "algorithms/local_sgd/des_loc.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "workers/base/process.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Step never = MomentSchedule::never;

SimulatedRun with_adamw(SimulatedRun setup = {}) {
  setup.optimizer = make_adamw({.beta1 = 0.8, .beta2 = 0.9});
  return setup;
}

LocalSgd local_sgd(int period, StatePolicy moments) {
  return LocalSgd(make_constant_period(period), {.average = {.moments = {moments, moments}}});
}

TEST(DesLoc, WithOnePeriodForAllEqualsLocalAdamBitForBit) {
  for (const int steps : {20, 22}) {
    const SimulatedRun setup = with_adamw({.workers = 4, .micro_batches = 2, .rate = 0.05, .budget = {.steps = steps}});
    const auto local_adam = setup.run(local_sgd(4, StatePolicy::average));
    const auto des_loc = setup.run(DesLoc(4, {Step{4}, Step{4}}));
    EXPECT_EQ(des_loc.parameters, local_adam.parameters);
    EXPECT_EQ(des_loc.log, local_adam.log);
    if (steps == 20) {
      EXPECT_EQ(des_loc.totals.bytes, local_adam.totals.bytes);
    }
  }
}

TEST(DesLoc, WithoutPeriodsForMomentsEqualsLocalSgdThatKeepsThemBitForBit) {
  const SimulatedRun setup = with_adamw({.workers = 4, .micro_batches = 2, .rate = 0.05, .budget = {.steps = 22}});
  const auto local = setup.run(local_sgd(4, StatePolicy::keep));
  const auto des_loc = setup.run(DesLoc(4, {never, never}));
  EXPECT_EQ(des_loc.parameters, local.parameters);
  EXPECT_EQ(des_loc.log, local.log);
  EXPECT_EQ(des_loc.totals.bytes, local.totals.bytes);
}

// In double precision. After each step that is a multiple of a vector's period, the mean replaces the vector. A moment
// is replaced before its next update, the parameters before the next gradient is taken.
TEST(DesLoc, IsTheRecursionWithAMeanBeforeEachUpdate) {
  constexpr int workers = 3, steps = 31;
  constexpr double rate = 0.05, beta1 = 0.8, beta2 = 0.9, epsilon = 1e-8;
  using Periods = std::array<int, 3>;
  for (const Periods& periods : {Periods{4, 12, 24}, Periods{4, 3, 6}, Periods{6, 2, 5}, Periods{1, 7, 2}}) {
    SimulatedRun setup{.workers = workers, .rate = rate, .budget = {.steps = steps}};
    setup.optimizer = make_adamw({.beta1 = beta1, .beta2 = beta2, .epsilon = epsilon, .weight_decay = {.rate = 0}});
    const auto outcome = setup.run(DesLoc(periods[0], {Step{periods[1]}, Step{periods[2]}}));
    for (std::size_t i = 0; i < 4; ++i) {
      std::array<double, workers> x{1, 1, 1}, u{}, v{};
      const auto mean = [](const std::array<double, workers>& values) {
        return (values[0] + values[1] + values[2]) / workers;
      };
      for (int t = 0; t < steps; ++t) {
        if (t % periods[0] == 0) x.fill(mean(x));
        if (t % periods[1] == 0) u.fill(mean(u));
        if (t % periods[2] == 0) v.fill(mean(v));
        for (int m = 0; m < workers; ++m) {
          const double gradient = x[m] - PullObjective::target({Rank{m}, t, 0}, i);
          u[m] = beta1 * u[m] + (1 - beta1) * gradient;
          v[m] = beta2 * v[m] + (1 - beta2) * gradient * gradient;
          x[m] -=
              rate * u[m] / (1 - std::pow(beta1, t + 1)) / (std::sqrt(v[m] / (1 - std::pow(beta2, t + 1))) + epsilon);
        }
      }
      EXPECT_NEAR(outcome.parameters[i], mean(x), 2e-5 * std::abs(mean(x))) << periods[0] << ' ' << periods[1];
    }
  }
}

TEST(DesLoc, OfSgdsMomentumIsTheRecursionToo) {
  constexpr int workers = 3, steps = 20, K_x = 4, K_u = 3;
  const SimulatedRun setup{.workers = workers, .momentum = 0.5, .rate = 0.1, .budget = {.steps = steps}};
  const auto outcome = setup.run(DesLoc(K_x, {Step{K_u}, never}));
  for (std::size_t i = 0; i < 4; ++i) {
    std::array<double, workers> x{1, 1, 1}, u{};
    for (int t = 0; t < steps; ++t) {
      if (t % K_x == 0) x.fill((x[0] + x[1] + x[2]) / 3);
      if (t % K_u == 0) u.fill((u[0] + u[1] + u[2]) / 3);
      for (int m = 0; m < workers; ++m) {
        u[m] = 0.5 * u[m] + x[m] - PullObjective::target({Rank{m}, t, 0}, i);
        x[m] -= 0.1 * u[m];
      }
    }
    EXPECT_NEAR(outcome.parameters[i], (x[0] + x[1] + x[2]) / 3, 1e-5 * std::abs(x[0]));
  }
}

// Steps take 1, 1.25 and 2 s, a collective 0.5 s. Momentum is averaged alone after steps 3 and 9, and with the
// parameters after step 6.
TEST(DesLoc, MeetsAfterEachStepThatAPeriodFallsOn) {
  const SimulatedRun setup{.momentum = 0.5,
                           .budget = {.steps = 9},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(DesLoc(2, {Step{3}, never}));
  EXPECT_THAT(outcome.log, ElementsAre("step 2 at 4.500 s: kept 6, dropped 0", "step 3 at 7.000 s: kept 3, dropped 0",
                                       "step 4 at 9.500 s: kept 3, dropped 0", "step 6 at 14.000 s: kept 6, dropped 0",
                                       "step 8 at 18.500 s: kept 6, dropped 0",
                                       "step 9 at 21.000 s: kept 3, dropped 0"));  // averages both vectors
  // Vectors of 16 bytes are averaged in this order: parameters x, momentum u, x, x and u, x, x and u. An all-reduce
  // over 3 workers sends 2 x 2 times their size.
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 2 * 16 * (1 + 1 + 1 + 2 + 1 + 2)});
  EXPECT_EQ(outcome.publications.size(), 5u);  // none if only momentum was averaged
  expect_exact_accounts(outcome);
}

// Workers end their round at 10, 10.25 and 11 s. Then the run's last two averages follow: the momentum's third average,
// and that of the parameters.
TEST(DesLoc, AveragesTheParametersWhereAClockEndsARoundOfMoments) {
  const SimulatedRun setup{.momentum = 0.5,
                           .budget = {.seconds = 10},
                           .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.25, 1.0})}};
  const auto outcome = setup.run(DesLoc(100, {Step{2}, never}));
  EXPECT_THAT(outcome.log,
              ElementsAre("step 2 at 4.500 s: kept 6, dropped 0", "step 4 at 9.000 s: kept 6, dropped 0",
                          "step 5 at 11.500 s: kept 3, dropped 0", "step 5 at 12.000 s: kept 0, dropped 0"));
  EXPECT_EQ(outcome.published, Step{5});
  expect_exact_accounts(outcome);
}

// A step has 1 / K_x + 1 / K_u + 1 / K_v all-reduces of a vector. With K_u = 3 K_x and K_v = 6 K_x that is 1.5 / K_x,
// half of Local Adam's 3 / K_x.
TEST(DesLoc, SendsHalfOfWhatLocalAdamDoes) {
  constexpr int workers = 6, K_x = 16, steps = 6 * K_x * 4;
  constexpr std::int64_t all_reduce = 2 * (workers - 1) * 16;  // bytes of an all-reduce of 16 bytes
  SimulatedRun setup = with_adamw({.workers = workers, .budget = {.steps = steps}});
  setup.objective = nullptr;
  const auto bytes_of = [&](const Algorithm& method) { return setup.run(method).totals.bytes.value(); };
  const auto des_loc = bytes_of(DesLoc(K_x, {Step{3 * K_x}, Step{6 * K_x}}));
  EXPECT_EQ(2 * K_x * des_loc, 3 * steps * all_reduce);  // 1.5 / K_x per step
  EXPECT_EQ(2 * des_loc, bytes_of(local_sgd(K_x, StatePolicy::average)));
  EXPECT_EQ(bytes_of(DesLoc(8, {Step{24}, Step{64}})),
            steps / 8 * all_reduce + steps / 24 * all_reduce + steps / 64 * all_reduce);
}

TEST(DesLoc, SaysWhatItCommunicates) {
  const LearningRate rate(LearningRate::Options{.peak = 0.1});
  using Periods = std::array<int, 3>;
  for (const Periods& periods : {Periods{4, 12, 24}, Periods{4, 3, 6}, Periods{6, 2, 5}, Periods{7, 7, 7}})
    for (const int steps : {48, 50, 55}) {
      SimulatedRun setup = with_adamw({.workers = 5, .budget = {.steps = steps}});
      setup.objective = nullptr;
      const DesLoc method(periods[0], {Step{periods[1]}, Step{periods[2]}});
      const auto known = method.communication(
          {.workers = 5, .parameter_bytes = Bytes{16}, .moments = 2, .steps = steps, .learning_rate = rate});
      const auto outcome = setup.run(method);
      ASSERT_TRUE(known);
      EXPECT_EQ(known->bytes, outcome.totals.bytes);
      EXPECT_EQ(known->rounds, std::ssize(outcome.rounds));
    }
}

// Averages with moments are larger, and take longer on a ring. All workers wait for the slowest sum of steps since the
// last average; the maximum of eight normal times lies 1.423600306 deviations above the mean.
TEST(DesLoc, TakesTheSlowestSumOfItsRoundsAndWhatTheyAverage) {
  using Periods = std::array<int, 3>;
  constexpr int steps = 16 * 120;
  for (const Periods& periods : {Periods{16, 48, 96}, Periods{16, 24, 40}}) {
    double communication_s = 0, total_s = 0;
    for (int step = 1, last = 0; step <= steps; ++step) {
      const auto vectors = std::ranges::count_if(periods, [&](int period) { return step % period == 0; });
      if (vectors == 0) continue;
      const double all_reduce_s = 2 * 7 * (0.05 + 16.0 * static_cast<double>(vectors) / 8 / 16);
      communication_s += all_reduce_s / steps;
      total_s += (step - last) * 3 + 0.2 * std::sqrt(2.0 * (step - last)) * 1.423600306 + all_reduce_s;
      last = step;
    }
    SimulatedRun setup{.workers = 8,
                       .micro_batches = 2,
                       .network = make_ring_network(0.05, 16),
                       .budget = {.steps = steps},
                       .delays = {noise},
                       .objective = nullptr};
    setup.optimizer = make_adamw({});
    const auto totals = setup.run(DesLoc(periods[0], {Step{periods[1]}, Step{periods[2]}})).totals;
    EXPECT_NEAR(to_seconds(totals.end), total_s, 0.01 * total_s);
    double simulated_s = 0;
    for (const Account& account : totals.accounts)
      simulated_s += to_seconds(start_time + account[Activity::communicate]) / 8 / steps;
    EXPECT_NEAR(simulated_s, communication_s, 1e-6);
  }
}

TEST(DesLoc, TakesAsLongOnOneProgramForAllWorkers) {
  SimulatedRun setup = with_adamw({.workers = 5, .budget = {.steps = 40}, .delays = {noise}});
  setup.objective = nullptr;
  const DesLoc method(4, {Step{3}, Step{10}});
  const auto on_fibers = setup.run(method);
  setup.in_lockstep = true;
  EXPECT_EQ(setup.run(method).log, on_fibers.log);
}

TEST(DesLoc, GoesOnWithAWorkerThatHasLostItsState) {
  SimulatedRun setup = with_adamw({.workers = 3, .budget = {.steps = 24}});
  setup.outages = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{
             {.workers = {Rank{1}}, .when = ScheduledOutage{from_seconds(8.3), from_seconds(3)}, .loses_state = true}});
  for (const Step first : {Step{12}, Step{5}}) {
    const auto outcome = setup.run(DesLoc(4, {first, Step{24}}));
    EXPECT_EQ(outcome.published, Step{24});
    EXPECT_GT(sum(outcome.totals.dropped), 0);  // local steps since the last average
    EXPECT_EQ(sum(outcome.totals.kept) + sum(outcome.totals.dropped), 3 * 24);
    expect_exact_accounts(outcome);
  }
}

TEST(DesLoc, EndsWithAReasonWhereAWorkerLeaves) {
  const SimulatedRun setup = with_adamw({.workers = 3, .budget = {.steps = 24}, .data_of = {{}, Step{6}, {}}});
  EXPECT_THROW(setup.run(DesLoc(4, {Step{3}, Step{6}})), RunFailure);
}

TEST(MomentSchedule, MeetsWhereAPeriodFalls) {
  const MomentSchedule schedule(4, {Step{6}, Step{9}});
  std::vector<std::int64_t> steps;
  for (Step done{}; done < 20;) steps.push_back((done += schedule.at(done, 0, Step{20} - done)).value());
  EXPECT_THAT(steps, ElementsAre(4, 6, 8, 9, 12, 16, 18, 20));
  const auto vectors = [&](int step) { return schedule.due(step, 20, {}).averaged_vectors(2); };
  EXPECT_EQ(vectors(8), 1);
  EXPECT_EQ(vectors(12), 2);
  EXPECT_EQ(vectors(18), 2);
  EXPECT_EQ(schedule.due(18, 20, {}).parameters, StatePolicy::keep);
  EXPECT_EQ(schedule.due(18, 20, {}).buffers, StatePolicy::keep);
  EXPECT_EQ(schedule.due(18, 18, {}).parameters, StatePolicy::average);
}

TEST(MomentSchedule, HalfOfAMomentIsLeftAfterItsHalfLife) {
  for (const double beta : {0.9, 0.95, 0.99, 0.999}) EXPECT_NEAR(std::pow(beta, half_life(beta)), 0.5, 1e-12);
  EXPECT_NEAR(half_life(0.9), 6.6, 0.05);
  EXPECT_NEAR(half_life(0.95), 13.5, 0.05);
  EXPECT_NEAR(half_life(0.99), 69, 0.05);
  EXPECT_NEAR(half_life(0.999), 693, 0.5);
}

// The vectors that 2 workers send in 2,772 steps (2 x 16 bytes each) show which periods a file's keys give.
std::int64_t vectors_sent(const std::string& keys, const std::vector<double>& decays) {
  const auto reading = read_method("algorithm = \"des-loc\"\n" + keys, {.workers = 2, .moment_decays = decays});
  EXPECT_EQ(reading.faults, "") << keys;
  const LearningRate rate(LearningRate::Options{.peak = 0.1});
  return reading.algorithm
             ->communication({.workers = 2,
                              .parameter_bytes = Bytes{16},
                              .moments = static_cast<int>(decays.size()),
                              .steps = 2772,
                              .learning_rate = rate})
             ->bytes.value() /
         32;
}

TEST(DesLoc, ReadsItsPeriods) {
  const std::vector<double> adam = {0.9, 0.999}, sgd = {0.9};
  EXPECT_EQ(vectors_sent("period = 4", adam), 2772 / 4 + 2772 / 12 + 2772 / 24);
  EXPECT_EQ(vectors_sent("period = 4", sgd), 2772 / 4 + 2772 / 12);
  EXPECT_EQ(vectors_sent("period = 4", {}), 2772 / 4);
  EXPECT_EQ(vectors_sent("period = 4\nmoment_periods = \"half-life\"", adam), 2772 / 4 + 2772 / 7 + 2772 / 693);
  EXPECT_EQ(vectors_sent("period = 4\nmoment_periods = \"half-life\"", {0.0, 0.0}), 2772 / 4 + 2772 + 2772);
  EXPECT_EQ(vectors_sent("period = 4\nmoment_periods = \"never\"", adam), 2772 / 4);
  EXPECT_EQ(vectors_sent("period = 4\nmoment_periods = \"never\"\nsecond_moment_period = 11", adam),
            2772 / 4 + 2772 / 11);
  EXPECT_EQ(vectors_sent("period = 4\nfirst_moment_period = 9", adam), 2772 / 4 + 2772 / 9 + 2772 / 24);
}

TEST(DesLoc, FaultsNameTheKey) {
  const auto faults = [](const std::string& keys, const std::vector<double>& decays) {
    return read_method("algorithm = \"des-loc\"\n" + keys, {.workers = 4, .moment_decays = decays}).faults;
  };
  EXPECT_THAT(faults("", {0.9, 0.999}), HasSubstr("period"));
  EXPECT_THAT(faults("period = 0", {0.9, 0.999}), HasSubstr("period = 0"));
  EXPECT_THAT(faults("period = 4\nsecond_moment_period = 8", {0.9}), HasSubstr("no second moment"));
  EXPECT_THAT(faults("period = 4\nfirst_moment_period = 8", {}), HasSubstr("no moments"));
  EXPECT_THAT(faults("period = 4\nfirst_moment_period = 0", {0.9}), HasSubstr("first_moment_period = 0"));
  EXPECT_THAT(faults("period = 4\nmoment_periods = \"half\"", {0.9}), HasSubstr("half-life"));
}

}  // namespace
}  // namespace syncopate
