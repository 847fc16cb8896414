// Formulas beside the simulation: how near they are, where there is none and why, how tables and JSON show them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "experiments/commands/commands.hpp"
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
                           "no formula: when models are averaged follows from how far they have moved", "S_eff", "+-",
                           "S_eff is at most so large"})
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

// Formulas know what a message takes alone, and what the server's link takes for all. Where who waits for whom decides,
// there is none.
TEST_F(PredictedFormulas, WhereMessagesWaitForEachOtherTheyAreLowerBounds) {
  const auto predicted = [&](const std::string& method, const std::string& network) {
    return predict(load({"methods=[{" + method + "}]", "network={" + network + "}"})).at(0);
  };
  const auto on = [](const std::string& rest) { return "kind='ring', latency_s=1e-3, bandwidth_bytes_per_s=" + rest; };
  for (const char* method :
       {"algorithm='backup-workers', backups=1", "algorithm='backup-workers', backups=1, servers=2",
        "algorithm='backup-workers', backups=1, late='cancel'", "algorithm='async-sgd'",
        "algorithm='softsync', splitting=2", "algorithm='k-async', gradients=1",
        "algorithm='elastic-averaging', exchange='asynchronous', beta=0.4, period=2",
        "algorithm='async-local-sgd', local_steps=3, update={name='plain', rate=1}",
        "algorithm='async-sgd', compression={name='top-k', ratio=0.1}"}) {
    SCOPED_TRACE(method);
    const PredictedMethod alone = predicted(method, on("1e6, contention=false"));
    ASSERT_EQ(alone.formulas.size(), 1u);
    for (const std::string bandwidth : {"1e4", "1e5", "1e6", "1e9"}) {
      SCOPED_TRACE(bandwidth);
      const PredictedMethod shared = predicted(method, on(bandwidth));
      ASSERT_EQ(shared.formulas.size(), 1u);
      const Prediction& bound = shared.formulas[0].prediction;
      EXPECT_THAT(bound.formula, HasSubstr("lower bound"));
      EXPECT_LE(bound.step_time_s, 1.01 * shared.simulated->step_time_s);
      // Where all alike begin together it is exact.
      if (std::string(method).find("backups=1, late") != std::string::npos) {
        EXPECT_GT(bound.step_time_s, 0.95 * shared.simulated->step_time_s) << bandwidth;
      }
      // Where nothing but the link counts it is what a step takes.
      const bool is_late_work = std::string(method).find("backups") != std::string::npos;
      if (bandwidth == "1e4" && !is_late_work) {
        EXPECT_GT(bound.step_time_s, 0.9 * shared.simulated->step_time_s);
        EXPECT_NEAR(bound.communication_share(), shared.simulated->communication_share, 0.1);
      }
      // The uplinks of two groups, each of which carries what half of the workers send.
      const PredictedMethod racked =
          predicted(method, on("1e9, racks={group_size=2, latency_s=1e-3, bandwidth_bytes_per_s=" + bandwidth + "}"));
      ASSERT_EQ(racked.formulas.size(), 1u);
      const double bound_s = racked.formulas[0].prediction.step_time_s;
      EXPECT_LE(bound_s, 1.01 * racked.simulated->step_time_s);
      if (bandwidth == "1e4" && !is_late_work) {
        EXPECT_GT(bound_s, 0.9 * racked.simulated->step_time_s);
      }
    }
  }
  for (const char* method : {"algorithm='k-batch-sync', gradients=2", "algorithm='k-async', gradients=2",
                             "algorithm='backup-timeout', timeout_s=1, late='cancel'",
                             "algorithm='mindflayer', limit_s=1, trials_per_worker=2, arrival_probability=1",
                             "algorithm='ad-psgd'", "algorithm='wagma-sgd', group_size=2"}) {
    EXPECT_EQ(predicted(method, on("1e6")).why_no_formula, "messages wait on shared links") << method;
    EXPECT_EQ(predicted(method, on("1e6, contention=false")).why_no_formula, "") << method;
    EXPECT_EQ(predicted(method, "kind='fixed', latency_s=1e-3").why_no_formula, "") << method;
  }
  EXPECT_THAT(predicted("algorithm='decentralized-sgd', graph={kind='ring'}", on("1e6")).why_no_formula,
              HasSubstr("spectral gap"));
}

// Drawn steps say when each worker has each bucket.
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
    // The simulation's steps are the drawn ones.
    EXPECT_NEAR(sampled.prediction.step_time_s, method.simulated->step_time_s, 1e-6 * plain_s);
    EXPECT_NEAR(sampled.prediction.communication_share(), method.simulated->communication_share, 1e-4);
    EXPECT_LE(sampled.prediction.step_time_s, plain_s * (1 + 1e-6));
    // What others are compared with overlaps as well.
    EXPECT_EQ(sampled.prediction.effective_speedup(), 1);
  }
  EXPECT_LT(predicted("'sync-sgd'", ", overlap={buckets=8}").simulated->step_time_s, 0.99 * plain_s);
  // Methods that sum as it does.
  for (const char* like : {"'stale-sgd', staleness=2", "'random-drop', drop_rate=0.4"}) {
    const PredictedMethod method = predicted(like, ", overlap={buckets=4}");
    ASSERT_EQ(method.formulas.size(), 2u) << like;
    EXPECT_NEAR(method.formulas.back().prediction.step_time_s, method.simulated->step_time_s, 1e-6 * plain_s) << like;
  }
  EXPECT_THAT(predicted("'dropcompute', threshold_s=1", ", overlap={buckets=4}").why_no_formula,
              HasSubstr("each bucket"));
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
