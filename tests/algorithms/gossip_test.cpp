// Mixing without a centre: Gossip itself, with any matrix of weights, and the matrices of the methods.
#include "algorithms/gossip/gossip.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "tests/algorithms/kicked_workers.hpp"

namespace syncopate {
namespace {

using Matrix = std::vector<std::vector<double>>;  // [to][from]

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result(a.size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a.size(); ++j)
      for (std::size_t k = 0; k < a.size(); ++k) result[i][j] += a[i][k] * b[k][j];
  return result;
}

// A mixing matrix that is a mean of shifts round a ring: its rows and columns sum to 1, but it is not symmetric.
Matrix mean_of_shifts(std::size_t workers, const std::vector<std::pair<std::size_t, double>>& shifts) {
  Matrix weights(workers, std::vector<double>(workers));
  for (std::size_t i = 0; i < workers; ++i)
    for (const auto& [distance, weight] : shifts) weights[i][(i + distance) % workers] += weight;
  return weights;
}

// After each step each worker mixes its model with other workers' models, weighted by its row of the matrix. At the end
// its model has the given weight in the published mean.
class MixesBy : public Algorithm {
 public:
  MixesBy(Matrix weights, std::vector<double> at_the_end)
      : weights_(std::move(weights)), at_the_end_(std::move(at_the_end)) {}

  void run(Worker& worker) const override {
    Gossip gossip(worker);
    const auto own = static_cast<std::size_t>(worker.rank().value);
    std::vector<Rank> listeners, senders;
    for (std::size_t other = 0; other < weights_.size(); ++other) {
      if (other != own && weights_[other][own] > 0) listeners.push_back(Rank{static_cast<int>(other)});
      if (other != own && weights_[own][other] > 0) senders.push_back(Rank{static_cast<int>(other)});
    }
    while (worker.budget_left()) {
      worker.descend(worker.compute_step_gradient() / worker.micro_batches());
      for (const Rank listener : listeners)
        worker.send(listener, {.step = worker.step(), .model = worker.model(), .kind = Message::Kind::model});
      std::vector<WeightedState> terms = {{weights_[own][own], worker.model()}};
      for (const Rank sender : senders) {
        EXPECT_FALSE(gossip.has_stopped(sender));
        const auto message = gossip.receive_from(sender);
        ASSERT_TRUE(message);
        terms.push_back({weights_[own][static_cast<std::size_t>(sender.value)], message->model});
      }
      worker.set_model(worker.combine(terms));
      gossip.end_step();
    }
    gossip.stop(listeners, {.weight = at_the_end_[own]});
  }

 private:
  Matrix weights_;
  std::vector<double> at_the_end_;
};

// Worker i's model is the unit vector e_i before the first mixing, so after t mixings it is row i of the matrix's t-th
// power. The published model is the mean of the rows, weighted by `at_the_end`.
TEST(Gossip, ModelsAreThePowersOfAnyMatrixAndTheirWeightedMeanIsPublished) {
  const Matrix weights = mean_of_shifts(5, {{0, 0.5}, {1, 0.25}, {3, 0.25}});
  const std::vector<double> at_the_end = {1, 0.5, 2, 0.25, 0.25};
  Matrix power = mean_of_shifts(5, {{0, 1.0}});
  for (int steps = 1; steps <= 6; ++steps) {
    SCOPED_TRACE(steps);
    power = product(weights, power);
    const auto run = run_kicked({.workers = 5, .budget = {.steps = steps}}, MixesBy(weights, at_the_end));
    for (std::size_t j = 0; j < 5; ++j) {
      double mean = 0;
      for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_NEAR(run.models[i][j], power[i][j], 1e-6);
        mean += at_the_end[i] / 4 * power[i][j];
      }
      EXPECT_NEAR(run.outcome.parameters[j], mean, 1e-6);
    }
  }
}

TEST(Gossip, WithoutMixingTheLastWeightsAloneDecide) {
  const auto run =
      run_kicked({.workers = 3, .budget = {.steps = 2}}, MixesBy(mean_of_shifts(3, {{0, 1.0}}), {1, 3, 4}));
  EXPECT_EQ(run.outcome.parameters, (std::vector<float>{0.125f, 0.375f, 0.5f}));
}

// Rows that sum to 1 keep a model that all share; columns that sum to 1 keep the mean of all models.
void expect_doubly_stochastic(const KickedRun& run) {
  const std::size_t workers = run.models.size();
  for (std::size_t i = 0; i < workers; ++i) {
    double row = 0, column = 0;
    for (std::size_t j = 0; j < workers; ++j) {
      EXPECT_GE(run.models[i][j], 0);
      row += run.models[i][j];
      column += run.models[j][i];
    }
    EXPECT_NEAR(row, 1, 1e-6) << "what worker " << i << " has";
    EXPECT_NEAR(column, 1, 1e-6) << "what all have of worker " << i;
    EXPECT_NEAR(run.outcome.parameters[i], 1.0 / static_cast<double>(workers), 1e-6);
  }
}

TEST(Gossip, TheMixingsOfTheMethodsAreDoublyStochastic) {
  for (int workers = 1; workers <= 9; ++workers)
    for (const int steps : {2, 3, 7}) {
      SCOPED_TRACE(testing::Message() << workers << " workers, " << steps << " steps");
      const SimulatedRun setup{.workers = workers, .budget = {.steps = steps}};
      expect_doubly_stochastic(run_kicked(setup, DecentralizedSgd()));
      expect_doubly_stochastic(run_kicked(setup, StochasticGradientPush()));
    }
}

// In one mixing D-PSGD gives each neighbour on the ring a third, and SGP gives the next worker a half.
TEST(Gossip, TheWeightsOfOneMixingAreThoseOfThePapers) {
  for (const int workers : {3, 5, 8}) {
    const auto size = static_cast<std::size_t>(workers);
    const double third = 1.0 / 3;
    const Matrix ring = mean_of_shifts(size, {{0, third}, {1, third}, {size - 1, third}});
    const Matrix push = mean_of_shifts(size, {{0, 0.5}, {size - 1, 0.5}});
    const auto on_ring = run_kicked({.workers = workers, .budget = {.steps = 2}}, DecentralizedSgd());
    const auto pushed = run_kicked({.workers = workers, .budget = {.steps = 1}}, StochasticGradientPush());
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = 0; j < size; ++j) {
        EXPECT_NEAR(on_ring.models[i][j], ring[i][j], 1e-6);
        EXPECT_NEAR(pushed.models[i][j], push[i][j], 1e-6);
      }
  }
}

}  // namespace
}  // namespace syncopate
