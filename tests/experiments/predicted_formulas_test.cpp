// Formulas beside the simulation: how near they are, where there is none and why, how tables and JSON show them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/commands/predict.hpp"
#include "tests/experiments/all_methods.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

struct PredictedFormulas : AllMethods {};

TEST_F(PredictedFormulas, FormulasStandBesideTheSimulation) {
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

TEST_F(PredictedFormulas, TheTableNamesMethodsAndSources) {
  const auto methods = predict(all_methods());
  const std::string table = prediction_table(methods);
  for (const char* text : {"sync-sgd", "simulation", "Eq. 4", "sampled E[T]", "Eqs. 4 to 6",
                           "order statistic (lower bound)", "rounds of normal sums", "mean pace", "needs training",
                           "no formula: when models are averaged follows from how far they have moved", "S_eff", "+-"})
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
  EXPECT_EQ(json["predictions"][5]["no_formula"], "when models are averaged follows from how far they have moved");
  EXPECT_TRUE(drop["no_formula"].is_null());
}

// Texts of 1 to 12 words, 1 ms each and nothing besides: a budget of 12 words is one micro-batch of at most 12 ms, one
// of 120 nearly ten times that.
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

// Nobody knows the slowest of so many without a variance; a mean pace needs none.
TEST_F(PredictedFormulas, WithoutAVarianceAndASampleOfAllWorkersThereIsNoFormulaButAReason) {
  write(std::string(small) + "[[delays]]\nkind = \"pareto\"\nshape = 1.5\nminimum = 0.001\n");
  const Experiment few = load(), many = load({"cluster.workers=5000", "datasets.gaussian-mixture.train=80000"});
  const auto of_few = predict_by_formula(few.runs.front(), sample_times(few.runs.front()));
  ASSERT_EQ(of_few.all.size(), 1u);
  EXPECT_EQ(of_few.all[0].prediction.formula, "sampled E[T]");
  const auto of_many = predict_by_formula(many.runs.front(), sample_times(many.runs.front()));
  EXPECT_TRUE(of_many.all.empty());
  EXPECT_THAT(of_many.why_none, HasSubstr("no variance"));
}

// Formulas know what a message takes alone.
TEST_F(PredictedFormulas, WhereMessagesWaitForEachOtherThereIsNoFormulaButAReason) {
  const auto reason = [&](const std::string& method, const std::string& network) {
    const Experiment experiment = load({"methods=[{" + method + "}]", "network={" + network + "}"});
    return predict_by_formula(experiment.runs.front(), sample_times(experiment.runs.front())).why_none;
  };
  const std::string ring = "kind='ring', latency_s=1e-3, bandwidth_bytes_per_s=1e6";
  for (const char* method : {"algorithm='backup-workers', backups=1", "algorithm='async-sgd'",
                             "algorithm='decentralized-sgd', graph={kind='ring'}"}) {
    EXPECT_EQ(reason(method, ring), "messages wait on shared links") << method;
    EXPECT_THAT(reason(method, ring + ", contention=false"), testing::Not(HasSubstr("shared links"))) << method;
    EXPECT_THAT(reason(method, "kind='fixed', latency_s=1e-3"), testing::Not(HasSubstr("shared links"))) << method;
  }
  EXPECT_EQ(reason("algorithm='sync-sgd'", ring), "");
  EXPECT_THAT(reason("algorithm='sync-sgd'", ring + ", overlap={buckets=4}"), HasSubstr("each bucket"));
}

// Groups whose averages pass one uplink wait for each other there.
TEST_F(PredictedFormulas, OfGroupsThatMeetOnAnUplinkThereIsNone) {
  const auto reason = [&](int of_method, const std::string& network) {
    const Experiment experiment =
        load({"cluster.workers=12", "network={" + network + "}",
              fmt::format("methods=[{{algorithm='hierarchical-sgd', group_size={}, group_period=1, "
                          "period={{rule='constant', steps=4}}}}]",
                          of_method)});
    return predict_by_formula(experiment.runs.front(), sample_times(experiment.runs.front())).why_none;
  };
  const std::string link = "latency_s=1e-3, bandwidth_bytes_per_s=1e6", ring = "kind='ring', " + link;
  EXPECT_EQ(reason(6, ring), "");
  EXPECT_EQ(reason(4, ring + ", racks={group_size=4, " + link + "}"), "");
  EXPECT_THAT(reason(6, ring + ", racks={group_size=4, " + link + "}"), HasSubstr("groups' averages wait"));
  EXPECT_EQ(reason(6, ring + ", contention=false, racks={group_size=4, " + link + "}"), "");
  EXPECT_THAT(reason(6, "kind='two-level', group_size=4, inside={" + link + "}, " + link),
              HasSubstr("groups' averages wait"));
  EXPECT_THAT(reason(4, "kind='parameter-server', " + link), HasSubstr("groups' averages wait"));
}

// What is sampled has an error, which the table and the JSON show.
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

}  // namespace
}  // namespace syncopate
