// Each stream of random numbers depends on the seed in the experiment file. A run in which one stream has another run's
// seed differs in the values drawn from this stream, and in nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/experiments/key_walk.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

// The data do not depend on the seed; delays, network and outages do.
constexpr const char* two_seeds = R"(
seeds = [3, 4]
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 2
[network]
kind = "fixed"
latency_s = 0.001
jitter = 1
[[delays]]
kind = "exponential"
mean = 0.01
[[outages]]
mean_time_between_s = 0.05
mean_duration_s = 0.02
[training]
model = "linear"
dataset = "fashion-mnist"
micro_batch_size = 4
[training.learning_rate]
schedule = "constant"
peak = 0.01
[training.optimizer]
name = "sgd"
[budget]
steps = 10
[evaluation]
every_steps = 5
[[methods]]
algorithm = "sync-sgd"
)";

struct Trajectory {
  std::vector<double> losses;      // test losses at the start, in the middle, and at the end
  std::vector<std::int64_t> ends;  // ends of all steps, in ns
  std::vector<std::int64_t> kept;  // micro-batches kept in each step
};

Trajectory trajectory_of(const syncopate::Run& run) {
  const Outcome outcome = outcome_of(run);
  EXPECT_EQ(outcome.failure, "");
  Trajectory trajectory;
  for (const MetricsRow& row : outcome.recording.metrics)
    if (row.evaluation) trajectory.losses.push_back(row.evaluation->test_loss);
  for (const StepRow& round : outcome.recording.rows) {
    trajectory.ends.push_back(round.end.time_since_epoch().count());
    trajectory.kept.push_back(round.kept);
  }
  return trajectory;
}

class SeedStreams : public KeyWalk {
 protected:
  // Returns the runs of both seeds.
  std::vector<syncopate::Run> load(const std::vector<std::string>& more = {}) const {
    write_images("images", 3);
    write("experiment.toml", two_seeds);
    std::vector<std::string> overrides = {
        fmt::format("datasets.fashion-mnist.directory='{}'", (folder_ / "images").string())};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return load_experiment(folder_ / "experiment.toml", overrides).runs;
  }
};

TEST_F(SeedStreams, InitialParametersAreThoseOfTheSeed) {
  const auto runs = load();
  for (const syncopate::Run& run : runs) {
    const auto objective = run.training.make_objective();
    const auto parameters = objective->initial_parameters(run.seed);
    const auto samples = objective->evaluation_samples(Split::test);
    const EvaluationSums sums = objective->evaluate(parameters.data(), nullptr, Split::test, 0, samples);
    EXPECT_NEAR(trajectory_of(run).losses.front(), sums.loss / static_cast<double>(samples), 1e-6);
  }
  syncopate::Run mixed = runs[0];
  mixed.seed = runs[1].seed;  // determines initial parameters and the method's draws
  EXPECT_NE(trajectory_of(mixed).losses.front(), trajectory_of(runs[0]).losses.front());
  EXPECT_EQ(trajectory_of(mixed).losses.front(), trajectory_of(runs[1]).losses.front());
  EXPECT_EQ(trajectory_of(mixed).ends, trajectory_of(runs[0]).ends);
}

TEST_F(SeedStreams, TheOrderOfTheSamplesIsThatOfTheSeed) {
  const auto runs = load();
  syncopate::Run mixed = runs[0];
  mixed.training.make_objective = runs[1].training.make_objective;
  EXPECT_EQ(trajectory_of(mixed).losses.front(), trajectory_of(runs[0]).losses.front());
  EXPECT_NE(trajectory_of(mixed).losses.back(), trajectory_of(runs[0]).losses.back());
  EXPECT_EQ(trajectory_of(mixed).ends, trajectory_of(runs[0]).ends);
}

// Streams that determine times do not affect the training.
TEST_F(SeedStreams, DelaysJitterAndOutagesAreThoseOfTheSeed) {
  const auto runs = load();
  const Trajectory own = trajectory_of(runs[0]);
  const auto expect_other_times = [&](const char* what, const std::function<void(syncopate::Run&)>& take) {
    syncopate::Run mixed = runs[0];
    take(mixed);
    EXPECT_NE(trajectory_of(mixed).ends, own.ends) << what;
    EXPECT_EQ(trajectory_of(mixed).losses, own.losses) << what;
  };
  expect_other_times("delays", [&](syncopate::Run& run) { run.cluster.compute_time = runs[1].cluster.compute_time; });
  expect_other_times("jitter", [&](syncopate::Run& run) { run.cluster.network = runs[1].cluster.network; });
  expect_other_times("outages", [&](syncopate::Run& run) { run.cluster.outages = runs[1].cluster.outages; });
}

