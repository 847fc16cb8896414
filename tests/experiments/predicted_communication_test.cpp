// Rounds and bytes that are predicted, against runs and closed forms; S_eff against a method that is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "experiments/execution/time_simulation.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/run_results.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* delayed = R"(
[[delays]]
kind = "exponential"
mean = 0.005
)";

class PredictedCommunicationOf : public ExperimentFile {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    write(std::string(small) + delayed);
  }
  // With momentum, so that there is a vector to average beside the parameters; one seed.
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

// Packets that depend on tensors are known from the model's description, and a run without it takes what they take.
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

// 200,000 steps: H = 7 makes ceil(200,000 / 7) rounds of 2 (N - 1) P bytes.
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
  // A gradient and a model per worker and step, drawn out.
  EXPECT_FALSE(methods[2].communicated->is_exact);
  const auto payload = static_cast<double>(experiment.runs[2].training.parameter_bytes.value());
  EXPECT_NEAR(methods[2].communicated->bytes / (200'000 * 4 * 2 * payload), 1, 0.01);
  EXPECT_THAT(prediction_table(methods),
              AllOf(HasSubstr(" 200000 "), HasSubstr(" 28572 "), HasSubstr("~"), HasSubstr("drawn out")));
}

TEST_F(PredictedCommunicationOf, DynamicMethodsIsNotKnown) {
  const auto methods = predict(with("{algorithm='dynamic-averaging',threshold=0.1,check_every=4}"));
  EXPECT_FALSE(methods.at(0).communicated);
  const auto json = nlohmann::json::parse(predictions_json("e", methods));
  EXPECT_TRUE(json["predictions"][0]["rounds"].is_null());
  EXPECT_TRUE(json["predictions"][0]["communicated_bytes"].is_null());
}

// 60 steps: H = 5 makes 12 rounds.
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
            HasSubstr("odd: period.steps = 1 makes 60 rounds, the nearest to 50 that there is\n")));
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
    EXPECT_THAT(prediction_table(methods), HasSubstr("S_eff: against \"" + label + "\"\n"));
  }
}

// Where nothing is random, formulas say what the simulation does, against whomever.
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

// Of the values of its own key the first one stands for it.
TEST_F(PredictedAgainst, AMethodThatIsSweptItselfIsNamedWithItsValue) {
  write(std::string(small) + delayed + "[sweep]\n\"methods.drop.threshold_s\" = [0.02, 0.03]\n");
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
    EXPECT_THAT(fault.what(), AllOf(HasSubstr("--against locl: no method of "),
                                    HasSubstr("\"sync\", \"drop\", \"local\""), HasSubstr("did you mean \"local\"?")));
  }
}

}  // namespace
}  // namespace syncopate
