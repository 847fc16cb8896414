// Measurements at chosen steps are written to measurements.csv and take no virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "experiments/sections/definition.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/run_results.hpp"
#include "tests/workers/script_files.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

class MethodOutcomes : public ExperimentFile {
 protected:
  // Returns the outcome with this method. `method`: the content of its table, such as "algorithm='sync-sgd'".
  Outcome outcome_with(const std::string& method, Overrides overrides = {}) const {
    overrides.push_back("methods=[{" + method + "}]");
    return outcome_of(load(overrides).runs.front());
  }
};

// Returns the steps that the outcome evaluates.
std::vector<std::int64_t> steps_of(const Outcome& outcome) {
  std::vector<std::int64_t> steps;
  for (const MetricsRow& row : outcome.recording.metrics) steps.push_back(row.step.value());
  return steps;
}

using testing::ElementsAre;
using testing::HasSubstr;

// Coordinate i has the gradient a_i (x_i - x*_i) without noise. Each step at this rate multiplies its distance from the
// optimum by 1 - 0.5 a_i.
constexpr const char* experiment = R"(
[cluster]
workers = 3
micro_batch_s = 1.0
[network]
kind = "fixed"
latency_s = 0.25
[training]
model = "quadratic"
[models.quadratic]
dimension = 6
condition = 4
noise = 0
[training.learning_rate]
schedule = "constant"
peak = 0.5
[training.optimizer]
name = "sgd"
[budget]
steps = 10
[evaluation]
every_steps = 5
[measurements]
every_steps = 4
gradient_norm = true
step_gradient_norm = true
consensus_distance = true
largest_eigenvalue = true
hessian_trace = true
most_products = 1000
tolerance = 1e-9
[[methods]]
algorithm = "sync-sgd"
)";

class Measurements : public ExperimentFile {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    write(experiment);
  }
  Outcome outcome_with(const Overrides& overrides = {}) const { return outcome_of(load(overrides).runs.front()); }
  // Returns the measurements by quantity and step.
  static std::map<std::string, std::map<std::int64_t, double>> by_quantity(const Outcome& outcome) {
    std::map<std::string, std::map<std::int64_t, double>> result;
    for (const Measurement& row : outcome.recording.measurements) result[row.quantity][row.step.value()] = row.value;
    return result;
  }
};

TEST_F(Measurements, OfAQuadraticAreItsFormulas) {
  const Outcome outcome = outcome_with();
  ASSERT_EQ(outcome.failure, "");
  auto found = by_quantity(outcome);
  double trace = 0;
  for (int i = 0; i < 6; ++i) trace += std::pow(4.0, i / 5.0 - 1);
  for (const std::int64_t step : {0, 4, 8}) {
    EXPECT_NEAR(found["largest_eigenvalue"].at(step), 1, 1e-6);
    EXPECT_NEAR(found["hessian_trace"].at(step), trace, 1e-9);
  }
  // Each step is along the gradient at the model before it.
  EXPECT_EQ(found["step_gradient_norm"].size(), 2u);
  EXPECT_EQ(found["gradient_norm"].size(), 3u);
  const auto each = by_quantity(outcome_with({"measurements.every_steps=1"}));
  for (std::int64_t step = 1; step <= 10; ++step)
    EXPECT_NEAR(each.at("step_gradient_norm").at(step), each.at("gradient_norm").at(step - 1),
                1e-5 * each.at("gradient_norm").at(step - 1));
  for (const auto& [step, distance] : found["consensus_distance"])
    EXPECT_NEAR(distance, 0, 1e-12) << step;  // all workers have the same model
  EXPECT_EQ(found["consensus_distance"].size(), 2u);
}

// Workers that train alone move apart, because each has its own noise. At a small rate this is a random walk: the
// distance grows with the root of the number of steps since the last average.
TEST_F(Measurements, WorkersOfLocalSgdAreApartBeforeTheyAreAveraged) {
  const auto found = by_quantity(
      outcome_with({"methods=[{algorithm='local-sgd',period={rule='constant',steps=4}}]", "models.quadratic.noise=1",
                    "models.quadratic.dimension=1000", "training.learning_rate.peak=1e-4", "measurements.every_steps=1",
                    "budget.steps=8", "measurements.largest_eigenvalue=false"}));
  const auto& distance = found.at("consensus_distance");
  for (std::int64_t step = 1; step <= 8; ++step) {
    const auto alone = static_cast<double>((step - 1) % 4 + 1);
    const double expected = 1e-4 * std::sqrt(1000 * alone * 2 / 3);  // distance of three workers from their mean
    EXPECT_NEAR(distance.at(step), expected, 0.1 * expected) << step;
  }
}

