// The rate of convergence that DropCompute keeps although its batches vary: with b_i samples in step i, K samples
// in all, batches of at most b_max and the step per sample h = min(1 / (L b_max), sqrt(2 D / (L K)) / sigma), the
// iterate drawn with probability b_i / K has
//   E|grad L|^2 <= 2 L b_max D / K + 2 sqrt(2) sigma sqrt(L D / K),   D = L(theta_1) - min L.
// Source: Giladi et al. 2023, Theorem 4.1, whose second term is smaller by sqrt(2); this is the constant that the
// plain descent argument gives, so it is the shape of the theorem that is checked, not its constant.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/models/quadratic.hpp"
#include "workers/simulated/simulated_cluster.hpp"
#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

constexpr int workers = 8, micro_batches = 8, b_max = workers * micro_batches;
constexpr QuadraticOptions problem{.dimension = 20, .condition = 10, .noise = 0.5};

struct Measured {
  double gradient = 0;  // |grad L|^2 of the iterates, weighted by the samples of the step that they take
  double samples = 0;   // K
  double distance = 0;  // D
};

// Adds up the iterates of one run. The observer sees the model after each step; the step that it takes next has
// as many samples as the next row says.
class Iterates : public RunObserver {
 public:
  Iterates(const Quadratic& objective, Training& training) : objective_(objective), training_(training) {}
  void on_row(const StepRow& round) override {
    measured.gradient += static_cast<double>(round.kept) * squared_gradient_;
    measured.samples += static_cast<double>(round.kept);
  }
  void on_publish(const Publication& publication) override { look_at(publication.model); }
  void look_at(const ModelStatePtr& state) {
    const auto values = training_.values(state);
    squared_gradient_ = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double slope = objective_.curvatures()[i] * (values[i] - objective_.optimum()[i]);
      squared_gradient_ += slope * slope;
    }
  }
  Measured measured;

 private:
  const Quadratic& objective_;
  Training& training_;
  double squared_gradient_ = 0;
};

double bound(double distance, double samples, double sigma) {
  return 2 * b_max * distance / samples + 2 * std::sqrt(2.0) * sigma * std::sqrt(distance / samples);
}

// DropCompute with exponential delays, whose threshold leaves about three quarters of the micro-batches.
Measured run(double samples, std::uint64_t seed) {
  const auto objective = std::make_shared<Quadratic>(problem, seed);
  Executor executor(0);
  Training training(objective, make_sgd({}), {.seed = seed}, executor);
  const ModelStatePtr start = training.initial_state();
  double distance = 0;
  const auto values = training.values(start);
  for (std::size_t i = 0; i < values.size(); ++i)
    distance += 0.5 * objective->curvatures()[i] * std::pow(values[i] - objective->optimum()[i], 2);
  const double sigma = problem.noise * std::sqrt(static_cast<double>(problem.dimension));
  const double step_per_sample = std::min(1.0 / b_max, std::sqrt(2 * distance / samples) / sigma);
  const LearningRate rate(LearningRate::Options{.peak = step_per_sample * b_max});  // the method divides by N M

  Iterates iterates(*objective, training);
  iterates.look_at(start);
  const ComputeTime compute_time(seed, 1.0, {}, {exponential_delay(0.5)});
  const auto network = make_fixed_network(0);
  SimulatedCluster cluster({.workers = workers,
                            .micro_batches = micro_batches,
                            .compute_time = compute_time,
                            .network = *network,
                            .training = training,
                            .observer = &iterates});
  const Budget budget{.samples = static_cast<std::int64_t>(samples)};
  const RunContext context{.cluster = cluster,
                           .training = training,
                           .learning_rate = rate,
                           .budget = budget,
                           .micro_batches = micro_batches,
                           .observer = &iterates,
                           .initial_model = start};
  run_algorithm(DropCompute(from_seconds(9.0), Preempt::discard, 1.0 / 3), context);
  iterates.measured.distance = distance;
  return iterates.measured;
}

TEST(ConvergenceRate, WithDroppedMicroBatchesTheGradientFallsAsTheTheoremSays) {
  constexpr int repeats = 12;
  const double sigma = problem.noise * std::sqrt(static_cast<double>(problem.dimension));
  std::vector<double> means;
  for (const double samples : {2e3, 2e4, 2e5}) {
    double mean = 0, limit = 0, kept = 0;
    for (int seed = 1; seed <= repeats; ++seed) {
      const Measured measured = run(samples, static_cast<std::uint64_t>(seed));
      mean += measured.gradient / measured.samples / repeats;
      limit += bound(measured.distance, measured.samples, sigma) / repeats;
      kept += measured.samples / repeats;
    }
    EXPECT_GE(kept, samples);
    EXPECT_LE(mean, limit) << samples;
    means.push_back(mean);
  }
  // Where the noise term rules, ten times the samples divide the squared gradient by sqrt(10); the first term,
  // and a quadratic's own faster approach, only add to that. Twelve repeats leave an error of about 10 %.
  EXPECT_LT(means[1], means[0] / std::sqrt(10.0) * 1.2);
  EXPECT_LT(means[2], means[1] / std::sqrt(10.0) * 1.2);
}

}  // namespace
}  // namespace syncopate
