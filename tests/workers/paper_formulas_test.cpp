// Source of the numbers: the golden values of DropCompute in tests/golden/README.md, an independent computation.
#include "workers/theory/paper_formulas.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace syncopate {
namespace {

TEST(DropComputeTheory, ExpectedMicroBatchesMatchTheTable) {
  const MicroBatchLaw law{.mean = 1, .deviation = 0.2};
  EXPECT_NEAR(expected_micro_batches(12, 10, law), 9.519786381129, 1e-11);
  EXPECT_NEAR(expected_micro_batches(12, 12, law), 11.433383004207, 1e-11);
  EXPECT_NEAR(expected_micro_batches(12, 13, law), 11.924257196916, 1e-11);
  EXPECT_NEAR(expected_micro_batches(12, 14, law), 11.998050738094, 1e-11);
}

// Micro-batches of the delay environment take t_0 (1 + eps), with t_0 = 1 and eps from the reference code's table.
const MicroBatchLaw delayed{.mean = 1.5, .deviation = std::sqrt(0.33750183770569775)};

TEST(DropComputeTheory, TheSlowestWorkerByTheCentralLimit) {
  EXPECT_NEAR(expected_slowest_worker(16, 12, delayed), 21.623354127, 1e-8);
}

// The table of S_eff: 16 workers, t_0 = 350 ms, communication T^c = 800 ms, and the search case's mean iteration T.
TEST(DropComputeTheory, TheAnalyticalSpeedupsMatchTheTable) {
  struct Row {
    double threshold, given_slowest, analytical;
  };
  constexpr Row rows[] = {{4000, 1.063243628228, 1.045147803345},
                          {5000, 1.111989254253, 1.093063805483},
                          {6000, 1.129321653356, 1.110101216635},
                          {7000, 1.073396055982, 1.055127442333},
                          {8000, 0.999300537637, 0.999300537637}};
  const MicroBatchLaw law{.mean = 350 * delayed.mean, .deviation = 350 * delayed.deviation};
  for (const Row& row : rows) {
    const double completed = expected_micro_batches(12, row.threshold, law);
    EXPECT_NEAR(effective_speedup(completed, 12, row.threshold, 7713.061595614, 800), row.given_slowest, 1e-10);
    EXPECT_NEAR(effective_speedup(completed, 12, row.threshold, expected_slowest_worker(16, 12, law), 800),
                row.analytical, 1e-10);
  }
}

TEST(DropComputeTheory, ConstantMicroBatchesAreCounted) {
  EXPECT_EQ(expected_micro_batches(12, 5.5, {.mean = 1, .deviation = 0}), 5);
  EXPECT_EQ(expected_micro_batches(12, 100, {.mean = 1, .deviation = 0}), 12);
  EXPECT_EQ(expected_micro_batches(12, 5, {.mean = 1, .deviation = 0}), 4);  // one that ends at the threshold is late
}

TEST(DropComputeTheory, WithoutADropNothingIsGained) {
  EXPECT_DOUBLE_EQ(effective_speedup(12, 12, 30, 20, 1), 1);
  // Half of the micro-batches in half of the time gain nothing without communication, and lose with it.
  EXPECT_DOUBLE_EQ(effective_speedup(6, 12, 10, 20, 0), 1);
  EXPECT_LT(effective_speedup(6, 12, 10, 20, 5), 1);
}

double drop_rate_at(double threshold) { return 1 - expected_micro_batches(12, threshold, delayed) / 12; }
double speedup_at(double threshold, double slowest) {
  return effective_speedup(expected_micro_batches(12, threshold, delayed), 12, threshold, slowest, 0.9);
}

// The analytical optimum of a sweep over numbers of workers at T^c = 0.9, by Eqs. 4 and 5 of Giladi et al. 2023.
TEST(DropComputeTheory, TheBestThresholdOfTheScaleSweep) {
  struct Row {
    int workers;
    double slowest, speedup;
  };
  for (const Row& row : {Row{8, 20.94, 1.096}, Row{16, 21.62, 1.131}, Row{32, 22.23, 1.161}, Row{64, 22.77, 1.188},
                         Row{112, 23.17, 1.209}, Row{200, 23.57, 1.228}, Row{512, 24.16, 1.258},
                         Row{1024, 24.56, 1.278}, Row{2048, 24.95, 1.298}}) {
    const double slowest = expected_slowest_worker(row.workers, 12, delayed);
    EXPECT_NEAR(slowest, row.slowest, 0.0051) << row.workers;
    EXPECT_NEAR(speedup_at(best_threshold(12, delayed, slowest, 0.9), slowest), row.speedup, 0.0011) << row.workers;
  }
}

TEST(DropComputeTheory, ACapOnTheDropRateIsKept) {
  const double free = best_threshold(12, delayed, 22, 0.9), capped = best_threshold(12, delayed, 22, 0.9, 0.05);
  EXPECT_GT(drop_rate_at(free), 0.05);
  EXPECT_LE(drop_rate_at(capped), 0.05);
  EXPECT_GT(drop_rate_at(capped), 0.04);  // as near as the grid of thresholds allows
  EXPECT_GT(capped, free);
  EXPECT_LT(speedup_at(capped, 22), speedup_at(free, 22));
}

TEST(DropComputeTheory, WithoutSpreadNoThresholdIsTheBest) {
  EXPECT_TRUE(std::isinf(best_threshold(12, {.mean = 1, .deviation = 0}, 12, 1)));
}

// If a law with a long tail is treated as normal, its best threshold would be before any micro-batch has ended.
TEST(DropComputeTheory, NoThresholdIsShorterThanAMicroBatchCanBe) {
  const MicroBatchLaw heavy{.mean = 2.5, .deviation = 40};
  const double slowest = expected_slowest_worker(64, 4, heavy), shortest = 1.5;
  ASSERT_LT(best_threshold(4, heavy, slowest, 0.1), shortest);
  const double bounded = best_threshold(4, heavy, slowest, 0.1, 1, shortest);
  EXPECT_GE(bounded, shortest);
  EXPECT_NEAR(bounded, shortest, 1e-5);  // the speedup decreases from there on
  // A bound below the best threshold changes nothing.
  EXPECT_EQ(best_threshold(12, delayed, 22, 0.9, 1, 1), best_threshold(12, delayed, 22, 0.9));
}

TEST(DropComputeTheory, TheBestThresholdIsBetterThanItsNeighbours) {
  const double best = speedup_at(best_threshold(12, delayed, 22, 0.9), 22);
  for (double threshold = 5; threshold < 22; threshold += 0.01) EXPECT_GE(best, speedup_at(threshold, 22) - 1e-9);
}

}  // namespace
}  // namespace syncopate