// Dynamic averaging at every step. Before an average the models differ by one step of noise, and after it not at all.
TEST_F(Measurements, ModelsThatAreEvaluatedHaveADistanceOfTheirOwn) {
  const Outcome outcome =
      outcome_with({"methods=[{algorithm='dynamic-averaging',threshold=0,check_every=1}]", "models.quadratic.noise=1",
                    "models.quadratic.dimension=1000", "training.learning_rate.peak=1e-4", "evaluation.every_steps=4",
                    "budget.steps=8", "measurements.largest_eigenvalue=false"});
  ASSERT_EQ(outcome.failure, "");
  std::map<std::pair<std::int64_t, std::string>, int> rows;
  for (const Measurement& row : outcome.recording.measurements) ++rows[{row.step.value(), row.quantity}];
  for (const auto& [row, count] : rows) EXPECT_EQ(count, 1) << row.second << " after step " << row.first;
  const auto found = by_quantity(outcome);
  const double expected = 1e-4 * std::sqrt(1000.0 * 2 / 3);  // distance of three workers from their mean
  for (const std::int64_t step : {4, 8}) {
    EXPECT_NEAR(found.at("consensus_distance").at(step), expected, 0.1 * expected) << step;
    EXPECT_LT(found.at("evaluated_consensus_distance").at(step), 0.01 * expected) << step;
  }
}

TEST_F(Measurements, CostNoTimeAndChangeNoModel) {
  for (const std::string method : {"algorithm='sync-sgd'", "algorithm='async-sgd'", "algorithm='decentralized-sgd'",
                                   "algorithm='local-sgd',period={rule='constant',steps=2}"}) {
    SCOPED_TRACE(method);
    const Overrides with = {"methods=[{" + method + "}]", "recording.parameters=true", "models.quadratic.noise=1"};
    Overrides without = with;
    for (const std::string key :
         {"gradient_norm", "step_gradient_norm", "consensus_distance", "largest_eigenvalue", "hessian_trace"})
      without.push_back("measurements." + key + "=false");
    const Outcome measured = outcome_with(with), other = outcome_with(without);
    EXPECT_EQ(measured.failure, "");
    EXPECT_EQ(measured.totals->end, other.totals->end);
    EXPECT_EQ(measured.recording.parameters, other.recording.parameters);
    EXPECT_EQ(metrics_csv(measured.recording.metrics), metrics_csv(other.recording.metrics));
    EXPECT_GT(by_quantity(measured).at("gradient_norm").size(), 1u);
  }
}

TEST_F(Measurements, AreTheSameWithAnyNumberOfThreads) {
  const auto text = [&](int threads) {
    Progress progress(Progress::Style::silent, 1, 1);
    const Experiment loaded = load();
    progress.begin_run(1, loaded.runs.front());
    const Outcome outcome = execute(loaded.runs.front(), {.threads = threads}, progress, [](const Outcome&) {});
    return measurements_csv(outcome.recording.measurements);
  };
  EXPECT_EQ(text(1), text(3));
  EXPECT_THAT(text(1), HasSubstr("step,time_s,quantity,value\n0,0,gradient_norm,"));
}

// The model is one-dimensional, with a curvature of 1 and no noise. So the gradient's norm is the distance from the
// optimum. A step that keeps k of 12 gradients multiplies it by 1 - 0.5 k / 12.
TEST_F(Measurements, TheMeanSquaredGradientNormIsWeightedByWhatStepsKept) {
  const Overrides dropping = {
      "models.quadratic.dimension=1", "cluster.micro_batches=4", "delays=[{kind='exponential',mean=0.5}]",
      "methods=[{algorithm='dropcompute',threshold_s=5}]", "measurements={every_steps=1,gradient_norm=true}"};
  const syncopate::Run run = load(dropping).runs.front();
  const Outcome outcome = outcome_of(run);
  ASSERT_EQ(outcome.failure, "");
  double norm = outcome.recording.measurements.front().value, squares = 0, kept = 0;
  bool varies = false;
  for (const StepRow& row : outcome.recording.rows) {
    varies |= row.kept != outcome.recording.rows.front().kept;
    squares += static_cast<double>(row.kept) * norm * norm;
    kept += static_cast<double>(row.kept);
    norm *= 1 - 0.5 * static_cast<double>(row.kept) / 12;
  }
  ASSERT_TRUE(varies);
  const auto found = summarise(run, outcome).mean_squared_gradient_norm;
  ASSERT_TRUE(found);
  EXPECT_NEAR(*found, squares / kept, 1e-6 * *found);
}

