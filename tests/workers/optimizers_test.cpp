// Optimizers step by step, compared with torch::optim.
#include "workers/training/optimizers.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/workers/engine.hpp"
#include "tests/workers/optimizer_cases.hpp"
#include "tests/workers/optimizer_references.hpp"

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

// torch's parameters after each of the 50 steps. Weights and other parameters are two groups, each with its own decay.
std::vector<Vector> trained_by_torch(const Case& test) {
  const WeightDecay& decay = test.optimizer->weight_decay();
  const double rates[2] = {decay.rate, decay.scope == DecayScope::all ? decay.rate : 0};
  // torch::optim::SGD has only coupled decay. Decoupled decay is a multiplication before the step.
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

// A step has a few roundings of 2^-24 = 6e-8. Over 50 steps they partly cancel, and stay within 1e-6. torch fuses
// multiplications with additions and divides in another order, so the bits differ.
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

// theta (1 - lr rate) - lr g = theta - lr (g + rate theta): the forms of decay differ only through momentum.
bool forms_of_decay_agree(const Case& test) { return test.sgd && test.sgd->momentum == 0; }

TEST(Optimizer, WithoutMomentumBothFormsOfDecayAreOne) {
  const WeightDecay coupled{.rate = 0.01};
  WeightDecay decoupled = coupled;
  decoupled.form = DecayForm::decoupled;
  const State a = trained(*make_sgd({.weight_decay = coupled}), true);
  const State b = trained(*make_sgd({.weight_decay = decoupled}), true);
  EXPECT_LE(largest_relative_difference(a.theta, b.theta), 1e-6);
}

// Two options differ by far more than rounding (1e-6), so an ignored option would be detected.
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

// After equal gradients g the corrected moments are g and g^2. So every step is lr g / (|g| + epsilon): half the rate
// for a gradient as large as epsilon.
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
  EXPECT_EQ(make_rmsprop({.rho = 0.7, .momentum = 0.6})->decays(), (Decays{0.6, 0.7}));  // decays of v, then of ms
  EXPECT_EQ(make_rmsprop({.rho = 0.7, .momentum = 0})->decays(), Decays{0.7});
}

// An optimizer gives the same bits in place or not, with any division into blocks, and on every processor.

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

