// What `predict` says of methods whose rounds change in the course of a run: their first steps stand for all only where
// the schedule has as many rounds in the rest. Without delays, and on a fixed network, a run takes 0.1 s per step and
// 1 s per round.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "experiments/commands/commands.hpp"
#include "experiments/execution/time_simulation.hpp"
#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

constexpr const char* scheduled = R"(
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
total_steps = 9000
[budget]
steps = 9000
[[methods]]
algorithm = "local-sgd"
period = { rule = "power", power = 2, coefficient = 0.2, minimum = 4, maximum = 64 }
)";

// Of the run itself, without an end but its budget's.
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

// Of whatever budget: 9,000 steps of 64 workers are 4,608,000 samples, and the seconds never end.
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

TEST_F(PredictedSchedules, ThatAreTooLongAreLeftToTheFormulaWhateverTheBudgetCounts) {
  const std::string total = "training.learning_rate.total_steps=90000";
  for (const Overrides& budget :
       {Overrides{total, "budget.steps=90000"}, Overrides{total, "budget.samples=46080000", "~budget.steps"},
        Overrides{total, "budget.steps=90000", "budget.seconds=1e9"},
        Overrides{total, "budget.seconds=15000", "~budget.steps"}}) {
    const PredictedMethod longer = predicted(budget);
    EXPECT_FALSE(longer.simulated) << budget[1];
    EXPECT_THAT(longer.not_simulated, HasSubstr("do not stand for the rest"));
    ASSERT_EQ(longer.formulas.size(), 1u);
  }
}

TEST_F(PredictedSchedules, AnotherPhaseIsFoundUnderABudgetOfSeconds) {
  const PredictedMethod late = predicted({"methods.0.period={rule='post-local',switch_step=6000,steps=50}",
                                          "~budget.steps", "budget.seconds=8000", "cluster.workers=16"});
  ASSERT_TRUE(late.simulated) << late.not_simulated;
  // 6,000 steps with a round each, then rounds of 6 s.
  const double rest_s = 8000 - 6000 * 1.1, rounds = 6000 + std::ceil(rest_s / 6);
  EXPECT_NEAR(late.simulated->rounds, rounds, 1);
}

// However the bound on work cuts them: rounds of the same length are the same everywhere.
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
      continue;  // what needs a model
    }
    const ScheduledRounds rounds(experiment.runs.at(0));
    if (!rounds.are_known()) continue;
    ++known;
    const Step part = rounds.end_of_round(100, 3000, 9000);
    const bool merges_once = rounds.until(9000).rounds == 1;  // at the end, and after no third of it
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
  // Parameters are averaged every 100 steps, first moments every 300, second ones every 600.
  EXPECT_EQ(end("{algorithm='des-loc',period=100}", 1, 1000, 9000), Step{600});
}

// With few rounds, and dear ones, one more or less is what a forecast is about.
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

// Where they cannot be simulated whole nothing is said rather than something wrong.
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
      EXPECT_NEAR(*method.simulated->total_time_s, one.total_s, 1e-6) << all[1];
    }
    ASSERT_EQ(method.formulas.size(), 1u);
    EXPECT_NEAR(method.formulas[0].prediction.step_time_s * one.steps, one.total_s, 1e-6) << all[1];
  }
}

// Workers that all begin together come together: a part ends when all have come, and has done so before.
TEST_F(PredictedSchedules, MethodsWhoseCyclesAreLongerThanRoundsAreDrawnOutByCycles) {
  for (const int steps : {300, 1000, 5000}) {
    const PredictedMethod together = predicted(
        {"budget.steps=90000", "training.learning_rate.total_steps=90000",
         fmt::format("methods.0={{algorithm='async-local-sgd',local_steps={},update={{name='plain',rate=0.2}}}}",
                     steps)});
    ASSERT_TRUE(together.simulated) << together.not_simulated;
    EXPECT_NEAR(together.simulated->step_time_s, 0.1 + 2.0 / steps, 1e-6) << steps;
  }
  for (const int period : {100, 300, 900}) {  // all moments after six of them
    const PredictedMethod moments =
        predicted({"budget.steps=90000", "training.learning_rate.total_steps=90000", "training.optimizer.name=adam",
                   fmt::format("methods.0={{algorithm='des-loc',period={}}}", period)});
    ASSERT_TRUE(moments.simulated) << moments.not_simulated;
    EXPECT_EQ(moments.simulated->steps.value() % (6 * period), 0);
    EXPECT_NEAR(moments.simulated->step_time_s, 0.1 + 1.0 / period, 1e-6) << period;
  }
}

