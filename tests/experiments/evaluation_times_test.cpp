// evaluation.every_seconds against timelines worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/experiments/method_outcomes.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The slowest worker takes 3 s, an average or all-reduce 0.25 s. The loss is half the squared distance from the
// optimum, which a step shortens to 0.9 of itself.
constexpr const char* experiment = R"(
[cluster]
workers = 5
micro_batch_s = 1.0
worker_factors = [1, 1.2, 3, 1, 1.1]
[network]
kind = "fixed"
latency_s = 0.25
[training]
model = "quadratic"
[models.quadratic]
dimension = 20
condition = 1
noise = 0
[training.learning_rate]
schedule = "constant"
peak = 0.1
[training.optimizer]
name = "sgd"
[budget]
steps = 13
[evaluation]
every_seconds = 10
[[methods]]
algorithm = "sync-sgd"
)";

class EvaluationTimes : public MethodOutcomes {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    write(experiment);
  }
};

std::vector<double> times_of(const Outcome& outcome) {
  std::vector<double> times;
  for (const MetricsRow& row : outcome.recording.metrics) times.push_back(to_seconds(row.time));
  return times;
}

// Step k ends at 3.25 k.
TEST_F(EvaluationTimes, OfSynchronousSgdTheFirstStepAtOrAfterEachMultipleIsEvaluated) {
  const Outcome outcome = outcome_with("algorithm='sync-sgd'");
  EXPECT_THAT(steps_of(outcome), ElementsAre(0, 4, 7, 10, 13));
  EXPECT_THAT(times_of(outcome), ElementsAre(0, 13, 22.75, 32.5, 42.25));
  // Nothing is interpolated: the losses are those after these steps.
  for (const MetricsRow& row : outcome.recording.metrics)
    EXPECT_NEAR(row.evaluation->test_loss / outcome.recording.metrics[0].evaluation->test_loss,
                std::pow(0.9, 2 * row.step.value()), 1e-4);
  EXPECT_THAT(steps_of(outcome_with("algorithm='sync-sgd'", {"evaluation.every_seconds=6.5"})),
              ElementsAre(0, 2, 4, 6, 8, 10, 12, 13))
      << "a step that ends at a multiple is the one";
}

TEST_F(EvaluationTimes, MultiplesThatNoModelLiesBetweenHaveOneRow) {
  EXPECT_THAT(steps_of(outcome_with("algorithm='sync-sgd'", {"evaluation.every_seconds=1"})),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13));
  EXPECT_THAT(steps_of(outcome_with("algorithm='sync-sgd'", {"evaluation.every_seconds=100"})), ElementsAre(0, 13));
}

// Rounds end at 12.25, 24.5, 36.75, and the last one, of a step, at 40.
TEST_F(EvaluationTimes, OfLocalSgdAveragesAreEvaluated) {
  const std::string method = "algorithm='local-sgd',period={rule='constant',steps=4}";
  EXPECT_THAT(steps_of(outcome_with(method)), ElementsAre(0, 4, 8, 12, 13));
  const Outcome rarer = outcome_with(method, {"evaluation.every_seconds=13"});
  EXPECT_THAT(steps_of(rarer), ElementsAre(0, 8, 12, 13));
  EXPECT_THAT(times_of(rarer), ElementsAre(0, 24.5, 36.75, 40));
}

// Workers that never meet: at 10 s worker 0 is in step 10, 1 has its 9th at 10.8, 2 its 4th at 12, 4 its 10th at 11.
TEST_F(EvaluationTimes, WhereWorkersHaveModelsOfTheirOwnEachHasItsFirstAtOrAfterTheTime) {
  const Outcome outcome =
      outcome_with("algorithm='dynamic-averaging',threshold=inf,check_every=2", {"evaluation.every_seconds=5"});
  const auto& rows = outcome.recording.metrics;
  EXPECT_THAT(steps_of(outcome), ElementsAre(0, 5, 10, 13));
  EXPECT_EQ(to_seconds(rows[1].time), 6);  // of the second step of worker 2
  EXPECT_EQ(to_seconds(rows[2].time), 12);
  const auto expected = [](const std::vector<int>& steps) {
    double distance = 0;
    for (const int step : steps) distance += std::pow(0.9, step) / 5;
    return distance * distance;
  };
  const double first = rows[0].evaluation->test_loss;
  EXPECT_NEAR(rows[1].evaluation->test_loss / first, expected({5, 5, 2, 5, 5}), 1e-4);
  EXPECT_NEAR(rows[2].evaluation->test_loss / first, expected({10, 9, 4, 10, 10}), 1e-4);
}

