// Averages of states: weights, what happens to moments, and means that preserve norms.
#include "workers/training/model_average.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/workers/engine.hpp"
#include "tests/workers/pull_objective.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

TEST(ModelAverage, IsTheMeanAndMomentsFollowThePolicy) {
  for (const StatePolicy policy : {StatePolicy::keep, StatePolicy::average, StatePolicy::reset}) {
    Engine engine(2, 0.9);
    const auto start = engine.training.initial_state();
    std::vector<ModelStatePtr> states;
    for (int worker = 0; worker < 4; ++worker)
      states.push_back(engine.training.descend(start, engine.promise(start, worker), 1.0));
    const auto averaged = engine.training.average(states, {.moments = {policy, policy}});
    // One step of rate 1 lands on the target, worker + i; the mean over workers is 1.5 + i.
    EXPECT_FLOAT_EQ(engine.training.values(averaged[0])[2], 3.5f);
    EXPECT_EQ(averaged[0]->parameters, averaged[3]->parameters);
    // Momentum after one step is the gradient: 1 - target.
    const auto step = engine.training.descend(averaged[3], Gradient(), 1.0);  // zero gradient: moves by 0.9 v
    const double v = policy == StatePolicy::keep ? 1 - 5.0 : policy == StatePolicy::average ? 1 - 3.5 : 0;
    EXPECT_FLOAT_EQ(engine.training.values(step)[2], static_cast<float>(3.5 - 0.9 * v));
    EXPECT_EQ(averaged[0] == averaged[3], policy != StatePolicy::keep);
  }
}

// Adam's moments after one step from zero are (1 - beta1) g and (1 - beta2) g^2.
struct AdamEngine : Engine {
  AdamEngine()
      : Engine(std::make_shared<PullObjective>(3, 3),
               make_adamw({.beta1 = 0.5, .beta2 = 0.75, .weight_decay = {.rate = 0}})) {
    const auto start = training.initial_state();
    for (int worker = 0; worker < 2; ++worker)
      states.push_back(training.descend(start, promise(start, 3 * worker), 0.1));
  }
  std::vector<float> expected(StatePolicy policy, int moment, int worker) const {
    std::vector<float> values;
    for (int i = 0; i < 3; ++i) {
      const auto of = [&](int w) {
        const double g = 1 - (3 * w + i);
        return moment == 0 ? 0.5 * g : 0.25 * g * g;
      };
      values.push_back(static_cast<float>(policy == StatePolicy::average ? (of(0) + of(1)) / 2 : of(worker)));
    }
    return values;
  }
  void expect(const ModelStatePtr& state, const AveragePolicy& policy, int worker) {
    for (int i = 0; i < 2; ++i) {
      const auto index = static_cast<std::size_t>(i);
      if (policy.moments[index] == StatePolicy::reset)
        EXPECT_EQ(state->moments[index], Moment());
      else
        EXPECT_EQ(values(state->moments[index].values), expected(policy.moments[index], i, worker));
      EXPECT_EQ(state->moments[index].age.steps, Step{policy.moments[index] == StatePolicy::reset ? 0 : 1});
    }
  }
  std::vector<ModelStatePtr> states;
};

constexpr StatePolicy all_policies[] = {StatePolicy::keep, StatePolicy::average, StatePolicy::reset};

TEST(ModelAverage, EachMomentFollowsItsOwnPolicy) {
  for (const StatePolicy first : all_policies)
    for (const StatePolicy second : all_policies) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(first) << static_cast<int>(second));
      AdamEngine engine;
      const AveragePolicy policy{.moments = {first, second}};
      const auto averaged = engine.training.average(engine.states, policy);
      for (int worker = 0; worker < 2; ++worker)
        engine.expect(averaged[static_cast<std::size_t>(worker)], policy, worker);
    }
}