TEST_F(Measurements, TheMeanSquaredGradientNormNeedsAllSteps) {
  const auto found = [&](const Overrides& overrides) {
    const syncopate::Run run = load(overrides).runs.front();
    return summarise(run, outcome_of(run)).mean_squared_gradient_norm;
  };
  EXPECT_TRUE(found({"measurements={every_steps=1,gradient_norm=true}"}));
  EXPECT_FALSE(found({"measurements={every_steps=2,gradient_norm=true}"}));
  EXPECT_FALSE(found({"measurements={every_steps=1,step_gradient_norm=true}"}));
  EXPECT_FALSE(found({"measurements={every_steps=1,gradient_norm=true}",
                      "methods=[{algorithm='local-sgd',period={rule='constant',steps=2}}]"}));
}

TEST_F(Measurements, OfNetworksAreFinite) {
  for (const std::string model : {"training.model=linear", "training.model=mlp"}) {
    const Outcome outcome = outcome_with(
        {model, "training.dataset=gaussian-mixture", "datasets.gaussian-mixture.train=240", "measurements.samples=100",
         "measurements.most_products=8", "training.micro_batch_size=8", "budget.steps=4"});
    ASSERT_EQ(outcome.failure, "") << model;
    const auto found = by_quantity(outcome);
    for (const std::string quantity : {"gradient_norm", "largest_eigenvalue", "hessian_trace", "parameter_norm"}) {
      EXPECT_EQ(found.at(quantity).size(), 2u) << quantity;
      for (const auto& [step, value] : found.at(quantity)) EXPECT_GT(value, 0) << quantity << " " << step;
    }
  }
}

TEST_F(Measurements, BadKeysAreSaid) {
  EXPECT_THAT(faults({"measurements.every_steps=0"}), HasSubstr("every_steps = 0; must be"));
  EXPECT_THAT(faults({"measurements.tolerance=1"}), HasSubstr("tolerance = 1"));
  EXPECT_THAT(faults({"training.model=none"}), HasSubstr("needs a model to measure"));
  EXPECT_THAT(faults({"measurements.sharpness=true"}), HasSubstr("measurements.sharpness"));
}

// For some modules no derivatives are available, such as a user's module that takes texts. Distances need none.
TEST(MeasurementsWithoutDerivatives, AreRefusedWhereTheyNeedThem) {
  TrainingSection training;
  training.objective.why_no_derivative = "these are not there";
  const auto faults_of = [&](const std::string& key) {
    SettingsDocument document(parse_toml("[measurements]\nevery_steps = 2\n" + key + " = true\n", "test.toml"));
    Settings root = document.root();
    read_measurements(root, training);
    return document.check().report();
  };
  for (const std::string key : {"gradient_norm", "largest_eigenvalue", "hessian_trace"})
    EXPECT_THAT(faults_of(key), HasSubstr("measurements.every_steps = 2; cannot be combined with gradient_norm"))
        << key;
  EXPECT_EQ(faults_of("consensus_distance"), "");
  EXPECT_EQ(faults_of("step_gradient_norm"), "");
}

// The second module converts its inputs to float32, so its derivatives cannot be computed in double precision. The
// fault is found before anything runs.
TEST_F(Measurements, NeedAModuleOfOnesOwnThatHasDerivatives) {
  const std::string module = file.string() + ".pt";
  const auto faults_with = [&](const std::string& forward) {
    save_script(module, {{.name = "weight", .shape = {3, 5}}}, forward);
    return faults(
        {"training.model=torchscript", "models.torchscript.file='" + module + "'", "training.dataset=gaussian-mixture",
         "datasets.gaussian-mixture={classes=3,dimension=5,train=240,test=10}", "training.micro_batch_size=8"});
  };
  EXPECT_EQ(faults_with("return torch.linear(x, self.weight)"), "");
  EXPECT_THAT(faults_with("return torch.linear(x.float(), self.weight)"),
              testing::AllOf(HasSubstr("measurements.every_steps = 4; cannot be combined with gradient_norm, "),
                             HasSubstr("its forward fails on inputs of shape [4, 5]: ")));
  std::filesystem::remove(module);
}

