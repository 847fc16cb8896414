// Linear combinations of model states, and the memo that makes equal combinations share memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "tests/workers/engine.hpp"
#include "tests/workers/layered_pull_objective.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

ModelStatePtr combine(Engine& engine, const std::vector<WeightedState>& terms, const ModelStatePtr& buffers = nullptr) {
  return engine.training.combine(terms, buffers);
}

TEST(Combine, IsTheSumOfWeightTimesParameters) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);  // 10 .. 13
  const auto b = engine.at_target(start, 20);
  const auto c = engine.at_target(start, 40);
  const auto mixed = combine(engine, {{1.5, a}, {-0.75, b}, {0.125, c}});
  const float first = 1.5f * 10 - 0.75f * 20 + 0.125f * 40;
  const float slope = 1.5f - 0.75f + 0.125f;
  EXPECT_THAT(engine.training.values(mixed), ElementsAre(first, first + slope, first + 2 * slope, first + 3 * slope));
  EXPECT_THAT(engine.training.values(combine(engine, {{0, a}, {2, b}})), ElementsAre(40, 42, 44, 46));
  EXPECT_THAT(engine.training.values(combine(engine, {{0, a}})), ElementsAre(0, 0, 0, 0));
}

// The weights 3e5 and -3e5 + 1 add up to 1 in double precision, although parameters have only 24 bits.
TEST(Combine, SumsInDoublePrecision) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto a = engine.training.descend(start, engine.promise(start, 10), 0.1);
  const auto x = engine.training.values(a);
  const auto b = engine.training.descend(start, engine.promise(start, 10), 0.1);  // same values, separate memory
  const auto mixed = engine.training.values(combine(engine, {{300'000.1, a}, {-299'999.1, b}}));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(mixed[i], x[i], 1e-6);
}

TEST(Combine, NothingIsComputedForAMeanOfEqualModels) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  EXPECT_EQ(combine(engine, {{1, a}}), a);
  EXPECT_EQ(combine(engine, {{0.25, a}, {0.75, a}}), a);
  EXPECT_EQ(combine(engine, {{1, a}, {0, start}}), a);
  const auto adopted = engine.training.adopt(start, a);  // a separate state with the same parameters
  EXPECT_EQ(combine(engine, {{0.5, adopted}, {0.5, a}}), adopted);
  EXPECT_THAT(engine.training.values(combine(engine, {{0.5, a}, {0.25, a}})), ElementsAre(7.5, 8.25, 9, 9.75));
}

TEST(Combine, EqualInputsGiveTheSameState) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  const auto b = engine.at_target(start, 20);
  const auto mixed = combine(engine, {{0.5, a}, {0.5, b}});
  EXPECT_EQ(combine(engine, {{0.5, a}, {0.5, b}}), mixed);
  EXPECT_NE(combine(engine, {{0.5, a}, {0.25, b}}), mixed);
  EXPECT_NE(combine(engine, {{0.5, b}, {0.5, a}}), mixed);  // has b's moments
  EXPECT_NE(combine(engine, {{0.5, a}, {0.5, engine.training.adopt(start, b)}}), mixed);
}

// Four tensors of 2, 4, 1 and 1 elements.
struct Layered {
  Engine engine{std::make_shared<LayeredPullObjective>(), make_sgd({})};
  ModelStatePtr start = engine.training.initial_state();
  ModelStatePtr a = engine.at_target(start, 10);  // 10 11 12 13 14 10 11 12
  ModelStatePtr b = engine.at_target(start, 30);  // each element is 20 larger

  ModelStatePtr combine(const std::vector<double>& shares) { return engine.training.combine_tensors(a, b, shares); }
};