// A server publishes with each gradient, also between two steps of the file: the rows are the first at or after each
// multiple. Of all rows by steps none lies between the multiple and the row.
TEST_F(EvaluationTimes, OfAllMethodsRowsAreTheFirstAtOrAfterEachMultiple) {
  for (const std::string method :
       {"algorithm='async-sgd'", "algorithm='backup-workers',backups=2", "algorithm='softsync',splitting=2",
        "algorithm='decentralized-sgd'", "algorithm='stochastic-gradient-push'",
        "algorithm='eager-sgd',activation='solo'", "algorithm='elastic-averaging',beta=0.5,period=2",
        "algorithm='dropcompute',threshold_s=1.15"}) {
    SCOPED_TRACE(method);
    const Outcome outcome = outcome_with(method, {"evaluation.every_seconds=4"});
    const Outcome often = outcome_with(method, {"evaluation={every_steps=1}"});
    ASSERT_EQ(outcome.failure, "");
    const bool has_own_models =
        method.find("decentralized") != std::string::npos || method.find("gradient-push") != std::string::npos;
    const auto times = times_of(outcome);
    ASSERT_GT(times.size(), 3u);
    for (std::size_t i = 1; i < times.size(); ++i) {
      if (i + 1 == times.size()) continue;  // the last one is there in any case
      EXPECT_GT(std::floor(times[i] / 4), std::floor(times[i - 1] / 4));
      const double due = 4 * (std::floor(times[i - 1] / 4) + 1);
      // Of each worker's own model the first may be of an earlier step than the last worker's.
      if (has_own_models) continue;
      for (const double time : times_of(often)) EXPECT_FALSE(time >= due && time < times[i]) << due;
    }
    EXPECT_EQ(outcome.totals->end, often.totals->end) << "evaluations take no time";
    EXPECT_EQ(times.back(), times_of(often).back()) << "the last model is evaluated in any case";
  }
}

// The target is met by the first of these evaluations that does, at its time.
TEST_F(EvaluationTimes, TimeToTargetGoesByThem) {
  const Outcome outcome = outcome_with("algorithm='sync-sgd'");
  const double reached = outcome.recording.metrics[0].evaluation->test_loss * std::pow(0.9, 2 * 5);  // after step 5
  const auto with_target = load({"evaluation.target_loss=" + std::to_string(reached * 1.001)}).runs.front();
  const auto target = summarise(with_target, outcome_of(with_target)).time_to_target;
  ASSERT_TRUE(target && target->time_s);
  EXPECT_EQ(*target->time_s, 22.75) << "step 5 has none; the first evaluation after it is that of step 7";
  EXPECT_EQ(*target->step, 7);
}

TEST_F(EvaluationTimes, ItStandsInsteadOfOtherIntervals) {
  EXPECT_THAT(faults({"evaluation.every_steps=5"}),
              HasSubstr("evaluation.every_steps = 5; must not be given together with every_seconds"));
  EXPECT_THAT(faults({"evaluation.every_epochs=1"}), HasSubstr("must not be given together with every_seconds"));
  for (const char* wrong : {"0", "-3", "1e-10", "inf", "'often'"})
    EXPECT_THAT(faults({std::string("evaluation.every_seconds=") + wrong}),
                HasSubstr("must be a number of at least 1e-09 and at most 1000000000"))
        << wrong;
  EXPECT_EQ(load().resolved_toml.find("every_steps"), std::string::npos);
}

}  // namespace
}  // namespace syncopate
