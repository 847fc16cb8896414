// The first row of metrics.csv: what the run starts with.
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

// At a constant rate each row's is that of the first step, as the method scales it: that of a server's single gradients
// by their number, that of backup workers by their quorum.
TEST_F(FirstRow, HasTheRateOfTheRowsThatFollow) {
  const auto rates = [this](const std::string& method) {
    const auto run = load({"seeds=[3]", "training.learning_rate={schedule='constant',peak=0.05}", "budget={steps=24}",
                           "evaluation.every_steps=6", "methods=[{" + method + "}]"})
                         .runs.at(0);
    std::vector<double> rates;
    for (const MetricsRow& row : outcome_of(run).recording.metrics) rates.push_back(row.learning_rate);
    return rates;
  };
  const auto expect = [&](const std::string& method, double rate) {
    const std::vector<double> found = rates(method);
    EXPECT_GT(found.size(), 2U);
    for (const double each : found) EXPECT_DOUBLE_EQ(each, rate) << method;
  };
  expect("algorithm='sync-sgd'", 0.05);
  expect("algorithm='async-sgd'", 0.05 / 4);
  expect("algorithm='async-sgd',rate_scaling='none'", 0.05);
  expect("algorithm='softsync',splitting=2", 0.05 / 2);
  expect("algorithm='k-async',gradients=3", 0.05 * 3 / 4);
  expect("algorithm='k-batch-async',gradients=3", 0.05 * 3 / 4);
  expect("algorithm='ringmaster',delay_threshold=2", 0.05 / 4);
  expect("algorithm='stale-synchronous',slack=2", 0.05 / 4);
  expect("algorithm='sliding-window',maximum_delay=2", 0.05 / 4);
  expect("algorithm='throttle',divisor=1", 0.05 / 4);
  expect("algorithm='bounded-delay',maximum_delay=2", 0.05);
  for (const std::string late : {"'finish'", "'cancel'"})
    expect("algorithm='backup-workers',backups=1,learning_rate='times-quorum',late=" + late, 0.05 * 3);
  expect("algorithm='backup-workers',backups=1,learning_rate='times-quorum',servers=3", 0.05 * 3);
  expect("algorithm='backup-workers',backups=1", 0.05);
  expect("algorithm='palsgd',period={rule='constant',steps=4},outer={name='plain'}", 0.05);
  expect("algorithm='stochastic-gradient-push'", 0.05);
}

}  // namespace
}  // namespace syncopate
