// Times and bytes of methods in rounds whose averages are compressed, on the simulated cluster and by formula.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/compressed_averages.hpp"
#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;

// Rounds of 2 steps of 1 s, worker 2 twice as slow: 4 s; ring: all-gather (N - 1) (L + p / B) of 8 x 30 bytes,
// all-reduce 2 (N - 1) (L + P / (N B)) of 4 x 30.
TEST(CompressedAveragesTimes, TakeWhatTheNetworkSays) {
  SimulatedRun setup{.workers = 3,
                     .network = make_ring_network(0.01, 1000),
                     .budget = {.steps = 4},
                     .worker_factors = {1, 1, 2},
                     .objective = noise_at_first(300, 4)};
  LocalSgd local(make_constant_period(2), {});
  local.compress(of(Kind::top_k, 0.1));
  const auto outcome = setup.run(local);
  EXPECT_EQ(outcome.log,
            (std::vector<std::string>{"step 2 at 4.500 s: kept 6, dropped 0", "step 4 at 9.000 s: kept 6, dropped 0"}));
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 3 * 2 * 240});
  EXPECT_EQ(outcome.totals.collectives, 2);
  expect_exact_accounts(outcome);
  local.compress(of(Kind::random_k, 0.1));
  EXPECT_EQ(setup.run(local).log.front(), "step 2 at 4.200 s: kept 6, dropped 0");
  // 256 means and a byte each; a scale per 128 and half a byte each.
  const auto bytes_of = [&](Kind kind) {
    local.compress(of(kind));
    return setup.run(local).totals.bytes;
  };
  EXPECT_EQ(bytes_of(Kind::int8), Bytes{2 * 3 * 2 * (1024 + 300)});
  EXPECT_EQ(bytes_of(Kind::fp4), Bytes{2 * 3 * 2 * (4 * 3 + 4 * 38)});
}

// Time-only runs, on fibers and in lockstep, take what training takes; so does what is hidden by the next round.
TEST(CompressedAveragesTimes, TimesNeedNoModel) {
  for (const auto& [name, method] : in_rounds(3))
    for (const Kind kind : {Kind::top_k, Kind::random_k, Kind::sign, Kind::qsgd, Kind::int8, Kind::fp4}) {
      SimulatedRun setup{.workers = 3, .network = make_ring_network(0.01, 1000), .worker_factors = {1, 1, 2}};
      setup.budget = {.steps = 10};
      method->compress(of(kind));
      const auto trained = setup.run(*method);
      setup.objective = nullptr;
      const auto timed = setup.run(*method);
      setup.in_lockstep = true;
      const auto in_lockstep = setup.run(*method);
      EXPECT_EQ(timed.log, trained.log) << name;
      EXPECT_EQ(in_lockstep.log, trained.log) << name;
      EXPECT_EQ(timed.totals.bytes, trained.totals.bytes) << name;
      EXPECT_EQ(in_lockstep.totals.bytes, trained.totals.bytes) << name;
    }
}

// Rounds, bytes and round times by formula, against a run whose micro-batches all take 1 s.
TEST(CompressedAveragesTimes, FormulasAreThoseOfRuns) {
  constexpr std::int64_t steps = 6;
  for (const char* compression : {"{ name = \"top-k\", ratio = 0.5 }", "{ name = \"random-k\", ratio = 0.25 }",
                                  "{ name = \"sign\" }", "{ name = \"qsgd\" }", "{ name = \"int8\" }",
                                  "{ name = \"fp4\" }", "{ name = \"sign\", exchange = \"two-phase\" }"}) {
    const auto reading = read_method(local_sgd + "\ncompression = " + compression);
    ASSERT_EQ(reading.faults, "");
    const std::shared_ptr<const NetworkModel> network = make_ring_network(0.01, 1000);
    const auto outcome =
        SimulatedRun{.workers = 4, .network = network, .budget = {.steps = steps}}.run(*reading.algorithm);
    EXPECT_TRUE(reading.algorithm->compression()->of_averages);
    const auto exchanges = exchanges_of(reading.algorithm->compression(), {}, Bytes{16}, 4).back().exchanges;
    const LearningRate rate(LearningRate::Options{.peak = 0.1});
    const CommunicationInput input{.workers = 4,
                                   .parameter_bytes = Bytes{16},
                                   .steps = steps,
                                   .learning_rate = rate,
                                   .average_exchanges = exchanges};
    EXPECT_EQ(reading.algorithm->communication(input), (Communicated{steps / 3, outcome.totals.bytes})) << compression;
    const SampledTimes times;
    const PredictionInput prediction{.workers = 4,
                                     .times = times,
                                     .network = *network,
                                     .parameter_bytes = Bytes{16},
                                     .learning_rate = rate,
                                     .average_exchanges = exchanges};
    EXPECT_NEAR(prediction.average_s({}), to_seconds(outcome.totals.end) / 2 - 3, 1e-8) << compression;
  }
}

}  // namespace
}  // namespace syncopate
