#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/workers/engine.hpp"
#include "tests/workers/pull_objective.hpp"
#include "workers/training/model_average.hpp"

namespace syncopate {
namespace {

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
    EXPECT_NEAR(mean[1], 5 / std::sqrt(count), 1e-5);  // the mean itself has the length 5 / sqrt(count)
  }
}

// From the formula in Python.
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

// Two tensors of three.
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
  // Of the first tensor: lengths 5 and 2, so 2.75 on average, along (0.15, 0.2, 0.75). The second's are equal.
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

// Of six in three slices the second has the end of one tensor and the beginning of the other.
TEST(NormPreservingMean, OfASliceTakesThePartsOfTensorsWithinIt) {
  EXPECT_THAT(mean_of_models(std::make_shared<TwoTensors>("a", "b"), {.index = 1, .count = 3}),
              Pointwise(FloatNear(1e-6f), Vector{0, 0, 0.75f * 2, 1, 0, 0}));
}

}  // namespace
}  // namespace syncopate
