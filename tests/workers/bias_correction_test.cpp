// Bias correction after a synchronisation: each moment is corrected for the steps that have gone into it, whatever
// becomes of the other moment.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/workers/engine.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {
namespace {

constexpr double magnitude = 0.5;

// Gradients of 0.5 and -0.5 in turn, wherever the parameters are.
class ConstantGradient : public PullObjective {
 public:
  using PullObjective::PullObjective;

  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> micro_batches) const override {
    auto values = std::make_shared<std::vector<float>>(parameters());
    for (std::size_t i = 0; i < values->size(); ++i)
      (*values)[i] = static_cast<float>((i % 2 == 0 ? magnitude : -magnitude) * std::ssize(micro_batches));
    PartialGradient result;
    result.segments.push_back({.offset = 0, .size = values->size(), .data = values->data(), .owner = values});
    return result;
  }
};

struct NamedOptimizer {
  std::string name;
  std::function<std::unique_ptr<Optimizer>()> make;
  bool corrects_first = true;  // of RMSProp's two moments the mean square alone has a start to be corrected for
};

std::vector<NamedOptimizer> optimizers() {
  const WeightDecay none{.rate = 0};
  return {
      {"AdamW", [=] { return make_adamw({.weight_decay = none}); }},
      {"AdamW with decay", [] { return make_adamw({.weight_decay = {.rate = 0.1, .form = DecayForm::decoupled}}); }},
      {"Adam (0.5, 0.8)", [=] { return make_adamw({.beta1 = 0.5, .beta2 = 0.8, .weight_decay = none}); }},
      {"LAMB", [] { return make_lamb({}); }},
      {"LAMB without averaging", [] { return make_lamb({.averages_gradients = false}); }},
      {"LANS", [] { return make_lans({}); }},
      {"RMSProp", [=] { return make_rmsprop({.mean_square_start = magnitude * magnitude, .weight_decay = none}); },
       false},
      {"RMSProp (PyTorch's)",
       [=] {
         return make_rmsprop(
             {.form = RmsPropForm::pytorch, .mean_square_start = magnitude * magnitude, .weight_decay = none});
       },
       false}};
}

// Parameters after `rounds` of three steps, each followed by what the policy does to two workers' moments.
std::vector<float> trained(const NamedOptimizer& optimizer, const AveragePolicy& policy, int rounds) {
  Engine engine(std::make_shared<ConstantGradient>(), optimizer.make());
  std::vector<ModelStatePtr> states(2, engine.training.initial_state());
  for (int round = 0; round < rounds; ++round) {
    for (int worker = 0; worker < 2; ++worker) {
      ModelStatePtr& state = states[static_cast<std::size_t>(worker)];
      for (int step = 0; step < 3; ++step) {
        const Gradient gradient = engine.promise(state, worker, 3 * round + step);
        state = engine.training.descend(std::move(state), gradient, 0.01);
      }
    }
    states = engine.training.average(states, policy);
  }
  return engine.training.values(states[1]);
}

// A moment of constant gradients, divided by its correction, is the gradient, or its square, from the first step on. So
// no reset changes the steps.
TEST(BiasCorrection, OfConstantGradientsMakesEachResetUnseen) {
  constexpr StatePolicy policies[] = {StatePolicy::keep, StatePolicy::average, StatePolicy::reset};
  constexpr int rounds = 4;
  for (const NamedOptimizer& optimizer : optimizers()) {
    const std::vector<float> expected = trained(optimizer, {}, rounds);
    for (const StatePolicy first : policies)
      for (const StatePolicy second : policies) {
        if (first == StatePolicy::reset && !optimizer.corrects_first) continue;
        const std::vector<float> found = trained(optimizer, {.moments = {first, second}}, rounds);
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_NEAR(found[i] - 1, expected[i] - 1, 2e-5)
              << optimizer.name << ", policies " << static_cast<int>(first) << " and " << static_cast<int>(second);
      }
  }
}

// Twelve steps of 0.01 against the sign of the gradient.
TEST(BiasCorrection, LetsAdamStepByTheRateAfterAResetOfTheSecondMoment) {
  const NamedOptimizer adam{"AdamW", [] { return make_adamw({.weight_decay = {.rate = 0}}); }};
  const std::vector<float> found = trained(adam, {.moments = {StatePolicy::keep, StatePolicy::reset}}, 4);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], i % 2 == 0 ? 0.88 : 1.12, 1e-4);
}

// Also where the workers have taken unequal numbers of steps, one of them none: their mean has less of the gradient.
TEST(BiasCorrection, OfAMeanOfUnequalWorkersMakesStepsOfTheRate) {
  const std::vector<std::vector<StatePolicy>> policies = {{StatePolicy::average, StatePolicy::average},
                                                          {StatePolicy::average, StatePolicy::reset},
                                                          {StatePolicy::average, StatePolicy::keep}};
  for (const auto& policy : policies) {
    Engine engine(std::make_shared<ConstantGradient>(), make_adamw({.weight_decay = {.rate = 0}}));
    std::vector<ModelStatePtr> states(3, engine.training.initial_state());
    for (int round = 0; round < 3; ++round) {
      const std::vector<float> before = engine.training.values(states[0]);
      for (int worker = 0; worker < 3; ++worker)
        for (int step = 0; step < worker; ++step)
          states[static_cast<std::size_t>(worker)] =
              engine.training.descend(states[static_cast<std::size_t>(worker)],
                                      engine.promise(states[static_cast<std::size_t>(worker)], 0), 0.01);
      states = engine.training.average(states, {.moments = {policy[0], policy[1]}});
      const std::vector<float> after = engine.training.values(states[0]);
      // The mean of none, one and two steps.
      for (std::size_t i = 0; i < after.size(); ++i)
        EXPECT_NEAR(after[i] - before[i], i % 2 == 0 ? -0.01 : 0.01, 2e-6) << round;
    }
  }
}

}  // namespace
}  // namespace syncopate
