// Times that are predicted by simulation, against the runs that they are about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "experiments/commands/commands.hpp"
#include "experiments/execution/time_simulation.hpp"
#include "tests/experiments/all_methods.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

struct Predict : AllMethods {};

// The real run of the same model, data and all.
double trained_time_s(const Run& run) {
  Executor executor(1);
  Training training(run.training.make_objective(), run.training.optimizer, {.seed = run.seed}, executor);
  SimulatedCluster cluster({.workers = run.cluster.workers,
                            .servers = run.algorithm->traits().servers,
                            .micro_batches = run.cluster.micro_batches,
                            .compute_time = *run.cluster.compute_time,
                            .network = *run.cluster.network,
                            .training = training});
  const RunContext context{.cluster = cluster,
                           .training = training,
                           .learning_rate = *run.training.learning_rate,
                           .budget = run.budget,
                           .micro_batches = run.cluster.micro_batches,
                           .samples_per_micro_batch = run.training.samples_per_micro_batch,
                           .initial_model = training.initial_state(),
                           .seed = run.seed};
  const RunTotals totals = run_algorithm(*run.algorithm, context);
  executor.wait_all();
  return to_seconds(totals.end);
}

// To the nanosecond: the model's size and what its averages carry are known without it.
TEST_F(Predict, TheSimulatedTimeIsThatOfTheTrainedRun) {
  const Experiment experiment = all_methods();
  const auto methods = predict(experiment);
  ASSERT_EQ(methods.size(), 6u);  // one seed of two
  for (std::size_t i = 0; i + 1 < methods.size(); ++i) {
    const syncopate::Run& run = experiment.runs[2 * i];
    SCOPED_TRACE(run.method);
    ASSERT_EQ(methods[i].method, run.method);
    ASSERT_TRUE(methods[i].simulated);
    EXPECT_TRUE(methods[i].simulated->whole);
    EXPECT_EQ(methods[i].simulated->total_time_s, trained_time_s(run));
    EXPECT_EQ(methods[i].simulated->steps, Step{60});
    EXPECT_NEAR(methods[i].simulated->step_time_s, *methods[i].simulated->total_time_s / 60, 1e-12);
  }
  EXPECT_EQ(*methods[0].simulated_speedup, 1);
  EXPECT_EQ(methods.back().not_simulated, "needs training");
  EXPECT_EQ(methods.back().why_no_formula, "when models are averaged follows from how far they have moved");
  EXPECT_FALSE(methods.back().simulated);
  EXPECT_TRUE(methods.back().formulas.empty());
}

// 4 workers x 2 micro-batches x 8 samples are 64 of a step.
TEST_F(Predict, PlannedStepsAreThoseOfTheFirstLimit) {
  const auto planned = [&](const std::string& budget) {
    return planned_steps(load({"budget={" + budget + "}", "training.learning_rate.schedule=constant"}).runs.front());
  };
  EXPECT_EQ(planned("steps=7"), Step{7});
  EXPECT_EQ(planned("samples=640"), Step{10});
  EXPECT_EQ(planned("samples=1"), Step{1});
  EXPECT_EQ(planned("samples=640, steps=9"), Step{9});
  EXPECT_EQ(planned("samples=640, steps=11"), Step{10});
  EXPECT_EQ(planned("seconds=1"), std::nullopt);
  EXPECT_EQ(planned("bytes=1000000"), std::nullopt);
}

// Asynchronous elastic averaging publishes its centre for the last time a few steps before it ends.
TEST_F(Predict, WholeRunsCountWhatComesAfterTheLastPublication) {
  const Experiment experiment = load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/examples/reality.toml", {});
  const std::int64_t steps = experiment.runs.front().budget.steps.value().value();
  bool has_elastic = false;
  for (const PredictedMethod& method : predict(experiment)) {
    SCOPED_TRACE(method.method);
    if (!method.simulated) continue;
    ASSERT_TRUE(method.simulated->whole);
    EXPECT_GE(method.simulated->steps.value(), steps);
    EXPECT_NEAR(method.simulated->step_time_s * static_cast<double>(method.simulated->steps.value()),
                *method.simulated->total_time_s, 1e-9);
    has_elastic |= method.method == "asynchronous EASGD";
  }
  EXPECT_TRUE(has_elastic);
}