TEST(Combine, EachTensorHasAShareOfItsOwn) {
  Layered of;
  EXPECT_THAT(of.engine.training.values(of.combine({0.25, 0, 1, 4})), ElementsAre(15, 16, 12, 13, 14, 10, 31, 92));
  EXPECT_THAT(of.engine.training.values(of.combine({0.5})), ElementsAre(20, 21, 22, 23, 24, 20, 21, 22));
  EXPECT_EQ(of.combine({1, 1, 1, 1}), of.b);
  EXPECT_EQ(of.combine({0, 0, 0, 0}), of.a);
  EXPECT_EQ(of.combine({0}), of.a);
  const auto mixed = of.combine({0.25, 0, 1, 4});
  EXPECT_EQ(of.combine({0.25, 0, 1, 4}), mixed);
  EXPECT_NE(of.combine({0.25, 0, 1, 3}), mixed);
  const auto adopted = of.engine.training.adopt(of.start, of.a);  // a separate state with the same parameters
  EXPECT_EQ(of.engine.training.combine_tensors(of.a, adopted, std::vector(4, 0.3)), adopted);
}

TEST(Combine, ATensorOfShareZeroHasNothingOfTheOther) {
  Layered of;
  const auto nowhere = of.engine.training.descend(of.start, of.engine.promise(of.start, 0), NAN);
  const std::vector<double> shares = {0, 1, 0, 0};
  const auto values = of.engine.training.values(of.engine.training.combine_tensors(of.a, nowhere, shares));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(std::isnan(values[i]), i >= 2 && i < 6);
}

TEST(Combine, DistancesAreThoseOfEachTensor) {
  Layered of;
  const auto distances = of.engine.training.distances(of.a, of.combine({0.25, 0, 1, 4}));
  ASSERT_EQ(distances.size(), 4u);
  EXPECT_DOUBLE_EQ(distances[0], 5 * std::sqrt(2));
  EXPECT_THAT(std::vector(distances.begin() + 1, distances.end()), ElementsAre(0, 20, 80));
}

// Buffers and moments come from the second argument's state, unless its shares of the models are all zero.
TEST(Combine, BuffersGoWithThatOfWhichThereIsAShare) {
  Engine engine(std::make_shared<PullWithStatistics>(), make_sgd({}));
  const auto start = engine.training.initial_state();
  const auto moved = engine.at_target(start, 7);
  EXPECT_EQ(engine.training.combine_tensors(start, moved, std::vector{0.5})->buffers, moved->buffers);
  EXPECT_EQ(engine.training.combine_tensors(start, moved, std::vector{0.0})->buffers, start->buffers);
}

TEST(Combine, AResultThatNobodyHoldsIsFreed) {
  Engine engine(0);
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  auto mixed = combine(engine, {{0.5, a}, {0.5, start}});
  const std::weak_ptr<Cell> parameters = mixed->parameters;
  mixed = nullptr;
  EXPECT_TRUE(parameters.expired());
  EXPECT_EQ(engine.training.values(combine(engine, {{0.5, a}, {0.5, start}}))[0], 5.5f);
}

TEST(Combine, AResultIsSteppedFromInPlace) {
  Engine engine(0);
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  auto mixed = combine(engine, {{0.5, a}, {0.5, start}});
  const float* const memory = mixed->parameters->value.data();
  const auto next = engine.training.descend(std::move(mixed), Gradient(engine.promise(a, 3)), 0.5);
  EXPECT_EQ(next->parameters->value.data(), memory);
}

TEST(Combine, AResultThatAStepMayOverwriteIsNotFoundAgain) {
  Engine engine(1);
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  Blockade blockade(engine.executor);
  auto mixed = combine(engine, {{0.5, a}, {0.5, start}});
  const auto id = mixed->id;
  const auto next = engine.training.descend(std::move(mixed), Gradient(engine.promise(a, 3)), 0.5);
  const auto again = combine(engine, {{0.5, a}, {0.5, start}});  // the step still holds the first result
  EXPECT_NE(again->id, id);
  EXPECT_EQ(combine(engine, {{0.5, a}, {0.5, start}}), again);
  blockade.release();
  EXPECT_THAT(engine.training.values(again), ElementsAre(5.5, 6, 6.5, 7));
}

TEST(Combine, MomentsAndStepsAreThoseOfTheFirstTerm) {
  Engine engine(2, 0.9);
  const auto start = engine.training.initial_state();
  const auto a = engine.at_target(start, 10);
  const auto b = engine.at_target(a, 20);
  const auto mixed = combine(engine, {{0.5, b}, {0.5, a}});
  EXPECT_EQ(mixed->moments, b->moments);
  EXPECT_EQ(mixed->moments[0].age.steps, Step{2});
}

