// `predict`: times, rounds, bytes and speed-ups, compared with real runs and closed forms.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "experiments/commands/commands.hpp"
#include "experiments/execution/time_simulation.hpp"
#include "results/statistics.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/program.hpp"
#include "tests/experiments/run_results.hpp"
#include "tests/experiments/scheduled_experiment.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {
namespace {

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

struct AllMethods : ExperimentFile {
  // Returns the small experiment with delays, momentum and more methods. Its network takes time for bytes and has no
  // shared links, as formulas assume.
  Experiment all_methods(Overrides overrides = {}) {
    write(std::string(small) + others + delayed);
    overrides.insert(overrides.end(),
                     {"network.kind=ring", "network.latency_s=1e-4", "network.bandwidth_bytes_per_s=1e7",
                      "network.contention=false", "training.optimizer.momentum=0.9"});
    return load(overrides);
  }
};

using testing::HasSubstr;

struct Predict : AllMethods {};

// Returns the time of the real run, with model and data.
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

// Times agree to the nanosecond, because the sizes of the model and of averages are known without training.
TEST_F(Predict, TheSimulatedTimeIsThatOfTheTrainedRun) {
  const Experiment experiment = all_methods();
  const auto methods = predict(experiment);
  ASSERT_EQ(methods.size(), 6u);  // only one of two seeds is predicted
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
  EXPECT_EQ(methods.back().why_no_formula, "") << "its paper has none";
  EXPECT_FALSE(methods.back().simulated);
  EXPECT_TRUE(methods.back().formulas.empty());
}

// 4 workers x 2 micro-batches x 8 samples are 64 samples per step.
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

// Asynchronous elastic averaging publishes its centre for the last time a few steps before the run's end.
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

// A part of a run is extrapolated to the whole run, with an error within four standard errors.
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

// The steps in which an automatic threshold is found do not represent the rest. They count as 10 of 1,000 steps, not as
// 10 of the 100 simulated ones.
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
  EXPECT_NO_THROW(load());  // without finite_means, the file has no fault
  try {
    load_experiment(file, {}, {.finite_means = true});
    ADD_FAILURE() << "must be refused";
  } catch (const ConfigurationFault& fault) {
    EXPECT_THAT(fault.what(), HasSubstr(file.string() + ":32:9: delays.0.shape = 0.9; must have a finite mean"));
  }
  EXPECT_NO_THROW(load_experiment(file, {"delays.0.shape=1.1"}, {.finite_means = true}));
}

// `predict` for methods whose rounds change during a run. The first steps represent the run only if the schedule has
// the same number of rounds per step in the rest. Without delays, and on a fixed network, a run takes 0.1 s per step
// and 1 s per round.

using testing::HasSubstr;

const std::string scheduled = scheduled_experiment(64, 9000) + R"([[methods]]
algorithm = "local-sgd"
period = { rule = "power", power = 2, coefficient = 0.2, minimum = 4, maximum = 64 }
)";

// Simulates the run up to the end of its budget.
double simulated_to_the_end_s(const Run& run) {
  Run longer = run;
  const SimulatedTime time = simulate_time(longer, 1'000'000);
  EXPECT_TRUE(time.whole);
  return *time.total_time_s;
}

struct PredictedSchedules : ExperimentFile {
  PredictedMethod predicted(const Overrides& overrides) {
    write(scheduled);
    return predict(load(overrides)).at(0);
  }
  syncopate::Run run(const Overrides& overrides) {
    write(scheduled);
    return load(overrides).runs.at(0);
  }
};

// Budgets of all kinds: the 9,000 steps of 64 workers are 4,608,000 samples, and 1e9 s are never reached.
TEST_F(PredictedSchedules, AreSimulatedWholeWhateverTheBudgetCounts) {
  const PredictedMethod by_steps = predicted({});
  ASSERT_TRUE(by_steps.simulated && by_steps.simulated->whole);
  const double rounds = by_steps.simulated->rounds;
  EXPECT_LT(rounds, 9000 / 4 * 0.9);
  EXPECT_NEAR(*by_steps.simulated->total_time_s, 9000 * 0.1 + rounds, 1e-6);
  for (const Overrides& budget : {Overrides{"budget.samples=4608000", "~budget.steps"},
                                  Overrides{"budget.samples=4608000"}, Overrides{"budget.seconds=1e9"}}) {
    const PredictedMethod other = predicted(budget);
    ASSERT_TRUE(other.simulated) << other.not_simulated;
    EXPECT_NEAR(*other.simulated->total_time_s, *by_steps.simulated->total_time_s, 1e-6) << budget[0];
    EXPECT_NEAR(other.simulated->rounds, rounds, 1e-9) << budget[0];
  }
}

// A step takes 0.1 s and a round 1 s. The formula uses both.
TEST_F(PredictedSchedules, ThatAreTooLongAreSampledWhateverTheBudgetCounts) {
  const std::string total = "training.learning_rate.total_steps=90000";
  for (const Overrides& budget :
       {Overrides{total, "budget.steps=90000"}, Overrides{total, "budget.samples=46080000", "~budget.steps"},
        Overrides{total, "budget.steps=90000", "budget.seconds=1e9"},
        Overrides{total, "budget.seconds=15000", "~budget.steps"}}) {
    const PredictedMethod longer = predicted(budget);
    ASSERT_TRUE(longer.simulated && longer.simulated->is_sampled) << longer.not_simulated;
    ASSERT_EQ(longer.formulas.size(), 1u);
    EXPECT_NEAR(longer.simulated->step_time_s, longer.formulas.front().prediction.step_time_s,
                4 * *longer.simulated->error_s + 1e-3);
    EXPECT_THAT(prediction_table(std::vector{longer}), HasSubstr("simulation, a sample of"));
  }
}

TEST_F(PredictedSchedules, AnotherPhaseIsFoundUnderABudgetOfSeconds) {
  const PredictedMethod late = predicted({"methods.0.period={rule='post-local',switch_step=6000,steps=50}",
                                          "~budget.steps", "budget.seconds=8000", "cluster.workers=16"});
  ASSERT_TRUE(late.simulated) << late.not_simulated;
  // The first 6,000 steps are one round each. After that a round takes 6 s.
  const double rest_s = 8000 - 6000 * 1.1, rounds = 6000 + std::ceil(rest_s / 6);
  EXPECT_NEAR(late.simulated->rounds, rounds, 1);
}

// Rounds of equal length can be extrapolated from any part of the run, wherever the bound on work ends this part.
TEST_F(PredictedSchedules, RoundsOfOneLengthAreDrawnOut) {
  for (const int period : {4, 30, 100, 128, 500, 1000, 3000}) {
    const PredictedMethod constant =
        predicted({"budget.steps=90000", "training.learning_rate.total_steps=90000",
                   "methods.0.period={rule='constant',steps=" + std::to_string(period) + "}"});
    ASSERT_TRUE(constant.simulated) << period << ": " << constant.not_simulated;
    EXPECT_FALSE(constant.simulated->whole);
    const double rounds = 90000.0 / period;
    EXPECT_NEAR(*constant.simulated->total_time_s, 90000 * 0.1 + rounds, 1e-6 * rounds) << period;
    EXPECT_NEAR(constant.simulated->rounds, rounds, 1e-6 * rounds) << period;
  }
}

TEST_F(PredictedSchedules, FirstStepsOfEveryMethodWithOnePaceStandForAll) {
  const std::string head = std::string(scheduled).substr(0, std::string(scheduled).find("[[methods]]"));
  int known = 0;
  for (const AlgorithmRow& row : algorithms()) {
    write(fmt::format("{}[[methods]]\nalgorithm = \"{}\"\n{}\n", head, row.name, row.example));
    Experiment experiment;
    try {
      experiment = load({"training.optimizer.name=adamw"});
    } catch (const ConfigurationFault&) {
      continue;  // needs a model
    }
    const ScheduledRounds rounds(experiment.runs.at(0));
    if (!rounds.are_known()) continue;
    ++known;
    const Step part = rounds.end_of_round(100, 3000, 9000);
    const bool merges_once = rounds.until(9000).rounds == 1;  // at the end, so no part represents the run
    EXPECT_EQ(rounds.stand_for_all(part, 9000), !merges_once) << row.name;
  }
  EXPECT_GE(known, 12);
}

TEST_F(PredictedSchedules, APartEndsWithARound) {
  const auto end = [&](const std::string& method, Step at_least, Step at_most, Step limit) {
    const auto run_of_method = run({"methods.0=" + method, "training.optimizer.name=adamw"});
    return ScheduledRounds(run_of_method).end_of_round(at_least, at_most, limit);
  };
  const std::string rounds = "{algorithm='local-sgd',period={rule='constant',steps=100}}";
  EXPECT_EQ(end(rounds, 1, 350, 9000), Step{300});
  EXPECT_EQ(end(rounds, 1, 300, 9000), Step{300});
  EXPECT_EQ(end(rounds, 320, 350, 9000), Step{400});
  EXPECT_EQ(end(rounds, 1, 70, 9000), Step{100});
  EXPECT_EQ(end(rounds, 1, 70, 90), Step{70}) << "none ends so soon";
  EXPECT_EQ(end("{algorithm='sync-sgd'}", 1, 350, 9000), Step{350});
  // Parameters are averaged every 100 steps, first moments every 300, and second moments every 600.
  EXPECT_EQ(end("{algorithm='des-loc',period=100}", 1, 1000, 9000), Step{600});
}