// Its server's model is of fewer steps than its workers have come to: that does not mean that they have come to the end.
TEST_F(PredictedSchedules, APartIsNotTakenForTheWholeWhereLessIsPublished) {
  const PredictedMethod part =
      predicted({"budget.steps=20000", "training.learning_rate.total_steps=20000",
                 "methods.0={algorithm='elastic-averaging',exchange='asynchronous',period=10,beta=0.9}"});
  ASSERT_TRUE(part.simulated);
  EXPECT_FALSE(part.simulated->whole);
  EXPECT_NEAR(*part.simulated->total_time_s / (20000 * part.simulated->step_time_s), 1, 0.01);
  EXPECT_GT(*part.simulated->total_time_s, 20000 * 0.1);
}

// What a threshold drops is not of the budget's samples: the run takes more steps than it would without.
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
  ASSERT_GE(method.formulas.size(), 1u);
  EXPECT_NEAR(method.formulas.back().total_time_s.value() / *method.simulated->total_time_s, 1, 0.03);
}

// As many rounds, but those of the second phase are others: 1-bit Adam's are of another size, and after its seed steps
// branch-train-merge has none but the last.
TEST_F(PredictedSchedules, TheSecondPhaseIsWhatIsDrawnOut) {
  const Overrides common = {"budget.steps=300000", "cluster.workers=4",
                            "network={kind='ring',latency_s=1e-3,bandwidth_bytes_per_s=1e6}",
                            "training.optimizer={name='adam',bias_correction=false}"};
  const auto with = [&](const std::string& method) {
    Overrides all = common;
    all.push_back("methods.0=" + method);
    return predicted(all);
  };
  for (const char* method : {"{algorithm='branch-train-merge',seed_steps=20000,merge='average'}",
                             "{algorithm='one-bit-adam',freeze_step=20000}"}) {
    const PredictedMethod two = with(method);
    ASSERT_TRUE(two.simulated) << two.not_simulated;
    EXPECT_FALSE(two.simulated->whole);
    ASSERT_GE(two.formulas.size(), 1u);
    EXPECT_NEAR(*two.simulated->total_time_s / *two.formulas[0].total_time_s, 1, 1e-3) << method;
  }
}

// Workers begin no further step once the time is over: a round that would be long after that is cut off. Its groups'
// averages before that are part of what it takes.
TEST_F(PredictedSchedules, TheFormulaCutsTheLastRoundAtTheBudgetOfSeconds) {
  const std::string groups =
      "{algorithm='hierarchical-sgd',group_size=2,group_period=100,period={rule='constant',steps=1000}}";
  for (const auto& [method, tolerance] :
       {std::pair(std::string("{algorithm='local-sgd',period={rule='constant',steps=1000}}"), 1e-9),
        std::pair(std::string("{algorithm='cocod-sgd',period={rule='constant',steps=1000}}"), 0.005),
        std::pair(std::string("{algorithm='streaming-diloco',fragments=2,outer={name='plain'},period={rule='constant',"
                              "steps=1000}}"),
                  0.005),
        std::pair(groups, 0.005)})  // they may be cut off while an average is under way
    for (const char* seconds : {"budget.seconds=250", "budget.seconds=101", "budget.seconds=1999.95"}) {
      const PredictedMethod cut = predicted({"cluster.workers=4", "methods.0=" + method, seconds, "~budget.steps"});
      ASSERT_TRUE(cut.simulated && cut.simulated->whole);
      ASSERT_EQ(cut.formulas.size(), 1u);
      EXPECT_NEAR(cut.formulas[0].prediction.step_time_s / cut.simulated->step_time_s, 1, tolerance)
          << method << " " << seconds;
    }
}

TEST_F(PredictedSchedules, OfACompressionsWarmUpThereIsNoFormulaWhereItsShareIsNotKnown) {
  const std::string method =
      "methods.0={algorithm='sync-sgd',compression={name='top-k',ratio=0.01,warmup_ratios=[0.5],warmup_steps=50}}";
  EXPECT_FALSE(predicted({method}).formulas.empty());
  const PredictedMethod open = predicted({method, "~budget.steps", "budget.seconds=50"});
  EXPECT_TRUE(open.formulas.empty());
  EXPECT_THAT(open.why_no_formula, HasSubstr("its compression's warm-up"));
}

// To a target within the phase in which each step is a round, however long the rounds of the rest.
TEST_F(PredictedSchedules, FirstStepsAreSimulatedByThemselves) {
  const auto two = run({"methods.0.period={rule='post-local',switch_step=6000,steps=50}"});
  const auto first = simulate_first_steps(two, 5000);
  ASSERT_TRUE(first);
  EXPECT_NEAR(first->step_time_s, 1.1, 1e-9);
  EXPECT_FALSE(ScheduledRounds(two).stand_for_all(5000, 9000));
}

}  // namespace
}  // namespace syncopate
