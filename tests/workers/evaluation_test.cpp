// Evaluations of ensembles, and recalibrated normalisation statistics, compared with modules of torch::nn in double
// precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "tests/workers/engine.hpp"
#include "tests/workers/reference_modules.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

using namespace reference;

std::shared_ptr<const TorchObjective> objective_of(const Network& network) {
  return std::make_shared<TorchObjective>(network, images(), sampling, 32);
}

// Parameters of an ensemble's member. A large factor makes its predictions certain.
std::vector<float> parameters_of(const TorchObjective& objective, std::uint64_t seed, float factor) {
  auto flat = objective.initial_parameters(seed);
  for (std::size_t i = 0; i < flat.size(); ++i) flat[i] = factor * (flat[i] + 0.05f * static_cast<float>(i % 5));
  return flat;
}

std::vector<float> buffers_of_member(const TorchObjective& objective, std::uint64_t seed) {
  auto buffers = objective.initial_buffers();
  for (auto& buffer : buffers) buffer += 0.25f * static_cast<float>(seed);
  return buffers;
}

void set_buffers(torch::nn::Sequential& module, const std::vector<float>& flat) {
  std::size_t offset = 0;
  for (auto& buffer : module->named_buffers()) {
    if (buffer.key().find("running") == std::string::npos) continue;
    for (std::int64_t i = 0; i < buffer.value().numel(); ++i) buffer.value()[i] = flat.at(offset++);
  }
  EXPECT_EQ(offset, flat.size());
}

Samples test_samples(std::uint32_t first, std::size_t count) {
  Samples samples{std::vector<float>(count * 144), std::vector<std::int64_t>(count)};
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  images()->gather(Split::test, numbers, samples.inputs.data(), samples.labels.data());
  return samples;
}

void expect_mean_of_probabilities(Case& reference, const std::vector<std::uint64_t>& seeds, float factor) {
  SCOPED_TRACE(testing::Message() << reference.name << ", factor " << factor);
  const auto objective = objective_of(reference.network);
  std::vector<std::vector<float>> parameters, buffers;
  std::vector<const float*> parameter_pointers, buffer_pointers;
  auto samples = test_samples(3, 42);  // more than one chunk of 32 samples
  const auto labels = label_tensor(samples);
  torch::Tensor mean = torch::zeros({42, classes}, torch::kDouble);
  double mean_of_losses = 0;
  for (const std::uint64_t seed : seeds) {
    parameters.push_back(parameters_of(*objective, seed, factor));
    buffers.push_back(buffers_of_member(*objective, seed));
    parameter_pointers.push_back(parameters.back().data());
    buffer_pointers.push_back(buffers.back().data());
    set_parameters(reference.module, parameters.back());
    set_buffers(reference.module, buffers.back());
    reference.module->eval();
    const auto logits = reference.module->forward(input_tensor(samples));
    mean += torch::softmax(logits, 1) / 3;
    mean_of_losses += torch::nn::functional::cross_entropy(logits, labels).item<double>() * 42 / 3;
  }
  const double loss = -mean.gather(1, labels.unsqueeze(1)).log().sum().item<double>();
  const auto sums = objective->evaluate_ensemble(parameter_pointers, buffer_pointers, Split::test, 3, 45);
  EXPECT_NEAR(sums.loss, loss, 2e-5 * loss);
  EXPECT_EQ(sums.correct, mean.argmax(1).eq(labels).sum().item<std::int64_t>());
  EXPECT_EQ(sums.samples, 42);
  EXPECT_GT(std::abs(loss - mean_of_losses), 1e-3 * loss) << "the two means must differ here";

  const auto alone = objective->evaluate(parameter_pointers[1], buffer_pointers[1], Split::test, 3, 45);
  const auto one =
      objective->evaluate_ensemble({&parameter_pointers[1], 1}, {&buffer_pointers[1], 1}, Split::test, 3, 45);
  EXPECT_EQ(one.loss, alone.loss);
  EXPECT_EQ(one.correct, alone.correct);
}

TEST(Ensemble, PredictsTheMeanOfItsMembersProbabilities) {
  for (auto& reference : cases()) expect_mean_of_probabilities(reference, {0, 1, 2}, 1.5f);
}

