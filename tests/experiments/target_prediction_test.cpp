// `predict --to-target`: steps by the noise scale of a finished run, time by the simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

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
  const auto& backup = list.at(1).at("to_target");  // 2 of 4 gradients of 4 samples
  EXPECT_NEAR(backup.at("batch"), 8, 1e-9);
  EXPECT_NEAR(backup.at("steps"), least + times_batch / 8, 1e-9 * steps);
  EXPECT_FALSE(backup.at("is_bound"));
  EXPECT_TRUE(list.at(2).at("to_target").at("is_bound"));
  EXPECT_TRUE(list.at(3).at("to_target").is_null());
}

// On the way to the target these are all synchronous SGD still, whatever they do in the rest of the run.
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
  EXPECT_THAT(predicted.out, HasSubstr("To an accuracy of 0.8, the target of \"sync-sgd\": at a batch of B samples"));
  EXPECT_THAT(predicted.out, HasSubstr("\nBest: "));
  EXPECT_THAT(predicted.out, HasSubstr("\nasync-sgd: of gradients of an older model"));
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
  EXPECT_THAT(fault("none"), HasSubstr("none of its 2 runs has both reached its target and measured noise scales"));
  syncopate("run " + file + " --results unmeasured measurements.noise_scale=false");
  EXPECT_THAT(fault("unmeasured"), HasSubstr("measurements.noise_scale = true"));
  syncopate("run " + file + " --results aimless ~evaluation.target_accuracy");
  EXPECT_THAT(fault("aimless"), HasSubstr("its runs have no target"));
  syncopate("run " + file + " --results several" + methods);
  EXPECT_THAT(fault("several"), HasSubstr("runs of several methods"));
  syncopate("run " + file + " --results targets evaluation.target_accuracy=0.7,0.8");
  EXPECT_THAT(fault("targets"), HasSubstr("several targets, an accuracy of 0.7, an accuracy of 0.8"));
}

TEST_F(TargetPrediction, IsForTheRunsTargetAlone) {
  ASSERT_EQ(syncopate("run " + file).status, 0);
  const std::string predict = "predict " + file + " --to-target results/runs/noise/sync-sgd ";
  const ProgramOutcome other = syncopate(predict + "evaluation.target_accuracy=0.7");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("e.toml has a target of an accuracy of 0.7, and the runs of \"sync-sgd\" had one of "
                                   "an accuracy of 0.8: must be the same"));
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
                        "cluster.workers = 128 is the most that the file sweeps: a better one may lie beyond\n"));
  methods.back().target->time_s = 40;
  EXPECT_THAT(target_table(methods, target), testing::Not(HasSubstr("that the file sweeps")));
  methods.front().target->time_s = 5;
  EXPECT_THAT(target_table(methods, target), HasSubstr("cluster.workers = 8 is the least that the file sweeps"));
}

}  // namespace
}  // namespace syncopate