// A part of a run, drawn out, is near the whole: within four standard errors of it.
TEST_F(Predict, APartOfARunIsDrawnOut) {
  const Experiment experiment = all_methods({"budget.epochs=200"});
  for (std::size_t i = 0; i + 2 < experiment.runs.size(); i += 2) {
    const syncopate::Run& run = experiment.runs[i];
    SCOPED_TRACE(run.method);
    const SimulatedTime part = simulate_time(run, 300), whole = simulate_time(run, 100'000);
    EXPECT_FALSE(part.whole);
    EXPECT_TRUE(whole.whole);
    ASSERT_TRUE(part.error_s);
    EXPECT_GT(*part.error_s, 0);
    EXPECT_NEAR(part.step_time_s, whole.step_time_s, 4 * *part.error_s + 0.002 * whole.step_time_s);
    EXPECT_NEAR(*part.total_time_s, *whole.total_time_s, 2000 * (4 * *part.error_s + 0.002 * whole.step_time_s));
    EXPECT_NEAR(part.drop_rate, whole.drop_rate, 0.03);
    EXPECT_NEAR(part.communication_share, whole.communication_share, 0.02);
  }
}

// The first steps of an automatic threshold are not those of the rest: 10 of 1,000, not 10 of 100.
TEST_F(Predict, StepsBeforeAMethodSettlesCountOnce) {
  std::string text = std::string(small) + delayed;
  text.replace(text.find("threshold_s = 0.015"), 19,
               "threshold = { rule = \"automatic\", warmup_steps = 2, calibration_steps = 8 }");
  write(text);
  const Experiment experiment =
      load({"network.latency_s=0.005", "cluster.micro_batches=8", "training.micro_batch_size=2", "budget.epochs=100"});
  const syncopate::Run& run = experiment.runs.at(2);
  ASSERT_EQ(run.method, "drop");
  const SimulatedTime part = simulate_time(run, 100), whole = simulate_time(run, 100'000);
  EXPECT_GT(whole.drop_rate, 0.03);
  EXPECT_NEAR(part.step_time_s / whole.step_time_s, 1, 0.01);
  EXPECT_NEAR(part.drop_rate, whole.drop_rate, 0.015);
  EXPECT_NEAR(part.communication_share, whole.communication_share, 0.01);
}

TEST_F(Predict, BudgetsThatDoNotCountSteps) {
  for (const char* budget : {"budget.seconds=3", "budget.samples=3000", "budget.bytes=20000000"}) {
    std::string text = std::string(small) + delayed;
    text.erase(text.find("epochs = 6"), 10);
    write(text);
    const Experiment experiment = load({budget, "training.learning_rate.schedule=constant", "network.latency_s=0.005"});
    const syncopate::Run& run = experiment.runs.front();
    const double trained = trained_time_s(run);
    EXPECT_EQ(simulate_time(run, 1'000'000).total_time_s, trained) << budget;
    EXPECT_NEAR(*simulate_time(run, 20).total_time_s / trained, 1, 0.1) << budget;
  }
}

TEST_F(Predict, DelaysWithoutAMeanAreRefusedWithTheirPlace) {
  write(std::string(small) + "[[delays]]\nkind = \"pareto\"\nshape = 0.9\nminimum = 0.001\n");
  EXPECT_NO_THROW(load());  // can be run
  try {
    load_experiment(file, {}, {.finite_means = true});
    ADD_FAILURE() << "must be refused";
  } catch (const ConfigurationFault& fault) {
    EXPECT_THAT(fault.what(), HasSubstr(file.string() + ":32:9: delays.0.shape = 0.9; must give delays a finite mean"));
  }
  EXPECT_NO_THROW(load_experiment(file, {"delays.0.shape=1.1"}, {.finite_means = true}));
}

}  // namespace
}  // namespace syncopate
