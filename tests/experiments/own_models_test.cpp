// Methods in which each worker has a model of its own: what is evaluated is the mean of all, or each of them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/experiments/method_outcomes.hpp"

namespace syncopate {
namespace {

// A condition of 1: the loss is half the squared distance from the optimum.
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
noise = 1
[training.learning_rate]
schedule = "constant"
peak = 0.1
[training.optimizer]
name = "sgd"
[budget]
steps = 13
[evaluation]
every_steps = 4
[[methods]]
algorithm = "sync-sgd"
)";

class OwnModelsOfWorkers : public MethodOutcomes {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    write(experiment);
  }
};

// Gradients are linear and mixing keeps the mean, so that it is the model of synchronous SGD after as many steps; no
// worker has that.
TEST_F(OwnModelsOfWorkers, TheMeanOfAllIsEvaluated) {
  const Outcome synchronous = outcome_with("algorithm='sync-sgd'");
  for (const auto* method : {"algorithm='decentralized-sgd'", "algorithm='stochastic-gradient-push'",
                             "algorithm='dynamic-averaging',threshold=inf,check_every=2",
                             "algorithm='dynamic-averaging',threshold=0,check_every=5"}) {
    SCOPED_TRACE(method);
    const Outcome gossip = outcome_with(method);
    ASSERT_EQ(gossip.failure, "");
    ASSERT_EQ(steps_of(gossip), (std::vector<std::int64_t>{0, 4, 8, 12, 13}));
    for (std::size_t i = 0; i < 5; ++i) {
      const MetricsRow &found = gossip.recording.metrics[i], &expected = synchronous.recording.metrics[i];
      EXPECT_NEAR(found.evaluation->test_loss, expected.evaluation->test_loss, 1e-4 * expected.evaluation->test_loss);
      EXPECT_EQ(found.samples, expected.samples);
    }
  }
}

// A model counts once the last worker has it: worker 2 takes 3 s per step.
TEST_F(OwnModelsOfWorkers, ItsTimeIsThatOfTheSlowestWorker) {
  const Outcome alone = outcome_with("algorithm='dynamic-averaging',threshold=inf,check_every=2");
  for (std::size_t i = 1; i < 4; ++i)
    EXPECT_EQ(to_seconds(alone.recording.metrics[i].time), 3.0 * static_cast<double>(4 * i));
}

// The mean of the losses is above that of the mean by half the mean squared distance.
TEST_F(OwnModelsOfWorkers, OrTheMeanOverEachOfThemWhichTheConsensusDistanceTellsApart) {
  for (const std::string algorithm : {"decentralized-sgd", "stochastic-gradient-push"}) {
    const Outcome mean = outcome_with("algorithm='" + algorithm + "',evaluated='average'");
    const Outcome each = outcome_with("algorithm='" + algorithm + "',evaluated='own'");
    ASSERT_EQ(steps_of(each), steps_of(mean));
    ASSERT_EQ(each.recording.measurements.size(), 4u);  // there is none before the first step
    for (std::size_t i = 1; i < 5; ++i) {
      const Measurement& distance = each.recording.measurements[i - 1];
      const MetricsRow& row = each.recording.metrics[i];
      EXPECT_EQ(distance.quantity, "evaluated_consensus_distance");
      EXPECT_EQ(distance.step, row.step);
      EXPECT_EQ(distance.time, row.time);
      EXPECT_EQ(distance.value, mean.recording.measurements[i - 1].value);
      EXPECT_GT(distance.value, 0.01);
      EXPECT_NEAR(row.evaluation->test_loss - mean.recording.metrics[i].evaluation->test_loss,
                  distance.value * distance.value / 2, 1e-4);
    }
  }
}

TEST_F(OwnModelsOfWorkers, EvaluationChangesNeitherTimeNorModels) {
  for (const std::string algorithm : {"decentralized-sgd", "stochastic-gradient-push"}) {
    const std::string method = "algorithm='" + algorithm + "'";
    const Outcome often = outcome_with(method, {"evaluation.every_steps=1", "recording.parameters=true"});
    const Outcome never = outcome_with(method, {"evaluation.every_steps=100", "recording.parameters=true"});
    EXPECT_EQ(often.totals->end, never.totals->end);
    EXPECT_EQ(often.totals->bytes, never.totals->bytes);
    EXPECT_EQ(often.recording.parameters, never.recording.parameters);
  }
}

// Under a budget of seconds workers end at unlike steps; the last row is that of all last models.
TEST_F(OwnModelsOfWorkers, RowsAscendWhereWorkersEndAtUnlikeSteps) {
  for (const auto* method : {"algorithm='stochastic-gradient-push',overlap_steps=3,overlap='released'",
                             "algorithm='dynamic-averaging',threshold=inf,check_every=2"}) {
    const Outcome outcome = outcome_with(method, {"budget={seconds=20}", "evaluation.every_steps=2"});
    ASSERT_EQ(outcome.failure, "");
    const auto& rows = outcome.recording.metrics;
    for (std::size_t i = 1; i < rows.size(); ++i) {
      EXPECT_GE(rows[i].step, rows[i - 1].step);
      EXPECT_GE(rows[i].time, rows[i - 1].time);
    }
    EXPECT_GE(to_seconds(rows.back().time), 20);
  }
}

// The model goes to and fro without end.
TEST_F(OwnModelsOfWorkers, ADivergedMeanEndsTheRun) {
  const Outcome outcome = outcome_with("algorithm='decentralized-sgd'",
                                       {"training.learning_rate.peak=1e10", "budget.steps=400", "cluster.workers=3",
                                        "cluster.worker_factors=[1,1,1]", "models.quadratic.noise=0"});
  EXPECT_TRUE(outcome.recording.diverged);
}

}  // namespace
}  // namespace syncopate
