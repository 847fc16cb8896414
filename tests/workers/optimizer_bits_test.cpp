// Optimizers bit by bit: in place, in any split into blocks, and on any processor.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/workers/optimizer_cases.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {
namespace {

bool same_bits(const Vector& a, const Vector& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

bool same_bits(const State& a, const State& b) {
  return same_bits(a.theta, b.theta) && same_bits(a.moments[0], b.moments[0]) && same_bits(a.moments[1], b.moments[1]);
}

TEST(OptimizerBits, InPlaceEqualsOutOfPlace) {
  for (const auto& test : optimizer_cases()) {
    EXPECT_TRUE(same_bits(trained(*test.optimizer, true), trained(*test.optimizer, false))) << test.name;
  }
}

// A state may share some of its vectors with the next one and not others.
TEST(OptimizerBits, EachVectorMayBeInPlaceOnItsOwn) {
  const Vector gradient = gradient_of(3);
  for (const auto& test : optimizer_cases()) {
    const State before = trained(*test.optimizer, true, {}, 3);
    const StepContext context{.learning_rate = 0.1,
                              .ages = {MomentAge{.steps = 4}, MomentAge{.steps = 4}},
                              .decay = test.optimizer->weight_decay().rate};
    State expected = before;
    test.optimizer->update(block_of(before, expected, gradient, 0, parameters), context);
    for (unsigned in_place = 0; in_place < 8; ++in_place) {  // one bit per vector
      State after = before;
      OptimizerBlock block = block_of(before, after, gradient, 0, parameters);
      if ((in_place & 1) != 0) block.before = block.after;
      if ((in_place & 2) != 0) block.moments_before[0] = block.moments_after[0];
      if ((in_place & 4) != 0) block.moments_before[1] = block.moments_after[1];
      test.optimizer->update(block, context);
      EXPECT_TRUE(same_bits(after, expected)) << test.name << ", vectors " << in_place;
    }
  }
}

TEST(OptimizerBits, AnySplitIntoBlocksGivesTheSame) {
  std::vector<std::vector<std::size_t>> splits = {{1}, {64, 128, 256, 512}, {3, 10, 27, 101, 350, 999}};
  auto& single = splits.emplace_back();  // blocks of one: no vector instruction fits
  for (std::size_t i = 1; i < parameters; ++i) single.push_back(i);
  std::mt19937_64 engine(5);
  for (int i = 0; i < 5; ++i) {
    auto& cuts = splits.emplace_back();
    for (int cut = 0; cut < 20; ++cut) cuts.push_back(engine() % parameters);
  }
  for (const auto& test : optimizer_cases()) {
    const State whole = trained(*test.optimizer, true, {}, 5);
    for (const auto& cuts : splits) {
      EXPECT_TRUE(same_bits(trained(*test.optimizer, true, cuts, 5), whole)) << test.name;
      EXPECT_TRUE(same_bits(trained(*test.optimizer, false, cuts, 5), whole)) << test.name;
    }
  }
}

// A moment that is null equals one of explicit zeros, each on its own.
TEST(OptimizerBits, ANullMomentReadsAsZeros) {
  const Vector gradient = gradient_of(0);
  const State zeros{.theta = {}, .moments = {Vector(parameters, 0.0F), Vector(parameters, 0.0F)}};
  for (const auto& test : optimizer_cases()) {
    const State before = trained(*test.optimizer, true, {}, 3);
    for (unsigned null = 0; null < 4; ++null) {  // one bit per moment
      std::array<State, 2> after = {before, before};
      for (int explicit_zeros = 0; explicit_zeros < 2; ++explicit_zeros) {
        OptimizerBlock block = block_of(before, after[explicit_zeros], gradient, 0, parameters);
        for (int i = 0; i < test.optimizer->moments(); ++i) {
          if ((null >> i & 1U) != 0) block.moments_before[i] = explicit_zeros == 1 ? zeros.moments[i].data() : nullptr;
        }
        test.optimizer->update(
            block, {.learning_rate = 0.1, .ages = {MomentAge{.steps = 4}, MomentAge{.steps = 4}}, .decay = 0.01});
      }
      EXPECT_TRUE(same_bits(after[0], after[1])) << test.name << ", moments " << null;
    }
  }
}

// Single-precision arithmetic that no compiler can fuse: for + - * / and the square root, the double
// result rounded to single is the correctly rounded single result (53 >= 2 x 24 + 2 bits).
struct Rounded {
  float value;
  Rounded(double exact) : value(static_cast<float>(exact)) {}  // NOLINT: reads as the formula
  friend Rounded operator+(Rounded a, Rounded b) { return static_cast<double>(a.value) + b.value; }
  friend Rounded operator-(Rounded a, Rounded b) { return static_cast<double>(a.value) - b.value; }
  friend Rounded operator*(Rounded a, Rounded b) { return static_cast<double>(a.value) * b.value; }
  friend Rounded operator/(Rounded a, Rounded b) { return static_cast<double>(a.value) / b.value; }
  friend Rounded root(Rounded a) { return std::sqrt(static_cast<double>(a.value)); }
};

std::vector<Vector> all_gradients() {
  std::vector<Vector> gradients;
  for (int step = 0; step < steps; ++step) gradients.push_back(gradient_of(step));
  return gradients;
}

// Whichever clone of the loops this processor chose, it rounds every operation once. All clones that do
// so agree, hence all processors.
TEST(OptimizerBits, SgdRoundsEveryOperationOnce) {
  const auto sgd = make_sgd({.momentum = 0.9, .nesterov = true, .weight_decay = {.rate = 0.01}});
  const State ours = trained(*sgd, true);
  const auto gradients = all_gradients();
  const Vector begin = start();
  for (std::size_t i = 0; i < parameters; ++i) {
    Rounded theta = begin[i];
    Rounded v = 0;
    for (int step = 0; step < steps; ++step) {
      const Rounded g = Rounded(gradients[step][i]) + Rounded(i < weights ? 0.01 : 0) * theta;
      v = Rounded(0.9) * v + g;
      theta = theta - Rounded(rate_of(step)) * (g + Rounded(0.9) * v);
    }
    ASSERT_EQ(ours.theta[i], theta.value) << i;
    ASSERT_EQ(ours.moments[0][i], v.value) << i;
  }
}

TEST(OptimizerBits, AdamWRoundsEveryOperationOnce) {
  const auto adamw = make_adamw({});
  const double decay = adamw->weight_decay().rate;
  const State ours = trained(*adamw, true);
  const auto gradients = all_gradients();
  const Vector begin = start();
  for (std::size_t i = 0; i < parameters; ++i) {
    Rounded theta = begin[i];
    Rounded m = 0;
    Rounded s = 0;
    for (int step = 0; step < steps; ++step) {
      const double root2 = std::sqrt(1 - std::pow(0.999, step + 1));
      const Rounded rate = rate_of(step) * root2 / (1 - std::pow(0.9, step + 1));
      const Rounded g = gradients[step][i];
      m = Rounded(0.9) * m + Rounded(1 - 0.9) * g;
      s = Rounded(0.999) * s + Rounded(1 - 0.999) * g * g;
      theta = theta * Rounded(1 - rate_of(step) * decay) - rate * (m / (root(s) + Rounded(1e-8 * root2)));
    }
    ASSERT_EQ(ours.theta[i], theta.value) << i;
    ASSERT_EQ(ours.moments[0][i], m.value) << i;
    ASSERT_EQ(ours.moments[1][i], s.value) << i;
  }
}

}  // namespace
}  // namespace syncopate
