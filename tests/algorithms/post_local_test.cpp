// Local SGD that begins as synchronous SGD: post-local SGD and SWAP, in every method that has periods.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "algorithms/local_sgd/drop_local_sgd.hpp"
#include "algorithms/local_sgd/hierarchical_sgd.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/outer_local_sgd.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {
namespace {

constexpr int switch_step = 6;

using Period = std::shared_ptr<const SyncPeriod>;

std::vector<std::shared_ptr<const Algorithm>> methods_with(const Period& period, const StatePolicies& policies) {
  return {std::make_shared<LocalSgd>(period, policies),
          std::make_shared<OuterLocalSgd>(period, make_slowmo(1, 0.5), policies),
          std::make_shared<HierarchicalSgd>(
              HierarchicalOptions{.group_size = 2, .group_period = 1, .period = period, .policies = policies}),
          std::make_shared<DropLocalSgd>(period, DropLocalOptions{.state = policies})};
}

TEST(PostLocal, EqualsSynchronousSgdBitForBitBeforeTheSwitch) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 2,
                           .optimizer = make_adamw({}),
                           .budget = {.steps = switch_step},
                           .delays = {exponential_delay(1)}};
  const auto synchronous = setup.run(SyncSgd());
  const StatePolicies averaged{.average = {.moments = {StatePolicy::average, StatePolicy::average}}};
  for (const StatePolicies& policies : {StatePolicies{}, averaged})
    for (const Period& period : {Period(make_post_local_period(switch_step, 4)), Period(make_swap_period(switch_step))})
      for (const auto& method : methods_with(period, policies)) {
        const auto outcome = setup.run(*method);
        EXPECT_EQ(outcome.parameters, synchronous.parameters);
        EXPECT_EQ(outcome.log, synchronous.log);
        EXPECT_EQ(outcome.totals.bytes, synchronous.totals.bytes);
      }
}

// Without drops, and with: late micro-batches are left out of the sum, whose divisor stays.
TEST(PostLocal, InsideDropComputeIsDropComputeBeforeTheSwitch) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 3,
                           .momentum = 0.9,
                           .budget = {.steps = switch_step},
                           .delays = {exponential_delay(1)}};
  const Duration threshold = from_seconds(5);
  const auto dropping = setup.run(DropCompute(threshold, Preempt::discard, 1.0 / 3));
  const auto outcome =
      setup.run(DropLocalSgd(make_post_local_period(switch_step, 4), DropLocalOptions{.threshold = threshold}));
  EXPECT_EQ(outcome.parameters, dropping.parameters);
  EXPECT_EQ(outcome.log, dropping.log);
  EXPECT_NE(outcome.totals.dropped, std::vector<std::int64_t>(4, 0));
}

// Adam in double precision, coordinate by coordinate.
struct Adam {
  double theta = 1, first = 0, second = 0;
  int steps = 0;
  void descend(double gradient, double rate) {
    constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    ++steps;
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    const double divisor = std::sqrt(second / (1 - std::pow(beta2, steps))) + epsilon;
    theta -= rate * first / (1 - std::pow(beta1, steps)) / divisor;
  }
};

// The moments of the mean gradient until the switch; they are everybody's at the first local step. (Those of each
// worker's own gradients would be others: Adam is not linear.)
TEST(PostLocal, StartsLocalStepsFromTheMomentsOfSynchronousSgd) {
  constexpr int workers = 3, period = 2, steps = switch_step + 2 * period;
  constexpr double rate = 0.1;
  const SimulatedRun setup{.workers = workers,
                           .rate = rate,
                           .optimizer = make_adamw({.weight_decay = {.rate = 0}}),
                           .budget = {.steps = steps}};
  const auto outcome = setup.run(LocalSgd(make_post_local_period(switch_step, period), {}));
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<Adam> all(workers);
    for (int step = 0; step < steps; ++step) {
      std::vector<double> gradient(workers);
      double mean = 0;
      for (int k = 0; k < workers; ++k) {
        gradient[k] = all[k].theta - PullObjective::target({Rank{k}, step, 0}, i);
        mean += gradient[k] / workers;
      }
      for (int k = 0; k < workers; ++k) all[k].descend(step < switch_step ? mean : gradient[k], rate);
      if (step < switch_step || (step + 1 - switch_step) % period != 0) continue;
      const double average = (all[0].theta + all[1].theta + all[2].theta) / 3;
      for (Adam& one : all) one.theta = average;
    }
    EXPECT_NEAR(outcome.parameters[i], all[0].theta, 1e-5 * std::abs(all[0].theta));
  }
}

// On a ring an all-reduce of P bytes takes 2 (N - 1) (L + P / (N B)). Averaged moments go along with models alone.
TEST(PostLocal, IsPredictedToSendGradientsBeforeTheSwitchAndModelsAfterIt) {
  constexpr double latency_s = 0.01, bytes_per_s = 8;
  const auto ring_s = [&](double bytes) { return 2 * (4 - 1) * (latency_s + bytes / 4 / bytes_per_s); };
  const PredictedRun setting{
      .workers = 4, .steps = 10, .network = make_ring_network(latency_s, bytes_per_s), .moments = 1};
  const LocalSgd method(make_post_local_period(switch_step, 2),
                        {.average = {.moments = {StatePolicy::average, StatePolicy::average}}});
  const double expected = (switch_step * ring_s(16) + 2 * ring_s(2 * 16)) / 10;
  EXPECT_NEAR(setting.predict(method).at(0).communication_s, expected, 1e-8);
}

}  // namespace
}  // namespace syncopate
