#include <gtest/gtest.h>

#include <boost/math/distributions/exponential.hpp>

#include "workers/theory/paper_formulas.hpp"

namespace syncopate {
namespace {

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

}  // namespace
}  // namespace syncopate
