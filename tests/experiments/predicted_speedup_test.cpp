// S_eff, micro-batches per time against synchronous SGD's: which baseline stands behind it, and its error.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "results/statistics.hpp"
#include "tests/experiments/all_methods.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

struct PredictedSpeedup : AllMethods {};

// Micro-batches that went into the model per time, in multiples of synchronous SGD's; without delays and jitter that is
// what the drop rate and the time of a step say: 8 and, under the threshold, 4 micro-batches of 10 ms.
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

// From seed to seed S_eff spreads as its error says, or less, since methods of a seed meet the same delays. The
// standard deviation of 30 seeds is itself off by 13 %.
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

// Synchronous SGD stands behind S_eff also where the file does not have it, and at each point of a sweep anew.
TEST_F(PredictedSpeedup, EachPointOfASweepHasABaselineOfItsOwn) {
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
  // Formulas are compared with the same one: without delays they say what the simulation does.
  for (const std::size_t i : {1, 2, 3}) {
    ASSERT_FALSE(methods[i].formulas.empty());
    for (const FormulaTime& formula : methods[i].formulas)
      EXPECT_NEAR(formula.prediction.effective_speedup(), speedup(i), 1e-6) << methods[i].method;
  }
  EXPECT_THAT(prediction_table(methods), HasSubstr("S_eff: against \"a\", the file's first sync-sgd\n"));
}

// Where the file has no synchronous SGD, both are against one that is trained as the first method is.
TEST_F(PredictedSpeedup, WithoutABaselineAllAreComparedWithOneThatIsTrainedAsTheFirstMethodIs) {
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
  EXPECT_NEAR(*methods[1].simulated_speedup, 2.5, 1e-6);  // nothing is dropped
  ASSERT_FALSE(methods[1].formulas.empty());
  for (const FormulaTime& formula : methods[1].formulas)
    EXPECT_NEAR(formula.prediction.effective_speedup(), 2.5, 1e-6) << formula.prediction.formula;
}

// It stands once for all values of what is swept for another method alone.
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

}  // namespace
}  // namespace syncopate