// Probabilities far below the smallest float32 must not give an infinite loss.
TEST(Ensemble, IsFiniteWhereAllMembersAreCertainAndWrong) {
  Case reference{"linear", linear_network(shape, classes),
                 torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(144, 4))};
  expect_mean_of_probabilities(reference, {0, 0, 1}, 60.0f);  // two members are equal, so predictions have no ties
}

Evaluation evaluate(Training& training, const std::vector<ModelStatePtr>& states) {
  std::promise<Evaluation> promise;
  training.evaluate(states, [&](const Evaluation& evaluation) { promise.set_value(evaluation); });
  return promise.get_future().get();
}

TEST(Ensemble, TrainingEvaluatesOneModelOrSeveral) {
  const auto objective = objective_of(mlp_network(shape, classes, {7, 6}));
  Executor executor(2);
  Training training(objective, make_sgd({}), {.train_samples = 120}, executor);
  const auto start = training.initial_state();
  const auto other = training.descend(start, Gradient(start, {Rank{1}, 0, 2}, {}), 2.0);
  const auto values = std::vector{training.values(start), training.values(other)};
  const float* const parameters[] = {values[0].data(), values[1].data()};
  const float* const buffers[] = {nullptr, nullptr};
  for (const std::size_t members : {1, 2}) {
    const auto test = objective->evaluate_ensemble({parameters, members}, {buffers, members}, Split::test, 0, 50);
    const auto train = objective->evaluate_ensemble({parameters, members}, {buffers, members}, Split::train, 0, 120);
    const auto found = evaluate(training, members == 1 ? std::vector{start} : std::vector{start, other});
    EXPECT_DOUBLE_EQ(found.test_loss, test.loss / 50);
    EXPECT_DOUBLE_EQ(found.test_accuracy, static_cast<double>(test.correct) / 50);
    EXPECT_DOUBLE_EQ(found.train_loss, train.loss / 120);
    EXPECT_TRUE(found.finite);
  }
}

TEST(Ensemble, OfModelsWithStatisticsTakesEachModelsOwn) {
  const auto objective = objective_of(cnn_network(shape, classes, cnn_with_batch_norm));
  Executor executor(2);
  Training training(objective, make_sgd({}), {.train_samples = 120}, executor);
  const auto start = training.initial_state();
  const auto other = training.descend(start, Gradient(start, {Rank{1}, 0, 2}, {}), 0.5);
  const auto values = std::vector{training.values(start), training.values(other)};
  const float* const parameters[] = {values[0].data(), values[1].data()};
  const float* const buffers[] = {start->buffers->value.data(), other->buffers->value.data()};
  const auto expected = objective->evaluate_ensemble(parameters, buffers, Split::test, 0, 50);
  const float* const of_the_first[] = {buffers[0], buffers[0]};
  ASSERT_NE(objective->evaluate_ensemble(parameters, of_the_first, Split::test, 0, 50).loss, expected.loss);
  EXPECT_DOUBLE_EQ(evaluate(training, {start, other}).test_loss, expected.loss / 50);
}

// An objective that cannot average predictions gives the mean of the members' losses, and counts each sample once.
TEST(Ensemble, ByDefaultIsTheMeanOfItsMembersLosses) {
  Engine engine;
  const auto start = engine.training.initial_state();
  const std::vector<ModelStatePtr> states = {start, engine.at_target(start, 10), engine.at_target(start, 20)};
  const auto found = evaluate(engine.training, states);
  EXPECT_DOUBLE_EQ(found.test_loss, (1 + 10 + 20) / 3.0);  // the loss is the first parameter
  EXPECT_DOUBLE_EQ(found.train_loss, (1 + 10 + 20) / 3.0);
  EXPECT_TRUE(std::isnan(found.test_accuracy));
}

// A model whose first parameter is x predicts x of the seven samples correctly.
struct ToldRight : PullObjective {
  std::int64_t evaluation_samples(Split) const override { return 7; }
  EvaluationSums evaluate(const float* parameters, const float*, Split, std::int64_t begin,
                          std::int64_t end) const override {
    return {.loss = parameters[0], .correct = std::llround(parameters[0]), .samples = end - begin};
  }
  bool has_accuracy() const override { return true; }
};