// If rounds are few and expensive, a prediction must not miss a single one.
TEST_F(PredictedSchedules, OfFewRoundsEachCounts) {
  for (const char* method :
       {"{algorithm='local-sgd',period={rule='constant',steps=7500}}", "{algorithm='branch-train-merge'}",
        "{algorithm='local-sgd',period={rule='power',coefficient=1e9,minimum=1,maximum=100000}}",
        "{algorithm='local-sgd',period={rule='power',coefficient=0.4,minimum=1500}}",
        "{algorithm='local-sgd',period={rule='power',coefficient=0.5,minimum=1500}}"})
    for (const Overrides& budget :
         {Overrides{"budget.steps=7500"}, Overrides{"~budget.steps", "budget.samples=3840000"},
          Overrides{"budget.steps=7500", "budget.seconds=1e9"}}) {
      Overrides all = {"network.latency_s=500", "training.learning_rate.total_steps=7500",
                       std::string("methods.0=") + method};
      all.insert(all.end(), budget.begin(), budget.end());
      if (std::string(method).find("power") != std::string::npos && budget.size() > 1)
        all.push_back("methods.0.period.maximum=100000");
      const auto own = run(all);
      const double rounds = static_cast<double>(ScheduledRounds(own).until(7500).rounds);
      const PredictedMethod few = predicted(all);
      ASSERT_TRUE(few.simulated) << method << ": " << few.not_simulated;
      EXPECT_NEAR(*few.simulated->total_time_s, 750 + 500 * rounds, 1e-6) << method << ", " << budget[0];
    }
}

// Runs that cannot be simulated as a whole are sampled, and the error shows the uncertainty.
TEST_F(PredictedSchedules, OfFewRoundsTheLastOneIsNotForgotten) {
  struct Case {
    Overrides overrides;
    int steps;
    double total_s;
  };
  const std::string hundreds = "methods.0={algorithm='local-sgd',period={rule='constant',steps=500}}";
  const std::string thousands = "methods.0={algorithm='local-sgd',period={rule='constant',steps=4000}}";
  for (const Case& one :
       {Case{{hundreds, "budget.steps=5100", "network.latency_s=100"}, 5100, 510 + 11 * 100},
        Case{{thousands, "budget.steps=5000", "network.latency_s=1000"}, 5000, 500 + 2 * 1000},
        Case{{thousands, "~budget.steps", "budget.samples=5120000", "network.latency_s=300"}, 5000, 500 + 2 * 300}}) {
    Overrides all = one.overrides;
    all.push_back("cluster.workers=128");
    const PredictedMethod method = predicted(all);
    if (method.simulated) {
      const double error_s = method.simulated->is_sampled ? 2 * *method.simulated->error_s * one.steps : 0;
      EXPECT_NEAR(*method.simulated->total_time_s, one.total_s, 1e-6 + error_s) << all[1];
    }
    ASSERT_EQ(method.formulas.size(), 1u);
    EXPECT_NEAR(method.formulas[0].prediction.step_time_s * one.steps, one.total_s, 1e-6) << all[1];
  }
}

// Workers that begin together also arrive together. So the start-up steps, and the steps to extrapolate, must both end
// when all workers have arrived.
TEST_F(PredictedSchedules, MethodsWhoseCyclesAreLongerThanRoundsAreDrawnOutByCycles) {
  for (const int steps : {300, 1000, 5000}) {
    const PredictedMethod together = predicted(
        {"budget.steps=90000", "training.learning_rate.total_steps=90000",
         fmt::format("methods.0={{algorithm='async-local-sgd',local_steps={},update={{name='plain',rate=0.2}}}}",
                     steps)});
    ASSERT_TRUE(together.simulated) << together.not_simulated;
    EXPECT_NEAR(together.simulated->step_time_s, 0.1 + 2.0 / steps, 1e-6) << steps;
  }
  for (const int period : {100, 300, 900}) {  // all moments are averaged after six of these periods
    const PredictedMethod moments =
        predicted({"budget.steps=90000", "training.learning_rate.total_steps=90000", "training.optimizer.name=adam",
                   fmt::format("methods.0={{algorithm='des-loc',period={}}}", period)});
    ASSERT_TRUE(moments.simulated) << moments.not_simulated;
    EXPECT_EQ(moments.simulated->steps.value() % (6 * period), 0);
    EXPECT_NEAR(moments.simulated->step_time_s, 0.1 + 1.0 / period, 1e-6) << period;
  }
}

// The server's model counts fewer steps than workers have taken. Its last step in a simulated part must not be mistaken
// for the end of the run.
TEST_F(PredictedSchedules, APartIsNotTakenForTheWholeWhereLessIsPublished) {
  const PredictedMethod part =
      predicted({"budget.steps=20000", "training.learning_rate.total_steps=20000",
                 "methods.0={algorithm='elastic-averaging',exchange='asynchronous',period=10,beta=0.9}"});
  ASSERT_TRUE(part.simulated);
  EXPECT_FALSE(part.simulated->whole);
  EXPECT_NEAR(*part.simulated->total_time_s / (20000 * part.simulated->step_time_s), 1, 0.01);
  EXPECT_GT(*part.simulated->total_time_s, 20000 * 0.1);
}

// Dropped micro-batches do not use samples of the budget, so the run takes more steps than without drops.
TEST_F(PredictedSchedules, SamplesLastForMoreStepsWhereSomeAreDropped) {
  write(std::string(scheduled) + "\n[[delays]]\nkind = \"exponential\"\nmean = 0.1\n");
  const Overrides overrides = {"cluster.workers=4", "~budget.steps", "budget.samples=9600",
                               "methods.0={algorithm='dropcompute-local-sgd',threshold_s=0.2,clock='step',"
                               "period={rule='post-local',switch_step=330,steps=100}}"};
  const Experiment experiment = load(overrides);
  const PredictedMethod method = predict(experiment).at(0);
  ASSERT_TRUE(method.simulated && method.simulated->whole);
  EXPECT_GT(method.simulated->steps, Step{400});
  EXPECT_NEAR(*method.simulated->total_time_s, simulated_to_the_end_s(experiment.runs.at(0)), 1e-9);
}

// In the second phase, the rounds of 1-bit Adam have another size, and branch-train-merge has one round, at the end.
TEST_F(PredictedSchedules, TheSecondPhaseIsWhatIsDrawnOut) {
  for (const char* method : {"{algorithm='branch-train-merge',seed_steps=20000,merge='average'}",
                             "{algorithm='one-bit-adam',freeze_step=20000}"}) {
    const Overrides overrides = {
        "budget.steps=300000", "cluster.workers=4", "network={kind='ring',latency_s=1e-3,bandwidth_bytes_per_s=1e6}",
        "training.optimizer={name='adam',bias_correction=false}", std::string("methods.0=") + method};
    const PredictedMethod two = predicted(overrides);
    ASSERT_TRUE(two.simulated) << two.not_simulated;
    EXPECT_FALSE(two.simulated->whole);
    const SimulatedTime whole = simulate_time(run(overrides), 10'000'000);
    ASSERT_TRUE(whole.whole);
    EXPECT_NEAR(*two.simulated->total_time_s / *whole.total_time_s, 1, 1e-3) << method;
  }
}

// Workers begin no step after the budget's time, so a round that would end much later is cut off.
TEST_F(PredictedSchedules, TheFormulaCutsTheLastRoundAtTheBudgetOfSeconds) {
  for (const char* seconds : {"budget.seconds=250", "budget.seconds=101", "budget.seconds=1999.95"}) {
    const PredictedMethod cut =
        predicted({"cluster.workers=4", "methods.0={algorithm='local-sgd',period={rule='constant',steps=1000}}",
                   seconds, "~budget.steps"});
    ASSERT_TRUE(cut.simulated && cut.simulated->whole);
    ASSERT_EQ(cut.formulas.size(), 1u);
    EXPECT_NEAR(cut.formulas[0].prediction.step_time_s / cut.simulated->step_time_s, 1, 1e-9) << seconds;
  }
}

TEST_F(PredictedSchedules, OfACompressionsWarmUpThereIsNoFormulaWhereItsShareIsNotKnown) {
  const std::string method =
      "methods.0={algorithm='sync-sgd',compression={name='top-k',ratio=0.01,warmup_ratios=[0.5],warmup_steps=50}}";
  EXPECT_FALSE(predicted({method}).formulas.empty());
  const PredictedMethod open = predicted({method, "~budget.steps", "budget.seconds=50"});
  EXPECT_TRUE(open.formulas.empty());
  EXPECT_THAT(open.why_no_formula, HasSubstr("the compression's warm-up"));
}

