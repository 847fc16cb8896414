// Predictions against the runs that they are about.
#include "experiments/commands/predict.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/execution/time_simulation.hpp"
#include "results/statistics/statistics.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

constexpr const char* delayed = R"(
[[delays]]
kind = "exponential"
mean = 0.005
)";
constexpr const char* others = R"(
[[methods]]
label = "backup"
algorithm = "backup-workers"
backups = 1
[[methods]]
label = "local"
algorithm = "local-sgd"
period = { rule = "constant", steps = 5 }
moments = "average"
[[methods]]
label = "async"
algorithm = "async-sgd"
[[methods]]
label = "dynamic"
algorithm = "dynamic-averaging"
threshold = 0.1
check_every = 4
)";

struct Predict : ExperimentFile {
  // The small experiment with delays, a network by bytes, momentum and more methods.
  Experiment all_methods(Overrides overrides = {}) {
    write(std::string(small) + others + delayed);
    overrides.insert(overrides.end(), {"network.kind=ring", "network.latency_s=1e-4",
                                       "network.bandwidth_bytes_per_s=1e7", "training.optimizer.momentum=0.9"});
    return load(overrides);
  }
};

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
  EXPECT_EQ(methods.back().why_no_formula, "its course depends on what is computed");
  EXPECT_FALSE(methods.back().simulated);
  EXPECT_TRUE(methods.back().formulas.empty());
}