// Like EachMomentFollowsItsOwnPolicy, but the members' states are written as bytes, averaged, and read back.
TEST(ModelAverage, EachMomentFollowsItsOwnPolicyAsBytes) {
  for (const StatePolicy first : all_policies)
    for (const StatePolicy second : all_policies) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(first) << static_cast<int>(second));
      AdamEngine engine;
      const AveragePolicy policy{.moments = {first, second}};
      const std::size_t size = engine.training.averaged_size(policy);
      EXPECT_EQ(size, 3u * (1 + (first == StatePolicy::average) + (second == StatePolicy::average)));
      std::vector<float> mean(size), other(size);
      engine.training.write_averaged(engine.states[0], policy, mean.data());
      engine.training.write_averaged(engine.states[1], policy, other.data());
      for (std::size_t i = 0; i < size; ++i) mean[i] = (mean[i] + other[i]) / 2;
      for (int worker = 0; worker < 2; ++worker) {
        const auto& old = engine.states[static_cast<std::size_t>(worker)];
        const auto state = engine.training.from_averaged(old, policy, mean.data(), ages_of(*engine.states[0]));
        engine.expect(state, policy, worker);
        EXPECT_EQ(engine.training.values(state), std::vector<float>(mean.begin(), mean.begin() + 3));
      }
    }
}

// With moments alone, parameters are neither averaged nor sent: each worker continues with its own.
TEST(ModelAverage, MomentsMayBeAveragedAlone) {
  for (const StatePolicy first : all_policies)
    for (const StatePolicy second : all_policies) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(first) << static_cast<int>(second));
      AdamEngine engine;
      const AveragePolicy policy{
          .moments = {first, second}, .buffers = StatePolicy::keep, .parameters = StatePolicy::keep};
      const auto averaged = engine.training.average(engine.states, policy);
      const std::size_t size = engine.training.averaged_size(policy);
      EXPECT_EQ(size, 3u * ((first == StatePolicy::average) + (second == StatePolicy::average)));
      EXPECT_EQ(size, 3u * static_cast<std::size_t>(policy.averaged_vectors(2)));
      std::vector<float> mean(size), other(size);
      engine.training.write_averaged(engine.states[0], policy, mean.data());
      engine.training.write_averaged(engine.states[1], policy, other.data());
      for (std::size_t i = 0; i < size; ++i) mean[i] = (mean[i] + other[i]) / 2;
      for (int worker = 0; worker < 2; ++worker) {
        const auto& old = engine.states[static_cast<std::size_t>(worker)];
        const auto& state = averaged[static_cast<std::size_t>(worker)];
        engine.expect(state, policy, worker);
        EXPECT_EQ(engine.training.values(state), engine.training.values(old));
        const auto read = engine.training.from_averaged(old, policy, mean.data(), ages_of(*engine.states[0]));
        engine.expect(read, policy, worker);
        EXPECT_EQ(engine.training.values(read), engine.training.values(old));
      }
    }
}

// Two workers with the statistics (2, 1) and (6, 8) and with momentum, which precedes the statistics in the bytes.
struct StatisticsEngine : Engine {
  StatisticsEngine() : Engine(std::make_shared<PullWithStatistics>(4, 4), make_sgd({.momentum = 0.9})) {
    const auto start = training.initial_state();
    states = {training.descend(start, promise(start, 2, 0, 1), 1.0),
              training.descend(start, promise(start, 6, 1), 1.0)};
  }
  static std::vector<float> expected(StatePolicy policy, std::size_t worker) {
    if (policy == StatePolicy::reset) return {-1, -2};
    if (policy == StatePolicy::average) return {4, 4.5};
    return worker == 0 ? std::vector<float>{2, 1} : std::vector<float>{6, 8};
  }
  std::vector<ModelStatePtr> states;
};

