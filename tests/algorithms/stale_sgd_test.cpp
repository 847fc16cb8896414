#include "algorithms/synchronous/stale_sgd.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/models/formulas.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

TEST(StaleSgd, WithoutStalenessEqualsSynchronousSgdBitForBit) {
  const SimulatedRun setup{.workers = 4, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
  const auto stale = setup.run(StaleSgd({.staleness = 0})), synchronous = setup.run(SyncSgd());
  EXPECT_EQ(stale.parameters, synchronous.parameters);
  EXPECT_EQ(stale.log, synchronous.log);
}

// x(t + 1) = x(t) + v(t + 1), v(t + 1) = m v(t) - rate g(x(t - s)). Staleness s is at most t, and grows over a ramp.
TEST(StaleSgd, FollowsTheRecurrenceOfDelayedSgd) {
  constexpr int steps = 40;
  constexpr double rate = 0.05;
  for (const double momentum : {0.0, 0.5})
    for (const int staleness : {1, 3, 7})
      for (const int ramp : {0, 10}) {
        SCOPED_TRACE(testing::Message() << momentum << " " << staleness << " " << ramp);
        const SimulatedRun setup{.workers = 2, .momentum = momentum, .rate = rate, .budget = {.steps = steps}};
        const auto outcome = setup.run(StaleSgd({.staleness = static_cast<double>(staleness), .ramp_steps = ramp}));
        for (std::size_t i = 0; i < 4; ++i) {
          std::vector<double> x = {1};
          double velocity = 0;
          for (int t = 0; t < steps; ++t) {
            const int grown =
                t < ramp ? static_cast<int>(std::lround(static_cast<double>(staleness) * t / ramp)) : staleness;
            double gradient = 0;
            for (int worker = 0; worker < 2; ++worker)
              gradient += (x[static_cast<std::size_t>(t - std::min(t, grown))] -
                           PullObjective::target({Rank{worker}, t, 0}, i)) /
                          2;
            velocity = momentum * velocity - rate * gradient;
            x.push_back(x.back() + velocity);
          }
          EXPECT_NEAR(outcome.parameters[i], x.back(), 1e-5 * std::abs(x.back()));
        }
      }
}

// At curvature a the roots of z^(s + 1) - z^s + rate a = 0 are within the unit circle if and only if the rate is below
// that of the formula.
TEST(StaleSgd, OnAQuadraticIsStableBelowTheRateOfTheFormula) {
  for (const int staleness : {0, 1, 2, 5}) {
    const double border = 2 * std::sin(std::numbers::pi / (4 * staleness + 2));
    for (const double part : {0.9, 1.1}) {
      const SimulatedRun setup{
          .workers = 1,
          .rate = part * border,
          .budget = {.steps = 1500},
          .objective = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 1, .noise = 0}, 3)};
      const auto outcome = setup.run(StaleSgd({.staleness = static_cast<double>(staleness)}));
      const double distance = std::abs(outcome.parameters[0] - Quadratic({.dimension = 1, .noise = 0}, 3).optimum()[0]);
      if (part < 1) {
        EXPECT_LT(distance, 1e-3) << staleness;
      } else {
        EXPECT_FALSE(distance < 10) << staleness;
      }
    }
  }
}

// The gradient is taken at the model of step t - s. All s from 0 to 4 are equally likely, except that rounding halves
// the probability of 0 and 4.
TEST(StaleSgd, ItIsSpreadEvenly) {
  constexpr int steps = 4000;
  // At a rate of 1 and gradients of 1 the model is x(t) = 1 - t whatever s is, so the objective records the model at
  // which each gradient is requested.
  struct Asked : PullObjective {
    PartialGradient gradient(const float* parameters, const float* buffers,
                             std::span<const MicroBatch> micro_batches) const override {
      at.push_back(parameters[0]);
      auto result = PullObjective::gradient(parameters, buffers, micro_batches);
      const auto ones = std::make_shared<std::vector<float>>(4, 1.0f);
      result.segments = {{.offset = 0, .size = 4, .data = ones->data(), .owner = ones}};
      return result;
    }
    mutable std::vector<float> at;
  };
  const auto objective = std::make_shared<Asked>();
  const SimulatedRun setup{.workers = 1, .threads = 0, .rate = 1, .budget = {.steps = steps}, .objective = objective};
  setup.run(StaleSgd({.staleness = 2, .spread = 2}));
  ASSERT_EQ(objective->at.size(), static_cast<std::size_t>(steps));
  std::vector<int> counts(5);
  for (std::size_t t = 4; t < steps; ++t)  // x(t) = 1 - t
    ++counts.at(static_cast<std::size_t>(std::lround(objective->at[t] - (1.0 - static_cast<double>(t)))));
  const double shares[] = {0.125, 0.25, 0.25, 0.25, 0.125};
  for (std::size_t s = 0; s < 5; ++s) {
    const double expected = shares[s] * (steps - 4);
    EXPECT_NEAR(counts[s], expected, 4 * std::sqrt(expected * (1 - shares[s]))) << s;  // four standard deviations
  }
}

TEST(StaleSgdSettings, AreRead) {
  const std::string name = "algorithm = \"stale-sgd\"\n";
  const SimulatedRun setup{.workers = 2, .rate = 0.05, .budget = {.steps = 30}};
  const auto reading = read_method(name + "staleness = 4", {.workers = 2, .steps_per_epoch = 5});
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(setup.run(*reading.algorithm).parameters,
            setup.run(StaleSgd({.staleness = 4, .ramp_steps = 15})).parameters);  // 3 epochs
  EXPECT_EQ(setup.run(*read_method(name + "staleness = 4", {.workers = 2}).algorithm).parameters,
            setup.run(StaleSgd({.staleness = 4})).parameters);
  EXPECT_THAT(read_method(name + "staleness = 1\nspread = 2").faults,
              HasSubstr("spread = 2; must be at most `staleness`"));
  EXPECT_THAT(read_method(name + "staleness = 1\nramp_epochs = 2").faults, HasSubstr("needs a data set"));
  EXPECT_THAT(read_method(name).faults, HasSubstr("staleness"));
}

}  // namespace
}  // namespace syncopate
