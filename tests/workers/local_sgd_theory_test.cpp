#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "workers/theory/paper_formulas.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

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