TEST(ModelAverage, StatisticsFollowTheirPolicyWhateverThatOfTheMoments) {
  for (const StatePolicy moments : all_policies)
    for (const StatePolicy buffers : all_policies) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(moments) << static_cast<int>(buffers));
      StatisticsEngine engine;
      const AveragePolicy policy{.moments = {moments, moments}, .buffers = buffers};
      const auto averaged = engine.training.average(engine.states, policy);
      const std::size_t size = engine.training.averaged_size(policy);
      EXPECT_EQ(size, 4u + 4 * (moments == StatePolicy::average) + 2 * (buffers == StatePolicy::average));
      std::vector<float> mean(size), other(size);
      engine.training.write_averaged(engine.states[0], policy, mean.data());
      constexpr float untouched = 77;
      other.resize(size + 8, untouched);
      engine.training.write_averaged(engine.states[1], policy, other.data());
      EXPECT_THAT(std::vector<float>(other.begin() + static_cast<std::ptrdiff_t>(size), other.end()),
                  testing::Each(untouched));
      for (std::size_t i = 0; i < size; ++i) mean[i] = (mean[i] + other[i]) / 2;
      for (const std::size_t worker : {0, 1}) {
        const auto from_bytes = engine.training.from_averaged(engine.states[worker], policy, mean.data());
        const auto expected = StatisticsEngine::expected(buffers, worker);
        EXPECT_EQ(engine.values(averaged[worker]->buffers), expected);
        EXPECT_EQ(engine.values(from_bytes->buffers), expected);
        EXPECT_EQ(engine.training.values(from_bytes), engine.training.values(averaged[worker]));
      }
    }
}

TEST(ModelAverage, WeightsAreThoseOfTheStatisticsToo) {
  StatisticsEngine engine;
  const auto averaged = engine.training.average(engine.states, {}, std::vector<double>{1, 3});
  EXPECT_THAT(engine.values(averaged[0]->buffers), ElementsAre((2 + 3 * 6) / 4.0f, (1 + 3 * 8) / 4.0f));
}

// Worker 1 has taken one more step. m and v are the means of the two workers' moments. left1 and left2 are the shares
// of the initial zeros in m and v: the means of beta and beta^2 over workers. A zero gradient then moves all workers by
// rate beta1 m / (1 - beta1 left1) / sqrt(beta2 v / (1 - beta2 left2)).
TEST(ModelAverage, TheBiasOfAMeanIsTheMeanOfItsBiases) {
  for (const bool is_weighted : {false, true}) {
    AdamEngine engine;
    engine.states[1] = engine.training.descend(engine.states[1], engine.promise(engine.states[1], 0), 0.1);
    const AveragePolicy policy{.moments = {StatePolicy::average, StatePolicy::average}};
    const std::vector<double> weights = {1, 3};
    const double share = is_weighted ? 0.25 : 0.5;
    const auto averaged = engine.training.average(engine.states, policy, is_weighted ? weights : std::vector<double>());
    EXPECT_EQ(averaged[0], averaged[1]);
    const std::vector<float> start = engine.training.values(averaged[0]);
    const std::vector<float> m = engine.values(averaged[0]->moments[0].values),
                             v = engine.values(averaged[0]->moments[1].values);
    const auto moved = engine.training.values(engine.training.descend(averaged[0], Gradient(), 10));
    const double left1 = share * 0.5 + (1 - share) * 0.25, left2 = share * 0.75 + (1 - share) * 0.5625;
    for (std::size_t i = 0; i < start.size(); ++i)
      EXPECT_NEAR(moved[i] - start[i],
                  -10 * 0.5 * m[i] / (1 - 0.5 * left1) / std::sqrt(0.75 * v[i] / (1 - 0.75 * left2)), 1e-4);
  }
}

// For moments that the optimizer does not have, no steps are counted and nothing is reset.
TEST(ModelAverage, StepsAreCountedOfTheMomentsThatThereAre) {
  for (const int moments : {0, 1}) {
    Engine engine(2, moments == 0 ? 0 : 0.9);
    const auto start = engine.training.initial_state();
    const std::vector<ModelStatePtr> states = {engine.at_target(start, 0), engine.at_target(start, 1)};
    EXPECT_EQ(states[0]->moments[0].age.steps, Step{moments});
    EXPECT_EQ(states[0]->moments[1], Moment());
    const AveragePolicy policy{.moments = {StatePolicy::reset, StatePolicy::keep}};
    EXPECT_EQ(engine.training.average(states, policy)[0]->moments, (std::array<Moment, most_moments>()));
  }
}

