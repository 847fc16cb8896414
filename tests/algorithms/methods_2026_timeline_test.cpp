// Timelines of the federated classics, of NoLoCo, and of compressed sums of gradients: who waits for whom, and how long
// collectives and messages take on a ring. methods_2026_test.cpp compares the models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/compressions.hpp"
#include "workers/base/random.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using Log = std::vector<std::string>;
using Counts = std::vector<std::int64_t>;

SimulatedRun::Outcome run(const std::string& toml, const SimulatedRun& setup) {
  const MethodReading method = read_method(toml, {.workers = setup.workers});
  EXPECT_EQ(method.faults, "");
  return setup.run(*method.algorithm);
}

// Checks each worker's seconds of one activity.
void expect_seconds(const SimulatedRun::Outcome& outcome, Activity activity, const std::vector<double>& expected) {
  ASSERT_EQ(outcome.totals.accounts.size(), expected.size());
  for (std::size_t worker = 0; worker < expected.size(); ++worker)
    EXPECT_EQ(outcome.totals.accounts[worker][activity], from_seconds(expected[worker])) << "worker " << worker;
}

// The steps of four workers take 1, 1.25, 2 and 1 s. On their ring an all-reduce of a model, 16 bytes, takes
// 2 x 3 (0.01 + 16 / 4 / 1000) = 0.084 s.
SimulatedRun four_workers(int steps) {
  return {.workers = 4,
          .network = make_ring_network(0.01, 1000),
          .budget = {.steps = steps},
          .worker_factors = {1, 1.25, 2, 1}};
}

// In a round of four steps the workers take 4, 2, 1 and 3 steps, which last 4, 2.5, 2 and 3 s, so the others wait for
// worker 0. In a round of two steps they take 2, 2, 1 and 2, which last 2, 2.5, 2 and 2 s, so the others wait for
// worker 1. Steps that a worker leaves out count as dropped.
const std::string unequal_steps = "steps_of_workers = [4, 2, 1, 3]\nperiod = { rule = \"constant\", steps = 4 }\n";

TEST(FedProx, WaitsForTheWorkerWhoseOwnStepsTakeLongest) {
  const auto outcome = run("algorithm = \"fedprox\"\n" + unequal_steps, four_workers(6));
  EXPECT_EQ(outcome.log, (Log{"step 4 at 4.084 s: kept 10, dropped 6", "step 6 at 6.668 s: kept 7, dropped 1"}));
  expect_seconds(outcome, Activity::compute, {6, 5, 4, 5});
  expect_seconds(outcome, Activity::wait, {0.5, 1.5, 2.5, 1.5});
  expect_seconds(outcome, Activity::communicate, {0.168, 0.168, 0.168, 0.168});
  EXPECT_EQ(outcome.totals.kept, (Counts{6, 4, 2, 5}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{0, 2, 4, 1}));
  EXPECT_EQ(outcome.totals.collectives, 2);
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 2 * 3 * 16});
  expect_exact_accounts(outcome);
}

TEST(FedProx, WithoutNumbersOfStepsWaitsForTheSlowestWorker) {
  const auto outcome = run("algorithm = \"fedprox\"\nperiod = { rule = \"constant\", steps = 4 }\n", four_workers(4));
  EXPECT_EQ(outcome.log, Log{"step 4 at 8.084 s: kept 16, dropped 0"});
  expect_seconds(outcome, Activity::wait, {4, 3, 0, 4});
}

// Before the average, an all-gather of two numbers of eight bytes per worker takes 3 (0.01 + 16 / 1000) = 0.078 s.
// Nobody waits between the two collectives.
TEST(FedNova, GathersStepsBeforeEachAverage) {
  const auto outcome = run("algorithm = \"fednova\"\n" + unequal_steps, four_workers(6));
  EXPECT_EQ(outcome.log, (Log{"step 4 at 4.162 s: kept 10, dropped 6", "step 6 at 6.824 s: kept 7, dropped 1"}));
  expect_seconds(outcome, Activity::compute, {6, 5, 4, 5});
  expect_seconds(outcome, Activity::wait, {0.5, 1.5, 2.5, 1.5});
  expect_seconds(outcome, Activity::communicate, {0.324, 0.324, 0.324, 0.324});
  EXPECT_EQ(outcome.totals.kept, (Counts{6, 4, 2, 5}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{0, 2, 4, 1}));
  EXPECT_EQ(outcome.totals.collectives, 4);
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * (2 * 3 * 16 + 3 * 4 * 2 * 8)});
  expect_exact_accounts(outcome);
}