// Evaluations at times (evaluation.every_seconds), compared with timelines worked out by hand.

using testing::ElementsAre;
using testing::HasSubstr;

// The slowest worker's step takes 3 s, an average or all-reduce 0.25 s. The loss is half the squared distance from the
// optimum, and each step multiplies the distance by 0.9.
constexpr const char* timed_experiment = R"(
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
    write(timed_experiment);
  }
};

std::vector<double> times_of(const Outcome& outcome) {
  std::vector<double> times;
  for (const MetricsRow& row : outcome.recording.metrics) times.push_back(to_seconds(row.time));
  return times;
}

// Step k ends at 3.25 k seconds.
TEST_F(EvaluationTimes, OfSynchronousSgdTheFirstStepAtOrAfterEachMultipleIsEvaluated) {
  const Outcome outcome = outcome_with("algorithm='sync-sgd'");
  EXPECT_THAT(steps_of(outcome), ElementsAre(0, 4, 7, 10, 13));
  EXPECT_THAT(times_of(outcome), ElementsAre(0, 13, 22.75, 32.5, 42.25));
  // Losses are those after these steps, not interpolated between steps.
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

// Rounds of four steps end at 12.25, 24.5 and 36.75 s. The last one has one step and ends at 40 s.
TEST_F(EvaluationTimes, OfLocalSgdAveragesAreEvaluated) {
  const std::string method = "algorithm='local-sgd',period={rule='constant',steps=4}";
  EXPECT_THAT(steps_of(outcome_with(method)), ElementsAre(0, 4, 8, 12, 13));
  const Outcome rarer = outcome_with(method, {"evaluation.every_seconds=13"});
  EXPECT_THAT(steps_of(rarer), ElementsAre(0, 8, 12, 13));
  EXPECT_THAT(times_of(rarer), ElementsAre(0, 24.5, 36.75, 40));
}

// Workers never average. Worker 0 ends its step 10 at 10 s, worker 1 its step 9 at 10.8 s, worker 2 its step 4 at 12 s,
// and worker 4 its step 10 at 11 s.
TEST_F(EvaluationTimes, WhereWorkersHaveModelsOfTheirOwnEachHasItsFirstAtOrAfterTheTime) {
  const Outcome outcome =
      outcome_with("algorithm='dynamic-averaging',threshold=inf,check_every=2", {"evaluation.every_seconds=5"});
  const auto& rows = outcome.recording.metrics;
  EXPECT_THAT(steps_of(outcome), ElementsAre(0, 5, 10, 13));
  EXPECT_EQ(to_seconds(rows[1].time), 6);  // the end of worker 2's second step
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

// A server publishes after each gradient, also between two steps of the experiment file. Each row is the first
// publication at or after a multiple of the interval.
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
    const bool has_individual_models =
        method.find("decentralized") != std::string::npos || method.find("gradient-push") != std::string::npos;
    const auto times = times_of(outcome);
    ASSERT_GT(times.size(), 3u);
    for (std::size_t i = 1; i < times.size(); ++i) {
      if (i + 1 == times.size()) continue;  // the last row exists in any case
      EXPECT_GT(std::floor(times[i] / 4), std::floor(times[i - 1] / 4));
      const double due = 4 * (std::floor(times[i - 1] / 4) + 1);
      // If workers have their own models, the first model may belong to an earlier step than the last worker's.
      if (has_individual_models) continue;
      for (const double time : times_of(often)) EXPECT_FALSE(time >= due && time < times[i]) << due;
    }
    EXPECT_EQ(outcome.totals->end, often.totals->end) << "evaluations take no time";
    EXPECT_EQ(times.back(), times_of(often).back()) << "the last model is evaluated in any case";
  }
}

// The time to the target is the time of the first evaluation that meets the target.
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
              HasSubstr("evaluation.every_steps = 5; cannot be combined with every_seconds"));
  EXPECT_THAT(faults({"evaluation.every_epochs=1"}), HasSubstr("cannot be combined with every_seconds"));
  for (const char* wrong : {"0", "-3", "1e-10", "inf", "'often'"})
    EXPECT_THAT(faults({std::string("evaluation.every_seconds=") + wrong}),
                HasSubstr("must be a number of at least 1e-09 and at most 1000000000"))
        << wrong;
  EXPECT_EQ(load().resolved_toml.find("every_steps"), std::string::npos);
}

