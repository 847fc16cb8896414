// Optimizers of published recipes against golden vectors: one tensor (0.5, -0.25, 1), three gradients, parameters after
// the third step. Computed for this project in double precision from the definitions that each header names.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/workers/engine.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {
namespace {

constexpr double rounding = 2e-7;  // three steps in single precision, of parameters of up to 1

// One step from `state` along this gradient.
ModelStatePtr stepped(Training& training, const ModelStatePtr& state, const std::vector<float>& gradient, double rate) {
  FlatVector values(gradient.size());
  std::copy(gradient.begin(), gradient.end(), values.data());
  return training.descend(state, training.gradient_from(std::move(values), 1), rate);
}

std::vector<float> after_three_steps(std::shared_ptr<const Optimizer> optimizer, const std::vector<double>& rates) {
  Engine engine(std::make_shared<PullObjective>(3, 3), std::move(optimizer));
  ModelState begin;
  begin.id = new_state_id();
  begin.parameters = filled_cell(std::vector<float>{0.5F, -0.25F, 1.0F});
  ModelStatePtr state = std::make_shared<ModelState>(begin);
  const std::vector<float> gradients[] = {{0.1F, -0.2F, 0.05F}, {0.3F, 0.1F, -0.4F}, {-0.2F, 0.05F, 0.1F}};
  for (std::size_t i = 0; i < 3; ++i) state = stepped(engine.training, state, gradients[i], rates[i]);
  return engine.training.values(state);
}

void expect_golden(const std::vector<float>& found, const std::vector<double>& golden) {
  ASSERT_EQ(found.size(), golden.size());
  for (std::size_t i = 0; i < golden.size(); ++i) EXPECT_NEAR(found[i], golden[i], rounding) << i;
}

const std::vector<double> constant_rate = {0.1, 0.1, 0.1};

TEST(RecipeOptimizers, RmsPropOfTensorFlowMeetsTheGoldenVectors) {
  expect_golden(after_three_steps(make_rmsprop({}), constant_rate), {0.453246040, -0.228622900, 1.038838322});
  expect_golden(after_three_steps(make_rmsprop({.mean_square_start = 0}), constant_rate),
                {0.436065749, -0.219853587, 1.051919657});
  expect_golden(after_three_steps(make_rmsprop({.epsilon = 1e-10}), constant_rate),
                {0.431719721, -0.219884658, 1.057741442});
}

TEST(RecipeOptimizers, RmsPropOfPyTorchMeetsTheGoldenVector) {
  expect_golden(after_three_steps(make_rmsprop({.form = RmsPropForm::pytorch, .mean_square_start = 0}), constant_rate),
                {0.439848315, -0.221506512, 1.045184405});
}

TEST(RecipeOptimizers, LarsMeetsTheGoldenVectorsOfBothMomenta) {
  const std::vector<double> rates = {0.1, 0.1, 0.05};
  expect_golden(after_three_steps(make_lars({.weight_decay = {.rate = 0.01}}), rates),
                {0.499783593, -0.249790693, 1.000059202});
  expect_golden(
      after_three_steps(make_lars({.momentum_of = MomentumOf::gradients, .weight_decay = {.rate = 0.01}}), rates),
      {0.499834001, -0.249820106, 1.000032211});
}

const std::vector<double> small_rate = {0.01, 0.01, 0.01};

TEST(RecipeOptimizers, LambMeetsTheGoldenVectors) {
  expect_golden(after_three_steps(make_lamb({}), small_rate), {0.477311689, -0.239064601, 1.008457015});
  expect_golden(after_three_steps(make_lamb({.max_norm = 0.2}), small_rate), {0.483650201, -0.227869612, 1.000931388});
  expect_golden(after_three_steps(make_lamb({.weight_decay = {.rate = 0}}), small_rate),
                {0.478243304, -0.236722812, 0.999931136});
}

TEST(RecipeOptimizers, LansMeetsTheGoldenVector) {
  expect_golden(after_three_steps(make_lans({}), small_rate), {0.484833384, -0.229900690, 1.000446928});
}

// The divisor tends to 1 as the mean square's start decays and |g| is far below 1.
TEST(RecipeOptimizers, RmsPropWithAnEpsilonOfOneTendsToMomentumSgdForSmallGradients) {
  const auto drift = [](std::shared_ptr<const Optimizer> optimizer) {
    Engine engine(std::make_shared<PullObjective>(1, 1), std::move(optimizer));
    ModelStatePtr state = engine.training.initial_state();
    const float begin = engine.training.values(state)[0];
    for (int step = 0; step < 200; ++step) state = stepped(engine.training, state, {1e-3F}, 0.1);
    return begin - engine.training.values(state)[0];
  };
  const float sgd = drift(make_sgd({.momentum = 0.9}));
  EXPECT_NEAR(drift(make_rmsprop({})), sgd, 0.05 * sgd);
  EXPECT_NEAR(drift(make_rmsprop({.mean_square_start = 0})), sgd, 1e-3 * sgd);
}

// After a change of the rate a momentum of updates still takes its old steps at the old rate. By hand, with momentum
// 1/2 and gradients 1, 0: rates 1, 0.1 give steps 1, 1/2 (updates) and 1, 1/20 (gradients).
TEST(RecipeOptimizers, TheMomentaOfGradientsAndOfUpdatesDifferOnceTheRateChanges) {
  const auto end = [](MomentumOf of, double second_rate) {
    Engine engine(std::make_shared<PullObjective>(1, 1), make_sgd({.momentum = 0.5, .momentum_of = of}));
    ModelStatePtr state = engine.training.initial_state();
    state = stepped(engine.training, state, {1.0F}, 1);
    return engine.training.values(stepped(engine.training, state, {0.0F}, second_rate))[0];
  };
  EXPECT_FLOAT_EQ(end(MomentumOf::gradients, 0.1), 1 - 1 - 0.05F);
  EXPECT_FLOAT_EQ(end(MomentumOf::updates, 0.1), 1 - 1 - 0.5F);
  EXPECT_EQ(end(MomentumOf::gradients, 1), end(MomentumOf::updates, 1));
}

TEST(RecipeOptimizers, RmsPropRejectsOptionsWithoutAMeaning) {
  EXPECT_THROW(make_rmsprop({.rho = 1}), std::invalid_argument);
  EXPECT_THROW(make_rmsprop({.momentum = -0.1}), std::invalid_argument);
  EXPECT_THROW(make_rmsprop({.epsilon = 0}), std::invalid_argument);
  EXPECT_THROW(make_rmsprop({.mean_square_start = -1}), std::invalid_argument);
}

}  // namespace
}  // namespace syncopate