TEST(Combine, BuffersAreCombinedLikewiseOrThoseOfAnotherState) {
  Engine engine(std::make_shared<PullWithStatistics>(4, 4), make_sgd({}));
  const auto start = engine.training.initial_state();
  const auto a = engine.training.descend(start, engine.promise(start, 10, 1), 1.0);  // statistics (10, 8)
  const auto b = engine.training.descend(start, engine.promise(start, 20, 2), 1.0);  // (20, 16)
  EXPECT_THAT(engine.values(combine(engine, {{0.75, a}, {0.25, b}})->buffers), ElementsAre(12.5, 10));
  const auto extrapolated = combine(engine, {{2, a}, {-1, b}}, b);
  EXPECT_EQ(extrapolated->buffers, b->buffers);
  EXPECT_EQ(combine(engine, {{2, a}, {-1, b}}, b), extrapolated);
  EXPECT_NE(combine(engine, {{2, a}, {-1, b}}, a), extrapolated);
  EXPECT_NE(combine(engine, {{2, a}, {-1, b}}), extrapolated);
  const auto mixed = combine(engine, {{1, a}}, b);
  EXPECT_EQ(mixed->parameters, a->parameters);
  EXPECT_EQ(mixed->buffers, b->buffers);
}

TEST(Combine, AMovingAverageFollowsTheFormula) {
  constexpr double decay = 0.9;
  constexpr int steps = 60;
  Engine engine(2, 0, 200'000);  // so many that several threads share the work
  auto model = engine.training.initial_state();
  auto average = model;
  double expected = 1;
  for (int step = 0; step < steps; ++step) {
    const auto gradient = engine.promise(model, step);
    model = engine.training.descend(std::move(model), gradient, 1.0);  // becomes its target, step + i % 5
    average = combine(engine, {{decay, average}, {1 - decay, model}});
    expected = decay * expected + (1 - decay) * step;
  }
  const auto values = engine.training.values(average);
  const double arrived = 1 - std::pow(decay, steps);  // the factor of the targets' i % 5 in the average
  for (const std::size_t i : {0, 65'535, 133'333, 199'999})
    EXPECT_NEAR(values[i], expected + static_cast<double>(i % 5) * arrived, 2e-4);
}

// Workers and a common centre pull each other, and the workers take steps. The number of threads decides which steps
// overwrite their input, and which results come from the cache, but changes no bit.
TEST(Combine, ThreadsDoNotChangeABit) {
  std::vector<std::vector<float>> results;
  for (const int threads : {0, 1, 2, 4}) {
    Engine engine(threads, 0.9, 150'000);
    auto centre = engine.training.initial_state();
    std::vector<ModelStatePtr> models(4, centre);
    for (int round = 0; round < 20; ++round)
      for (int worker = 0; worker < 4; ++worker) {
        auto& model = models[static_cast<std::size_t>(worker)];
        const auto moved = combine(engine, {{0.9, centre}, {0.1, model}});
        model = combine(engine, {{0.9, model}, {0.1, centre}});
        centre = moved;
        if (round % 3 != 0) continue;
        const auto gradient = engine.promise(model, worker, round);
        model = engine.training.descend(std::move(model), gradient, 0.0173);
      }
    results.push_back(engine.training.values(centre));
    for (const auto& model : models) results.back().push_back(engine.training.values(model)[77'777]);
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(Combine, TimeOnlyRunsHaveNoModel) {
  Executor executor(0);
  Training training(nullptr, nullptr, {}, executor);
  EXPECT_EQ(training.combine(std::vector<WeightedState>{{0.5, nullptr}, {0.5, nullptr}}), nullptr);
}

TEST(Memo, ForgetsWhatNobodyHolds) {
  Memo<int> memo;
  const auto kept = std::make_shared<int>(7);
  memo.remember({{1, 0.5}}, kept);
  for (std::uint64_t id = 2; id < 10'000; ++id) memo.remember({{id, 0.5}}, std::make_shared<int>(0));
  EXPECT_LE(memo.size(), 64u);
  EXPECT_EQ(memo.find({{1, 0.5}}), kept);
  EXPECT_EQ(memo.find({{1, 0.25}}), nullptr);
  EXPECT_EQ(memo.find({{9'999, 0.5}}), nullptr);
}

TEST(Memo, KeepsWhatIsHeldHoweverMuch) {
  Memo<int> memo;
  std::vector<std::shared_ptr<int>> held;
  for (std::uint64_t id = 0; id < 1000; ++id) memo.remember({{id, 1.0}}, held.emplace_back(std::make_shared<int>(0)));
  for (std::uint64_t id = 0; id < 1000; ++id) EXPECT_EQ(memo.find({{id, 1.0}}), held[id]);
}

// Arithmetic on vectors of many blocks and ranges, compared with formulas in double precision. All elements differ, so
// an element from the wrong place is detected.

constexpr std::size_t elements = 150'001, decayed = 60'001;  // several ranges, and no multiple of a block

// The target of parameter i, as a function of the worker.
double ramp(int worker, std::size_t i) { return 1e-3 * (worker + 1) * static_cast<double>(i); }

class Ramp : public PullObjective {
 public:
  Ramp() : PullObjective(elements, decayed) {}
  PartialGradient gradient(const float* parameters, const float*,
                           std::span<const MicroBatch> micro_batches) const override {
    auto values = std::make_shared<std::vector<float>>(elements, 0.0f);
    for (const MicroBatch& micro_batch : micro_batches)
      for (std::size_t i = 0; i < elements; ++i)
        (*values)[i] += static_cast<float>(parameters[i] - ramp(micro_batch.worker.value, i));
    PartialGradient result;
    // Three segments, whose borders are not at borders of blocks.
    for (std::size_t begin = 0; begin < elements; begin += 50'001) {
      const std::size_t length = std::min<std::size_t>(50'001, elements - begin);
      result.segments.push_back({.offset = begin, .size = length, .data = values->data() + begin, .owner = values});
    }
    return result;
  }
};

using Values = std::vector<double>;

void expect_near(const std::vector<float>& found, const Values& expected, double relative) {
  ASSERT_EQ(found.size(), expected.size());
  double worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double off = std::abs(found[i] - expected[i]) / (1 + std::abs(expected[i]));
    if (off > worst) worst = off, where = i;
  }
  EXPECT_LE(worst, relative) << "at " << where;
}

// theta, momentum's v, and AdamW's m and s.
struct Reference {
  Values theta = Values(elements, 1.0), first = Values(elements), second = Values(elements);
};

TEST(LargeVectors, StepsWithMomentumDecayAndClippingFollowTheFormula) {
  constexpr double momentum = 0.9, decay = 0.01, rate = 0.1, clip_norm = 5000;
  Engine engine(std::make_shared<Ramp>(), make_sgd({.momentum = momentum, .weight_decay = {.rate = decay}}),
                {.clip_norm = clip_norm});
  auto state = engine.training.initial_state();
  Reference expected;
  int clipped = 0;
  for (int step = 0; step < 4; ++step) {
    const Gradient gradient = engine.promise(state, step);
    state = engine.training.descend(std::move(state), gradient, rate);
    double squares = 0;
    for (std::size_t i = 0; i < elements; ++i) squares += std::pow(expected.theta[i] - ramp(step, i), 2);
    const double scale = std::min(1.0, clip_norm / std::sqrt(squares));
    clipped += scale < 1;
    for (std::size_t i = 0; i < elements; ++i) {
      const double g = scale * (expected.theta[i] - ramp(step, i));
      expected.first[i] = momentum * expected.first[i] + g + (i < decayed ? decay * expected.theta[i] : 0);
      expected.theta[i] -= rate * expected.first[i];
    }
  }
  EXPECT_GE(clipped, 3);
  expect_near(engine.training.values(state), expected.theta, 1e-5);
}

TEST(LargeVectors, StepsOfAdamWFollowTheFormula) {
  constexpr double beta1 = 0.8, beta2 = 0.9, epsilon = 0.1, decay = 0.05, rate = 0.1;
  Engine engine(
      std::make_shared<Ramp>(),
      make_adamw({.beta1 = beta1,
                  .beta2 = beta2,
                  .epsilon = epsilon,
                  .weight_decay = {.rate = decay, .scope = DecayScope::weights, .form = DecayForm::decoupled}}));
  auto state = engine.training.initial_state();
  Reference expected;
  for (int step = 0; step < 4; ++step) {
    const Gradient gradient = engine.promise(state, step);
    state = engine.training.descend(std::move(state), gradient, rate);
    for (std::size_t i = 0; i < elements; ++i) {
      const double g = expected.theta[i] - ramp(step, i);
      double& m = expected.first[i];
      double& s = expected.second[i];
      m = beta1 * m + (1 - beta1) * g;
      s = beta2 * s + (1 - beta2) * g * g;
      const double corrected = m / (1 - std::pow(beta1, step + 1)),
                   root = std::sqrt(s / (1 - std::pow(beta2, step + 1)));
      expected.theta[i] -= rate * (corrected / (root + epsilon) + (i < decayed ? decay * expected.theta[i] : 0));
    }
  }
  expect_near(engine.training.values(state), expected.theta, 1e-5);
}

// Five models, more than the arithmetic adds in one pass.
TEST(LargeVectors, AveragesAndCombinationsFollowTheFormula) {
  Engine engine(std::make_shared<Ramp>(), make_sgd({.momentum = 0.5}));
  const auto start = engine.training.initial_state();
  std::vector<ModelStatePtr> states;
  for (int worker = 0; worker < 5; ++worker) states.push_back(engine.at_target(start, worker));
  const auto times_ramp = [](double factor, double constant = 0) {
    Values values(elements);
    for (std::size_t i = 0; i < elements; ++i) values[i] = constant + factor * ramp(0, i);
    return values;
  };
  const AveragePolicy policy{.moments = {StatePolicy::average, StatePolicy::average}};
  const auto mean = engine.training.average(states, policy);
  expect_near(engine.training.values(mean[3]), times_ramp(3), 1e-5);
  expect_near(engine.values(mean[3]->moments[0].values), times_ramp(-3, 1), 1e-5);  // the gradients are 1 - target
  const std::vector<double> by_number = {1, 2, 3, 4, 5};
  const auto weighted = engine.training.average(states, policy, by_number);
  expect_near(engine.training.values(weighted[0]), times_ramp((1 + 4 + 9 + 16 + 25) / 15.0), 1e-5);
  const std::vector<double> factors = {0.5, -1, 0.25, 2, 0.125};
  std::vector<WeightedState> terms;
  double sum = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    terms.push_back({factors[i], states[i]});
    sum += factors[i] * static_cast<double>(i + 1);
    expect_near(engine.training.values(engine.training.combine(terms)), times_ramp(sum), 1e-5);
  }
}

TEST(LargeVectors, SumsOfGradientsTheirNormAndTheirBytesFollowTheFormula) {
  Engine engine(std::make_shared<Ramp>(), make_sgd({}));
  const auto start = engine.training.initial_state();
  Gradient sum = engine.training.share(engine.promise(start, 0)) * 2;
  sum += engine.training.share(engine.promise(start, 2)) * 0.5;
  sum += engine.promise(start, 4);
  Values expected(elements);
  double squares = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    expected[i] = 2 * (1 - ramp(0, i)) + 0.5 * (1 - ramp(2, i)) + 1 - ramp(4, i);
    squares += expected[i] * expected[i];
  }
  for (const bool wide : {false, true}) {
    if (wide) sum.use_double_precision();
    expect_near(engine.training.values(sum), expected, 1e-5);
    EXPECT_NEAR(engine.training.norm(sum), std::sqrt(squares), 1e-5 * std::sqrt(squares));
    FlatVector bytes(engine.training.gradient_size(wide));
    engine.training.write_values(sum, bytes.data());
    const Gradient received = engine.training.gradient_from(std::move(bytes), 3, {}, wide);
    expect_near(engine.training.values(received), expected, 1e-5);
  }
}

}  // namespace
}  // namespace syncopate