TEST_F(SeedStreams, SleepsAreThoseOfTheSeed) {
  const auto runs = load({"outages=[]", "delays=[{kind='exponential',mean=0.01,sleep=true}]"});
  syncopate::Run mixed = runs[0];
  mixed.cluster.pauses = runs[1].cluster.pauses;
  EXPECT_NE(trajectory_of(mixed).ends, trajectory_of(runs[0]).ends);
}

TEST_F(SeedStreams, BurstsAreThoseOfTheSeed) {
  const auto runs = load(
      {"delays=[{kind='constant',value=0.05,workers=[2],bursts={mean_on_steps=2,mean_off_steps=2}}]", "outages=[]"});
  syncopate::Run mixed = runs[0];
  mixed.cluster.compute_time = runs[1].cluster.compute_time;
  EXPECT_NE(trajectory_of(mixed).ends, trajectory_of(runs[0]).ends);
}

TEST_F(SeedStreams, WhatAMethodDrawsIsThatOfTheSeed) {
  const auto runs = load({"methods=[{algorithm='random-drop',drop_rate=0.5,from_step=0}]"});
  syncopate::Run mixed = runs[0];
  mixed.seed = runs[1].seed;
  EXPECT_NE(trajectory_of(mixed).kept, trajectory_of(runs[0]).kept);
}

// Generated samples, a quadratic's optimum and its noise belong to the objective.
TEST_F(SeedStreams, WhatIsGeneratedIsOfTheSeed) {
  for (const char* keys : {"{model='linear',dataset='gaussian-mixture'", "{model='quadratic'"}) {
    const auto runs = load(
        {std::string("training=") + keys + ",learning_rate={schedule='constant',peak=0.01},optimizer={name='sgd'}}"});
    syncopate::Run mixed = runs[0];
    mixed.training.make_objective = runs[1].training.make_objective;
    EXPECT_NE(trajectory_of(mixed).losses.front(), trajectory_of(runs[0]).losses.front()) << keys;
  }
}

TEST_F(SeedStreams, TheNoiseOfAQuadraticIsOfTheSeed) {
  const auto noise = [&](const syncopate::Run& run) {
    const MicroBatch here{.worker = Rank{1}, .step = 2}, later{.worker = Rank{1}, .step = 3};
    const auto objective = run.training.make_objective();
    const std::vector<float> anywhere(objective->parameters(), 0.0F);
    const auto gradient = [&](const MicroBatch& at) {
      return objective->gradient(anywhere.data(), nullptr, std::span(&at, 1)).segments.front().data[0];
    };
    return gradient(here) - gradient(later);  // the slope cancels, and the noise remains
  };
  const auto runs =
      load({"training={model='quadratic',learning_rate={schedule='constant',peak=0.01},"
            "optimizer={name='sgd'}}",
            "models.quadratic.noise=1"});
  EXPECT_NE(noise(runs[0]), noise(runs[1]));
}

// The same seed gives the same bytes for every number of threads. Tested with the built program, real data, and the
// methods of the quick start.

using Determinism = ProgramTest;

TEST_F(Determinism, ThreadsDoNotChangeAByteOfAnyMethodsMetrics) {
  const std::string run = "run '" SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml' 'seeds=[3]'";
  const std::string rest = " budget.epochs=0.6 evaluation.every_steps=10 evaluation.train_samples=2000 --quiet";
  for (const char* threads : {"1", "2"}) {
    const auto outcome = syncopate(run + rest + " --threads " + threads + " --results by_" + threads);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  int runs = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "by_1")) {
    if (entry.path().filename() != "metrics.csv" && entry.path().filename() != "steps.csv") continue;
    const auto name = std::filesystem::relative(entry.path(), directory / "by_1");
    const std::string with_one = read(std::filesystem::path("by_1") / name);
    EXPECT_GT(std::count(with_one.begin(), with_one.end(), '\n'), 4) << name;
    EXPECT_EQ(with_one, read(std::filesystem::path("by_2") / name)) << name;
    ++runs;
  }
  EXPECT_EQ(runs, 2 * 4);
}

}  // namespace
}  // namespace syncopate
