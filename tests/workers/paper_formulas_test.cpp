// Source of the figures: tests/golden/README.md, golden values of DropCompute, an independent computation.
#include "workers/theory/paper_formulas.hpp"

#include <gtest/gtest.h>

#include <boost/math/distributions/exponential.hpp>
#include <cmath>
#include <vector>

#include "workers/time/network.hpp"

namespace syncopate {
namespace {

TEST(DropComputeTheory, ExpectedMicroBatchesMatchTheTable) {
  const MicroBatchLaw law{.mean = 1, .deviation = 0.2};
  EXPECT_NEAR(expected_micro_batches(12, 10, law), 9.519786381129, 1e-11);
  EXPECT_NEAR(expected_micro_batches(12, 12, law), 11.433383004207, 1e-11);
  EXPECT_NEAR(expected_micro_batches(12, 13, law), 11.924257196916, 1e-11);
  EXPECT_NEAR(expected_micro_batches(12, 14, law), 11.998050738094, 1e-11);
}

// Micro-batches of the delay environment: t_0 (1 + eps), eps of the reference code's table.
const MicroBatchLaw delayed{.mean = 1.5, .deviation = std::sqrt(0.33750183770569775)};

TEST(DropComputeTheory, TheSlowestWorkerByTheCentralLimit) {
  EXPECT_NEAR(expected_slowest_worker(16, 12, delayed), 21.623354127, 1e-8);
}

// The table of S_eff: 16 workers, t_0 = 350 ms, T^c = 800 ms, and the mean T of the search case.
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
  EXPECT_EQ(expected_micro_batches(12, 5, {.mean = 1, .deviation = 0}), 4);  // what ends at the threshold is late
}

TEST(DropComputeTheory, WithoutADropNothingIsGained) {
  EXPECT_DOUBLE_EQ(effective_speedup(12, 12, 30, 20, 1), 1);
  // Half the micro-batches in half the time gain nothing without communication, and lose with it.
  EXPECT_DOUBLE_EQ(effective_speedup(6, 12, 10, 20, 0), 1);
  EXPECT_LT(effective_speedup(6, 12, 10, 20, 5), 1);
}

// The analytical optimum of the scale sweep at T^c = 0.9 (fact sheet on DropCompute, section 4.2).
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
    EXPECT_NEAR(best_threshold(12, delayed, slowest, 0.9).speedup, row.speedup, 0.0011) << row.workers;
  }
}

TEST(DropComputeTheory, ACapOnTheDropRateIsKept) {
  const auto free = best_threshold(12, delayed, 22, 0.9), capped = best_threshold(12, delayed, 22, 0.9, 0.05);
  EXPECT_GT(free.drop_rate, 0.05);
  EXPECT_LE(capped.drop_rate, 0.05);
  EXPECT_GT(capped.drop_rate, 0.04);  // as near to it as the grid comes
  EXPECT_GT(capped.threshold, free.threshold);
  EXPECT_LT(capped.speedup, free.speedup);
}

TEST(DropComputeTheory, WithoutSpreadNoThresholdIsTheBest) {
  const auto none = best_threshold(12, {.mean = 1, .deviation = 0}, 12, 1);
  EXPECT_TRUE(std::isinf(none.threshold));
  EXPECT_EQ(none.speedup, 1);
  EXPECT_EQ(none.drop_rate, 0);
}

// A law with a long tail, taken as normal, has its best threshold where no micro-batch can have ended.
TEST(DropComputeTheory, NoThresholdIsShorterThanAMicroBatchCanBe) {
  const MicroBatchLaw heavy{.mean = 2.5, .deviation = 40};
  const double slowest = expected_slowest_worker(64, 4, heavy), shortest = 1.5;
  ASSERT_LT(best_threshold(4, heavy, slowest, 0.1).threshold, shortest);
  const auto bounded = best_threshold(4, heavy, slowest, 0.1, 1, shortest);
  EXPECT_GE(bounded.threshold, shortest);
  EXPECT_NEAR(bounded.threshold, shortest, 1e-5);  // it falls off from there on
  // One that is out of reach for nobody changes nothing.
  EXPECT_EQ(best_threshold(12, delayed, 22, 0.9, 1, 1).threshold, best_threshold(12, delayed, 22, 0.9).threshold);
}

