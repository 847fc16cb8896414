// Runs an algorithm on both clusters, with 4 workers and a server if needed. Tests start with mpirun -n 5.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/formulas.hpp"
#include "workers/mpi/mpi_cluster.hpp"
#include "workers/simulated/simulated_cluster.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

inline const MpiSession* session = nullptr;  // main sets it

inline constexpr int workers = 4;
inline constexpr int micro_batches = 2;

struct Outcome {
  std::vector<float> parameters;  // the model of this rank's worker or server
  RunTotals totals;
};

// A quadratic whose parameters are a matrix and a vector, which compressors treat differently. Workers have different
// numbers of samples, for averages weighted by samples.
class MatrixQuadratic : public Quadratic {
 public:
  using Quadratic::Quadratic;
  std::int64_t samples_of(Rank worker) const override { return 10 * (1 + worker.value); }
  std::vector<ParameterTensor> tensors() const override {
    const std::size_t of_matrix = parameters() - 100;
    return {{.name = "matrix", .offset = 0, .size = of_matrix, .place = 0, .rows = 20},
            {.name = "vector", .offset = of_matrix, .size = parameters() - of_matrix, .place = 1}};
  }
};

// The step of the last row that a server reports.
struct LastRow : RunObserver {
  Step step{};
  void on_row(const StepRow& row) override { step = row.step; }
  void on_publish(const Publication&) override {}
};

// Micro-batches have an exponential delay. Under MPI workers sleep for it, so runs are no shorter than their delays.
inline constexpr double mean_delay_s = 0.005;

// A run of 20 steps. On the simulated cluster a micro-batch's base time stands for the arithmetic, and a message's
// latency for the network.
struct Parity {
  explicit Parity(double base_s = 1e-6, double latency_s = 50e-6,
                  std::shared_ptr<const Optimizer> optimizer = make_sgd({.momentum = 0.9}), double clip_norm = 0,
                  double delay_s = mean_delay_s)
      : training(std::make_shared<MatrixQuadratic>(QuadraticOptions{.dimension = 1000}, 3), std::move(optimizer),
                 {.clip_norm = clip_norm}, executor),
        compute_time(11, base_s, {}, {exponential_delay(delay_s)}),
        network(make_fixed_network(latency_s)) {}

  Executor executor{0};
  Training training;
  ComputeTime compute_time;
  std::unique_ptr<NetworkModel> network;
  LearningRate learning_rate{
      LearningRate::Options{.shape = LearningRate::Shape::cosine, .peak = 0.05, .total_steps = Step{20}}};
  bool server_takes_steps = true;  // false: workers take steps
  Step unplanned_steps{};          // steps of a worker that the budget does not count

  Outcome run(Cluster& cluster, const Algorithm& algorithm) {
    LastRow last;
    RunContext context{.cluster = cluster,
                       .training = training,
                       .learning_rate = learning_rate,
                       .budget = {.steps = Step{20}, .seconds = {}, .samples = {}, .bytes = {}},
                       .micro_batches = micro_batches,
                       .observer = &last,
                       .initial_model = training.initial_state()};
    compress(context, algorithm);
    Outcome outcome;
    const auto program = [&](Rank self) {
      Worker worker(context, self);
      algorithm.run(worker);
      if (algorithm.traits().servers > 0) return;  // the server has the last model
      EXPECT_EQ(worker.step(), Step{20} + unplanned_steps);
      if (self.value == session->rank()) outcome.parameters = training.values(worker.model());
    };
    const auto serve = [&](Rank self) {
      run_server(context, self, [&](Server& server) {
        algorithm.serve(server);
        if (server_takes_steps && self == cluster.server()) {
          EXPECT_EQ(last.step, Step{20});
        }
        if (self.value == session->rank()) outcome.parameters = training.values(server.model());
      });
    };
    outcome.totals = cluster.run(program, algorithm.traits().servers > 0 ? Cluster::Program(serve) : nullptr);
    return outcome;
  }

  Outcome simulated(const Algorithm& algorithm) {
    SimulatedCluster cluster({.workers = workers,
                              .servers = algorithm.traits().servers,
                              .micro_batches = micro_batches,
                              .compute_time = compute_time,
                              .network = *network,
                              .training = training});
    return run(cluster, algorithm);
  }

  Outcome mpi(const Algorithm& algorithm) {
    const auto made = make_mpi_cluster({.workers = workers,
                                        .servers = algorithm.traits().servers,
                                        .compute_time = compute_time,
                                        .training = training,
                                        .session = *session});
    Cluster& cluster = *made;
    return run(cluster, algorithm);
  }
};

// The shortest time that a run can take on any machine: the time of its injected delays.
inline double least_s(const Algorithm& algorithm, Step unplanned_steps = {}) {
  constexpr double nearly_nothing_s = 1e-9;
  Parity parity(nearly_nothing_s, 0);
  parity.unplanned_steps = unplanned_steps;
  return to_seconds(parity.simulated(algorithm).totals.end);
}

}  // namespace syncopate