// A step may be in place for some vectors of the state (parameters or a moment) and not for others.
TEST(OptimizerBits, EachVectorMayBeInPlaceOnItsOwn) {
  const Vector gradient = gradient_of(3);
  for (const auto& test : optimizer_cases()) {
    const State before = trained(*test.optimizer, true, {}, 3);
    const StepContext context{.learning_rate = 0.1,
                              .ages = {MomentAge{.steps = 4}, MomentAge{.steps = 4}},
                              .decay = test.optimizer->weight_decay().rate};
    State expected = before;
    test.optimizer->update(block_of(before, expected, gradient, 0, parameters), context);
    for (unsigned in_place = 0; in_place < 8; ++in_place) {  // bit i: vector i is in place
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
  auto& single = splits.emplace_back();  // blocks of one element, which use no vector instructions
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

TEST(OptimizerBits, ANullMomentReadsAsZeros) {
  const Vector gradient = gradient_of(0);
  const State zeros{.theta = {}, .moments = {Vector(parameters, 0.0F), Vector(parameters, 0.0F)}};
  for (const auto& test : optimizer_cases()) {
    const State before = trained(*test.optimizer, true, {}, 3);
    for (unsigned null = 0; null < 4; ++null) {  // bit i: moment i is null
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

// Single-precision arithmetic that no compiler can fuse. For + - * / and the square root, computing in double and
// rounding to single equals correct rounding in single (53 >= 2 x 24 + 2 bits).
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

// All loops, for any processor, round every operation exactly once. Therefore their results have the same bits.
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

// Optimizers of published recipes: parameters after three gradients from (0.5, -0.25, 1), one tensor. Golden vectors
// were computed for this project in double precision from the definitions that the optimizers' headers name.

constexpr double rounding = 2e-7;  // three steps in single precision, with parameters up to 1

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

// While the mean square's initial value decays, the divisor tends to 1, because |g| is far below epsilon = 1.
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

// Momentum of updates keeps old steps at the old rate after a change of the rate. With momentum 1/2, gradients 1 and 0,
// and rates 1 and 0.1, the second step is 1/2 with momentum of updates, and 1/20 with momentum of gradients.
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

// Layer-wise optimizers and RMSProp in the training engine, compared with references in double precision over many
// steps of many tensors: with exclusions, on any number of threads, and with workers' own moments under every state
// policy.

using reference::Step;

// Tensors with these sizes. The last two are not weights.
class Layered : public PullObjective {
 public:
  explicit Layered(const std::vector<std::size_t>& sizes) : PullObjective(sum(sizes), sum(sizes, 2)) {
    std::size_t offset = 0;
    for (const std::size_t size : sizes) {
      tensors_.push_back(
          {.name = "layer" + std::to_string(tensors_.size() + 1) + ".part", .offset = offset, .size = size});
      offset += size;
    }
  }
  std::vector<ParameterTensor> tensors() const override { return tensors_; }
  std::vector<float> initial_parameters(std::uint64_t) const override { return drawn(parameters(), 7, 1); }

  static std::vector<float> drawn(std::size_t size, std::uint64_t seed, double scale) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> draw(0, scale);
    std::vector<float> values(size);
    for (float& value : values) value = static_cast<float>(draw(engine));
    return values;
  }

 private:
  static std::size_t sum(const std::vector<std::size_t>& sizes, std::size_t without = 0) {
    std::size_t total = 0;
    for (std::size_t i = 0; i + without < sizes.size(); ++i) total += sizes[i];
    return total;
  }
  std::vector<ParameterTensor> tensors_;
};

struct Optimized {
  std::string name;
  std::shared_ptr<const Optimizer> optimizer;
  std::function<Step(const std::vector<reference::Tensor>&)> reference;
};

std::vector<Optimized> all_optimizers(const std::vector<std::string>& exclude) {
  std::vector<Optimized> all;
  const auto add = [&](const std::string& name, auto options, auto make, auto reference) {
    options.weight_decay.exclude = exclude;
    all.push_back({name, make(options), [=](const auto& tensors) { return reference(options, tensors); }});
  };
  const WeightDecay l2{.rate = 0.1}, beside{.rate = 0.1, .form = DecayForm::decoupled};
  add("RMSProp", RmsPropOptions{.epsilon = 0.1, .weight_decay = l2}, make_rmsprop, reference::rmsprop);
  add("RMSProp without momentum", RmsPropOptions{.momentum = 0, .weight_decay = l2}, make_rmsprop, reference::rmsprop);
  add("LARS", LarsOptions{.trust_coefficient = 0.05, .weight_decay = l2}, make_lars, reference::lars);
  add("LARS of gradients",
      LarsOptions{.momentum_of = MomentumOf::gradients,
                  .trust_coefficient = 0.05,
                  .trust = TrustScope::all,
                  .weight_decay = l2},
      make_lars, reference::lars);
  add("LAMB", LambOptions{.weight_decay = beside}, make_lamb, reference::lamb);
  add("LAMB in L2 mode, not clipped", LambOptions{.averages_gradients = false, .max_norm = 0, .weight_decay = l2},
      make_lamb, reference::lamb);
  add("LAMB on all", LambOptions{.trust = TrustScope::all, .weight_decay = beside}, make_lamb, reference::lamb);
  add("LAMB, bounded", LambOptions{.ratio_min = 1.5, .ratio_max = 1.6, .weight_decay = beside}, make_lamb,
      reference::lamb);
  add("LAMB without decay", LambOptions{.weight_decay = {.rate = 0}}, make_lamb, reference::lamb);
  add("LANS", LansOptions{.weight_decay = beside}, make_lans, reference::lans);
  add("LANS, clipped, on decayed",
      LansOptions{.epsilon = 0.01, .max_norm = 0.5, .trust = TrustScope::decayed, .weight_decay = beside}, make_lans,
      reference::lans);
  return all;
}

std::vector<reference::Tensor> reference_tensors(const Layered& objective, const std::string& excluded) {
  std::vector<reference::Tensor> tensors;
  for (const ParameterTensor& tensor : objective.tensors())
    tensors.push_back({tensor.offset, tensor.offset + tensor.size,
                       tensor.offset >= objective.weights() || tensor.name.starts_with(excluded)});
  return tensors;
}

Gradient given(Training& training, const std::vector<float>& gradient) {
  FlatVector values(gradient.size());
  std::copy(gradient.begin(), gradient.end(), values.data());
  return training.gradient_from(std::move(values), 1);
}

reference::Doubles as_doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// The largest |a - b| relative to the largest |b|.
double difference(const std::vector<float>& a, const reference::Doubles& b) {
  double largest = 0, scale = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return largest / scale;
}

std::vector<float> gradient_of(std::size_t size, int step) {
  return Layered::drawn(size, 100 + static_cast<std::uint64_t>(step), step % 3 == 0 ? 0.001 : 0.01);
}
double rate_of(int step) { return 0.02 * (1 - 0.03 * step); }

// Tensors that begin and end within blocks and within the ranges of threads. One has a single element.
const std::vector<std::size_t> sizes = {70'001, 90'000, 1, 5'000, 2'047, 2'049};

TEST(LayerWise, TwentyStepsOfManyTensorsAgreeWithTheReferences) {
  for (const Optimized& test : all_optimizers({"layer2."})) {
    const auto objective = std::make_shared<Layered>(sizes);
    const Step step = test.reference(reference_tensors(*objective, "layer2."));
    Engine engine(objective, test.optimizer);
    ModelStatePtr state = engine.training.initial_state();
    reference::State expected{.theta = as_doubles(engine.training.values(state)), .moments = {}};
    const reference::Doubles start = expected.theta;
    for (int i = 0; i < 20; ++i) {
      const auto gradient = gradient_of(objective->parameters(), i);
      state = engine.training.descend(std::move(state), given(engine.training, gradient), rate_of(i));
      step(expected, gradient, rate_of(i));
    }
    EXPECT_LE(difference(engine.training.values(state), expected.theta), 2e-6) << test.name;
    EXPECT_GT(difference({start.begin(), start.end()}, expected.theta), 1e-3) << test.name << " moves";
  }
}

// Sums are added range by range, in an order that does not depend on which thread finishes first.
TEST(LayerWise, StepsAreTheSameBitsOnAnyNumberOfThreads) {
  for (const Optimized& test : all_optimizers({})) {
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 5}) {
      const auto objective = std::make_shared<Layered>(sizes);
      Engine engine(objective, test.optimizer, {}, threads);
      ModelStatePtr state = engine.training.initial_state();
      for (int i = 0; i < 4; ++i)
        state = engine.training.descend(std::move(state),
                                        given(engine.training, gradient_of(objective->parameters(), i)), rate_of(i));
      results.push_back(engine.training.values(state));
    }
    EXPECT_EQ(results[0], results[1]) << test.name;
    EXPECT_EQ(results[0], results[2]) << test.name;
  }
}

// A worker's own step is one task; a shared step has one task per range, so it adds norms in another order.
TEST(LayerWise, AStepOfOnesOwnIsThatOfASharedGradient) {
  for (const Optimized& test : all_optimizers({})) {
    const auto objective = std::make_shared<Layered>(sizes);
    Engine engine(objective, test.optimizer);
    const ModelStatePtr start = engine.training.initial_state();
    ModelStatePtr own = start, shared = start;
    for (int i = 0; i < 3; ++i) {
      own = engine.training.descend(own, engine.promise(own, 0, i), 1e-4);
      shared = engine.training.descend(shared, engine.training.share(engine.promise(shared, 0, i)), 1e-4);
    }
    EXPECT_LE(difference(engine.training.values(own), as_doubles(engine.training.values(shared))), 1e-6) << test.name;
  }
}

// If another variable holds a state, a step from the state does not change it.
TEST(LayerWise, AStepFromAStateThatIsStillHeldLeavesItAsItIs) {
  for (const Optimized& test : all_optimizers({})) {
    const auto objective = std::make_shared<Layered>(sizes);
    Engine engine(objective, test.optimizer);
    const auto gradient = gradient_of(objective->parameters(), 1);
    const auto step = [&](ModelStatePtr from) {
      return engine.training.descend(std::move(from), given(engine.training, gradient), 0.01);
    };
    const ModelStatePtr held = step(engine.training.initial_state());
    const auto before = engine.training.values(held);
    const auto once = engine.training.values(step(held));
    EXPECT_EQ(engine.training.values(held), before) << test.name;
    EXPECT_EQ(engine.training.values(step(held)), once) << test.name;
  }
}

// Three workers with their own moments, averaged after steps 2 and 4 under all pairs of policies. A reset moment
// restarts at zero; RMSProp's mean square restarts at its initial value. The count of steps for the bias correction
// restarts, too.
TEST(LayerWise, LocalStepsFollowTheReferencesUnderEveryStatePolicy) {
  const auto policies = {StatePolicy::keep, StatePolicy::average, StatePolicy::reset};
  constexpr int workers = 3;
  for (const Optimized& test : all_optimizers({}))
    for (const StatePolicy first : policies)
      for (const StatePolicy second : policies) {
        const bool one = test.optimizer->moments() == 1;
        const auto objective = std::make_shared<Layered>(std::vector<std::size_t>{40, 30, 1, 9});
        const Step step = test.reference(reference_tensors(*objective, "none"));
        Engine engine(objective, test.optimizer);
        std::vector<ModelStatePtr> states(workers, engine.training.initial_state());
        std::vector<reference::State> expected(workers,
                                               {.theta = as_doubles(engine.training.values(states[0])), .moments = {}});
        for (int i = 0; i < 6; ++i) {
          for (int n = 0; n < workers; ++n) {
            const auto gradient = gradient_of(objective->parameters(), 10 * n + i);
            const auto w = static_cast<std::size_t>(n);
            states[w] = engine.training.descend(std::move(states[w]), given(engine.training, gradient), rate_of(i));
            step(expected[w], gradient, rate_of(i));
          }
          if (i % 2 == 0) continue;
          states = engine.training.average(states, {.moments = {first, second}});
          const auto average = [&](auto member) {
            reference::Doubles mean(objective->parameters());
            for (auto& state : expected)
              for (std::size_t k = 0; k < mean.size(); ++k) mean[k] += member(state)[k] / workers;
            for (auto& state : expected) member(state) = mean;
          };
          average([](reference::State& state) -> reference::Doubles& { return state.theta; });
          for (std::size_t m = 0; m < (one ? 1 : 2); ++m) {
            const StatePolicy policy = m == 0 ? first : second;
            if (policy == StatePolicy::average)
              average([m](reference::State& state) -> reference::Doubles& { return state.moments[m]; });
            for (auto& state : expected)
              if (policy == StatePolicy::reset) state.moments[m].clear();
          }
        }
        for (std::size_t w = 0; w < workers; ++w)
          EXPECT_LE(difference(engine.training.values(states[w]), expected[w].theta), 2e-6)
              << test.name << ", policies " << static_cast<int>(first) << " " << static_cast<int>(second);
      }
}

// LANS normalises the gradient of each tensor, so a common factor acts only through epsilon.
TEST(LayerWise, LansIsUnchangedByScaledGradientsAndSgdIsNot) {
  const auto end = [](std::shared_ptr<const Optimizer> optimizer, float factor) {
    const auto objective = std::make_shared<Layered>(std::vector<std::size_t>{400, 30, 10, 9});
    Engine engine(objective, std::move(optimizer));
    ModelStatePtr state = engine.training.initial_state();
    for (int i = 0; i < 10; ++i) {
      auto gradient = Layered::drawn(objective->parameters(), static_cast<std::uint64_t>(i), 1);
      for (float& value : gradient) value *= factor;
      state = engine.training.descend(std::move(state), given(engine.training, gradient), 0.02);
    }
    return engine.training.values(state);
  };
  const auto lans = as_doubles(end(make_lans({}), 1));
  const auto lamb = as_doubles(end(make_lamb({.max_norm = 0}), 1));
  const auto sgd = as_doubles(end(make_sgd({}), 1));
  for (const float factor : {1e-3F, 1e-1F, 1e3F}) {
    EXPECT_LE(difference(end(make_lans({}), factor), lans), 1e-4) << factor;
    EXPECT_LE(difference(end(make_lamb({.max_norm = 0}), factor), lamb), 1e-2) << factor;
    EXPECT_GT(difference(end(make_sgd({}), factor), sgd), 1e-2) << factor;
  }
}

// Bias correction after a synchronisation: each moment is corrected for the steps that have entered it, whatever
// happens to the other moment.

constexpr double magnitude = 0.5;

// Gradients of 0.5 and -0.5 in turn, which do not depend on the parameters.
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
  bool corrects_first = true;  // false for RMSProp: only its mean square, the second moment, has a bias
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

// Parameters after `rounds` rounds: three steps of each of two workers, then the policy's average of their moments.
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

// A moment of constant gradients, divided by its correction, is the gradient (or its square) from the first step on. So
// resets do not change the steps.
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

// Parameters take twelve steps of 0.01 from 1, against the sign of the gradient.
TEST(BiasCorrection, LetsAdamStepByTheRateAfterAResetOfTheSecondMoment) {
  const NamedOptimizer adam{"AdamW", [] { return make_adamw({.weight_decay = {.rate = 0}}); }};
  const std::vector<float> found = trained(adam, {.moments = {StatePolicy::keep, StatePolicy::reset}}, 4);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], i % 2 == 0 ? 0.88 : 1.12, 1e-4);
}

// Workers have taken zero, one and two steps. So the mean of their moments contains less of the gradient, which its
// bias correction must take into account.
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
      for (std::size_t i = 0; i < after.size(); ++i)
        EXPECT_NEAR(after[i] - before[i], i % 2 == 0 ? -0.01 : 0.01, 2e-6) << round;
    }
  }
}

}  // namespace
}  // namespace syncopate
