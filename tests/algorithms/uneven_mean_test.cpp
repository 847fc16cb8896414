// A server's step to the mean of unequal numbers of local steps, of models that are known in closed form.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "algorithms/quorum/stsyn.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

using Counts = std::vector<std::int64_t>;
using Weights = UnevenMean::Weights;

// Each worker takes its steps from the server's model and brings the difference; then the server steps once.
class OneMean : public Algorithm {
 public:
  OneMean(std::vector<int> steps, const UnevenMean& how) : steps_(std::move(steps)), how_(how) {}

  void run(Worker& worker) const override {
    while (worker.receive_model()) {
      const ModelStatePtr start = worker.model();
      Work work;
      for (int step = 0; step < steps_[static_cast<std::size_t>(worker.rank().value)]; ++step) {
        const Gradient gradient = worker.compute_step_gradient();
        worker.descend(gradient / worker.micro_batches());
        work.micro_batches += gradient.micro_batches();
        work.time += gradient.compute_time();
      }
      const ModelStatePtr difference = worker.combine({{1, start}, {-1, worker.model()}});
      worker.send(Rank{worker.size()}, Message::of_difference(worker.step(), difference, work));
    }
  }

  void serve(Server& server) const override {
    server.send_model(Receivers::all);
    std::vector<Message> brought;
    while (std::ssize(brought) < server.size())
      if (const auto message = server.receive()) brought.push_back(std::move(*message));
    std::ranges::sort(brought, {}, &Message::from);
    step_to_mean(server, std::move(brought), how_);
  }

  Traits traits() const override { return {.servers = 1, .publishes_rounds = true}; }

 private:
  std::vector<int> steps_;
  UnevenMean how_;
};

// A step of rate 1 ends at its target, which is worker + 10 step in the first coordinate: after s steps worker w is at
// w + 10 (s - 1), wherever it began.
SimulatedRun::Outcome mean_of(const std::vector<int>& steps, const UnevenMean& how) {
  const SimulatedRun setup{.workers = static_cast<int>(steps.size()), .rate = 1};
  return setup.run(OneMean(steps, how));
}

void expect_mean(const SimulatedRun::Outcome& outcome, double mean) {
  ASSERT_EQ(outcome.parameters.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(outcome.parameters[i], mean + static_cast<double>(i), 1e-5);
}

TEST(UnevenMean, CountsAllWorkersAlikeOrByTheirSteps) {
  const auto equal = mean_of({1, 3, 3}, {});
  expect_mean(equal, (0 + 21 + 22) / 3.0);
  EXPECT_EQ(equal.totals.kept, (Counts{1, 3, 3}));
  EXPECT_EQ(equal.samples, 7);
  expect_mean(mean_of({1, 3, 3}, {.weights = Weights::steps}), (1 * 0 + 3 * 21 + 3 * 22) / 7.0);
}

TEST(UnevenMean, LeavesOutTheFirstOfThoseWithMostSteps) {
  const auto equal = mean_of({1, 3, 3}, {.leaves_out_most = true});
  expect_mean(equal, (0 + 22) / 2.0);
  EXPECT_EQ(equal.totals.kept, (Counts{1, 0, 3}));
  EXPECT_EQ(equal.totals.dropped, (Counts{0, 3, 0}));
  expect_mean(mean_of({1, 3, 3}, {.weights = Weights::steps, .leaves_out_most = true}), (1 * 0 + 3 * 22) / 4.0);
}

TEST(UnevenMean, OfOneWorkerIsItsModelEvenIfItHasMostSteps) {
  expect_mean(mean_of({3}, {.leaves_out_most = true}), 20);
}

TEST(UnevenMean, OfEqualStepsBothWeightsAreThePlainMean) {
  const auto equal = mean_of({2, 2, 2}, {}), by_steps = mean_of({2, 2, 2}, {.weights = Weights::steps});
  expect_mean(equal, (10 + 11 + 12) / 3.0);
  EXPECT_EQ(equal.parameters, by_steps.parameters);
}

}  // namespace
}  // namespace syncopate