// Micro-batches that went into the model per time, in multiples of synchronous SGD's; without delays and jitter that is
// what the drop rate and the time of a step say: 8 and, under the threshold, 4 micro-batches of 10 ms.
TEST_F(Predict, SpeedUpsAndSharesAreThoseOfTheSteps) {
  const auto methods = predict(load({"network.latency_s=0.005"}));
  ASSERT_EQ(methods.size(), 2u);
  const SimulatedTime &sync = *methods[0].simulated, &drop = *methods[1].simulated;
  EXPECT_NEAR(sync.step_time_s, 0.025, 1e-9);
  EXPECT_NEAR(sync.micro_batches_per_s, 8 / 0.025, 1e-6);
  EXPECT_NEAR(sync.communication_share, 0.005 / 0.025, 1e-9);
  EXPECT_EQ(sync.drop_rate, 0);
  EXPECT_NEAR(drop.drop_rate, 0.5, 1e-9);
  EXPECT_NEAR(drop.micro_batches_per_s, 4 / drop.step_time_s, 1e-6);
  EXPECT_NEAR(drop.communication_share, 0.005 / drop.step_time_s, 1e-9);
  EXPECT_NEAR(*methods[1].simulated_speedup, 0.5 * 0.025 / drop.step_time_s, 1e-9);
  for (const PredictedMethod& method : methods) {
    EXPECT_EQ(method.seed, 3u);
    EXPECT_EQ(method.planned_steps, Step{60});
  }
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

TEST_F(Predict, FormulasStandBesideTheSimulation) {
  const auto methods = predict(all_methods({"budget.epochs=60"}));
  for (const PredictedMethod& method : methods) {
    SCOPED_TRACE(method.method);
    for (const FormulaTime& formula : method.formulas) {
      // Eq. 4 is for normal times: 10 % off at most for these.
      EXPECT_NEAR(formula.prediction.step_time_s / method.simulated->step_time_s, 1, 0.1) << formula.prediction.formula;
      EXPECT_NEAR(*formula.total_time_s, 600 * formula.prediction.step_time_s, 1e-9);
    }
  }
  const auto count = [&](std::size_t i) { return methods[i].formulas.size(); };
  EXPECT_EQ(count(0), 2u);
  EXPECT_EQ(count(1), 3u);  // two exponential times are far from normal
  EXPECT_EQ(count(2), 1u);
  EXPECT_EQ(count(3), 1u);
  EXPECT_EQ(count(4), 1u);
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

// QSR averages more often in the first steps of a cosine than in the rest, so that these cannot be drawn out: it is
// simulated whole, or not at all. Without delays a run takes its steps and, on a fixed network, a second per round.
TEST_F(Predict, ScheduledPeriodsAreNotDrawnOutFromTheFirstSteps) {
  const std::string text = R"(
name = "scheduled"
seeds = [1]
[cluster]
workers = 64
micro_batch_s = 0.1
[network]
kind = "fixed"
latency_s = 1.0
[training]
model = "none"
parameters = 1000
micro_batch_size = 8
[training.learning_rate]
schedule = "cosine"
peak = 0.1
final = 1e-4
[budget]
steps = 9000
[[methods]]
algorithm = "local-sgd"
period = { rule = "power", power = 2, coefficient = 0.2, minimum = 4 }
)";
  write(text);
  const auto whole = predict(load());
  ASSERT_EQ(whole.size(), 1u);
  ASSERT_TRUE(whole[0].simulated && whole[0].communicated);
  EXPECT_TRUE(whole[0].simulated->whole);
  EXPECT_LT(whole[0].communicated->rounds, 9000 / 4 * 0.9);
  EXPECT_NEAR(*whole[0].simulated->total_time_s, 9000 * 0.1 + whole[0].communicated->rounds * 1.0, 1e-6);

  const auto longer = predict(load({"budget.steps=90000"}));
  EXPECT_FALSE(longer[0].simulated);
  EXPECT_THAT(longer[0].not_simulated, HasSubstr("other rounds than the rest"));
  ASSERT_EQ(longer[0].formulas.size(), 1u);

  // As many in all steps: the first ones are drawn out.
  const auto constant = predict(load({"budget.steps=90000", "methods.0.period={rule='constant',steps=4}"}));
  ASSERT_TRUE(constant[0].simulated);
  EXPECT_FALSE(constant[0].simulated->whole);
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

TEST_F(Predict, TheTableNamesMethodsAndSources) {
  const auto methods = predict(all_methods());
  const std::string table = prediction_table(methods);
  for (const char* text : {"sync-sgd", "simulation", "Eq. 4", "sampled E[T]", "Eqs. 4 to 6",
                           "order statistic (lower bound)", "rounds of normal sums", "mean pace", "needs training",
                           "no formula: its course depends on what is computed", "S_eff", "+-"})
    EXPECT_THAT(table, HasSubstr(text));
  const auto json = nlohmann::json::parse(predictions_json("small", methods));
  EXPECT_EQ(json["experiment"], "small");
  ASSERT_EQ(json["predictions"].size(), methods.size());
  const auto& drop = json["predictions"][1];
  EXPECT_EQ(drop["method"], "drop");
  EXPECT_EQ(drop["simulated"]["total_time_s"], *methods[1].simulated->total_time_s);
  EXPECT_EQ(drop["formulas"][0]["formula"], "Eqs. 4 to 6");
  EXPECT_EQ(drop["formulas"][0]["drop_rate"], *methods[1].formulas[0].prediction.drop_rate);
  EXPECT_EQ(drop["planned_steps"], 60);
  EXPECT_TRUE(json["predictions"][5]["simulated"].is_null());
  EXPECT_EQ(json["predictions"][5]["not_simulated"], "needs training");
  EXPECT_EQ(json["predictions"][5]["no_formula"], "its course depends on what is computed");
  EXPECT_TRUE(drop["no_formula"].is_null());
}

// From seed to seed S_eff spreads as its error says, or less, since methods of a seed meet the same delays. The
// standard deviation of 30 seeds is itself off by 13 %.
TEST_F(Predict, SpeedUpsOfSeedsLieAboutTheirErrorApart) {
  constexpr int seeds = 30;
  std::map<std::string, std::vector<double>> simulated, by_formula;
  std::map<std::string, double> simulated_squares, formula_squares;
  for (int seed = 1; seed <= seeds; ++seed)
    for (const PredictedMethod& method : predict(all_methods({fmt::format("seeds=[{}]", seed)}))) {
      if (!method.simulated) continue;
      simulated[method.method].push_back(*method.simulated_speedup);
      simulated_squares[method.method] += std::pow(method.simulated_speedup_error, 2) / seeds;
      if (method.formulas.empty() || method.formulas.back().prediction.step_error_s == 0) continue;
      const Prediction& prediction = method.formulas.back().prediction;
      by_formula[method.method].push_back(prediction.effective_speedup());
      formula_squares[method.method] += std::pow(prediction.effective_speedup_error(), 2) / seeds;
    }
  const auto expect_spread = [](const std::string& method, const std::vector<double>& speedups, double squares) {
    SCOPED_TRACE(method);
    const double deviation = statistics(speedups).std, error = std::sqrt(squares);
    if (method == "sync-sgd") {
      EXPECT_EQ(deviation, 0);
      EXPECT_EQ(error, 0);
      return;
    }
    EXPECT_LT(deviation, 1.4 * error);
    EXPECT_GT(deviation, 0.1 * error);
  };
  EXPECT_EQ(simulated.size(), 5u);
  for (const auto& [method, speedups] : simulated) expect_spread(method, speedups, simulated_squares[method]);
  for (const auto& [method, speedups] : by_formula) expect_spread(method, speedups, formula_squares[method]);
}

// Synchronous SGD stands behind S_eff also where the file does not have it, and at each point of a sweep anew.
TEST_F(Predict, EachPointOfASweepHasABaselineOfItsOwn) {
  std::string text = std::string(small) + delayed + "[sweep]\n\"cluster.workers\" = [2, 8]\n";
  text.erase(text.find("[[methods]]\nalgorithm = \"sync-sgd\""), 34);
  write(text);
  const auto methods = predict(load({"datasets.gaussian-mixture.train=1280"}));
  ASSERT_EQ(methods.size(), 2u);
  EXPECT_EQ(methods[0].sweep.at(0).second, "2");
  EXPECT_GT(*methods[1].simulated_speedup, *methods[0].simulated_speedup);  // more gain with more workers
  EXPECT_THAT(prediction_table(methods), HasSubstr("drop, workers = 8"));
}

// Synchronous SGD by other micro-batches is no other baseline: the first one stands behind S_eff, wherever it stands.
TEST_F(Predict, OfSeveralBaselinesTheFirstOneCounts) {
  const auto methods =
      predict(load({"methods=[{algorithm='dropcompute',threshold_s=0.015},{label='a',algorithm='sync-sgd'},"
                    "{label='b',algorithm='sync-sgd'},{label='c',algorithm='sync-sgd',training={parameters=4000}}]",
                    "training={model='none',parameters=1000,learning_rate={schedule='constant',peak=1}}",
                    "network={kind='ring',latency_s=0,bandwidth_bytes_per_s=1e5}", "budget={steps=20}"}));
  ASSERT_EQ(methods.size(), 4u);
  const auto speedup = [&](std::size_t i) { return *methods[i].simulated_speedup; };
  const auto pace = [&](std::size_t i) { return methods[i].simulated->micro_batches_per_s; };
  EXPECT_EQ(speedup(1), 1);
  EXPECT_EQ(speedup(2), 1);
  EXPECT_LT(speedup(3), 0.5) << "it sends four times as much";
  for (const std::size_t i : {0, 3}) EXPECT_DOUBLE_EQ(speedup(i), pace(i) / pace(1));
  // Formulas are compared with the same one: without delays they say what the simulation does.
  for (const std::size_t i : {1, 2, 3}) {
    ASSERT_FALSE(methods[i].formulas.empty());
    for (const FormulaTime& formula : methods[i].formulas)
      EXPECT_NEAR(formula.prediction.effective_speedup(), speedup(i), 1e-6) << methods[i].method;
  }
  EXPECT_THAT(prediction_table(methods), HasSubstr("S_eff: against \"a\", the file's first sync-sgd\n"));
}

// Where the file has no synchronous SGD, both are against one that is trained as the first method is.
TEST_F(Predict, WithoutABaselineAllAreComparedWithOneThatIsTrainedAsTheFirstMethodIs) {
  const auto methods =
      predict(load({"methods=[{label='a',algorithm='dropcompute',threshold_s=1},"
                    "{label='b',algorithm='dropcompute',threshold_s=1,training={parameters=4000}}]",
                    "training={model='none',parameters=1000,learning_rate={schedule='constant',peak=1}}",
                    "network={kind='ring',latency_s=0,bandwidth_bytes_per_s=1e5}", "budget={steps=20}"}));
  ASSERT_EQ(methods.size(), 2u);
  // Nothing is dropped: 20 ms of computing, and 2 x 3 / 4 x 4 bytes per parameter.
  const double expected[] = {1, (0.02 + 6 * 1000 / 1e5) / (0.02 + 6 * 4000 / 1e5)};
  for (const std::size_t i : {0, 1}) {
    EXPECT_NEAR(*methods[i].simulated_speedup, expected[i], 1e-6);
    ASSERT_FALSE(methods[i].formulas.empty());
    for (const FormulaTime& formula : methods[i].formulas)
      EXPECT_NEAR(formula.prediction.effective_speedup(), expected[i], 1e-6);
  }
  EXPECT_THAT(prediction_table(methods), HasSubstr("S_eff: against sync-sgd trained as \"a\" is; the file has none\n"));
}

// Of micro-batches of 8 and of 4 samples, each of which is measured: 10 and 4 ms.
TEST_F(Predict, MethodsWhoseMicroBatchesAreMeasuredApartAreInOneSetting) {
  const auto measure = [](const MicroBatchWork& work) {
    return MeasuredMicroBatch{.micro_batch_s =
                                  work.key.find("micro_batch_size = 4") == std::string::npos ? 0.01 : 0.004};
  };
  const Experiment experiment = load_experiment(file,
                                                {"cluster.micro_batch_s='measured'", "network={kind='free'}",
                                                 "seeds=[3]", "methods.drop.training.micro_batch_size=4"},
                                                {.measure = measure});
  ASSERT_EQ(experiment.runs.size(), 2u);
  EXPECT_EQ(experiment.runs[0].setting, experiment.runs[1].setting);
  const auto methods = predict(experiment);
  EXPECT_NEAR(*methods[1].simulated_speedup, 2.5, 1e-6);  // nothing is dropped
  ASSERT_FALSE(methods[1].formulas.empty());
  for (const FormulaTime& formula : methods[1].formulas)
    EXPECT_NEAR(formula.prediction.effective_speedup(), 2.5, 1e-6) << formula.prediction.formula;
}

// It stands once for all values of what is swept for another method alone.
TEST_F(Predict, ABaselineThatASweptKeyDoesNotConcernStandsBehindAllItsPoints) {
  const auto methods =
      predict(load({"methods=[{algorithm='sync-sgd',training={clip_norm=1}},{label='drop',"
                    "algorithm='dropcompute',threshold_s=1}]",
                    "sweep.\"training.clip_norm\"=[0.5,2]", "seeds=[3]"}));
  ASSERT_EQ(methods.size(), 3u);
  for (const PredictedMethod& method : methods) {
    EXPECT_THAT(method.compared_with, HasSubstr("\"sync-sgd\""));
    EXPECT_NEAR(*method.simulated_speedup, 1, 1e-9);
  }
}

// Texts of 1 to 12 words, 1 ms each and nothing besides: a budget of 12 words is one micro-batch of at most 12 ms, one
// of 120 nearly ten times that.
TEST_F(Predict, FormulasOfAMethodWithItsOwnBatchingAreOfItsOwnTimes) {
  const auto texts = file.parent_path() / (file.stem().string() + ".txt");
  {
    std::ofstream lines(texts);
    for (int i = 0; i < 400; ++i) {
      lines << "ab"[i % 2] << '\t';
      for (int j = 0; j <= i * i % 11; ++j) lines << " word" << j;
      lines << '\n';
    }
  }
  const std::string sync = "algorithm='sync-sgd',training={token_budget=";
  const auto methods =
      predict(load({"methods=[{label='few'," + sync + "12}},{label='many'," + sync + "120}}]",
                    "cluster={workers=2,micro_batches=1,micro_batch_s={per_token_s=0.001}}", "network={kind='free'}",
                    "training={model='none',parameters=10,dataset='text-lines',batching='packed',token_budget=12,"
                    "learning_rate={schedule='constant',peak=1}}",
                    "datasets={text-lines={file='" + texts.string() + "',labelled=true}}", "budget={steps=20}"}));
  std::filesystem::remove(texts);
  ASSERT_EQ(methods.size(), 2u);
  for (const PredictedMethod& method : methods) {
    SCOPED_TRACE(method.method);
    ASSERT_FALSE(method.formulas.empty());
    for (const FormulaTime& formula : method.formulas)
      EXPECT_NEAR(formula.prediction.step_time_s / method.simulated->step_time_s, 1, 0.15);
  }
  EXPECT_GT(methods[1].formulas[0].prediction.step_time_s, 5 * methods[0].formulas[0].prediction.step_time_s);
}

// Nobody knows the slowest of so many without a variance; a mean pace needs none.
TEST_F(Predict, WithoutAVarianceAndASampleOfAllWorkersThereIsNoFormulaButAReason) {
  write(std::string(small) + "[[delays]]\nkind = \"pareto\"\nshape = 1.5\nminimum = 0.001\n");
  const Experiment few = load(), many = load({"cluster.workers=5000", "datasets.gaussian-mixture.train=80000"});
  const auto of_few = predict_by_formula(few.runs.front(), sample_times(few.runs.front()));
  ASSERT_EQ(of_few.all.size(), 1u);
  EXPECT_EQ(of_few.all[0].prediction.formula, "sampled E[T]");
  const auto of_many = predict_by_formula(many.runs.front(), sample_times(many.runs.front()));
  EXPECT_TRUE(of_many.all.empty());
  EXPECT_THAT(of_many.why_none, HasSubstr("no variance"));
}

// What is sampled has an error, which the table and the JSON show.
TEST_F(Predict, SampledTimesStandWithTheirErrors) {
  const auto methods = predict(all_methods());
  const auto json = nlohmann::json::parse(predictions_json("small", methods));
  const auto& formulas = json["predictions"][0]["formulas"];
  ASSERT_EQ(formulas.size(), 2u);
  EXPECT_TRUE(formulas[0]["step_time_standard_error_s"].is_null());
  const double error_s = formulas[1]["step_time_standard_error_s"];
  EXPECT_EQ(error_s, methods[0].formulas[1].prediction.step_error_s);
  EXPECT_GT(error_s, 0);
  const std::string table = prediction_table(methods);
  const std::string row = table.substr(table.find("sampled E[T]"));
  EXPECT_THAT(row.substr(0, row.find('\n')), HasSubstr("+-"));
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