// Worker 2 takes 6 s for a round of three steps, and the others wait for it. Two all-reduces follow: of control
// variates, then of models. Each has a row of its own.
TEST(Scaffold, AveragesControlVariatesAndThenModels) {
  const auto outcome = run("algorithm = \"scaffold\"\nperiod = { rule = \"constant\", steps = 3 }\n", four_workers(6));
  EXPECT_EQ(outcome.log, (Log{"step 3 at 6.084 s: kept 12, dropped 0", "step 3 at 6.168 s: kept 0, dropped 0",
                              "step 6 at 12.252 s: kept 12, dropped 0", "step 6 at 12.336 s: kept 0, dropped 0"}));
  expect_seconds(outcome, Activity::compute, {6, 7.5, 12, 6});
  expect_seconds(outcome, Activity::wait, {6, 4.5, 0, 6});
  expect_seconds(outcome, Activity::communicate, {0.336, 0.336, 0.336, 0.336});
  EXPECT_EQ(outcome.totals.collectives, 4);
  EXPECT_EQ(outcome.totals.bytes, Bytes{4 * 2 * 3 * 16});
  expect_exact_accounts(outcome);
}

// With Option I the first round has a fourth step, for the gradient at the round's first model. The second round has
// none, because no budget is left. The additional step counts in rows, but not in the budget.
TEST(Scaffold, ComputesOneMoreStepPerRoundWithOptionI) {
  const auto outcome =
      run("algorithm = \"scaffold\"\ncontrol = \"gradient\"\nperiod = { rule = \"constant\", steps = 3 }\n",
          four_workers(6));
  EXPECT_EQ(outcome.log, (Log{"step 4 at 8.084 s: kept 16, dropped 0", "step 4 at 8.168 s: kept 0, dropped 0",
                              "step 7 at 14.252 s: kept 12, dropped 0", "step 7 at 14.336 s: kept 0, dropped 0"}));
  expect_seconds(outcome, Activity::compute, {7, 8.75, 14, 7});
  expect_seconds(outcome, Activity::wait, {7, 5.25, 0, 7});
  EXPECT_EQ(outcome.totals.kept, (Counts{7, 7, 7, 7}));
  EXPECT_EQ(outcome.totals.collectives, 4);
  EXPECT_EQ(outcome.totals.bytes, Bytes{4 * 2 * 3 * 16});
  EXPECT_EQ(outcome.published, Step{6});
  expect_exact_accounts(outcome);
}

// Worker 1 takes 3 s per step, worker 0 takes 1 s. A model of 16 bytes takes 0.1 s on a link, plus 0.1 s of latency, so
// the second of two models arrives 0.3 s after both were sent. Worker 1 sends its models at 6 and 12 s. It then already
// has those of worker 0, so it continues at once. Worker 0 continues at 6.3 s.
TEST(NoLoCo, TheFasterWorkerOfAPairWaitsForTwoModels) {
  const SimulatedRun pair{
      .workers = 2, .network = make_ring_network(0.1, 160), .budget = {.steps = 4}, .worker_factors = {1, 3}};
  const auto outcome = run("algorithm = \"noloco\"\nlocal_steps = 2\n", pair);
  EXPECT_EQ(outcome.log, (Log{"step 1 at 3.000 s: kept 2, dropped 0", "step 2 at 6.300 s: kept 2, dropped 0",
                              "step 3 at 9.000 s: kept 2, dropped 0", "step 4 at 12.300 s: kept 2, dropped 0"}));
  EXPECT_EQ(outcome.totals.end, start_time + from_seconds(12.3));
  expect_seconds(outcome, Activity::compute, {4, 12});
  // Worker 0 waits from 2.3 to 6 s and from 8.6 to 12 s. Worker 1 waits at the end, until worker 0 has its last model.
  expect_seconds(outcome, Activity::wait, {7.1, 0.3});
  expect_seconds(outcome, Activity::communicate, {1.2, 0});
  EXPECT_EQ(outcome.totals.messages, 2 * 2 * 2 + 1);
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 2 * 2 * 16 + (16 + 8)});
  EXPECT_EQ(outcome.totals.collectives, 0);
  expect_exact_accounts(outcome);
}

