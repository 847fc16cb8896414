// The first row of metrics.csv: what the run starts with.
#include <gtest/gtest.h>

#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/run_results.hpp"

namespace syncopate {
namespace {

struct FirstRow : ExperimentFile {
  // Of the run's first row.
  double first_rate(const std::string& method) const {
    const auto run = load({"seeds=[3]", "methods=[" + method + "]"}).runs.at(0);
    const auto rows = outcome_of(run).recording.metrics;
    EXPECT_EQ(rows.at(0).step, Step{0});
    return rows.at(0).learning_rate;
  }
};

// That of the next step, as in all rows: of the phase's own schedule where that begins at once.
TEST_F(FirstRow, HasTheRateOfTheFirstStep) {
  EXPECT_DOUBLE_EQ(first_rate("{algorithm='sync-sgd'}"), 0.2);
  const std::string at_once = "{algorithm='local-sgd',period={rule='constant',steps=5},local_phase=";
  EXPECT_DOUBLE_EQ(first_rate(at_once + "{micro_batches=1}}"), 0.2);
  EXPECT_DOUBLE_EQ(first_rate(at_once + "{peak=0.05}}"), 0.05);
  EXPECT_DOUBLE_EQ(first_rate("{algorithm='local-sgd',period={rule='swap',switch_step=10},local_phase={peak=0.05}}"),
                   0.2);
}

}  // namespace
}  // namespace syncopate