// Each worker has its own model. Either the mean of all models is evaluated, or each model.

// All curvatures are 1, so the loss is half the squared distance from the optimum.
constexpr const char* models_experiment = R"(
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

class IndividualModelsInFiles : public MethodOutcomes {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    write(models_experiment);
  }
};

// Gradients are linear, and mixing keeps the mean. So the mean is the model of synchronous SGD after the same number of
// steps. No worker has that model.
TEST_F(IndividualModelsInFiles, TheMeanOfAllIsEvaluated) {
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

// The mean model of a step exists once the slowest worker has done the step. That is worker 2, with 3 s per step.
TEST_F(IndividualModelsInFiles, ItsTimeIsThatOfTheSlowestWorker) {
  const Outcome alone = outcome_with("algorithm='dynamic-averaging',threshold=inf,check_every=2");
  for (std::size_t i = 1; i < 4; ++i)
    EXPECT_EQ(to_seconds(alone.recording.metrics[i].time), 3.0 * static_cast<double>(4 * i));
}

// The mean of the workers' losses exceeds the loss of their mean by half the mean squared distance from the mean.
TEST_F(IndividualModelsInFiles, OrTheMeanOverEachOfThemWhichTheConsensusDistanceTellsApart) {
  for (const std::string algorithm : {"decentralized-sgd", "stochastic-gradient-push"}) {
    const Outcome mean = outcome_with("algorithm='" + algorithm + "',evaluated='average'");
    const Outcome each = outcome_with("algorithm='" + algorithm + "',evaluated='own'");
    ASSERT_EQ(steps_of(each), steps_of(mean));
    ASSERT_EQ(each.recording.measurements.size(), 4u);  // no consensus distance before the first step
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

TEST_F(IndividualModelsInFiles, EvaluationChangesNeitherTimeNorModels) {
  for (const std::string algorithm : {"decentralized-sgd", "stochastic-gradient-push"}) {
    const std::string method = "algorithm='" + algorithm + "'";
    const Outcome often = outcome_with(method, {"evaluation.every_steps=1", "recording.parameters=true"});
    const Outcome never = outcome_with(method, {"evaluation.every_steps=100", "recording.parameters=true"});
    EXPECT_EQ(often.totals->end, never.totals->end);
    EXPECT_EQ(often.totals->bytes, never.totals->bytes);
    EXPECT_EQ(often.recording.parameters, never.recording.parameters);
  }
}

// With a budget in seconds, workers end at different steps. The last row is for the last models of all workers.
TEST_F(IndividualModelsInFiles, RowsAscendWhereWorkersEndAtUnlikeSteps) {
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

TEST_F(IndividualModelsInFiles, ADivergedMeanEndsTheRun) {
  const Outcome outcome = outcome_with("algorithm='decentralized-sgd'",
                                       {"training.learning_rate.peak=1e10", "budget.steps=400", "cluster.workers=3",
                                        "cluster.worker_factors=[1,1,1]", "models.quadratic.noise=0"});
  EXPECT_TRUE(outcome.recording.diverged);
}

// The first row of metrics.csv, at the start of the run.

struct FirstRow : ExperimentFile {
  double first_rate(const std::string& method) const {
    const auto run = load({"seeds=[3]", "methods=[" + method + "]"}).runs.at(0);
    const auto rows = outcome_of(run).recording.metrics;
    EXPECT_EQ(rows.at(0).step, Step{0});
    return rows.at(0).learning_rate;
  }
};

// Like all rows, the first row has the learning rate of the next step. If a local phase starts at once, this is the
// rate of the phase's schedule.
TEST_F(FirstRow, HasTheRateOfTheFirstStep) {
  EXPECT_DOUBLE_EQ(first_rate("{algorithm='sync-sgd'}"), 0.2);
  const std::string at_once = "{algorithm='local-sgd',period={rule='constant',steps=5},local_phase=";
  EXPECT_DOUBLE_EQ(first_rate(at_once + "{micro_batches=1}}"), 0.2);
  EXPECT_DOUBLE_EQ(first_rate(at_once + "{peak=0.05}}"), 0.05);
  EXPECT_DOUBLE_EQ(first_rate("{algorithm='local-sgd',period={rule='swap',switch_step=10},local_phase={peak=0.05}}"),
                   0.2);
}

// At a constant rate each row has the rate of the first step as scaled by the method: for a server's single gradients
// by their number, and for backup workers by their quorum.
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