TEST(Ensemble, ByDefaultIsAsAccurateAsItsMembersAreOnAverage) {
  Engine engine(std::make_shared<ToldRight>(), make_sgd({}));
  const auto start = engine.training.initial_state();
  const std::vector<ModelStatePtr> states = {engine.at_target(start, 2), engine.at_target(start, 3),
                                             engine.at_target(start, 7)};
  const auto found = evaluate(engine.training, states);
  EXPECT_DOUBLE_EQ(found.test_accuracy, 4 / 7.0);
  EXPECT_DOUBLE_EQ(found.test_loss, 4 / 7.0);
}

const std::vector<MicroBatch> some_micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                                    {.worker = Rank{1}, .step = 0, .index = 2},
                                                    {.worker = Rank{1}, .step = 8, .index = 1}};

// Mean and unbiased variance of each normalisation layer's input, by channel, averaged over the micro-batches.
std::vector<double> measured(const std::vector<float>& theta) {
  auto module = torch_cnn_with_batch_norm();
  set_parameters(module, theta);
  module->train();
  torch::NoGradGuard no_grad;
  std::vector<double> statistics;
  for (const auto& micro_batch : some_micro_batches) {
    auto samples = samples_of(micro_batch);
    auto x = input_tensor(samples);
    std::vector<double> here;
    for (auto& layer : *module) {
      if (layer.ptr()->as<torch::nn::BatchNorm2d>()) {
        const auto mean = x.mean({0, 2, 3});
        const auto variance = x.var(torch::IntArrayRef{0, 2, 3}, /*unbiased=*/true);
        for (const auto& values : {mean, variance})
          for (std::int64_t i = 0; i < values.numel(); ++i) here.push_back(values[i].item<double>());
      }
      x = layer.forward(x);
    }
    statistics.resize(here.size());
    for (std::size_t i = 0; i < here.size(); ++i)
      statistics[i] += here[i] / static_cast<double>(some_micro_batches.size());
  }
  return statistics;
}

TEST(BatchStatistics, AreThoseOfEachMicroBatchAveraged) {
  const auto objective = objective_of(cnn_network(shape, classes, cnn_with_batch_norm));
  const auto theta = parameters_of(*objective, 3, 1);
  const auto expected = measured(theta);
  const auto found = objective->batch_statistics(theta.data(), some_micro_batches);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * (1 + std::abs(expected[i])));
}

TEST(BatchStatistics, ARecalibratedStateHasThemAndNothingElseChanges) {
  const auto objective = objective_of(cnn_network(shape, classes, cnn_with_batch_norm));
  Executor executor(2);
  Training training(objective, make_sgd({.momentum = 0.9}), {}, executor);
  const auto start = training.initial_state();
  const auto state = training.descend(start, Gradient(start, some_micro_batches[0], {}), 0.5);
  const auto recalibrated = training.recalibrated(state, some_micro_batches);
  EXPECT_NE(recalibrated->id, state->id);
  EXPECT_EQ(recalibrated->parameters, state->parameters);
  EXPECT_EQ(recalibrated->moments, state->moments);
  executor.wait_all();
  const auto expected = measured(training.values(state));
  const auto found = recalibrated->buffers->value.span();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * (1 + std::abs(expected[i])));
  EXPECT_EQ(training.recalibrated(state, {}), state);
}

TEST(BatchStatistics, AModelWithoutNormalisationHasNone) {
  Engine engine;
  const auto state = engine.training.initial_state();
  EXPECT_TRUE(engine.objective->batch_statistics(nullptr, some_micro_batches).empty());
  EXPECT_EQ(engine.training.recalibrated(state, some_micro_batches), state);
  const auto objective = objective_of(mlp_network(shape, classes, {7}));
  const auto theta = parameters_of(*objective, 1, 1);
  EXPECT_TRUE(objective->batch_statistics(theta.data(), some_micro_batches).empty());
  Training time_only(nullptr, nullptr, {}, engine.executor);
  EXPECT_EQ(time_only.recalibrated(nullptr, some_micro_batches), nullptr);
}

// Evaluations of a model by the training engine: the samples used, and the detection of divergence.