TEST(DropComputeTheory, TheBestThresholdIsBetterThanItsNeighbours) {
  const auto best = best_threshold(12, delayed, 22, 0.9);
  const auto at = [](double threshold) {
    return effective_speedup(expected_micro_batches(12, threshold, delayed), 12, threshold, 22, 0.9);
  };
  EXPECT_NEAR(at(best.threshold), best.speedup, 1e-12);
  for (double threshold = 5; threshold < 22; threshold += 0.01) EXPECT_GE(best.speedup, at(threshold) - 1e-9);
}

// Steps to converge with 50 and with 100 gradients per step, as measured by Chen et al. 2016.
const StepsNeeded inception = steps_on_a_line(50, 137.5e3, 100, 76.2e3);

// Source: the project's fact sheet on backup workers, section 2.4: the best of 50 to 100 for shifted
// exponential times by the product of shift and rate.
TEST(BackupTheory, TheBestQuorumNeedsATightBulk) {
  struct Row {
    double shift;
    int best;
  };
  const boost::math::exponential tail(1.0);
  for (const Row& row : {Row{0, 50}, Row{1, 50}, Row{3, 84}, Row{10, 95}}) {
    const Quantile time = [&](double p) { return row.shift + boost::math::quantile(tail, p); };
    EXPECT_EQ(best_quorum(100, 50, time, inception).quorum, row.best) << row.shift;
  }
}

// A step's communication is waited for as a shift of all times is: what is best with it is best with so late a start.
TEST(BackupTheory, CommunicationCountsAsAShiftOfAllTimes) {
  const boost::math::exponential tail(1.0);
  const auto shifted = [&](double shift) -> Quantile {
    return [=](double p) { return shift + boost::math::quantile(tail, p); };
  };
  const auto late = best_quorum(100, 50, shifted(3), inception);
  const auto talkative = best_quorum(100, 50, shifted(0), inception, 3);
  EXPECT_EQ(talkative.quorum, 84);
  EXPECT_NEAR(talkative.total_time, late.total_time, 1e-9 * late.total_time);
  EXPECT_NEAR(talkative.step_time + 3, late.step_time, 1e-9);
}

TEST(BackupTheory, WithoutStragglersNobodyIsABackup) {
  const auto best = best_quorum(
      100, 1, [](double) { return 2.0; }, inception);
  EXPECT_EQ(best.quorum, 100);
  EXPECT_NEAR(best.step_time, 2.0, 1e-9);
  EXPECT_NEAR(best.total_time, 2.0 * 76.2e3, 1e-3);
}

TEST(BackupTheory, ImpossibleQuorumsAreErrors) {
  EXPECT_THROW(best_quorum(
                   4, 0, [](double) { return 1.0; }, inception),
               std::invalid_argument);
  EXPECT_THROW(best_quorum(
                   4, 5, [](double) { return 1.0; }, inception),
               std::invalid_argument);
  EXPECT_THROW(steps_on_a_line(50, 1, 50, 2), std::invalid_argument);
}

// Hours of the data-parallel and the QSR runs of ViT-B as published by Gu et al. 2024, with the volumes of
// QSR's rounds; the split is algebra (fact sheet on QSR, section 5).
TEST(LocalSgdTheory, CommunicationOfThePublishedRuns) {
  const auto small = estimate_communication(26.7, 20.2, 0.10375);
  EXPECT_NEAR(small.communication, 7.25, 0.005);
  EXPECT_NEAR(small.computation, 19.45, 0.005);
  EXPECT_NEAR(small.communication_of(0.10375), 0.75, 0.005);
  const auto large = estimate_communication(8.6, 5.5, 0.1612);
  EXPECT_NEAR(large.communication, 3.70, 0.005);
  EXPECT_NEAR(large.computation, 4.90, 0.005);
  EXPECT_NEAR(large.communication_of(0.1612), 0.60, 0.005);
}

