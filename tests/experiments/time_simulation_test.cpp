// The standard error of a simulated time per step, against the same from the drawn times; what is told of a whole run
// from its beginning.
#include "experiments/execution/time_simulation.hpp"

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

struct TimeSimulation : ExperimentFile {
  // One worker alone, so that the steps' times are those that are drawn, but for a constant.
  syncopate::Run run_of(int steps) {
    write(std::string(small) + "[[delays]]\nkind = \"exponential\"\nmean = 0.005\n");
    const auto samples = std::to_string(16 * steps);  // of one epoch
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

// The sample's deviation over the root of how many there are.
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

// Nothing is dropped in the 20 steps that the threshold is found in, and as much in each step after them.
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
  // A whole run ends after its last publication, by less than a micro-batch.
  EXPECT_NEAR(part.step_time_s, whole.step_time_s, 0.03 / 400);
  EXPECT_NEAR(part.micro_batches_per_s, whole.micro_batches_per_s, 2e-3 * whole.micro_batches_per_s);
}

TEST_F(TimeSimulation, ThreeStepsHaveNoError) { EXPECT_FALSE(simulate_time(run_of(3), 1000).error_s); }

}  // namespace
}  // namespace syncopate
