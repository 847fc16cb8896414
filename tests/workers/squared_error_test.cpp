// The mean-squared error of a module of one's own, in closed form: outputs W x, and samples that have two numbers each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/script_folder.hpp"
#include "workers/base/random.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t features = 3, targets = 2, samples_of_each = 40;

// Normal vectors, and normal targets that do not depend on them.
class Numbers : public Dataset {
 public:
  const DatasetSize& size() const override { return size_; }
  static std::vector<double> drawn(Split split, std::uint32_t sample, std::uint8_t stream, std::int64_t count) {
    std::vector<double> values(static_cast<std::size_t>(count));
    fill_standard_normal({.seed = split == Split::train ? 1u : 2u, .stream = stream, .step = sample}, 0, values);
    return values;
  }
  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    for (const std::uint32_t sample : samples) {
      inputs = std::ranges::copy(drawn(split, sample, 0, features), inputs).out;
      *labels++ = 0;
    }
  }
  void gather_targets(Split split, std::span<const std::uint32_t> samples, float* values) const override {
    for (const std::uint32_t sample : samples) values = std::ranges::copy(drawn(split, sample, 1, targets), values).out;
  }

 private:
  DatasetSize size_{.train = samples_of_each,
                    .test = samples_of_each,
                    .shape = {.width = features},
                    .classes = 0,
                    .targets = targets};
};

struct ClosedForm {
  double loss = 0;
  std::vector<double> gradient = std::vector<double>(targets * features);
};

// Of these samples, (n,): sum_k (w_k x - y_k)^2 / 2, and 2 (w_k x - y_k) x / 2.
ClosedForm closed_form(const std::vector<float>& w, Split split, const std::vector<std::uint32_t>& samples) {
  ClosedForm sum;
  for (const std::uint32_t sample : samples) {
    const auto x = Numbers::drawn(split, sample, 0, features), y = Numbers::drawn(split, sample, 1, targets);
    for (std::size_t k = 0; k < targets; ++k) {
      double error = -y[k];
      for (std::size_t f = 0; f < features; ++f) error += w[k * features + f] * x[f];
      sum.loss += error * error / targets;
      for (std::size_t f = 0; f < features; ++f) sum.gradient[k * features + f] += 2 * error * x[f] / targets;
    }
  }
  return sum;
}

class SquaredError : public ScriptFolder {
 protected:
  SamplerOptions sampling_{
      .samples = samples_of_each, .workers = 2, .micro_batches = 2, .micro_batch_size = 5, .seed = 9};
  std::shared_ptr<const Numbers> numbers_ = std::make_shared<const Numbers>();

  void save_linear(const std::string& more = "") const {
    save_script(file(), {{.name = "weight", .shape = {targets, features}, .values = {1, -2, 0.5f, 3, 0, 1}}},
                more + "return torch.linear(x, self.weight)");
  }
  std::shared_ptr<const TorchObjective> objective() const {
    return std::make_shared<TorchObjective>(load(numbers_->size(), {.squared_error = true}), numbers_, sampling_, 16);
  }
};

TEST_F(SquaredError, IsTheMeanOverSamplesAndTheirNumbers) {
  save_linear();
  const auto objective = this->objective();
  EXPECT_FALSE(objective->has_accuracy());
  const auto w = objective->initial_parameters(1);
  const std::vector<MicroBatch> both = {{.worker = Rank{0}, .step = 0, .index = 0},
                                        {.worker = Rank{1}, .step = 3, .index = 1}};
  ClosedForm expected;
  for (const MicroBatch& one : both) {
    std::vector<std::uint32_t> samples;
    Sampler(sampling_).append_samples(one, samples);
    const ClosedForm each = closed_form(w, Split::train, samples);
    expected.loss += each.loss / 5;
    for (std::size_t i = 0; i < w.size(); ++i) expected.gradient[i] += each.gradient[i] / 5;
  }
  const auto found = objective->gradient(w.data(), nullptr, both);
  EXPECT_NEAR(found.loss_sum, expected.loss, 1e-5 * expected.loss);
  const auto gradient = flatten(found);
  for (std::size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(gradient[i], expected.gradient[i], 1e-5) << i;
}

TEST_F(SquaredError, OfAnEvaluationIsSummedOverTheSamples) {
  save_linear();
  const auto objective = this->objective();
  const auto w = objective->initial_parameters(1);
  std::vector<std::uint32_t> samples;
  for (std::uint32_t sample = 3; sample < 38; ++sample) samples.push_back(sample);
  const ClosedForm expected = closed_form(w, Split::test, samples);
  const EvaluationSums found = objective->evaluate(w.data(), nullptr, Split::test, 3, 38);
  EXPECT_NEAR(found.loss, expected.loss, 1e-5 * expected.loss);
  EXPECT_EQ(found.correct, 0);
  EXPECT_EQ(found.samples, 35);

  // What an ensemble of linear functions gives is the mean of them all.
  std::vector<float> other = w, mean = w;
  for (std::size_t i = 0; i < w.size(); ++i) other[i] += 0.5f * static_cast<float>(i), mean[i] = (w[i] + other[i]) / 2;
  const float* const members[] = {w.data(), other.data()};
  const float* const none[] = {nullptr, nullptr};
  const double of_mean = closed_form(mean, Split::test, samples).loss;
  EXPECT_NEAR(objective->evaluate_ensemble(members, none, Split::test, 3, 38).loss, of_mean, 1e-5 * of_mean);
}

// 2 / targets sum over samples of x x^T, target by target.
TEST_F(SquaredError, HasTheDerivativesOfALinearRegression) {
  save_linear();
  const auto objective = this->objective();
  const auto w = objective->initial_parameters(1);
  const std::vector<double> direction = {1, 0, 2, -1, 3, 0.5};
  std::vector<double> product(w.size());
  std::vector<std::uint32_t> samples;
  for (std::uint32_t sample = 0; sample < 20; ++sample) {
    samples.push_back(sample);
    const auto x = Numbers::drawn(Split::train, sample, 0, features);
    for (std::size_t k = 0; k < targets; ++k) {
      double along = 0;
      for (std::size_t f = 0; f < features; ++f) along += x[f] * direction[k * features + f];
      for (std::size_t f = 0; f < features; ++f) product[k * features + f] += 2.0 / targets * along * x[f];
    }
  }
  const auto gradient = objective->derivative(w.data(), nullptr, Split::train, 0, 20, {});
  const auto found = objective->derivative(w.data(), nullptr, Split::train, 0, 20, direction);
  const ClosedForm expected = closed_form(w, Split::train, samples);
  for (std::size_t i = 0; i < w.size(); ++i) {
    EXPECT_NEAR(20 * gradient[i], expected.gradient[i], 1e-5);
    EXPECT_NEAR(20 * found[i], product[i], 1e-5);
  }
}

TEST_F(SquaredError, NeedsAsManyOutputsAsASampleHasNumbers) {
  save_linear("return torch.linear(x, self.weight).sum(1)\n");
  EXPECT_EQ(fault(numbers_->size(), {.squared_error = true}),
            "its forward returns shape [4] for inputs of shape [4, 3]; must return (4, 2), as many numbers as y has");
}

}  // namespace
}  // namespace syncopate
