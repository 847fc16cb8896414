// Optimizers step by step against torch::optim.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/workers/optimizer_cases.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {
namespace {

using Groups = std::vector<torch::optim::OptimizerParamGroup>;

std::unique_ptr<torch::optim::OptimizerOptions> torch_options(const Case& test, double decay) {
  if (test.sgd) {
    auto options = std::make_unique<torch::optim::SGDOptions>(1.0);
    options->momentum(test.sgd->momentum).nesterov(test.sgd->nesterov).weight_decay(decay);
    return options;
  }
  if (test.rmsprop) {
    auto options = std::make_unique<torch::optim::RMSpropOptions>(1.0);
    options->alpha(test.rmsprop->rho).momentum(test.rmsprop->momentum).eps(test.rmsprop->epsilon).weight_decay(decay);
    return options;
  }
  const auto fill = [&](auto options) {
    options->betas({test.adamw->beta1, test.adamw->beta2}).eps(test.adamw->epsilon).weight_decay(decay);
    return options;
  };
  if (test.adamw->weight_decay.form == DecayForm::coupled)
    return fill(std::make_unique<torch::optim::AdamOptions>(1.0));
  return fill(std::make_unique<torch::optim::AdamWOptions>(1.0));
}

std::unique_ptr<torch::optim::Optimizer> torch_optimizer(const Case& test, const Groups& groups) {
  if (test.sgd) return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(1.0));
  if (test.rmsprop) return std::make_unique<torch::optim::RMSprop>(groups);
  if (test.adamw->weight_decay.form == DecayForm::coupled) return std::make_unique<torch::optim::Adam>(groups);
  return std::make_unique<torch::optim::AdamW>(groups);
}

// The parameters after each of the 50 steps with torch: two tensors, weights and the rest, in groups of
// their own decay.
std::vector<Vector> trained_by_torch(const Case& test) {
  const WeightDecay& decay = test.optimizer->weight_decay();
  const double rates[2] = {decay.rate, decay.scope == DecayScope::all ? decay.rate : 0};
  // torch::optim::SGD knows only the coupled form; the decoupled one is a multiplication before its step.
  const bool decay_by_hand = test.sgd && decay.form == DecayForm::decoupled;

  const auto split = [](const Vector& vector) {
    const auto all = torch::tensor(at::ArrayRef<float>(vector));
    return all.split_with_sizes({static_cast<int64_t>(weights), static_cast<int64_t>(parameters - weights)});
  };
  std::vector<torch::Tensor> tensors;
  Groups groups;
  for (int i = 0; i < 2; ++i) {
    tensors.push_back(split(start())[i].clone().requires_grad_());
    groups.emplace_back(std::vector{tensors[i]}, torch_options(test, decay_by_hand ? 0 : rates[i]));
  }
  const auto optimizer = torch_optimizer(test, groups);

  std::vector<Vector> path;
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < 2; ++i) {
      tensors[i].mutable_grad() = split(gradient_of(step))[i].clone();
      optimizer->param_groups()[i].options().set_lr(rate_of(step));
      torch::NoGradGuard no_grad;
      if (decay_by_hand) tensors[i].mul_(1 - rate_of(step) * rates[i]);
    }
    optimizer->step();
    const auto joined = torch::cat({tensors[0].detach(), tensors[1].detach()});
    path.emplace_back(joined.data_ptr<float>(), joined.data_ptr<float>() + parameters);
  }
  return path;
}

// A step is a few roundings of 2^-24 = 6e-8 each; over 50 steps they partly cancel and stay within 1e-6.
// torch fuses multiplications and additions and divides in another order, so the bits do differ.
TEST(Optimizer, FiftyStepsAgreeWithTorch) {
  for (const auto& test : optimizer_cases()) {
    if (!test.torch_has_it()) continue;
    const auto expected = trained_by_torch(test);
    State ours = initial(*test.optimizer);
    double difference = 0;
    for (int step = 0; step < steps; ++step) {
      step_between(*test.optimizer, ours, ours, gradient_of(step), rate_of(step));
      difference = std::max(difference, largest_relative_difference(ours.theta, expected[step]));
    }
    std::printf("%-45s largest relative difference %.1e\n", test.name.c_str(), difference);
    EXPECT_LE(difference, 1e-6) << test.name;
  }
}

// theta (1 - lr rate) - lr g = theta - lr (g + rate theta): the forms differ only through the moments.
bool forms_of_decay_agree(const Case& test) { return test.sgd && test.sgd->momentum == 0; }

