// Times and bytes of synchronous methods whose sums are compressed, on the simulated cluster.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/compressed_method.hpp"
#include "tests/algorithms/compressed_sums.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;

// Micro-batches of 1 s, 2 s on worker 2; ring: 2 (N - 1) (L + P / (N B)), all-gather (N - 1) (L + p / B).
TEST(CompressionTimes, ExchangesTakeWhatTheNetworkSays) {
  const std::size_t size = 300;
  SimulatedRun setup{.workers = 3,
                     .network = make_ring_network(0.01, 1000),
                     .worker_factors = {1, 1, 2},
                     .objective = noise_at_first(size, 10, {{"m", 0, 300, 0, 10}})};
  EXPECT_EQ(setup.run(compressed(top_k(0.1))).log,
            (std::vector<std::string>{"step 1 at 2.500 s: kept 3, dropped 0", "step 2 at 5.000 s: kept 3, dropped 0"}));
  CompressionOptions random = of(Kind::random_k);
  random.ratio = 0.1;
  EXPECT_EQ(setup.run(compressed(random)).log.front(), "step 1 at 2.200 s: kept 3, dropped 0");
  CompressionOptions power = of(Kind::power);
  power.rank = 3;
  // 4 (0.01 + 120 / 3000) and 4 (0.01 + 360 / 3000)
  EXPECT_EQ(setup.run(compressed(power)).log.front(), "step 1 at 2.720 s: kept 3, dropped 0");
  const auto outcome = setup.run(compressed(power));
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 2 * 2 * (120 + 360)});
  EXPECT_EQ(outcome.totals.collectives, 4);
  EXPECT_EQ(outcome.rounds.size(), 2u);
  expect_exact_accounts(outcome);
}

// Broadcast on a ring: ceil(log2 N) (L + P / B); all-to-all (N - 1) (L + P / (N B)).
TEST(CompressionTimes, ExchangesOfOtherKindsTakeWhatTheNetworkSays) {
  SimulatedRun setup{.workers = 3,
                     .network = make_ring_network(0.01, 1000),
                     .worker_factors = {1, 1, 2},
                     .objective = noise_at_first(300, 10)};
  // 30 places, 2 (0.01 + 120 / 1000), and their values, 4 (0.01 + 120 / 3000).
  const auto leading = setup.run(compressed(scale_com(0.1, 1)));
  EXPECT_EQ(leading.log.front(), "step 1 at 2.460 s: kept 3, dropped 0");
  EXPECT_EQ(leading.totals.bytes, Bytes{2 * (2 * 120 + 2 * 2 * 120)});
  EXPECT_EQ(leading.totals.collectives, 4);
  expect_exact_accounts(leading);
  // Chunks of 100 values: 4 words of signs and a scale, 20 bytes; 2 (0.01 + 60 / 3000) twice.
  const auto in_phases = setup.run(compressed(in_two_phases(Kind::sign)));
  EXPECT_EQ(in_phases.log.front(), "step 1 at 2.120 s: kept 3, dropped 0");
  EXPECT_EQ(in_phases.totals.bytes, Bytes{2 * 2 * 2 * 60});
  EXPECT_EQ(in_phases.totals.collectives, 4);
  EXPECT_EQ(in_phases.rounds.size(), 2u);
  expect_exact_accounts(in_phases);
}

// Time-only runs, on fibers and in lockstep, take what training takes.
TEST(CompressionTimes, TimesNeedNoModel) {
  for (const CompressionOptions& options :
       {of(Kind::top_k), of(Kind::random_k), of(Kind::scalecom), of(Kind::sign), of(Kind::one_bit), of(Kind::majority),
        of(Kind::qsgd), in_two_phases(Kind::sign), in_two_phases(Kind::qsgd)}) {
    SimulatedRun setup{.workers = 3, .network = make_ring_network(0.01, 1000), .worker_factors = {1, 1, 2}};
    const auto trained = setup.run(compressed(options));
    setup.objective = nullptr;
    const auto timed = setup.run(compressed(options));
    setup.in_lockstep = true;
    const auto in_lockstep = setup.run(compressed(options));
    EXPECT_EQ(timed.log, trained.log);
    EXPECT_EQ(in_lockstep.log, trained.log);
    EXPECT_EQ(timed.totals.bytes, trained.totals.bytes);
    EXPECT_EQ(in_lockstep.totals.bytes, trained.totals.bytes);
  }
}

}  // namespace
}  // namespace syncopate
