#include "workers/theory/local_sgd_theory.hpp"

#include <gtest/gtest.h>

#include <cmath>

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
}

}  // namespace
}  // namespace syncopate
