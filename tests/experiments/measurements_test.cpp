// What is measured at chosen steps: in measurements.csv, at no cost of time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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

using testing::ElementsAre;
using testing::HasSubstr;

// Gradients a_i (x_i - x*_i) without noise, of a rate that leaves (1 - 0.5 a_i)^t of each distance.
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
  // By quantity and step.
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
  // What a step is taken along is the gradient at the model before it.
  EXPECT_EQ(found["step_gradient_norm"].size(), 2u);
  EXPECT_EQ(found["gradient_norm"].size(), 3u);
  const auto each = by_quantity(outcome_with({"measurements.every_steps=1"}));
  for (std::int64_t step = 1; step <= 10; ++step)
    EXPECT_NEAR(each.at("step_gradient_norm").at(step), each.at("gradient_norm").at(step - 1),
                1e-5 * each.at("gradient_norm").at(step - 1));
  for (const auto& [step, distance] : found["consensus_distance"])
    EXPECT_NEAR(distance, 0, 1e-12) << step;  // all share a model
  EXPECT_EQ(found["consensus_distance"].size(), 2u);
}

// Workers that train alone, each by its own noise, move apart, at a small rate as in a random walk: by the root of the
// steps since their last average.
TEST_F(Measurements, WorkersOfLocalSgdAreApartBeforeTheyAreAveraged) {
  const auto found = by_quantity(
      outcome_with({"methods=[{algorithm='local-sgd',period={rule='constant',steps=4}}]", "models.quadratic.noise=1",
                    "models.quadratic.dimension=1000", "training.learning_rate.peak=1e-4", "measurements.every_steps=1",
                    "budget.steps=8", "measurements.largest_eigenvalue=false"}));
  const auto& distance = found.at("consensus_distance");
  for (std::int64_t step = 1; step <= 8; ++step) {
    const auto alone = static_cast<double>((step - 1) % 4 + 1);
    const double expected = 1e-4 * std::sqrt(1000 * alone * 2 / 3);  // of three workers, from their own mean
    EXPECT_NEAR(distance.at(step), expected, 0.1 * expected) << step;
  }
}

// Dynamic averaging that averages at every step: apart by one step of noise before it, and not at all after.
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
  const double expected = 1e-4 * std::sqrt(1000.0 * 2 / 3);  // of three workers, from their own mean
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

// One dimension of curvature 1, without noise: a step that keeps k of 12 gradients leaves 1 - 0.5 k / 12 of the
// distance, which is the gradient's norm.
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

// All layers, in evaluation mode, where BatchNorm is a function of one sample: the trace by signs, and a network that
// has more than one local curvature.
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

// Such as a module of one's own that takes texts; models of workers are apart whatever they are of.
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
    EXPECT_THAT(faults_of(key), HasSubstr("measurements.every_steps = 2; must go without gradient_norm")) << key;
  EXPECT_EQ(faults_of("consensus_distance"), "");
  EXPECT_EQ(faults_of("step_gradient_norm"), "");
}

// Found before anything is run: this one computes with float32 alone.
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
              testing::AllOf(HasSubstr("measurements.every_steps = 4; must go without gradient_norm, "),
                             HasSubstr("its forward fails on inputs of shape [4, 5]: ")));
  std::filesystem::remove(module);
}

}  // namespace
}  // namespace syncopate
