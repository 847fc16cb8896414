// The quadratic rule under every schedule: each round's length is the formula's at the rate of its first step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "algorithms/local_sgd/sync_period.hpp"
#include "workers/training/learning_rate.hpp"

namespace syncopate {
namespace {

using Shape = LearningRate::Shape;

TEST(SyncPeriodSchedules, TheQuadraticRuleFollowsEverySchedule) {
  constexpr int total = 2000;
  for (const Shape shape : {Shape::constant, Shape::step, Shape::exponential, Shape::linear, Shape::polynomial,
                            Shape::cosine, Shape::modified_cosine, Shape::cosine_step}) {
    const LearningRate rate({.shape = shape,
                             .peak = 0.4,
                             .final = 1e-4,
                             .warmup_start = 0.05,
                             .warmup_steps = 100,
                             .total_steps = total,
                             .decay_steps = {700, 1400},
                             .decay_factor = 0.3,
                             .decay_every = 300,
                             .power = 2,
                             .constant_from = 1500});
    const auto period = make_power_period({.coefficient = 0.6,
                                           .minimum = Step{2},
                                           .maximum = Step{400},
                                           .warmup_steps = rate.warmup(),
                                           .warmup_period = Step{3}});
    int done = 0, rounds = 0, longest = 0;
    while (done < total) {
      const double eta = rate.at(done);
      const double asked = done < 100 ? 3 : std::clamp(std::floor(std::pow(0.6 / eta, 2)), 2.0, 400.0);
      const int expected = std::min(static_cast<int>(asked), total - done);
      ASSERT_EQ(period->at(done, eta, total - done), Step{expected}) << static_cast<int>(shape) << " at " << done;
      done += expected;
      longest = std::max(longest, expected);
      ++rounds;
    }
    EXPECT_EQ(done, total);
    EXPECT_TRUE(longest > 3 || shape == Shape::constant) << static_cast<int>(shape);
  }
}

}  // namespace
}  // namespace syncopate