// The times at which workers continue after a round, by the round's last step. The run's last round is left out.
std::map<Step, std::vector<double>> ends_of_rounds(const SimulatedRun::Outcome& outcome, int workers) {
  std::map<Step, std::vector<double>> ends;
  for (const WorkerModel& model : outcome.individual_models) {
    auto& of_round = ends[model.step];
    of_round.resize(static_cast<std::size_t>(workers), -1);
    of_round[static_cast<std::size_t>(model.worker.value)] = to_seconds(model.time);
  }
  return ends;
}

// Worker 3 takes 5 s per step, the others 1 s. For any pairs, worker 3 continues at 10 s and its partner at 10.3 s. The
// remaining two workers have each other's models at 2.3 s.
TEST(NoLoCo, AWorkerWaitsForItsPartnerOnly) {
  SimulatedRun four{
      .workers = 4, .network = make_ring_network(0.1, 160), .budget = {.steps = 4}, .worker_factors = {1, 1, 1, 5}};
  four.individual_models_every = 2;
  const auto outcome = run("algorithm = \"noloco\"\nlocal_steps = 2\n", four);
  std::vector<double> ends = ends_of_rounds(outcome, 4)[2];
  ASSERT_EQ(ends.size(), 4u);
  EXPECT_NEAR(ends[3], 10, 1e-8);
  std::ranges::sort(ends);
  EXPECT_THAT(ends, testing::Pointwise(testing::DoubleNear(1e-8), {2.3, 2.3, 10.0, 10.3}));
  EXPECT_EQ(outcome.log, (Log{"step 1 at 5.000 s: kept 4, dropped 0", "step 2 at 10.300 s: kept 4, dropped 0",
                              "step 3 at 15.000 s: kept 4, dropped 0", "step 4 at 20.300 s: kept 4, dropped 0"}));
  expect_seconds(outcome, Activity::compute, {4, 4, 4, 20});
  expect_exact_accounts(outcome);
}

// The partners of a round, as the method draws them; a worker without a partner is its own.
std::vector<std::size_t> partners_in(int round, int workers) {
  std::vector<double> drawn;
  std::vector<std::size_t> order, partners(static_cast<std::size_t>(workers));
  for (int rank = 0; rank < workers; ++rank) {
    drawn.push_back(RandomStream{
        .seed = 1, .purpose = Purpose::algorithm, .stream = 1, .worker = {}, .step = Step{workers * round + rank}}
                        .uniform(0));
    order.push_back(static_cast<std::size_t>(rank));
  }
  std::ranges::sort(order, {}, [&](std::size_t rank) { return drawn[rank]; });
  for (std::size_t i = 0; i < order.size(); ++i)
    partners[order[i]] = (i ^ 1u) < order.size() ? order[i ^ 1u] : order[i];
  return partners;
}