// The steps to the target are all in the phase in which each step is a round. Later phases with longer rounds have no
// effect.
TEST_F(PredictedSchedules, FirstStepsAreSimulatedByThemselves) {
  const auto two = run({"methods.0.period={rule='post-local',switch_step=6000,steps=50}"});
  const auto first = simulate_first_steps(two, 5000);
  ASSERT_TRUE(first);
  EXPECT_NEAR(first->step_time_s, 1.1, 1e-9);
  EXPECT_FALSE(ScheduledRounds(two).stand_for_all(5000, 9000));
}

// Predicted rounds and bytes, compared with runs and closed forms; and S_eff relative to a named method.

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* delayed_communication = R"(
[[delays]]
kind = "exponential"
mean = 0.005
)";

class PredictedCommunicationOf : public ExperimentFile {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    write(std::string(small) + delayed_communication);
  }
  // Loads an experiment with one seed. It has momentum, so an average has two vectors: parameters and momentum.
  Experiment with(const std::string& methods, Overrides overrides = {}) const {
    overrides.insert(overrides.end(), {"methods=[" + methods + "]", "training.optimizer.momentum=0.9", "seeds=[3]",
                                       "network={kind='ring',latency_s=1e-4,bandwidth_bytes_per_s=1e7}"});
    return load(overrides);
  }
};

const std::vector<std::string> periodic = {
    "{algorithm='sync-sgd'}",
    "{algorithm='sync-sgd',compression={name='top-k',ratio=0.1}}",
    "{algorithm='sync-sgd',compression={name='random-k',ratio=0.1}}",
    "{algorithm='one-bit-adam',freeze_step=7,training={optimizer={name='adam',bias_correction=false}}}",
    "{algorithm='sync-sgd',compression={name='qsgd',levels=7}}",
    "{algorithm='sync-sgd',compression={name='scalecom',ratio=0.1}}",
    "{algorithm='sync-sgd',compression={name='one-bit',exchange='two-phase'}}",
    "{algorithm='sync-sgd',compression={name='dgc',ratio=0.1,dense_vectors=true,warmup_ratios=[0.5,0.2],warmup_steps=7}"
    "}",
    "{algorithm='sync-sgd',compression={name='top-k',ratio=0.1,scope='tensor'}}",
    "{algorithm='sync-sgd',compression={name='powersgd',rank=1,least_rate=1.0}}",
    "{algorithm='sync-sgd',compression={name='powersgd',rank=1,least_rate=1.0,factors='in-turn'}}",
    "{algorithm='local-sgd',period={rule='constant',steps=7}}",
    "{algorithm='local-sgd',period={rule='post-local',switch_step=11,steps=6},compression={name='int8'}}",
    "{algorithm='local-sgd',period={rule='constant',steps=7},compression={name='int8',exchange='two-phase'}}",
    "{algorithm='outer-local-sgd',period={rule='constant',steps=7},outer={name='plain'},compression={name='fp4'}}",
    "{algorithm='cocod-sgd',period={rule='constant',steps=7},compression={name='random-k',ratio=0.1}}",
    "{algorithm='streaming-diloco',fragments=3,delay=2,period={rule='constant',steps=7},outer={name='plain'},"
    "compression={name='top-k',ratio=0.1}}",
    "{algorithm='palsgd',period={rule='constant',steps=7},outer={name='plain'},compression={name='sign'}}",
    "{algorithm='async-local-sgd',local_steps=2,update={name='plain',rate=0.2},compression={name='top-k',ratio=0.1}}",
    "{algorithm='local-sgd',period={rule='constant',steps=7},moments='average'}",
    "{algorithm='local-sgd',period={rule='post-local',switch_step=11,steps=6},moments='average'}",
    "{algorithm='local-sgd',period={rule='swap',switch_step=13}}",
    "{algorithm='local-sgd',period={rule='power',coefficient=0.3,minimum=2}}",
    "{algorithm='local-sgd',period={rule='power',coefficient=0.3,minimum=2},local_phase={peak=0.3,schedule='linear'}}",
    "{algorithm='branch-train-merge',seed_steps=13}",
    "{algorithm='branch-train-merge',seed_steps=13,merge='ensemble'}",
    "{algorithm='branch-train-merge',seed_steps=100}",
    "{algorithm='des-loc',period=7}",
    "{algorithm='des-loc',period=7,first_moment_period=5}",
    "{algorithm='outer-local-sgd',period={rule='constant',steps=7},outer={name='diloco',rate=0.7,momentum=0.5}}",
    "{algorithm='edit',period={rule='constant',steps=7},outer={name='plain'}}",
    "{algorithm='edit',period={rule='post-local',switch_step=11,steps=6},outer={name='plain'},scope='model',step_share="
    "0.2}",
    "{algorithm='cocod-sgd',period={rule='constant',steps=7}}",
    "{algorithm='overlap-local-sgd',mixing=0.5,period={rule='post-local',switch_step=11,steps=6}}",
    "{algorithm='co2',period={rule='power',coefficient=0.3,minimum=2}}",
    "{algorithm='overlapped-diloco',period={rule='constant',steps=7},outer={name='plain'}}",
    "{algorithm='hierarchical-sgd',group_size=3,group_period=2,period={rule='constant',steps=7}}",
    "{algorithm='hierarchical-sgd',group_size=2,group_period=3,period={rule='power',coefficient=0.5,minimum=3},"
    "moments='average'}",
    "{algorithm='scaffold',period={rule='constant',steps=7}}",
    "{algorithm='scaffold',control='gradient',period={rule='post-local',switch_step=11,steps=6},training={optimizer={"
    "name='sgd',momentum=0.0}}}",
    "{algorithm='fednova',period={rule='constant',steps=7}}",
    "{algorithm='fednova',period={rule='post-local',switch_step=11,steps=6}}",
    "{algorithm='noloco',local_steps=7}",
    "{algorithm='post-local-sgd',start=5,warmup=2,period=7,group_size=2}",
    "{algorithm='post-local-sgd',start=3,period=7,group_size=1,levels=[{group_size=2,period=2}]}",
    "{algorithm='dropcompute-local-sgd',threshold_s=0.05,period={rule='constant',steps=7}}",
    "{algorithm='dropcompute-local-sgd',threshold_s=0.05,weights='steps',period={rule='power',coefficient=0.3,"
    "minimum=2}}",
    "{algorithm='async-local-sgd',local_steps=3,update={name='plain',rate=0.3}}",
    "{algorithm='async-local-sgd',local_steps=7,update={name='nesterov',rate=0.1,momentum=0.5}}",
    "{algorithm='async-local-sgd',local_steps=2,update={name='buffered',size=3}}",
    "{algorithm='async-local-sgd',local_steps=5,update={name='buffered',size=3}}"};

TEST_F(PredictedCommunicationOf, MethodsInRoundsIsInClosedFormWhatTheRunSends) {
  for (const std::string& method : periodic) {
    SCOPED_TRACE(method);
    const syncopate::Run run = with(method).runs.at(0);
    const ScheduledRounds rounds(run);
    ASSERT_TRUE(rounds.are_known());
    const Communicated known = rounds.until(*run.budget.steps);
    const Outcome outcome = outcome_of(run);
    ASSERT_EQ(outcome.failure, "");
    EXPECT_EQ(known.rounds, std::ssize(outcome.recording.rows));
    EXPECT_EQ(known.bytes, outcome.totals->bytes);
  }
}

// Some packets depend on the model's tensors, which its description determines. So a run without the model takes the
// same time.
TEST_F(PredictedCommunicationOf, TensorsIsKnownWithoutTraining) {
  for (const char* compression : {"{name='powersgd',rank=1,least_rate=1.0}", "{name='one-bit'}"}) {
    SCOPED_TRACE(compression);
    const Experiment experiment = with(std::string("{algorithm='sync-sgd',compression=") + compression + "}");
    const PredictedMethod predicted = predict(experiment).at(0);
    const Outcome outcome = outcome_of(experiment.runs.at(0));
    ASSERT_TRUE(predicted.simulated) << predicted.not_simulated;
    EXPECT_TRUE(predicted.why_no_formula.empty()) << predicted.why_no_formula;
    EXPECT_EQ(predicted.simulated->total_time_s, to_seconds(outcome.totals->end));
    EXPECT_EQ(predicted.simulated->bytes, static_cast<double>(outcome.totals->bytes.value()));
  }
}

TEST_F(PredictedCommunicationOf, TensorsOfAQuadraticIsNot) {
  const Experiment experiment = with("{algorithm='sync-sgd',compression={name='sign',scope='tensor'}}",
                                     {"training.model='quadratic'", "budget={steps=10}"});
  const PredictedMethod predicted = predict(experiment).at(0);
  EXPECT_FALSE(predicted.simulated);
  EXPECT_NE(predicted.not_simulated.find("depend on the model's tensors"), std::string::npos);
  EXPECT_EQ(predicted.why_no_formula, predicted.not_simulated);
}