TEST(ModelAverage, WeightsAreDividedByTheirSum) {
  Engine engine(2, 0.9);
  const auto start = engine.training.initial_state();
  std::vector<ModelStatePtr> states;
  for (const int worker : {0, 1, 50, 3}) states.push_back(engine.at_target(start, worker));
  const std::vector<double> weights = {1, 3, 0, 4};
  const AveragePolicy policy{.moments = {StatePolicy::average, StatePolicy::average}};
  const auto averaged = engine.training.average(states, policy, weights);
  const float mean = (0 * 1 + 1 * 3 + 3 * 4) / 8.0f;
  EXPECT_THAT(engine.training.values(averaged[2]), ElementsAre(mean, mean + 1, mean + 2, mean + 3));
  // Momentum is the gradient: 1 - target.
  EXPECT_THAT(engine.values(averaged[2]->moments[0].values), ElementsAre(1 - mean, -mean, -1 - mean, -2 - mean));
  for (const auto& state : averaged) EXPECT_EQ(state, averaged[0]);
}

TEST(ModelAverage, EqualWeightsGiveTheBitsOfNone) {
  std::vector<std::vector<float>> results;
  for (const auto& weights : {std::vector<double>{}, std::vector<double>(7, 0.3), std::vector<double>(7, 0.0)}) {
    Engine engine(2, 0, 1000);
    const auto start = engine.training.initial_state();
    std::vector<ModelStatePtr> states;
    for (int worker = 0; worker < 7; ++worker)
      states.push_back(engine.training.descend(start, engine.promise(start, worker), 0.0317));
    results.push_back(engine.training.values(engine.training.average(states, {}, weights)[0]));
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST(ModelAverage, AModelOfWeightZeroDoesNotCountEvenIfItDiverged) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const auto good = engine.at_target(start, 2);
  const auto bad = engine.training.descend(start, engine.promise(start, 0), std::numeric_limits<double>::infinity());
  ASSERT_TRUE(std::isnan(engine.training.values(bad)[1]));  // infinity x 0
  const std::vector<ModelStatePtr> states = {bad, good};
  const auto averaged = engine.training.average(states, {}, std::vector<double>{0, 0.1});
  EXPECT_EQ(averaged[0]->parameters, good->parameters);  // the only model with a weight, so nothing is computed
}

using testing::FloatNear;
using testing::Pointwise;
using Vector = std::vector<float>;

Vector mean_of(const std::vector<Vector>& vectors, const std::vector<double>& weights) {
  std::vector<WeightedVector> terms;
  for (std::size_t i = 0; i < vectors.size(); ++i) terms.push_back({weights[i], vectors[i].data()});
  Vector out(vectors.front().size());
  write_norm_preserving_mean(out.data(), terms, out.size());
  return out;
}

double length(const Vector& vector) {
  double squares = 0;
  for (const double value : vector) squares += value * value;
  return std::sqrt(squares);
}

TEST(NormPreservingMean, OfOneOrOfEqualOnesIsThemselves) {
  const Vector x{3, -4, 0.5f, 12};
  EXPECT_THAT(mean_of({x}, {2.5}), Pointwise(FloatNear(1e-6f), x));
  EXPECT_THAT(mean_of({x, x, x}, {1, 2, 0.5}), Pointwise(FloatNear(1e-6f), x));
}

TEST(NormPreservingMean, OfOrthogonalOnesOfEqualLengthHasThatLength) {
  for (const int count : {2, 3, 8}) {
    std::vector<Vector> vectors;
    for (int i = 0; i < count; ++i) {
      vectors.emplace_back(10, 0.0f);
      vectors.back()[static_cast<std::size_t>(i)] = 5;
    }
    const Vector mean = mean_of(vectors, std::vector<double>(static_cast<std::size_t>(count), 3));
    EXPECT_NEAR(length(mean), 5, 1e-5);
    EXPECT_NEAR(mean[1], 5 / std::sqrt(count), 1e-5);  // a mean that preserves no norm has length 5 / sqrt(count)
  }
}

// Expected values were computed in Python from the formula.
TEST(NormPreservingMean, EqualsAGoldenTable) {
  EXPECT_THAT(mean_of({{3, 4, 0}, {0, 0, 2}, {1, -2, 2}}, {1, 2, 3}),
              Pointwise(FloatNear(1e-6f), Vector{1.0733126292f, -0.8049844719f, 2.6832815730f}));
  EXPECT_THAT(mean_of({{6, 8}, {0.5f, -0.5f}}, {0.25, 4}),
              Pointwise(FloatNear(1e-6f), Vector{0.9400442459f, -0.8295780595f}));
  EXPECT_THAT(mean_of({{1, 2, 3, 4}, {0, 0, 0, 0}}, {1, 1}), Pointwise(FloatNear(1e-6f), Vector{0.5f, 1, 1.5f, 2}));
}

TEST(NormPreservingMean, IsTheWeightedMeanWhereDirectionsCancel) {
  EXPECT_THAT(mean_of({{4, 0}, {-1, 0}}, {1, 1}), Pointwise(FloatNear(1e-6f), Vector{1.5f, 0}));
  EXPECT_THAT(mean_of({{0, 0}, {0, 0}}, {1, 3}), Pointwise(FloatNear(0), Vector{0, 0}));
}

// Two tensors of three elements.
class TwoTensors : public PullObjective {
 public:
  TwoTensors(const std::string& first, const std::string& second) : PullObjective(6, 6), names_{first, second} {}
  std::vector<ParameterTensor> tensors() const override {
    return {{.name = names_[0], .offset = 0, .size = 3, .place = 0},
            {.name = names_[1], .offset = 3, .size = 3, .place = 1}};
  }

 private:
  std::vector<std::string> names_;
};

Vector mean_of_models(const std::shared_ptr<const Objective>& objective, Slice slice = {},
                      OfEmbeddings embeddings = OfEmbeddings::mean) {
  Executor executor(2);
  Training training(objective, make_sgd({}), {}, executor);
  const auto state = [&](const Vector& values) {
    auto model = std::make_shared<ModelState>();
    model->id = new_state_id();
    model->parameters = filled_cell(values);
    return model;
  };
  const std::vector<WeightedState> terms = {{1, state({3, 4, 0, 1, 2, 2})}, {3, state({0, 0, 2, 1, 2, 2})}};
  return training.values(norm_preserving_mean(training, terms, slice, embeddings));
}

TEST(NormPreservingMean, IsTakenTensorByTensorAndOfEmbeddingsNot) {
  // The first tensors have lengths 5 and 2, weighted mean 2.75, along (0.15, 0.2, 0.75). The second tensors are equal.
  const double scale = 2.75 / std::sqrt(0.15 * 0.15 + 0.2 * 0.2 + 0.75 * 0.75);
  const Vector expected{
      static_cast<float>(0.15 * scale), static_cast<float>(0.2 * scale), static_cast<float>(0.75 * scale), 1, 2, 2};
  EXPECT_THAT(mean_of_models(std::make_shared<TwoTensors>("linear1.weight", "linear2.weight")),
              Pointwise(FloatNear(1e-6f), expected));
  for (const char* const name : {"words.weight", "places.weight", "bag_of_words1.weight", "model.embedding.weight"})
    EXPECT_THAT(mean_of_models(std::make_shared<TwoTensors>(name, "linear1.weight")),
                Pointwise(FloatNear(1e-6f), Vector{0.75f, 1, 1.5f, 1, 2, 2}));
  EXPECT_THAT(mean_of_models(std::make_shared<TwoTensors>("words.weight", "linear1.weight"), {}, OfEmbeddings::alike),
              Pointwise(FloatNear(1e-6f), expected));
}

// Six elements in three slices: the middle slice has the end of the first tensor and the beginning of the second.
TEST(NormPreservingMean, OfASliceTakesThePartsOfTensorsWithinIt) {
  EXPECT_THAT(mean_of_models(std::make_shared<TwoTensors>("a", "b"), {.index = 1, .count = 3}),
              Pointwise(FloatNear(1e-6f), Vector{0, 0, 0.75f * 2, 1, 0, 0}));
}

}  // namespace
}  // namespace syncopate
