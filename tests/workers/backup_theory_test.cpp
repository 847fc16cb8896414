#include "workers/theory/backup_theory.hpp"

#include <gtest/gtest.h>

#include <boost/math/distributions/exponential.hpp>

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