// Test samples have a loss of 2, training samples a loss of 3. Every fourth sample is predicted correctly. Records
// which samples are evaluated.
class CountedSamples : public PullObjective {
 public:
  using PullObjective::PullObjective;
  std::int64_t evaluation_samples(Split split) const override { return split == Split::test ? 5000 : 9000; }
  EvaluationSums evaluate(const float*, const float*, Split split, std::int64_t begin,
                          std::int64_t end) const override {
    const auto count = static_cast<double>(end - begin);
    const std::lock_guard lock(mutex_);
    std::int64_t correct = 0;
    for (auto sample = begin; sample < end; ++sample) {
      seen.insert({split, sample});
      correct += sample % 4 == 0;
    }
    return {.loss = (split == Split::test ? 2.0 : 3.0) * count, .correct = correct, .samples = end - begin};
  }
  bool has_accuracy() const override { return true; }
  mutable std::multiset<std::pair<Split, std::int64_t>> seen;

 private:
  mutable std::mutex mutex_;
};

TEST(Evaluation, AnEvaluationTakesTheWholeTestSetAndTheTrainingSamplesThatWereAskedFor) {
  const auto objective = std::make_shared<CountedSamples>(4, 4);
  Engine engine(objective, make_sgd({}), {.train_samples = 2500});
  Evaluation result;
  engine.training.evaluate({engine.training.initial_state()},
                           [&](const Evaluation& evaluation) { result = evaluation; });
  engine.executor.wait_all();
  EXPECT_EQ(result.test_loss, 2);
  EXPECT_EQ(result.train_loss, 3);
  EXPECT_EQ(result.test_accuracy, 0.25);
  EXPECT_TRUE(result.finite);
  std::multiset<std::pair<Split, std::int64_t>> expected;
  for (int sample = 0; sample < 5000; ++sample) expected.insert({Split::test, sample});
  for (int sample = 0; sample < 2500; ++sample) expected.insert({Split::train, sample});
  EXPECT_EQ(objective->seen, expected);
}

// 3000 validation samples, which are more than one task evaluates. A tenth is predicted correctly.
class HeldOut : public CountedSamples {
 public:
  using CountedSamples::CountedSamples;
  std::int64_t validation_samples() const override { return 3000; }
  EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                          std::int64_t end) const override {
    if (split != Split::validation) return CountedSamples::evaluate(parameters, buffers, split, begin, end);
    const auto samples = end - begin;
    return {.loss = 0.5 * static_cast<double>(samples), .correct = samples / 10, .samples = samples};
  }
};

TEST(Evaluation, AnEvaluationHasTheValidationSetWhereThereIsOne) {
  const auto evaluation_of = [](const std::shared_ptr<CountedSamples>& objective) {
    Engine engine(objective, make_sgd({}), {.train_samples = 2500});
    Evaluation result;
    engine.training.evaluate({engine.training.initial_state()},
                             [&](const Evaluation& evaluation) { result = evaluation; });
    engine.executor.wait_all();
    return result;
  };
  const Evaluation with = evaluation_of(std::make_shared<HeldOut>(4, 4));
  EXPECT_EQ(with.validation_loss, 0.5);
  EXPECT_EQ(with.validation_accuracy, 0.1);
  EXPECT_EQ(with.test_loss, 2);
  EXPECT_EQ(with.train_loss, 3);
  const Evaluation without = evaluation_of(std::make_shared<CountedSamples>(4, 4));
  EXPECT_TRUE(std::isnan(without.validation_loss) && std::isnan(without.validation_accuracy));
}

struct GivenLosses : PullObjective {
  GivenLosses(double test_loss, double train_loss) : test_loss(test_loss), train_loss(train_loss) {}
  EvaluationSums evaluate(const float*, const float*, Split split, std::int64_t, std::int64_t) const override {
    return {.loss = split == Split::test ? test_loss : train_loss, .correct = 0, .samples = 1};
  }
  double test_loss, train_loss;
};

TEST(Evaluation, AModelHasDivergedWhereEitherLossIsNoNumber) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const double test_loss : {1.0, inf, std::nan("")})
    for (const double train_loss : {1.0, inf, std::nan("")}) {
      Engine engine(std::make_shared<GivenLosses>(test_loss, train_loss), make_sgd({}));
      Evaluation result;
      engine.training.evaluate({engine.training.initial_state()},
                               [&](const Evaluation& evaluation) { result = evaluation; });
      engine.executor.wait_all();
      EXPECT_EQ(result.finite, test_loss == 1 && train_loss == 1) << test_loss << " " << train_loss;
    }
}

}  // namespace
}  // namespace syncopate
