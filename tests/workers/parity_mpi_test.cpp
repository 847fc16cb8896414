// The same algorithm on both clusters: where control does not depend on the clock the parameters
// agree, and where injected delays dominate the simulated time is the wall time. Runs on 4 ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "algorithms/backup_workers.hpp"
#include "algorithms/drop_compute.hpp"
#include "algorithms/local_sgd.hpp"
#include "algorithms/sync_sgd.hpp"
#include "tests/workers/mpi_test_main.hpp"
#include "workers/delays/exponential.hpp"
#include "workers/delays/network.hpp"
#include "workers/models/quadratic.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {
namespace {

const MpiSession* session = nullptr;

constexpr int workers = 4;
constexpr int micro_batches = 2;

struct Outcome {
  std::vector<float> parameters;  // of this rank's worker
  RunTotals totals;
};

// 20 steps. Micro-batches take a microsecond plus an exponential delay of 20 ms on average.
struct Parity {
  Executor executor{0};
  Training training{
      std::make_shared<Quadratic>(QuadraticOptions{.dimension = 1000}, 3), make_sgd({.momentum = 0.9}), {}, executor};
  ComputeTime compute_time{11, 1e-6, {}, {exponential_delay(0.020)}};
  std::unique_ptr<NetworkModel> network = make_fixed_network(50e-6);
  LearningRate learning_rate{
      LearningRate::Options{.shape = LearningRate::Shape::cosine, .peak = 0.05, .total_steps = Step{20}}};

  Outcome run(Cluster& cluster, const Algorithm& algorithm) {
    const RunContext context{.cluster = cluster,
                             .training = training,
                             .learning_rate = learning_rate,
                             .budget = {.steps = Step{20}, .seconds = {}, .samples = {}, .bytes = {}},
                             .micro_batches = micro_batches,
                             .initial_model = training.initial_state()};
    Outcome outcome;
    const auto program = [&](Rank self) {
      Worker worker(context, self);
      algorithm.run(worker);
      if (algorithm.has_server()) return;  // its workers end at the model before the last
      EXPECT_EQ(worker.step(), Step{20});
      if (self.value == session->rank()) outcome.parameters = training.values(worker.model());
    };
    const auto serve = [&](Rank self) {
      Server server(context, self);
      algorithm.serve(server);
      EXPECT_EQ(server.step(), Step{20});
      if (self.value == session->rank()) outcome.parameters = training.values(server.model());
    };
    outcome.totals = cluster.run(program, algorithm.has_server() ? Cluster::Program(serve) : nullptr);
    return outcome;
  }

  Outcome simulated(const Algorithm& algorithm) {
    SimulatedCluster cluster({.workers = workers,
                              .has_server = algorithm.has_server(),
                              .micro_batches = micro_batches,
                              .compute_time = compute_time,
                              .network = *network,
                              .training = training});
    return run(cluster, algorithm);
  }

  Outcome mpi(const Algorithm& algorithm) {
    MpiCluster cluster({.workers = workers,
                        .has_server = algorithm.has_server(),
                        .compute_time = compute_time,
                        .training = training,
                        .session = *session});
    return run(cluster, algorithm);
  }
};

void expect_parity(const Algorithm& algorithm) {
  ASSERT_EQ(session->size(), workers + 1) << "start this test with mpirun -n 5: one rank serves, or is idle";
  Parity parity;
  const Outcome expected = parity.simulated(algorithm);
  Outcome found = parity.mpi(algorithm);
  // Other programs on this machine can only make wall time longer; all ranks see the same totals.
  constexpr double tolerance = 0.05;
  const double simulated_s = to_seconds(expected.totals.end);
  for (int again = 0; again < 2 && to_seconds(found.totals.end) > (1 + tolerance) * simulated_s; ++again)
    found = parity.mpi(algorithm);

  const int holder = algorithm.has_server() ? workers : std::min(session->rank(), workers - 1);
  EXPECT_EQ(expected.parameters.empty(), session->rank() != holder);
  ASSERT_EQ(found.parameters.size(), expected.parameters.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.parameters.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(found.parameters[i]) - expected.parameters[i]));
    norm = std::max(norm, std::abs(static_cast<double>(expected.parameters[i])));
  }
  EXPECT_LE(difference, 1e-5 * norm);
  EXPECT_NEAR(to_seconds(found.totals.end), simulated_s, tolerance * simulated_s);
  EXPECT_EQ(found.totals.bytes, expected.totals.bytes);
  EXPECT_EQ(found.totals.collectives, expected.totals.collectives);
  EXPECT_EQ(found.totals.kept, expected.totals.kept);
  EXPECT_EQ(found.totals.dropped, expected.totals.dropped);
  if (session->rank() == 0)
    std::printf("largest difference %.1e of %.2g; simulated %.4f s, wall %.4f s\n", difference, norm, simulated_s,
                to_seconds(found.totals.end));
}

TEST(Parity, SynchronousSgd) { expect_parity(SyncSgd()); }

TEST(Parity, LocalSgdWithAConstantPeriod) { expect_parity(LocalSgd(make_constant_period(Step{5}), {})); }

TEST(Parity, LocalSgdWithTheQuadraticRuleAndAveragedMomentum) {
  expect_parity(LocalSgd(make_power_period({.power = 2, .coefficient = 0.05, .minimum = Step{2}}),
                         {.moments = StatePolicy::average}));
}

TEST(Parity, BackupWorkersWithoutBackups) { expect_parity(BackupWorkers(workers)); }

TEST(Parity, DropComputeWithoutAThreshold) { expect_parity(DropCompute(longest_duration, Preempt::discard, 1.0 / 3)); }

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  const syncopate::MpiSession session;
  syncopate::session = &session;
  return syncopate::run_tests_under_mpi(argc, argv, session);
}