// The same section: shares of the total, before and with QSR.
TEST(LocalSgdTheory, SharesOfCommunicationOfThePublishedRuns) {
  const auto small = estimate_communication(26.7, 20.2, 0.10375);
  EXPECT_NEAR(small.communication / small.total(1), 0.27, 0.005);
  EXPECT_NEAR(small.communication_of(0.10375) / small.total(0.10375), 0.037, 0.0005);
  const auto large = estimate_communication(8.6, 5.5, 0.1612);
  EXPECT_NEAR(large.communication / large.total(1), 0.43, 0.005);
  EXPECT_NEAR(large.communication_of(0.1612) / large.total(0.1612), 0.108, 0.0005);
  EXPECT_NEAR(large.total(0.1612), 5.5, 1e-12);
}

// The same section: ideal ring all-reduces of 86.4 million parameters at 25 Gbit/s.
TEST(LocalSgdTheory, IdealRingsOfThePublishedRuns) {
  const auto ring = make_ring_network(0, 25e9 / 8);
  const Bytes parameters{4 * 86'400'000};
  EXPECT_NEAR(to_seconds(ring->all_reduce(16, parameters)), 0.208, 0.001);
  EXPECT_NEAR(to_seconds(ring->all_reduce(64, parameters)), 0.218, 0.001);
}

// Two workers, four steps: the slowest take 3, 2, 1 and 5; in rounds of two, 4 and 6; in rounds of three, 5 and 5.
TEST(LocalSgdTheory, TotalsOfRecordedSteps) {
  const std::vector<double> times = {1, 2, 1, 5,  //
                                     3, 1, 1, 1};
  EXPECT_DOUBLE_EQ(parallel_total(times, 2, 0.5), 11 + 4 * 0.5);
  EXPECT_DOUBLE_EQ(local_total(times, 2, 2, 0.5), 4 + 6 + 2 * 0.5);
  EXPECT_DOUBLE_EQ(local_total(times, 2, 3, 0.5), 5 + 5 + 2 * 0.5);
  EXPECT_DOUBLE_EQ(local_total(times, 2, 100, 0.5), 9 + 0.5);
  EXPECT_THROW(local_total(times, 3, 1, 0), std::invalid_argument);
  EXPECT_THROW(local_total(times, 0, 1, 0), std::invalid_argument);
  EXPECT_THROW(local_total(times, 2, 0, 0), std::invalid_argument);
}

// What the estimate calls communication contains what rounds save in waiting: without any of either it is exact.
TEST(LocalSgdTheory, TheEstimateBooksStragglingAsCommunication) {
  const std::vector<double> even(8, 1.0), uneven = {1, 2, 1, 5, 3, 1, 1, 1};
  const auto estimate = [](const std::vector<double>& times) {
    return estimate_communication(parallel_total(times, 2, 0.5), local_total(times, 2, 2, 0.5), 0.5);
  };
  EXPECT_DOUBLE_EQ(estimate(even).communication, 4 * 0.5);
  EXPECT_DOUBLE_EQ(estimate(uneven).communication, 4 * 0.5 + (11 - 10) / (1 - 0.5));
}

TEST(LocalSgdTheory, ATotalMadeOfKnownPartsIsTakenApartAgain) {
  const auto estimate = estimate_communication(3.0 + 10.0, 3.0 / 4 + 10.0, 1.0 / 4);
  EXPECT_NEAR(estimate.communication, 3, 1e-12);
  EXPECT_NEAR(estimate.computation, 10, 1e-12);
  EXPECT_NEAR(estimate.total(1.0 / 8), 3.0 / 8 + 10, 1e-12);
  EXPECT_THROW(estimate_communication(2, 1, 1), std::invalid_argument);
}

TEST(LocalSgdTheory, ARoundWaitsForTheSlowestSum) {
  EXPECT_DOUBLE_EQ(expected_round_time(1, 8, 1, 0.5, 0.25), 8.25);
  EXPECT_DOUBLE_EQ(expected_round_time(32, 8, 1, 0, 0.25), 8.25);
  // The expected maximum of 16 standard normal numbers is 1.765991393.
  EXPECT_NEAR(expected_round_time(16, 4, 1, 0.5, 0), 4 + 2 * 0.5 * 1.765991393, 1e-8);
  EXPECT_NEAR(expected_round_time(16, 9, 2, 0.5, 0.25), 18 + 3 * 0.5 * 1.765991393 + 0.25, 1e-8);
}

}  // namespace
}  // namespace syncopate
