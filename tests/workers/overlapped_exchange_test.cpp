// Exchanges that begin during the backward pass, against the closed form of equal workers and, of unequal ones, against
// the recursion worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

constexpr double latency_s = 0.01, bandwidth = 100;
constexpr double bytes = 16;  // of SimulatedRun's gradients

double sum_s(double payload, int workers) {
  return 2.0 * (workers - 1) * latency_s + 2.0 * (workers - 1) / workers * payload / bandwidth;
}

SimulatedRun setup(const Overlap& overlap) {
  return {.workers = 4,
          .micro_batches = 3,
          .base_s = 0.25,
          .network = make_ring_network(latency_s, bandwidth, {.overlap = overlap}),
          .budget = {.steps = 5}};
}

// All alike: a step takes its computation and max(c(P / K), K c(P / K) - f d (K - 1) / K).
TEST(OverlappedExchange, OfEqualWorkersHasAClosedForm) {
  for (const int buckets : {1, 2, 8})
    for (const double share : {0.0, 0.2, 0.66, 1.0}) {
      const SimulatedRun run = setup({buckets, share});
      const double one_s = sum_s(bytes / buckets, run.workers);
      const double visible_s =
          std::max(one_s, buckets * one_s - share * run.base_s * (buckets - 1) / static_cast<double>(buckets));
      const double step_s = run.micro_batches * run.base_s + visible_s;
      const auto outcome = run.run(SyncSgd());
      EXPECT_NEAR(to_seconds(outcome.totals.end), 5 * step_s, 1e-7) << buckets << " buckets, share " << share;
      EXPECT_NEAR(to_seconds(outcome.totals.accounts[0][Activity::communicate]), 5 * visible_s, 1e-7);
      expect_exact_accounts(outcome);
    }
}

// What it computes is the same; bytes too.
TEST(OverlappedExchange, ChangesTimesAlone) {
  SimulatedRun plain = setup({2, 0.66});
  plain.network = make_ring_network(latency_s, bandwidth);
  const auto before = plain.run(SyncSgd()), after = setup({2, 0.66}).run(SyncSgd());
  EXPECT_EQ(after.parameters, before.parameters);
  EXPECT_EQ(after.totals.bytes, before.totals.bytes);
  EXPECT_LT(after.totals.end, before.totals.end);
}

// Two workers, the second twice as slow: the slower one's buckets decide.
TEST(OverlappedExchange, OfUnequalWorkersWaitsForEachBucketOfTheSlowest) {
  SimulatedRun run = setup({2, 0.5});
  run.workers = 2;
  run.worker_factors = {1, 2};
  run.budget = {.steps = 1};
  const double one_s = sum_s(bytes / 2, 2), done_s = 3 * 2 * run.base_s, d = 2 * run.base_s;
  const double first_s = done_s - 0.5 * d / 2 + one_s;  // ends then
  EXPECT_NEAR(to_seconds(run.run(SyncSgd()).totals.end), std::max(first_s, done_s) + one_s, 1e-7);
}

// Whose last micro-batch was lost at the threshold has nothing to send before it; where all come to their end it has.
TEST(OverlappedExchange, OfDropCompute) {
  SimulatedRun run = setup({2, 1.0});
  run.budget = {.steps = 1};
  const double one_s = sum_s(bytes / 2, run.workers);
  const auto end_s = [&](double threshold_s) {
    return to_seconds(run.run(DropCompute(from_seconds(threshold_s), Preempt::discard, 0)).totals.end);
  };
  EXPECT_NEAR(end_s(0.6), 0.6 + 2 * one_s, 1e-7);
  EXPECT_NEAR(end_s(0.8), 0.75 + std::max(one_s, 2 * one_s - run.base_s / 2), 1e-7);
}

}  // namespace
}  // namespace syncopate
