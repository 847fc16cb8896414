// Gradients that remain of micro-batches that a deadline cuts, on both clusters: in emulated time, and in real time
// that consists almost entirely of injected delays. Deadlines are so far from the end of any tensor's backward pass
// that both clusters cut the same tensors, even on a busy machine. Start with mpirun -n 3.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/layered_pull_objective.hpp"
#include "tests/workers/mpi_test_main.hpp"
#include "workers/mpi/mpi_cluster.hpp"

namespace syncopate {
namespace {

const MpiSession* session = nullptr;  // main sets it

using Normalisation = DropComputeOptions::Normalisation;
constexpr int workers = 3, micro_batches = 2;

// A worker's micro-batches take 0.6, 0.9 and 1.2 s. At the threshold of 1.575 s worker 0 has computed both. Worker 1
// has computed one, and half of the second one's backward pass. Worker 2 has computed one, and part of the second one's
// forward pass.
struct Setup {
  double base_s = 0.6;
  std::vector<double> delays_s = {0, 0.3, 0.6};
  Pace pace = Pace::emulate;
};
constexpr double threshold_s = 1.575;

struct Found {
  std::vector<float> parameters;
  std::vector<std::int64_t> kept, dropped;
  Bytes bytes{};
};

DropCompute algorithm(Normalisation normalisation) {
  return DropCompute({.threshold = make_fixed_threshold(from_seconds(threshold_s)),
                      .preempt = Preempt::layer,
                      .forward_share = 0.5,
                      .normalisation = normalisation});
}

Found under_mpi(const Setup& setup, Normalisation normalisation) {
  Executor executor(0);
  Training training(std::make_shared<LayeredPullObjective>(), make_sgd({.momentum = 0.9}), {}, executor);
  const ComputeTime compute_time(1, setup.base_s, {}, {std::make_shared<DelayOfWorker>(setup.delays_s)});
  const auto made = make_mpi_cluster({.workers = workers,
                                      .compute_time = compute_time,
                                      .pace = setup.pace,
                                      .training = training,
                                      .session = *session});
  Cluster& cluster = *made;
  const LearningRate rate(LearningRate::Options{.peak = 0.25});
  const RunContext context{.cluster = cluster,
                           .training = training,
                           .learning_rate = rate,
                           .budget = {.steps = Step{2}},
                           .micro_batches = micro_batches,
                           .initial_model = training.initial_state(),
                           .seed = 1};
  Found found;
  const auto program = [&](Rank self) {
    Worker worker(context, self);
    algorithm(normalisation).run(worker);
    found.parameters = training.values(worker.model());
  };
  const RunTotals totals = cluster.run(program, nullptr);
  found.kept = totals.kept;
  found.dropped = totals.dropped;
  found.bytes = totals.bytes;
  return found;
}

Found simulated(Normalisation normalisation) {
  SimulatedRun run{.workers = workers, .micro_batches = micro_batches, .base_s = 0.6, .momentum = 0.9, .rate = 0.25};
  run.delays = {std::make_shared<DelayOfWorker>(Setup().delays_s)};
  run.objective = std::make_shared<LayeredPullObjective>();
  const auto outcome = run.run(algorithm(normalisation));
  return {outcome.parameters, outcome.totals.kept, outcome.totals.dropped, outcome.totals.bytes};
}

void expect_alike(const Setup& setup, Normalisation normalisation) {
  const Found expected = simulated(normalisation), found = under_mpi(setup, normalisation);
  EXPECT_EQ(expected.kept, (std::vector<std::int64_t>{4, 2, 2}));
  EXPECT_EQ(found.kept, expected.kept);
  EXPECT_EQ(found.dropped, expected.dropped);
  EXPECT_EQ(found.bytes, expected.bytes);
  ASSERT_EQ(found.parameters.size(), expected.parameters.size());
  for (std::size_t i = 0; i < expected.parameters.size(); ++i)
    EXPECT_NEAR(found.parameters[i], expected.parameters[i], 1e-5) << "element " << i;
}

TEST(PartialGradients, AreAlikeOnBothClustersInEmulatedTime) {
  for (const Normalisation normalisation : {Normalisation::constant, Normalisation::computed})
    expect_alike({}, normalisation);
}

// Here the length of a backward pass follows from measured and injected times.
TEST(PartialGradients, AreAlikeOnBothClustersInRealTime) {
  expect_alike({.base_s = 1e-6, .delays_s = {0.6, 0.9, 1.2}, .pace = Pace::inject}, Normalisation::computed);
}

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  const syncopate::MpiSession session;
  syncopate::session = &session;
  return syncopate::run_tests_under_mpi(argc, argv, session);
}
