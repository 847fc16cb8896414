// Layer-wise optimizers, and RMSProp, in the training engine: against references in double precision over many steps of
// many tensors, with exclusions, on any number of threads, and with moments of their own under every state policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/workers/engine.hpp"
#include "tests/workers/optimizer_references.hpp"

namespace syncopate {
namespace {

using reference::Step;

// Tensors of these sizes; the last two are no weights.
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

// Largest |a - b| relative to the largest |b|.
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

// Tensors that begin and end within blocks and within the ranges that threads take, and one of a single element.
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

// Sums are added range by range, whichever thread took them first.
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

// A worker's own step is one task, a shared one a task per range: their norms are added in another order.
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

// What a state keeps is untouched by steps of others from it.
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

// Three workers with moments of their own, averages after steps 2 and 4, under all pairs of policies. A moment that is
// reset begins at zero, RMSProp's mean square at its start, and with it the count of its bias correction.
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

// Gradients are normalised tensor by tensor: a common factor acts through epsilon alone.
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

TEST(LayerWise, RejectOptionsWithoutAMeaning) {
  EXPECT_THROW(make_lars({.trust_coefficient = 0}), std::invalid_argument);
  EXPECT_THROW(make_lars({.momentum = 1}), std::invalid_argument);
  EXPECT_THROW(make_lars({.epsilon = -1}), std::invalid_argument);
  EXPECT_THROW(make_lamb({.beta1 = 1}), std::invalid_argument);
  EXPECT_THROW(make_lamb({.epsilon = 0}), std::invalid_argument);
  EXPECT_THROW(make_lamb({.max_norm = -1}), std::invalid_argument);
  EXPECT_THROW(make_lamb({.ratio_min = 2, .ratio_max = 1}), std::invalid_argument);
  EXPECT_THROW(make_lans({.beta2 = -1}), std::invalid_argument);
  EXPECT_THROW(make_lans({.epsilon = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace syncopate