TEST_F(PredictedCommunicationOf, WholeSimulationsIsThatOfTheRun) {
  for (const char* method : {"{algorithm='backup-workers',backups=1}", "{algorithm='async-sgd'}",
                             "{algorithm='decentralized-sgd'}", "{algorithm='dropcompute',threshold_s=0.02}"}) {
    SCOPED_TRACE(method);
    const Experiment experiment = with(method);
    const auto predicted = predict(experiment).at(0).communicated;
    const Outcome outcome = outcome_of(experiment.runs.at(0));
    ASSERT_TRUE(predicted && predicted->is_exact);
    EXPECT_EQ(predicted->rounds, static_cast<double>(outcome.recording.rows.size()));
    EXPECT_EQ(predicted->bytes, static_cast<double>(outcome.totals->bytes.value()));
  }
}

// In 200,000 steps, H = 7 makes ceil(200,000 / 7) rounds of 2 (N - 1) P bytes.
TEST_F(PredictedCommunicationOf, RunsThatAreNotSimulatedWholeIsStillExactWhereThereIsAClosedForm) {
  const Experiment experiment = with(
      "{algorithm='sync-sgd'},{label='local',algorithm='local-sgd',period={rule='constant',steps=7}},"
      "{label='async',algorithm='async-sgd'}",
      {"budget={steps=200000}"});
  const auto methods = predict(experiment);
  const auto all_reduce = static_cast<double>(2 * 3 * experiment.runs[0].training.parameter_bytes.value());
  ASSERT_FALSE(methods[1].simulated->whole);
  EXPECT_TRUE(methods[0].communicated->is_exact);
  EXPECT_EQ(methods[0].communicated->rounds, 200'000);
  EXPECT_EQ(methods[0].communicated->bytes, 200'000 * all_reduce);
  EXPECT_TRUE(methods[1].communicated->is_exact);
  EXPECT_EQ(methods[1].communicated->rounds, std::ceil(200'000 / 7.0));
  EXPECT_EQ(methods[1].communicated->bytes, std::ceil(200'000 / 7.0) * all_reduce);
  // Each worker sends a gradient and gets a model in each step. The bytes are extrapolated.
  EXPECT_FALSE(methods[2].communicated->is_exact);
  const auto payload = static_cast<double>(experiment.runs[2].training.parameter_bytes.value());
  EXPECT_NEAR(methods[2].communicated->bytes / (200'000 * 4 * 2 * payload), 1, 0.01);
  EXPECT_THAT(prediction_table(methods), AllOf(HasSubstr(" 200000 "), HasSubstr(" 28572 "), HasSubstr("~"),
                                               HasSubstr("extrapolated from the simulated steps")));
}

TEST_F(PredictedCommunicationOf, DynamicMethodsIsNotKnown) {
  const auto methods = predict(with("{algorithm='dynamic-averaging',threshold=0.1,check_every=4}"));
  EXPECT_FALSE(methods.at(0).communicated);
  const auto json = nlohmann::json::parse(predictions_json("e", methods));
  EXPECT_TRUE(json["predictions"][0]["rounds"].is_null());
  EXPECT_TRUE(json["predictions"][0]["communicated_bytes"].is_null());
}

// In 60 steps, H = 5 makes 12 rounds.
TEST_F(PredictedCommunicationOf, RulesThatAreSolvedForIsWhatWasAskedFor) {
  const auto methods =
      predict(with("{label='constant',algorithm='local-sgd',period={rule='constant',steps={rounds=12}}},"
                   "{label='power',algorithm='local-sgd',period={rule='power',coefficient={share=0.2},"
                   "minimum=2}},{label='odd',algorithm='local-sgd',period={rule='constant',"
                   "steps={rounds=50}}}"));
  EXPECT_EQ(methods.at(0).communicated->rounds, 12);
  EXPECT_EQ(methods.at(1).communicated->rounds, 12);
  EXPECT_EQ(methods.at(0).communicated->bytes, methods.at(1).communicated->bytes);
  EXPECT_THAT(
      prediction_table(methods),
      AllOf(HasSubstr("constant: period.steps = 5 makes 12 rounds\n"), HasSubstr("power: period.coefficient = "),
            HasSubstr("odd: period.steps = 1 makes 60 rounds, the nearest possible number to 50\n")));
}

class PredictedAgainst : public PredictedCommunicationOf {
 protected:
  static constexpr const char* three =
      "{label='sync',algorithm='sync-sgd'},{label='drop',algorithm='dropcompute',"
      "threshold_s=0.02},{label='local',algorithm='local-sgd',period={rule='constant',"
      "steps=5}}";
};

TEST_F(PredictedAgainst, AnyMethodSpeedUpsAreRatiosOfPaces) {
  const Experiment experiment = with(three);
  for (const std::string label : {"sync", "drop", "local"}) {
    const auto methods = predict(experiment, label);
    const auto other = std::ranges::find(methods, label, &PredictedMethod::method);
    for (const PredictedMethod& method : methods) {
      EXPECT_DOUBLE_EQ(*method.simulated_speedup,
                       method.simulated->micro_batches_per_s / other->simulated->micro_batches_per_s);
      EXPECT_EQ(method.compared_with, "\"" + label + "\"");
    }
    EXPECT_EQ(other->simulated_speedup, 1);
    EXPECT_EQ(other->simulated_speedup_error, 0);
    for (const FormulaTime& formula : other->formulas) {
      EXPECT_NEAR(formula.prediction.effective_speedup(), 1, 1e-12) << formula.prediction.formula;
      EXPECT_EQ(formula.prediction.effective_speedup_error(), 0);
    }
    EXPECT_THAT(prediction_table(methods), HasSubstr("S_eff: relative to \"" + label + "\"\n"));
  }
}

// Without randomness, formulas equal the simulation, whatever method S_eff is relative to.
TEST_F(PredictedAgainst, AnyMethodFormulasAreComparedWithItsOwn) {
  write(small);
  for (const PredictedMethod& method : predict(with(three), "drop")) {
    ASSERT_FALSE(method.formulas.empty());
    for (const FormulaTime& formula : method.formulas)
      EXPECT_NEAR(formula.prediction.effective_speedup(), *method.simulated_speedup, 1e-6) << method.method;
  }
}

TEST_F(PredictedAgainst, AMethodWithoutPredictionsThereAreNoSpeedUps) {
  const auto methods =
      predict(with(std::string(three) + ",{label='dynamic',algorithm='dynamic-averaging',threshold=0.1,check_every=4}"),
              "dynamic");
  EXPECT_FALSE(methods.at(0).simulated_speedup);
  EXPECT_TRUE(std::isnan(methods.at(0).formulas.at(0).prediction.effective_speedup()));
  const auto json = nlohmann::json::parse(predictions_json("e", methods));
  EXPECT_TRUE(json["predictions"][0]["formulas"][0]["effective_speedup"].is_null());
  EXPECT_THAT(prediction_table(methods), testing::Not(HasSubstr("nan")));
}

TEST_F(PredictedAgainst, EachPointOfASweepIsComparedAtThatPoint) {
  const auto methods = predict(with(three, {"sweep.\"cluster.workers\"=[2,4]"}), "drop");
  ASSERT_EQ(methods.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_DOUBLE_EQ(*methods[i].simulated_speedup,
                     methods[i].simulated->micro_batches_per_s / methods[i / 3 * 3 + 1].simulated->micro_batches_per_s);
}

// If the method to compare with is swept along its own key, the key's first value represents it.
TEST_F(PredictedAgainst, AMethodThatIsSweptItselfIsNamedWithItsValue) {
  write(std::string(small) + delayed_communication + "[sweep]\n\"methods.drop.threshold_s\" = [0.02, 0.03]\n");
  const auto methods = predict(load({"seeds=[3]"}), "drop");
  ASSERT_EQ(methods.size(), 3u);
  for (const PredictedMethod& method : methods) {
    if (method.method != "drop") {
      EXPECT_EQ(method.compared_with, "\"drop\", methods.drop.threshold_s = 0.02");
    } else {
      EXPECT_EQ(method.simulated_speedup, 1);
    }
  }
}

TEST_F(PredictedAgainst, AnUnknownMethodIsAFaultThatNamesTheNearest) {
  const Experiment experiment = with(three);
  EXPECT_NO_THROW(check_against(experiment, "local"));
  EXPECT_NO_THROW(check_against(experiment, ""));
  try {
    check_against(experiment, "locl");
    ADD_FAILURE() << "must be refused";
  } catch (const ConfigurationFault& fault) {
    EXPECT_THAT(fault.what(), AllOf(HasSubstr("--against locl: "), HasSubstr("\"sync\", \"drop\", \"local\""),
                                    HasSubstr("did you mean \"local\"?")));
  }
}

// Formulas in predictions: their accuracy, the reason if none applies, and their form in tables and JSON.

using testing::HasSubstr;

struct PredictedFormulas : AllMethods {};

std::vector<std::vector<std::string>> words_of_rows(const std::string& table) {
  std::istringstream lines(table);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  return rows;
}

// Returns the number of rows before the notes, which follow an empty line.
std::ptrdiff_t rows_below_the_rule(const std::string& table) {
  const auto rows = words_of_rows(table);
  return std::ranges::find(rows, true, &std::vector<std::string>::empty) - rows.begin() - 3;
}

TEST_F(PredictedFormulas, FormulasStandBesideTheSimulation) {
  const auto methods = predict(all_methods({"budget.epochs=60"}));
  for (const PredictedMethod& method : methods) {
    SCOPED_TRACE(method.method);
    for (const FormulaTime& formula : method.formulas) {
      // Eq. 4 assumes normal times. For the exponential delays here its error is at most 10 %.
      EXPECT_NEAR(formula.prediction.step_time_s / method.simulated->step_time_s, 1, 0.1) << formula.prediction.formula;
      EXPECT_NEAR(*formula.total_time_s, 600 * formula.prediction.step_time_s, 1e-9);
    }
  }
  const auto count = [&](std::size_t i) { return methods[i].formulas.size(); };
  EXPECT_EQ(count(0), 2u);
  EXPECT_EQ(count(1), 3u);  // one formula more, because the sum of two exponential times is far from normal
  EXPECT_EQ(count(2), 1u);
  EXPECT_EQ(count(3), 1u);
  EXPECT_EQ(count(4), 0u);
  EXPECT_EQ(count(5), 0u);
}

TEST_F(PredictedFormulas, TheTableNamesMethodsAndSources) {
  const auto methods = predict(all_methods());
  const std::string table = prediction_table(methods);
  for (const char* text :
       {"sync-sgd", "simulation", "Eq. 4", "sampled E[T]", "Eqs. 4 to 6", "order statistic (lower bound)",
        "rounds of normal sums", "needs training", "S_eff", "+-", "S_eff is at most this large"})
    EXPECT_THAT(table, HasSubstr(text));
  EXPECT_THAT(table, testing::Not(HasSubstr("no formula")));
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
  EXPECT_TRUE(json["predictions"][5]["no_formula"].is_null());
  EXPECT_TRUE(drop["no_formula"].is_null());
}

// Texts of 1 to 12 words cost 1 ms per word. A micro-batch takes at most 12 ms with a token budget of 12, and nearly
// ten times as long with a token budget of 120.
TEST_F(PredictedFormulas, FormulasOfAMethodWithItsOwnBatchingAreOfItsOwnTimes) {
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

// Without a variance, the time of the slowest of many workers is unknown.
TEST_F(PredictedFormulas, WithoutAVarianceAndASampleOfAllWorkersThereIsNoFormulaButAReason) {
  write(std::string(small) + "[[delays]]\nkind = \"pareto\"\nshape = 1.5\nminimum = 0.001\n");
  const Experiment few = load(), many = load({"cluster.workers=5000", "datasets.gaussian-mixture.train=80000"});
  const auto of_few = predict_by_formula(few.runs.front(), sample_times(few.runs.front()));
  ASSERT_EQ(of_few.all.size(), 1u);
  EXPECT_EQ(of_few.all[0].prediction.formula, "sampled E[T]");
  const auto of_many = predict_by_formula(many.runs.front(), sample_times(many.runs.front()));
  EXPECT_TRUE(of_many.all.empty());
  EXPECT_THAT(of_many.why_none, HasSubstr("no finite variance"));
}

// If a formula of the paper does not apply, the table gives the reason in a row below the simulation's. For each of
// these methods a formula applies in the small experiment.
TEST_F(PredictedFormulas, WhereTheyDoNotApplyTheTableSaysWhy) {
  const std::string sync = "algorithm='sync-sgd'", backup = "algorithm='backup-workers', backups=1",
                    local = "algorithm='local-sgd', period={rule='constant', steps=5}",
                    drop = "algorithm='dropcompute', threshold_s=0.015",
                    ring = "network={kind='ring', latency_s=1e-3, bandwidth_bytes_per_s=1e6";
  struct Case {
    std::string method;
    Overrides overrides;
    std::string reason;  // why the formula does not apply; empty: it applies
  };
  const std::vector<Case> cases = {
      {sync, {}, ""},
      {drop, {}, ""},
      {local, {}, ""},
      {backup, {"network={kind='fixed', latency_s=1e-3}"}, ""},
      {backup, {ring + ", contention=false}"}, ""},
      {backup, {ring + "}"}, "messages wait on shared links"},
      {sync, {"outages=[{workers=[1], at_s=0.1, duration_s=0.1}]"}, "outages change which workers a step waits for"},
      {local, {"outages=[{workers=[1], at_s=0.1, duration_s=0.1}]"}, "outages change which workers a step waits for"},
      {backup,
       {"cluster.workers=5000", "datasets.gaussian-mixture.train=80000", "network={kind='free'}"},
       "too many workers to draw them all"},
      {drop,
       {ring + ", overlap={buckets=4}}"},
       "the time that overlap hides depends on when each worker finishes each bucket"},
      {"algorithm='dropcompute', threshold_s=0.015, preempt='microbatch'", {}, "none for these settings"},
      {local + ", local_phase={micro_batches=1}",
       {},
       "local steps have another number of micro-batches than synchronous steps"}};
  for (const auto& [method, overrides, reason] : cases) {
    Overrides all = overrides;
    all.push_back("methods=[{" + method + "}]");
    SCOPED_TRACE(method + (overrides.empty() ? "" : ", " + overrides[0]));
    const auto methods = predict(load(all));
    ASSERT_EQ(methods.size(), 1u);
    EXPECT_EQ(methods[0].why_no_formula, reason);
    EXPECT_EQ(methods[0].formulas.empty(), !reason.empty());
    const std::string table = prediction_table(methods);
    if (reason.empty()) {
      EXPECT_THAT(table, testing::Not(HasSubstr("no formula")));
    } else {
      EXPECT_EQ(rows_below_the_rule(table), 2);
      EXPECT_THAT(table, HasSubstr("  no formula: " + reason + "  "));
    }
    const auto json = nlohmann::json::parse(predictions_json("small", methods));
    EXPECT_EQ(json["predictions"][0]["no_formula"], reason.empty() ? nlohmann::json() : nlohmann::json(reason));
  }
}

// If a method's paper has no formula, the table has only the simulation's row.
TEST_F(PredictedFormulas, OfOtherMethodsThereIsTheSimulationAlone) {
  for (const char* method : {"algorithm='async-sgd'", "algorithm='k-batch-sync', gradients=2",
                             "algorithm='dynamic-averaging', threshold=0.1, check_every=4",
                             "algorithm='overlapped-diloco', outer={name='plain'}, period={rule='constant', steps=5}"})
    for (const Overrides& setting : {Overrides{}, Overrides{"outages=[{workers=[1], at_s=0.1, duration_s=0.1}]"},
                                     Overrides{"network={kind='ring', latency_s=1e-3, bandwidth_bytes_per_s=1e6}"}}) {
      Overrides all = setting;
      all.push_back(std::string("methods=[{") + method + "}]");
      SCOPED_TRACE(method);
      const auto methods = predict(load(all));
      ASSERT_EQ(methods.size(), 1u);
      EXPECT_TRUE(methods[0].formulas.empty());
      EXPECT_EQ(methods[0].why_no_formula, "");
      EXPECT_EQ(rows_below_the_rule(prediction_table(methods)), 1);
      const auto json = nlohmann::json::parse(predictions_json("small", methods));
      EXPECT_TRUE(json["predictions"][0]["formulas"].empty());
      EXPECT_TRUE(json["predictions"][0]["no_formula"].is_null());
    }
}

// Each of four workers on a ring mixes a third of its own model with a third of each neighbour's. The matrix has the
// eigenvalues 1, 1/3, 1/3 and -1/3.
TEST_F(PredictedFormulas, TheGapOfAGraphIsARemarkBelowTheTable) {
  const auto methods =
      predict(load({"methods=[{algorithm='sync-sgd'},{label='gossip',algorithm='decentralized-sgd',"
                    "graph={kind='ring'}}]"}));
  ASSERT_EQ(methods.size(), 2u);
  EXPECT_EQ(methods[0].remark, "");
  EXPECT_EQ(methods[1].remark, "the graph's spectral gap is 0.6667");
  const std::string table = prediction_table(methods);
  EXPECT_THAT(table, HasSubstr("\n\ngossip: the graph's spectral gap is 0.6667\n"));
  EXPECT_THAT(table, testing::Not(HasSubstr("no formula")));
  const auto json = nlohmann::json::parse(predictions_json("small", methods));
  EXPECT_TRUE(json["predictions"][0]["remark"].is_null());
  EXPECT_EQ(json["predictions"][1]["remark"], "the graph's spectral gap is 0.6667");
}

// Drawn steps contain the times at which each worker's buckets are ready.
TEST_F(PredictedFormulas, OfAnExchangeDuringTheBackwardPassGoesByWhenBucketsAreReady) {
  const auto predicted = [&](const std::string& method, const std::string& overlap) {
    return predict(load({"methods=[{algorithm=" + method + "}]",
                         "network={kind='ring', latency_s=1e-5, bandwidth_bytes_per_s=1e5" + overlap + "}"}))
        .at(0);
  };
  const double plain_s = predicted("'sync-sgd'", "").simulated->step_time_s;
  for (const char* overlap : {", overlap={buckets=1}", ", overlap={buckets=2}", ", overlap={buckets=8}"}) {
    SCOPED_TRACE(overlap);
    const PredictedMethod method = predicted("'sync-sgd'", overlap);
    ASSERT_EQ(method.formulas.size(), 2u);
    const FormulaTime& sampled = method.formulas.back();
    EXPECT_TRUE(sampled.prediction.is_sampled);
    // The formula draws the same steps as the simulation.
    EXPECT_NEAR(sampled.prediction.step_time_s, method.simulated->step_time_s, 1e-6 * plain_s);
    EXPECT_NEAR(sampled.prediction.communication_share().value(), method.simulated->communication_share, 1e-4);
    EXPECT_LE(sampled.prediction.step_time_s, plain_s * (1 + 1e-6));
    // In the baseline of S_eff, exchanges overlap with the backward pass, too.
    EXPECT_EQ(sampled.prediction.effective_speedup(), 1);
  }
  EXPECT_LT(predicted("'sync-sgd'", ", overlap={buckets=8}").simulated->step_time_s, 0.99 * plain_s);
  // Methods that exchange the same sums take the same time.
  const double overlapped_s = predicted("'sync-sgd'", ", overlap={buckets=4}").simulated->step_time_s;
  for (const char* like : {"'stale-sgd', staleness=2", "'random-drop', drop_rate=0.4"})
    EXPECT_NEAR(predicted(like, ", overlap={buckets=4}").simulated->step_time_s, overlapped_s, 1e-6 * plain_s) << like;
}

// Sampled values have errors, which the table and the JSON show.
TEST_F(PredictedFormulas, SampledTimesStandWithTheirErrors) {
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

// S_eff, the micro-batches per time relative to synchronous SGD: the choice of this baseline, and the error.

using testing::HasSubstr;

struct PredictedSpeedup : AllMethods {};

// S_eff counts micro-batches that went into the model. Without delays and jitter it follows from the drop rate and the
// time of a step. In a step, workers compute 8 micro-batches of 10 ms, or 4 under the threshold.
TEST_F(PredictedSpeedup, SpeedUpsAndSharesAreThoseOfTheSteps) {
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

// The standard deviation of S_eff between seeds must not exceed S_eff's error. It is smaller, because methods with the
// same seed have the same delays. The standard deviation over 30 seeds itself has an error of 13 %.
TEST_F(PredictedSpeedup, SpeedUpsOfSeedsLieAboutTheirErrorApart) {
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

// At each sweep point, S_eff is relative to synchronous SGD at this point, even if the file has no synchronous SGD.
TEST_F(PredictedSpeedup, EachPointOfASweepHasABaselineOfItsOwn) {
  std::string text = std::string(small) + delayed + "[sweep]\n\"cluster.workers\" = [2, 8]\n";
  text.erase(text.find("[[methods]]\nalgorithm = \"sync-sgd\""), 34);
  write(text);
  const auto methods = predict(load({"datasets.gaussian-mixture.train=1280"}));
  ASSERT_EQ(methods.size(), 2u);
  EXPECT_EQ(methods[0].sweep.at(0).second, "2");
  EXPECT_GT(*methods[1].simulated_speedup, *methods[0].simulated_speedup);  // dropping gains more with more workers
  EXPECT_THAT(prediction_table(methods), HasSubstr("drop, workers = 8"));
}

// If the file has several methods of synchronous SGD, S_eff is relative to the first of them, wherever it is in the
// file.
TEST_F(PredictedSpeedup, OfSeveralBaselinesTheFirstOneCounts) {
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
  // Formulas are relative to the same baseline. Without delays they equal the simulation.
  for (const std::size_t i : {1, 2, 3}) {
    ASSERT_FALSE(methods[i].formulas.empty());
    for (const FormulaTime& formula : methods[i].formulas)
      EXPECT_NEAR(formula.prediction.effective_speedup(), speedup(i), 1e-6) << methods[i].method;
  }
  EXPECT_THAT(prediction_table(methods), HasSubstr("S_eff: relative to \"a\", the file's first sync-sgd\n"));
}

// If the file has no synchronous SGD, S_eff is relative to one with the training settings of the first method.
TEST_F(PredictedSpeedup, WithoutABaselineAllAreComparedWithOneThatIsTrainedAsTheFirstMethodIs) {
  const auto methods =
      predict(load({"methods=[{label='a',algorithm='dropcompute',threshold_s=1},"
                    "{label='b',algorithm='dropcompute',threshold_s=1,training={parameters=4000}}]",
                    "training={model='none',parameters=1000,learning_rate={schedule='constant',peak=1}}",
                    "network={kind='ring',latency_s=0,bandwidth_bytes_per_s=1e5}", "budget={steps=20}"}));
  ASSERT_EQ(methods.size(), 2u);
  // Nothing is dropped. A step computes for 20 ms and sends 2 x 3 / 4 x 4 = 6 bytes per parameter at 1e5 bytes/s.
  const double expected[] = {1, (0.02 + 6 * 1000 / 1e5) / (0.02 + 6 * 4000 / 1e5)};
  for (const std::size_t i : {0, 1}) {
    EXPECT_NEAR(*methods[i].simulated_speedup, expected[i], 1e-6);
    ASSERT_FALSE(methods[i].formulas.empty());
    for (const FormulaTime& formula : methods[i].formulas)
      EXPECT_NEAR(formula.prediction.effective_speedup(), expected[i], 1e-6);
  }
  EXPECT_THAT(prediction_table(methods),
              HasSubstr("S_eff: relative to sync-sgd, trained like \"a\" (the file contains no sync-sgd)\n"));
}

// Micro-batches of 8 samples and of 4 samples are measured separately: they take 10 and 4 ms.
TEST_F(PredictedSpeedup, MethodsWhoseMicroBatchesAreMeasuredApartAreInOneSetting) {
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
  EXPECT_NEAR(*methods[1].simulated_speedup, 2.5, 1e-6);  // 10 ms / 4 ms, because nothing is dropped
  ASSERT_FALSE(methods[1].formulas.empty());
  for (const FormulaTime& formula : methods[1].formulas)
    EXPECT_NEAR(formula.prediction.effective_speedup(), 2.5, 1e-6) << formula.prediction.formula;
}

// The key is swept only for another method, so the baseline occurs once for all values of the key.
TEST_F(PredictedSpeedup, ABaselineThatASweptKeyDoesNotConcernStandsBehindAllItsPoints) {
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

// Invented predictions with a different value for each quantity, as a table and as JSON.

using testing::ElementsAre;
using testing::HasSubstr;

PredictedMethod by_simulation_and_two_formulas() {
  PredictedMethod method;
  method.method = "m";
  method.algorithm = "dropcompute";
  method.sweep = {{"cluster.workers", "2"}};
  method.seed = 3;
  method.planned_steps = Step{60};
  method.simulated = SimulatedTime{.steps = 20,
                                   .whole = false,
                                   .step_time_s = 0.5,
                                   .error_s = 0.0625,
                                   .drop_rate = 0.25,
                                   .communication_share = 0.125,
                                   .micro_batches_per_s = 7,
                                   .total_time_s = 30};
  method.simulated_speedup = 1.5;
  method.simulated_speedup_error = 0.375;
  method.communicated = PredictedCommunication{.rounds = 60, .bytes = 123456, .is_exact = true};
  method.solved = "period.steps = 9 makes 60 rounds";
  method.compared_with = "\"x\"";
  method.remark = "as it is";
  method.formulas = {
      {.prediction = {.formula = "first",
                      .step_time_s = 2,
                      .communication_s = 0.375,
                      .kept = 0.75,
                      .drop_rate = 0.5625,
                      .sync_step_time_s = 6,
                      .step_error_s = 0.03125,
                      .kept_error = 0.5,
                      .sync_step_error_s = 0.25},
       .total_time_s = 120},
      {.prediction = {.formula = "second", .step_time_s = 4, .kept = 1, .drop_rate = {}, .sync_step_time_s = 5},
       .total_time_s = {}}};
  return method;
}

PredictedMethod by_nothing() {
  PredictedMethod method;
  method.method = "n";
  method.seed = 4;
  method.not_simulated = "needs training\nand more";
  method.why_no_formula = "a reason";
  return method;
}

TEST(PredictionTable, WhatASampleIsIsSaidWhereAFormulaGoesByOne) {
  std::vector<PredictedMethod> methods{by_simulation_and_two_formulas()};
  EXPECT_THAT(prediction_table(methods), testing::Not(HasSubstr("the run's own steps")));
  methods[0].formulas[1].prediction.is_sampled = true;
  EXPECT_THAT(prediction_table(methods), HasSubstr("up to 512 of the run's own steps"));
}

TEST(PredictionTable, SaysWhoseLinksAreNotShared) {
  std::vector<PredictedMethod> methods{by_simulation_and_two_formulas(), by_nothing()};
  EXPECT_THAT(prediction_table(methods), testing::Not(HasSubstr("not shared")));
  methods[1].has_unshared_links = true;
  EXPECT_THAT(prediction_table(methods), HasSubstr("\nLinks are not shared by n: "));
  methods[0].has_unshared_links = true;
  EXPECT_THAT(prediction_table(methods), HasSubstr("\nLinks are not shared: "));
}

TEST(PredictionTable, EveryValueOfTheJsonStandsUnderItsOwnName) {
  std::vector<PredictedMethod> methods{by_simulation_and_two_formulas(), by_nothing()};
  methods[0].formulas[1].prediction.is_sampled = true;
  methods[0].has_unshared_links = true;
  methods[0].target =
      PredictedTarget{.batch = 12.5, .steps = 40.5, .step_time_s = 0.5, .time_s = 20.25, .is_bound = true};
  auto json = nlohmann::json::parse(predictions_json("e", methods));
  auto& error = json["predictions"][0]["formulas"][0]["effective_speedup_standard_error"];
  // The relative errors are those of kept = 0.75, sync_step_time_s = 6 and step_time_s = 2.
  EXPECT_NEAR(error, 2.25 * std::sqrt(4.0 / 9 + 1.0 / 576 + 1.0 / 4096), 1e-12);
  error = "above";
  EXPECT_EQ(json, nlohmann::json::parse(R"({
    "experiment": "e", "predictions": [
      {"method": "m", "algorithm": "dropcompute", "sweep": [["cluster.workers", "2"]], "seed": 3, "planned_steps": 60,
       "rounds": 60, "communicated_bytes": 123456, "communication_is_exact": true,
       "to_target": {"batch": 12.5, "steps": 40.5, "step_time_s": 0.5, "time_s": 20.25, "is_bound": true}, "solved": "period.steps = 9 makes 60 rounds", "against": "\"x\"",
       "links": "not shared",
       "simulated": {"steps": 20, "whole": false, "sampled": false, "step_time_s": 0.5, "step_time_standard_error_s": 0.0625,
                     "effective_speedup": 1.5, "effective_speedup_standard_error": 0.375, "drop_rate": 0.25, "communication_share": 0.125, "total_time_s": 30.0},
       "not_simulated": null,
       "formulas": [
         {"formula": "first", "sampled": false,
          "step_time_s": 2.0, "step_time_standard_error_s": 0.03125, "communication_s": 0.375,
          "communication_share": 0.1875, "kept": 0.75, "drop_rate": 0.5625,
          "sync_step_time_s": 6.0, "effective_speedup": 2.25,
          "effective_speedup_standard_error": "above", "total_time_s": 120.0},
         {"formula": "second", "sampled": true,
          "step_time_s": 4.0, "step_time_standard_error_s": null, "communication_s": null,
          "communication_share": null, "kept": 1.0, "drop_rate": null,
          "sync_step_time_s": 5.0, "effective_speedup": 1.25,
          "effective_speedup_standard_error": null, "total_time_s": null}],
       "no_formula": null, "remark": "as it is"},
      {"method": "n", "algorithm": "", "sweep": [], "seed": 4, "planned_steps": null, "links": null, "to_target": null, "simulated": null,
       "rounds": null, "communicated_bytes": null, "communication_is_exact": null, "solved": null, "against": null,
       "not_simulated": "needs training\nand more", "formulas": [], "no_formula": "a reason", "remark": null}]})"));
}

TEST(PredictionTable, EveryValueStandsInItsColumn) {
  const std::vector<PredictedMethod> methods{by_simulation_and_two_formulas(), by_nothing()};
  const auto rows = words_of_rows(prediction_table(methods));
  ASSERT_EQ(rows.size(), 3u + 3 + 2 + 4) << "a heading of two lines and a rule; notes after an empty line";
  EXPECT_THAT(rows[3], ElementsAre("m,", "workers", "=", "2", "simulation,", "20", "of", "60", "steps", "0.500", "+-",
                                   "0.062", "1.50", "+-", "0.38", "25.0", "12.5", "30.00", "60", "123.5k"));
  EXPECT_THAT(rows[4], ElementsAre("first", "2.000", "+-", "0.031", "2.2", "+-", "1.5", "56.2", "18.8", "120.0"));
  EXPECT_THAT(rows[5], ElementsAre("second", "4.000", "1.250", "-", "-", "-"));
  EXPECT_THAT(rows[6], ElementsAre("n", "needs", "training", "-", "-", "-", "-", "-", "-", "-"));
  EXPECT_THAT(rows[7], ElementsAre("no", "formula:", "a", "reason", "-", "-", "-", "-", "-"));
  EXPECT_THAT(rows[9], ElementsAre("m,", "workers", "=", "2:", "period.steps", "=", "9", "makes", "60", "rounds"));
  EXPECT_THAT(rows[10], ElementsAre("m,", "workers", "=", "2:", "as", "it", "is"));
}

TEST(PredictionTable, MarksWhatIsNotExact) {
  std::vector<PredictedMethod> methods{by_simulation_and_two_formulas()};
  methods[0].communicated = PredictedCommunication{.rounds = 59.6, .bytes = 2.5e9, .is_exact = false};
  const std::string table = prediction_table(methods);
  EXPECT_THAT(table, HasSubstr("~60"));
  EXPECT_THAT(table, HasSubstr("~2.5G"));
  EXPECT_THAT(table, HasSubstr("~: extrapolated from the simulated steps\n"));
}

TEST(PredictionTable, SaysHowMuchOfTheRunWasSimulated) {
  std::vector<PredictedMethod> methods{by_simulation_and_two_formulas()};
  methods[0].planned_steps.reset();
  EXPECT_THAT(prediction_table(methods), HasSubstr("simulation, 20 steps "));
  methods[0].simulated->whole = true;
  EXPECT_THAT(words_of_rows(prediction_table(methods))[3][5], "0.500") << "the word after it";
  // An error that no digit shows is left out, and so is an unknown error.
  methods[0].simulated->error_s = 0.4e-6;
  EXPECT_THAT(words_of_rows(prediction_table(methods))[3][5], "0.5000");
  methods[0].simulated->error_s.reset();
  EXPECT_THAT(words_of_rows(prediction_table(methods))[3][5], "0.5000");
}

// `predict --to-target`: the steps follow from a finished run's noise scale, the time per step from the simulation.

using testing::HasSubstr;

constexpr const char* experiment = R"(name = "noise"
seeds = [1, 2]
[cluster]
workers = 4
micro_batch_s = 0.01
[network]
kind = "free"
[[delays]]
kind = "exponential"
mean = 0.01
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 4
[datasets.gaussian-mixture]
train = 2000
test = 500
classes = 4
dimension = 8
separation = 2.0
[training.learning_rate]
schedule = "constant"
peak = 0.05
[training.optimizer]
name = "sgd"
[budget]
steps = 200
[evaluation]
every_steps = 5
target_accuracy = 0.8
[measurements]
every_steps = 20
noise_scale = true
samples = 200
[[methods]]
algorithm = "sync-sgd"
)";

constexpr const char* methods =
    " 'methods=[{algorithm=\"sync-sgd\"},{algorithm=\"backup-workers\",backups=2},"
    "{algorithm=\"local-sgd\",period={rule=\"constant\",steps=4}},{algorithm=\"async-sgd\"}]'";

class TargetPrediction : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    file = write("e.toml", experiment);
  }
  std::string file;
};

TEST_F(TargetPrediction, OfTheRunsOwnSettingIsWhatItTook) {
  ASSERT_EQ(syncopate("run " + file).status, 0);
  double steps = 0, times_batch = 0, least = 0;
  for (const auto& run : std::filesystem::directory_iterator(directory / "results/runs/noise/sync-sgd")) {
    const auto summary = nlohmann::json::parse(read(run.path() / "summary.json"));
    steps += summary.at("time_to_target").at("step").get<double>() / 2;
    least += summary.at("steps_by_batch").at("least").get<double>() / 2;
    times_batch += summary.at("steps_by_batch").at("times_batch").get<double>() / 2;
  }
  const ProgramOutcome predicted =
      syncopate("predict " + file + " --json --to-target results/runs/noise/sync-sgd" + methods);
  ASSERT_EQ(predicted.status, 0) << predicted.err;
  const auto list = nlohmann::json::parse(predicted.out).at("predictions");
  const auto& own = list.at(0).at("to_target");
  EXPECT_DOUBLE_EQ(own.at("batch"), 16);
  EXPECT_NEAR(own.at("steps"), steps, 1e-9 * steps);
  EXPECT_NEAR(own.at("time_s").get<double>(), steps * list.at(0).at("simulated").at("step_time_s").get<double>(), 1e-9);
  const auto& backup = list.at(1).at("to_target");  // a step takes 2 of 4 gradients, with 4 samples each
  EXPECT_NEAR(backup.at("batch"), 8, 1e-9);
  EXPECT_NEAR(backup.at("steps"), least + times_batch / 8, 1e-9 * steps);
  EXPECT_FALSE(backup.at("is_bound"));
  EXPECT_TRUE(list.at(2).at("to_target").at("is_bound"));
  EXPECT_TRUE(list.at(3).at("to_target").is_null());
}

// Until they reach the target, these methods all equal synchronous SGD. They differ only in the rest of the run.
TEST_F(TargetPrediction, TakesThePaceAndTheBatchOfTheStepsThatAreNeeded) {
  ASSERT_EQ(syncopate("run " + file).status, 0);
  const ProgramOutcome predicted = syncopate(
      "predict " + file +
      " --json --to-target results/runs/noise/sync-sgd 'network={kind=\"fixed\",latency_s=0.03}' budget.steps=1000 "
      "cluster.micro_batches=4"
      " 'methods=[{algorithm=\"sync-sgd\"},{algorithm=\"local-sgd\",period={rule=\"post-local\",switch_step=200,steps="
      "50}},"
      "{algorithm=\"branch-train-merge\",seed_steps=200},"
      "{algorithm=\"dropcompute\",threshold={rule=\"automatic\",warmup_steps=100,calibration_steps=100}}]'");
  ASSERT_EQ(predicted.status, 0) << predicted.err;
  const auto list = nlohmann::json::parse(predicted.out).at("predictions");
  const auto first = list.at(0).at("to_target");
  ASSERT_LT(first.at("steps"), 200);
  for (std::size_t i = 1; i < list.size(); ++i) {
    const auto& target = list.at(i).at("to_target");
    EXPECT_NEAR(target.at("batch"), 64, 1e-9) << i;
    EXPECT_NEAR(target.at("steps"), first.at("steps"), 1e-9) << i;
    EXPECT_NEAR(target.at("step_time_s").get<double>() / first.at("step_time_s").get<double>(), 1, 0.1) << i;
    EXPECT_LT(list.at(i).at("simulated").at("step_time_s"), list.at(0).at("simulated").at("step_time_s")) << i;
  }
}

TEST_F(TargetPrediction, NamesTheBestSettingAndWhatItDoesNotKnow) {
  ASSERT_EQ(syncopate("run " + file).status, 0);
  const ProgramOutcome predicted = syncopate("predict " + file + " --to-target results/runs/noise/sync-sgd" + methods);
  EXPECT_THAT(
      predicted.out,
      testing::ContainsRegex("To an accuracy of 0.8, the target of \"sync-sgd\": .* steps with a batch of B samples"));
  EXPECT_THAT(predicted.out, HasSubstr("\nBest: "));
  EXPECT_THAT(predicted.out, HasSubstr("\nasync-sgd: not predicted, because it uses stale gradients"));
}

TEST_F(TargetPrediction, SaysWhatIsMissing) {
  const auto fault = [&](const std::string& directory) {
    const ProgramOutcome outcome = syncopate("predict " + file + " --to-target " + directory);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(fault("nowhere"), HasSubstr("--to-target nowhere"));
  syncopate("run " + file + " --results none evaluation.target_accuracy=1 measurements.noise_scale=true");
  EXPECT_THAT(fault("none"), HasSubstr("none of its 2 runs has reached its target and measured noise scales"));
  syncopate("run " + file + " --results unmeasured measurements.noise_scale=false");
  EXPECT_THAT(fault("unmeasured"), HasSubstr("measurements.noise_scale = true"));
  syncopate("run " + file + " --results aimless ~evaluation.target_accuracy");
  EXPECT_THAT(fault("aimless"), HasSubstr("its runs have no target"));
  syncopate("run " + file + " --results several" + methods);
  EXPECT_THAT(fault("several"), HasSubstr("runs of several methods"));
  syncopate("run " + file + " --results targets evaluation.target_accuracy=0.7,0.8");
  EXPECT_THAT(fault("targets"), HasSubstr("different targets, an accuracy of 0.7, an accuracy of 0.8"));
}

TEST_F(TargetPrediction, IsForTheRunsTargetAlone) {
  ASSERT_EQ(syncopate("run " + file).status, 0);
  const std::string predict = "predict " + file + " --to-target results/runs/noise/sync-sgd ";
  const ProgramOutcome other = syncopate(predict + "evaluation.target_accuracy=0.7");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("e.toml has a target of an accuracy of 0.7, but the runs of \"sync-sgd\" had "
                                   "an accuracy of 0.8: use the same target"));
  EXPECT_EQ(syncopate(predict + "evaluation.target_loss=0.1").status, 2);
  EXPECT_EQ(syncopate(predict + "~evaluation.target_accuracy").status, 0) << "the file says nothing else";
}

TEST(TargetTable, SaysWhereTheBestIsAtTheEdgeOfASweep) {
  std::vector<PredictedMethod> methods;
  const auto add = [&](const std::string& workers, const std::string& delay, double time_s) {
    PredictedMethod& method = methods.emplace_back();
    method.method = "m";
    method.sweep = {{"cluster.workers", workers}, {"delays", delay}, {"cluster.micro_batches", "2"}};
    method.simulated = SimulatedTime{.step_time_s = 0.5};
    method.target = PredictedTarget{.batch = 8, .steps = 10, .time_s = time_s};
  };
  add("8", "heavy", 30);
  add("16", "heavy", 20);
  add("128", "heavy", 10);
  const TargetRuns target{.method = "m", .loss = 0.5, .count = 1, .steps = {}};
  EXPECT_THAT(target_table(methods, target), HasSubstr("To a loss of 0.5, the target of \"m\""));
  EXPECT_THAT(target_table(methods, target),
              HasSubstr("\nBest: m, workers = 128, delays = heavy, micro_batches = 2, 10 s\n"
                        "cluster.workers = 128 is the largest swept value: a better one may be beyond it\n"));
  methods.back().target->time_s = 40;
  EXPECT_THAT(target_table(methods, target), testing::Not(HasSubstr("swept value: a better one")));
  methods.front().target->time_s = 5;
  EXPECT_THAT(target_table(methods, target), HasSubstr("cluster.workers = 8 is the smallest swept value"));
}

// The standard error of a simulated time per step, compared with an error computed from the drawn times. Also the
// extrapolation of the first steps of a run.

struct TimeSimulation : ExperimentFile {
  // Loads a run with a single worker, so that each step takes its drawn time plus a constant.
  syncopate::Run run_of(int steps) {
    write(std::string(small) + "[[delays]]\nkind = \"exponential\"\nmean = 0.005\n");
    const auto samples = std::to_string(16 * steps);  // these samples make one epoch
    return load({"cluster.workers=1", "budget.epochs=1", "datasets.gaussian-mixture.train=" + samples}).runs.at(0);
  }
  static std::vector<double> drawn_s(const syncopate::Run& run, int steps) {
    std::vector<double> times;
    for (int step = 0; step < steps; ++step) {
      std::vector<Duration> durations(2);
      run.cluster.compute_time->durations(Rank{0}, Step{step}, 0, durations);
      times.push_back(to_seconds(durations[0] + durations[1]));
    }
    return times;
  }
};

// Returns the sample's standard deviation, divided by the root of its size.
double error_of(const std::vector<double>& means) {
  const auto count = static_cast<double>(means.size());
  const double mean = std::accumulate(means.begin(), means.end(), 0.0) / count;
  double squares = 0;
  for (const double value : means) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (count - 1)) / std::sqrt(count);
}

TEST_F(TimeSimulation, FewStepsAreTheSampleThatTheErrorIsOf) {
  for (const int steps : {4, 25}) {
    const syncopate::Run run = run_of(steps);
    const SimulatedTime time = simulate_time(run, 1000);
    ASSERT_EQ(time.steps, Step{steps});
    ASSERT_TRUE(time.error_s);
    EXPECT_NEAR(*time.error_s, error_of(drawn_s(run, steps)), 1e-9) << steps;
  }
}

TEST_F(TimeSimulation, OfManyStepsItIsThatOfTwentyFiveBatches) {
  const syncopate::Run run = run_of(100);
  const auto times = drawn_s(run, 100);
  std::vector<double> means;
  for (auto batch = times.begin(); batch != times.end(); batch += 4)
    means.push_back(std::accumulate(batch, batch + 4, 0.0) / 4);
  EXPECT_NEAR(*simulate_time(run, 1000).error_s, error_of(means), 1e-9);
}

// Nothing is dropped in the 20 steps in which the threshold is found. After them, the mean drop rate is constant.
TEST_F(TimeSimulation, TheRestIsLikeTheSettledPart) {
  write(std::string(small) +
        "[[methods]]\nlabel = \"automatic\"\nalgorithm = \"dropcompute\"\n"
        "threshold = { rule = \"automatic\", calibration_steps = 20 }\n");
  const syncopate::Run run = load({"seeds=[1]", "cluster.worker_factors=[1,1,1,3]", "cluster.micro_batches=4",
                                   "network.latency_s=0.001", "budget={ steps = 400 }"})
                                 .runs.at(2);
  const SimulatedTime whole = simulate_time(run, 400), part = simulate_time(run, 60);
  ASSERT_TRUE(whole.whole);
  ASSERT_FALSE(part.whole);
  ASSERT_GT(whole.drop_rate, 0.1);
  EXPECT_NEAR(part.drop_rate, whole.drop_rate, 1e-9);
  // A whole run ends less than a micro-batch after its last publication.
  EXPECT_NEAR(part.step_time_s, whole.step_time_s, 0.03 / 400);
  EXPECT_NEAR(part.micro_batches_per_s, whole.micro_batches_per_s, 2e-3 * whole.micro_batches_per_s);
}

TEST_F(TimeSimulation, ThreeStepsHaveNoError) { EXPECT_FALSE(simulate_time(run_of(3), 1000).error_s); }

}  // namespace
}  // namespace syncopate