TEST(Optimizer, WithoutMomentumBothFormsOfDecayAreOne) {
  const WeightDecay coupled{.rate = 0.01};
  WeightDecay decoupled = coupled;
  decoupled.form = DecayForm::decoupled;
  const State a = trained(*make_sgd({.weight_decay = coupled}), true);
  const State b = trained(*make_sgd({.weight_decay = decoupled}), true);
  EXPECT_LE(largest_relative_difference(a.theta, b.theta), 1e-6);
}

// Every other option moves the parameters by far more than that bound, so none could be ignored unseen.
TEST(Optimizer, NoTwoCombinationsOfOptionsTrainAlike) {
  std::vector<std::pair<std::string, Vector>> results;
  for (const auto& test : optimizer_cases()) {
    if (forms_of_decay_agree(test) && test.sgd->weight_decay.form == DecayForm::decoupled) continue;
    const Vector result = trained(*test.optimizer, true).theta;
    for (const auto& [name, other] : results) {
      EXPECT_GT(largest_relative_difference(result, other), 1e-4) << name << " and " << test.name;
    }
    results.emplace_back(test.name, result);
  }
}

// After t equal gradients g the corrected moments are g and g^2, so every step is lr g / (|g| + epsilon):
// a gradient as large as epsilon moves by half a rate.
TEST(Optimizer, AdamWAddsEpsilonOutsideTheRootOfTheCorrectedMoment) {
  const auto adamw = make_adamw({.epsilon = 1e-3, .weight_decay = {}});
  const Vector gradient = {1e-3F, -1e-3F, 1.0F};
  State state{.theta = Vector(3, 0.0F), .moments = {Vector(3), Vector(3)}};
  for (int step = 1; step <= 4; ++step) {
    adamw->update(block_of(state, state, gradient, 0, 3),
                  {.learning_rate = 0.1, .ages = {MomentAge{.steps = step}, MomentAge{.steps = step}}});
    state.optimizer_steps = step;
    EXPECT_NEAR(state.theta[0], -0.05 * step, 1e-6);
    EXPECT_NEAR(state.theta[1], 0.05 * step, 1e-6);
    EXPECT_NEAR(state.theta[2], -0.1 / 1.001 * step, 1e-6);
  }
}

TEST(Optimizer, MomentsAreAsManyAsTheMethodNeeds) {
  EXPECT_EQ(make_sgd({})->moments(), 0);
  EXPECT_EQ(make_sgd({.momentum = 0.5})->moments(), 1);
  EXPECT_EQ(make_adamw({})->moments(), 2);
}

TEST(Optimizer, SaysWhatAStepKeepsOfEachMoment) {
  using Decays = std::vector<double>;
  EXPECT_EQ(make_sgd({})->decays(), Decays{});
  EXPECT_EQ(make_sgd({.momentum = 0.5})->decays(), Decays{0.5});
  EXPECT_EQ(make_lars({.momentum = 0.8})->decays(), Decays{0.8});
  EXPECT_EQ(make_adamw({.beta1 = 0.8, .beta2 = 0.95})->decays(), (Decays{0.8, 0.95}));
  EXPECT_EQ(make_lamb({.beta1 = 0.8, .beta2 = 0.95})->decays(), (Decays{0.8, 0.95}));
  EXPECT_EQ(make_lans({.beta1 = 0.8, .beta2 = 0.95})->decays(), (Decays{0.8, 0.95}));
  EXPECT_EQ(make_rmsprop({.rho = 0.7, .momentum = 0.6})->decays(), (Decays{0.6, 0.7}));  // v, then ms
  EXPECT_EQ(make_rmsprop({.rho = 0.7, .momentum = 0})->decays(), Decays{0.7});
}

TEST(Optimizer, RejectsOptionsWithoutAMeaning) {
  EXPECT_THROW(make_sgd({.momentum = -0.1}), std::invalid_argument);
  EXPECT_THROW(make_sgd({.momentum = 1}), std::invalid_argument);
  EXPECT_THROW(make_sgd({.momentum = std::nan("")}), std::invalid_argument);
  EXPECT_THROW(make_sgd({.nesterov = true}), std::invalid_argument);
  EXPECT_THROW(make_sgd({.weight_decay = {.rate = -1}}), std::invalid_argument);
  EXPECT_THROW(make_adamw({.beta1 = 1}), std::invalid_argument);
  EXPECT_THROW(make_adamw({.beta2 = -0.1}), std::invalid_argument);
  EXPECT_THROW(make_adamw({.epsilon = 0}), std::invalid_argument);
  EXPECT_THROW(make_adamw({.weight_decay = {.rate = std::nan("")}}), std::invalid_argument);
}

}  // namespace
}  // namespace syncopate