// Worker i continues at max(t_i, t_k + L + 2 P / B), where its own local steps end at t_i and its partner's at t_k.
// With these step times no two workers send to the same worker at the same time, for any pairs.
TEST(NoLoCo, RoundsEndByTheRecursionOfRandomPairs) {
  const std::vector<double> step_s = {2.04, 2.61, 3.22, 3.82};
  constexpr int rounds = 5;
  for (const int workers : {3, 4}) {
    SimulatedRun setup{.workers = workers, .network = make_ring_network(0.1, 1600), .budget = {.steps = 2 * rounds}};
    setup.worker_factors.assign(step_s.begin(), step_s.begin() + workers);
    setup.individual_models_every = 2;
    const auto outcome = run("algorithm = \"noloco\"\nlocal_steps = 2\n", setup);
    const auto ends = ends_of_rounds(outcome, workers);
    ASSERT_EQ(ends.size(), static_cast<std::size_t>(rounds - 1));
    std::vector<double> expected(static_cast<std::size_t>(workers));
    for (int round = 0; round < rounds; ++round) {
      const auto partners = partners_in(round, workers);
      std::vector<double> ready = expected;
      for (std::size_t i = 0; i < ready.size(); ++i) ready[i] += 2 * step_s[i];
      for (std::size_t i = 0; i < ready.size(); ++i)
        expected[i] = partners[i] == i ? ready[i] : std::max(ready[i], ready[partners[i]] + 0.1 + 2 * 16 / 1600.0);
      const auto& row = outcome.rounds[static_cast<std::size_t>(2 * round + 1)];
      EXPECT_NEAR(to_seconds(row.end), std::ranges::max(expected), 1e-8) << round;
      if (round + 1 < rounds) {
        EXPECT_THAT(ends.at(Step{2 * (round + 1)}), testing::Pointwise(testing::DoubleNear(1e-8), expected)) << round;
      }
    }
    // Each worker with a partner sends two models per round, and each but worker 0 its last model and its weight.
    const int paired = workers - workers % 2;
    EXPECT_EQ(outcome.totals.messages, rounds * paired * 2 + workers - 1);
    EXPECT_EQ(outcome.totals.bytes, Bytes{rounds * paired * 2 * 16 + (workers - 1) * (16 + 8)});
    expect_exact_accounts(outcome);
  }
}

// A step's computing takes 2 s, on worker 2. On a ring of three an all-gather of packets of p bytes takes
// 2 (0.01 + p / 1000) s. The matrix of 16 x 15 values has six tiles of 8 x 5, the vector of 60 has ten of 6, and five
// values of each tile are sent: 30 with indices of 6 bits, and 50 with indices of 3 bits.
TEST(CompressedSumsTimes, OfBinsTilesAndDemoTakeWhatTheNetworkSays) {
  const std::vector<ParameterTensor> tensors = {{.name = "matrix", .offset = 0, .size = 240, .place = 0, .rows = 16},
                                                {.name = "vector", .offset = 240, .size = 60, .place = 1}};
  const SimulatedRun setup{.workers = 3,
                           .network = make_ring_network(0.01, 1000),
                           .worker_factors = {1, 1, 2},
                           .objective = noise_at_first(300, 10, tensors)};
  const auto expect = [&](const CompressionOptions& options, const Log& log, int packet) {
    SyncSgd method;
    method.compress(options);
    const auto outcome = setup.run(method);
    EXPECT_EQ(outcome.log, log);
    EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 3 * 2 * packet});
    EXPECT_EQ(outcome.totals.collectives, 2);
    expect_exact_accounts(outcome);
  };
  const auto two_steps = [](const std::string& first, const std::string& second) {
    return Log{"step 1 at " + first + " s: kept 3, dropped 0", "step 2 at " + second + " s: kept 3, dropped 0"};
  };
  const std::string small = "tile = 8, kept = 5", published = small + ", packing = \"published\"";
  // Four means per tensor, and 15 and 4 words with two bits per value.
  expect(compression("bins"), two_steps("2.236", "4.472"), 4 * (4 + 15 + 4 + 4));
  // Sixteen means per tensor, and 30 and 8 words with four bits per value.
  expect(compression("bins", "bins = 16"), two_steps("2.580", "5.160"), 4 * (16 + 30 + 16 + 8));
  // 6 and 5 words of indices, and per tensor four means and 2 and 4 words with two bits per value.
  expect(compression("tiles", small), two_steps("2.220", "4.440"), 4 * (6 + 4 + 2 + 5 + 4 + 4));
  // 14 and 11 bits per value with its index, in 14 and 18 words.
  expect(compression("tiles", published), two_steps("2.340", "4.680"), 4 * (14 + 4 + 18 + 4));
  // The same indices, and a float per value; twelve bytes per value with its index in the authors' code.
  expect(compression("demo", small), two_steps("2.748", "5.496"), 4 * (6 + 30 + 5 + 50));
  expect(compression("demo", published), two_steps("3.940", "7.880"), 12 * (30 + 50));
}

}  // namespace
}  // namespace syncopate
