// Modules saved as TorchScript: gradients like those of the same network built from layers, their state during
// training, and modules that cannot be trained.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/random_images.hpp"
#include "tests/workers/random_texts.hpp"
#include "tests/workers/sample_tokens.hpp"
#include "tests/workers/script_files.hpp"
#include "workers/base/random.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/batch.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/script_model.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

// ScriptFolder: each test has its own folder with one module in it.

class ScriptFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("syncopate-script-" + std::to_string(getpid()) + "-" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file() const { return folder_ / "model.pt"; }

  // Each call gives the file another hash, so that nothing is cached.
  Network load(const DatasetSize& data, const ScriptOptions& options = {}) const {
    static int files = 0;
    return script_network(file(), std::to_string(++files), data, options);
  }
  std::string fault(const DatasetSize& data, const ScriptOptions& options = {}) const {
    try {
      load(data, options);
    } catch (const ScriptFault& problem) {
      return problem.what();
    }
    return "";
  }

 private:
  std::filesystem::path folder_;
};

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = ScriptTensor::Kind;
using Type = ScriptTensor::Type;

constexpr SampleShape vectors{.channels = 1, .height = 1, .width = 3};
constexpr std::int64_t classes = 4;
const SamplerOptions sampling{.samples = 200, .workers = 2, .micro_batches = 3, .micro_batch_size = 5, .seed = 9};
const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                               {.worker = Rank{0}, .step = 0, .index = 2},
                                               {.worker = Rank{1}, .step = 8, .index = 0}};

class ScriptModules : public ScriptFolder {
 protected:
  using ScriptFolder::load;
  Network load(const SampleShape& shape = vectors, const ScriptOptions& options = {}) const {
    return load({.shape = shape, .classes = classes}, options);
  }
  // Saves a linear layer from 3 features to 4 classes. `lines` may change its result y, with `more` tensors.
  void save_linear(const std::string& lines, std::vector<ScriptTensor> more = {}) const {
    more.push_back({.name = "weight", .shape = {4, 3}});
    save_script(file(), more, "y = torch.linear(x, self.weight)\n" + lines + "\nreturn y\n");
  }
  std::string fault(const SampleShape& shape = vectors) const {
    return ScriptFolder::fault({.shape = shape, .classes = classes});
  }
};

std::shared_ptr<const TorchObjective> objective_of(const Network& network) {
  const auto data = std::make_shared<RandomImages>(network.input(), classes, 200, 50);
  return std::make_shared<TorchObjective>(network, data, sampling, 32);
}

std::vector<float> gradient_of(const Objective& objective, std::span<const MicroBatch> of, std::uint64_t seed = 3) {
  const auto theta = objective.initial_parameters(seed);
  const auto buffers = objective.initial_buffers();
  return flatten(objective.gradient(theta.data(), buffers.data(), of));
}

std::vector<std::pair<std::string, Network>> networks() {
  const SampleShape image{.channels = 3, .height = 9, .width = 7};
  return {{"mlp", mlp_network(vectors, classes, {6, 5})},
          {"cnn",
           cnn_network({.channels = 2, .height = 8, .width = 8}, classes, {.channels = {3}, .kernel = 3, .dense = 5})},
          {"group",
           resnet_network(image, classes, {.depth = 8, .width = 4, .norm = ResnetOptions::Norm::group, .groups = 2})},
          {"batch", resnet_network(image, classes, {.depth = 8, .width = 4})}};
}

TEST_F(ScriptModules, ComputeWhatTheSameNetworkOfLayersDoes) {
  for (const auto& [name, network] : networks()) {
    SCOPED_TRACE(name);
    const auto layers = objective_of(network);
    const auto theta = layers->initial_parameters(3);
    save_script(file(), network, theta);
    const auto script = objective_of(load(network.input()));
    ASSERT_EQ(script->parameters(), layers->parameters());
    EXPECT_EQ(script->weights(), layers->weights());
    EXPECT_EQ(script->buffers(), layers->buffers());
    EXPECT_EQ(script->fuses_micro_batches(), layers->fuses_micro_batches());
    EXPECT_EQ(script->initial_parameters(77), theta) << "the file's, whatever the seed";
    EXPECT_EQ(script->initial_buffers(), layers->initial_buffers());

    auto buffers = layers->initial_buffers();
    for (float& value : buffers) value += 0.25f;
    const auto ours = script->gradient(theta.data(), buffers.data(), micro_batches);
    const auto theirs = layers->gradient(theta.data(), buffers.data(), micro_batches);
    EXPECT_LT(relative_distance(flatten(ours), flatten(theirs)), 1e-6);
    EXPECT_NEAR(ours.loss_sum, theirs.loss_sum, 1e-6 * theirs.loss_sum);
    if (!buffers.empty()) {
      EXPECT_LT(relative_distance(ours.buffers_sum, theirs.buffers_sum), 1e-6);
      EXPECT_LT(relative_distance(script->batch_statistics(theta.data(), micro_batches),
                                  layers->batch_statistics(theta.data(), micro_batches)),
                1e-5);
    }
    const auto evaluated = script->evaluate(theta.data(), buffers.data(), Split::test, 3, 45);
    const auto expected = layers->evaluate(theta.data(), buffers.data(), Split::test, 3, 45);
    EXPECT_NEAR(evaluated.loss, expected.loss, 1e-6 * expected.loss);
    EXPECT_EQ(evaluated.correct, expected.correct);
  }
}

// The processor as another device: copies of the same tensors.
TEST_F(ScriptModules, GiveTheSameBitsOnADeviceThatCopies) {
  for (const auto& [name, network] : networks()) {
    SCOPED_TRACE(name);
    save_script(file(), network, objective_of(network)->initial_parameters(3));
    const Network script = load(network.input());
    const auto results = [&](const Arithmetic& arithmetic) {
      const auto data = std::make_shared<RandomImages>(network.input(), classes, 200, 50);
      const TorchObjective objective(script, data, sampling, 32, 0, 0, arithmetic);
      const auto theta = objective.initial_parameters(3), buffers = objective.initial_buffers();
      const PartialGradient gradient = objective.gradient(theta.data(), buffers.data(), micro_batches);
      std::vector<float> all = flatten(gradient);
      all.insert(all.end(), gradient.buffers_sum.begin(), gradient.buffers_sum.end());
      const auto statistics = objective.batch_statistics(theta.data(), micro_batches);
      all.insert(all.end(), statistics.begin(), statistics.end());
      all.push_back(static_cast<float>(objective.evaluate(theta.data(), buffers.data(), Split::test, 3, 45).loss));
      return all;
    };
    EXPECT_EQ(results({.device = "cpu:copy"}), results({}));
  }
}

// LibTorch's device "meta" has shapes without values. Like a GPU's operators, its operators refuse tensors of two
// devices. Tensors that are not trained must have moved with the module. The next evaluation is on the processor again.
TEST_F(ScriptModules, AreEvaluatedWhereTheirParametersAre) {
  save_linear("y = y * self.scale + self.offset\nif self.training:\n    self.mean.mul_(0.5)",
              {{.name = "offset", .shape = {4}, .kind = Kind::buffer},
               {.name = "scale", .shape = {4}, .kind = Kind::frozen_parameter},
               {.name = "mean", .shape = {4}, .kind = Kind::buffer}});
  const Network network = load();
  ASSERT_EQ(network.buffer_floats(), 4u);
  const auto outputs_on = [&](const at::Device& device) {
    const auto parameters = view_parameters(network, at::ones({12}, device));
    const auto buffers = view_buffers(network, at::ones({4}, device));
    return forward(network, parameters, buffers, at::ones({5, 1, 1, 3}, device), Mode::train);
  };
  const at::Tensor before = outputs_on(at::kCPU);
  EXPECT_TRUE(outputs_on(at::kMeta).is_meta());
  EXPECT_TRUE(outputs_on(at::kCPU).equal(before));
}

// A run begins with an evaluation, in inference mode, and then trains.
TEST_F(ScriptModules, AreTrainedOnADeviceWhereTheyWereEvaluatedFirst) {
  save_linear("y = y * self.scale", {{.name = "scale", .shape = {4}, .kind = Kind::frozen_parameter}});
  const Network network = load();
  const auto parameters_of = [&] { return view_parameters(network, at::ones({12}, at::Device(at::kMeta))); };
  const at::Tensor inputs = at::ones({5, 1, 1, 3}, at::Device(at::kMeta));
  {
    const c10::InferenceMode evaluation;
    EXPECT_TRUE(forward(network, parameters_of(), {}, inputs, Mode::evaluate).is_meta());
  }
  auto parameters = parameters_of();
  for (at::Tensor& parameter : parameters) parameter.requires_grad_();
  const at::Tensor outputs = forward(network, parameters, {}, inputs, Mode::train);
  for (const at::Tensor& gradient : gradients_of(outputs.sum(), parameters)) EXPECT_TRUE(gradient.is_meta());
}

TEST_F(ScriptModules, TensorsHaveTheModulesNames) {
  save_linear("y = y + self.offset",
              {{.name = "offset", .shape = {4}}, {.name = "still", .shape = {2, 2}, .kind = Kind::frozen_parameter}});
  const Network network = load();
  ASSERT_EQ(network.tensors().size(), 2u);
  EXPECT_EQ(network.tensors()[0].name, "weight") << "matrices come first";
  EXPECT_EQ(network.tensors()[1].name, "offset");
  EXPECT_EQ(network.parameter_floats(), 16u) << "what needs no gradient is not trained";
}

TEST_F(ScriptModules, MatricesAreDrawnLikeTheFilesIfAskedFor) {
  save_script(file(), {{.name = "weight", .shape = {4, 300}}, {.name = "offset", .shape = {4}}},
              "return torch.linear(x, self.weight, self.offset)");
  const SampleShape wide{.width = 300};
  const auto of_file = objective_of(load(wide))->initial_parameters(1);
  const auto drawn = objective_of(load(wide, {.drawn = true}));
  const auto theta = drawn->initial_parameters(1);
  EXPECT_EQ(theta, drawn->initial_parameters(1));
  EXPECT_NE(theta, drawn->initial_parameters(2));
  EXPECT_EQ(std::vector(theta.end() - 4, theta.end()), std::vector(of_file.end() - 4, of_file.end()));
  const auto moments = [](const std::vector<float>& values) {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < 1200; ++i) sum += values[i], squares += values[i] * values[i];
    return std::pair{sum / 1200, std::sqrt(squares / 1200 - sum / 1200 * sum / 1200)};
  };
  const auto [mean, deviation] = moments(of_file);
  const auto [drawn_mean, drawn_deviation] = moments(theta);
  EXPECT_NEAR(drawn_mean, mean, 4 * deviation / std::sqrt(1200.0));
  EXPECT_NEAR(drawn_deviation, deviation, 4 * deviation / std::sqrt(2400.0));
}

// The module also has parameters that forward does not use, and others that are not trained.
TEST_F(ScriptModules, HaveTheDerivativesOfTheSameNetworkOfLayers) {
  const Network network = mlp_network(vectors, classes, {});
  const auto layers = objective_of(network);
  const auto theta = layers->initial_parameters(3);
  const auto values = [&](std::size_t begin, std::size_t count) {
    const auto from = theta.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::vector<float>(from, from + static_cast<std::ptrdiff_t>(count));
  };
  save_script(file(),
              {{.name = "weight", .shape = {4, 3}, .values = values(0, 12)},
               {.name = "offset", .shape = {4}, .values = values(12, 4)},
               {.name = "idle", .shape = {2}},
               {.name = "ones", .shape = {4}, .values = {1, 1, 1, 1}, .kind = Kind::frozen_parameter}},
              "return torch.linear(x, self.weight, self.offset) * self.ones");
  const Network loaded = load();
  EXPECT_EQ(loaded.why_no_derivative(), "");
  const auto script = objective_of(loaded);
  const auto all = script->initial_parameters(3);
  std::vector<double> direction(18);
  for (std::size_t i = 0; i < direction.size(); ++i) direction[i] = std::cos(static_cast<double>(i));
  const std::span<const double> none, used(direction.data(), 16);
  for (const bool second : {false, true}) {
    const auto found = script->derivative(all.data(), nullptr, Split::train, 0, 50,
                                          second ? std::span<const double>(direction) : none);
    const auto expected = layers->derivative(theta.data(), nullptr, Split::train, 0, 50, second ? used : none);
    for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(found[i], expected[i], 1e-9) << second;
    EXPECT_EQ(found[16], 0);
    EXPECT_EQ(found[17], 0);
  }
}

TEST_F(ScriptModules, SayWhyTheyHaveNoDerivatives) {
  save_script(file(), {{.name = "weight", .shape = {4, 3}}}, "return torch.linear(x.float(), self.weight)");
  EXPECT_THAT(load().why_no_derivative(), HasSubstr("its forward fails on inputs of shape [4, 3]: "));
}

// A module that subtracts a batch's mean mixes the samples of the batch.
TEST_F(ScriptModules, AreFusedOnlyWhereSamplesDoNotMix) {
  save_linear("");
  EXPECT_TRUE(load().fuses());
  EXPECT_FALSE(load(vectors, {.fused = false}).fuses());
  save_linear("if self.training:\n    y = y - torch.mean(y, [0], True)");
  EXPECT_FALSE(load().fuses());
  save_linear("y = y * (1 if self.training else 2)");
  EXPECT_TRUE(load().fuses());
}

// A last layer of zeros hides whether samples mix, because its output is the same for all inputs.
TEST_F(ScriptModules, SamplesThatMixBeforeALayerOfZerosAreNotFused) {
  const ScriptTensor zeros{.name = "weight", .shape = {4, 3}, .values = std::vector<float>(12)};
  save_script(file(), {zeros},
              "if self.training:\n    x = x - torch.mean(x, [0], True)\nreturn torch.linear(x, self.weight)");
  EXPECT_FALSE(load().fuses());
  save_script(file(), {zeros}, "return torch.linear(x, self.weight)");
  EXPECT_TRUE(load().fuses());
}

// If samples mixed in evaluation, the accuracy would depend on the number of samples evaluated together.
TEST_F(ScriptModules, SamplesThatMixInEvaluationAreAFault) {
  const auto mixes = HasSubstr("in evaluation its outputs for a sample depend on the other samples of the batch");
  save_linear("y = y - torch.mean(y, [0], True)");
  EXPECT_THAT(fault(), mixes);
  save_linear("if not self.training:\n    y = y - torch.mean(y, [0], True)");
  EXPECT_THAT(fault(), mixes);
  // Batch normalisation without running statistics, before a layer of zeros.
  const ScriptTensor zeros{.name = "weight", .shape = {4, 2}, .values = std::vector<float>(8)};
  const SampleShape images{.channels = 2, .height = 5, .width = 5};
  for (const auto& [statistics, is_right] : {std::pair{"True", false}, {"self.training", true}}) {
    save_script(file(),
                {zeros,
                 {.name = "mean", .shape = {2}, .kind = Kind::buffer},
                 {.name = "variance", .shape = {2}, .kind = Kind::buffer}},
                fmt::format("x = torch.batch_norm(x, None, None, self.mean, self.variance, {}, 0.1, 1e-05, False)\n"
                            "return torch.linear(torch.relu(x).mean([2, 3]), self.weight)",
                            statistics));
    if (is_right)
      EXPECT_EQ(fault(images), "");
    else
      EXPECT_THAT(fault(images), mixes);
  }
}

TEST_F(ScriptModules, RandomNumbersInEvaluationAreAFault) {
  save_linear("y = torch.dropout(y, 0.5, True)");
  EXPECT_THAT(fault(), HasSubstr("its forward draws random numbers in evaluation; it may do so only in training"));
}

// The reader tries every module with a few samples. These modules only fail with batches of the run's size.
TEST_F(ScriptModules, OnesThatFailAtTheRunsOwnBatchesAreAFault) {
  const auto found = [&](std::int64_t trained, std::int64_t evaluated) {
    const ScriptOptions options{.trial = {.trained = trained, .evaluated = evaluated}};
    return ScriptFolder::fault({.shape = vectors, .classes = classes}, options);
  };
  save_linear("if self.training:\n    assert x.size(0) > 1, 'Expected more than 1 value per channel'");
  EXPECT_THAT(found(1, 8), AllOf(HasSubstr("inputs of shape [1, 3]"), HasSubstr("more than 1 value per channel"),
                                 HasSubstr("training.micro_batch_size = 1")));
  EXPECT_EQ(found(2, 1), "");
  save_linear("y = y[:4]");
  EXPECT_THAT(found(5, 4), AllOf(HasSubstr("returns shape [4, 4] for inputs of shape [5, 3]"),
                                 HasSubstr("training.micro_batch_size = 5")));
  EXPECT_THAT(found(4, 32), HasSubstr("chunk_samples = 32"));
  EXPECT_EQ(found(3, 4), "");
  EXPECT_EQ(found(0, 0), "");
}

TEST_F(ScriptModules, NumbersThatAreNotFiniteAreAFault) {
  save_linear("y = y / 0.0");
  EXPECT_THAT(fault(), HasSubstr("its forward returns numbers that are not finite for random inputs of shape [4, 3]"));
}

// `seen` counts calls as an integer, beside floats. Each micro-batch starts from the model's count.
TEST_F(ScriptModules, IntegerBuffersAreKept) {
  save_linear("if self.training:\n    self.seen.add_(1)\n    self.kept = self.kept * 0.5",
              {{.name = "seen", .values = {41}, .kind = Kind::buffer, .type = Type::integers},
               {.name = "kept", .shape = {2}, .values = {8, 6}, .kind = Kind::buffer},
               {.name = "constant", .shape = {3}, .kind = Kind::buffer}});
  const auto objective = objective_of(load());
  EXPECT_THAT(objective->initial_buffers(), ElementsAre(41, 8, 6));
  EXPECT_FALSE(objective->fuses_micro_batches());
  const auto theta = objective->initial_parameters(1);
  const std::vector<float> buffers = {100, 2, 1};
  EXPECT_THAT(objective->gradient(theta.data(), buffers.data(), micro_batches).buffers_sum, ElementsAre(303, 3, 1.5));
}

TEST_F(ScriptModules, WhatIsNotUsedHasAGradientOfZero) {
  save_linear("y = y + self.a + self.b",
              {{.name = "a", .shape = {4}}, {.name = "b", .shape = {4}}, {.name = "idle", .shape = {2}}});
  const auto objective = objective_of(load(vectors, {.fused = false}));
  const auto sum = gradient_of(*objective, micro_batches);
  ASSERT_EQ(sum.size(), 12u + 4 + 4 + 2);
  // Both summands a and b have the gradient of the logits. This also holds for sums over micro-batches.
  std::vector<float> expected(4);
  for (const MicroBatch& one : micro_batches) {
    const auto part = gradient_of(*objective, std::span(&one, 1));
    for (std::size_t i = 0; i < 4; ++i) expected[i] += part[12 + i];
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(sum[12 + i], expected[i], 1e-5);
    EXPECT_EQ(sum[16 + i], sum[12 + i]);
  }
  EXPECT_EQ(sum[20], 0);
  EXPECT_EQ(sum[21], 0);
}

// Dropout does not depend on other threads, nor on earlier computations.
TEST_F(ScriptModules, DropoutIsAFunctionOfTheMicroBatch) {
  save_linear("y = torch.dropout(y, 0.5, self.training)");
  const auto objective = objective_of(load());
  EXPECT_FALSE(objective->fuses_micro_batches());
  std::vector<std::vector<float>> expected;
  for (const MicroBatch& one : micro_batches) expected.push_back(gradient_of(*objective, std::span(&one, 1)));
  EXPECT_NE(expected[0], expected[1]);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 60; ++i) {
        const auto m = static_cast<std::size_t>(i) % 3;
        EXPECT_EQ(gradient_of(*objective, std::span(&micro_batches[m], 1)), expected[m]);
      }
    });
  for (auto& thread : threads) thread.join();
}

// Threads have their own modules and submodules, so no thread sees another's parameters or mode.
TEST_F(ScriptModules, ThreadsWithOtherModelsDoNotDisturbEachOther) {
  save_nested_script(file());
  const auto objective = objective_of(load());
  EXPECT_EQ(objective->tensors().front().name, "inner.weight");
  const auto at = [&](float shift) {
    auto theta = objective->initial_parameters(1);
    for (std::size_t i = 0; i < theta.size(); ++i) theta[i] += shift * static_cast<float>(i);
    return theta;
  };
  const auto result_at = [&](float shift) {
    const auto theta = at(shift);
    const float* const none = nullptr;
    auto values = flatten(objective->gradient(theta.data(), none, std::span(micro_batches.data(), 1)));
    values.push_back(static_cast<float>(objective->evaluate(theta.data(), none, Split::test, 0, 50).loss));
    return values;
  };
  std::vector<std::vector<float>> expected;
  for (int t = 0; t < 4; ++t) expected.push_back(result_at(0.1f * static_cast<float>(t)));
  EXPECT_NE(expected[0], expected[1]);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i)
        EXPECT_EQ(result_at(0.1f * static_cast<float>(t)), expected[static_cast<std::size_t>(t)]);
    });
  for (auto& thread : threads) thread.join();
}

// A quarter of the features are dropped and the others multiplied by 4/3, so that the mean does not change.
TEST_F(ScriptModules, DropoutDropsItsShare) {
  save_script(file(),
              {{.name = "weight", .shape = {4, 3}, .values = std::vector<float>(12)},
               {.name = "scale", .shape = {4}, .values = {1, 1, 1, 1}}},
              "return torch.linear(x, self.weight) + self.scale * torch.dropout(torch.ones([x.size(0), 4]), 0.25, "
              "self.training)");
  const auto objective = objective_of(load());
  const auto theta = objective->initial_parameters(1);
  // Equal logits have the loss log 4. Masks that drop another share would give another mean loss.
  double loss = 0;
  int batches = 0;
  for (int worker = 0; worker < 2; ++worker)
    for (int index = 0; index < 3; ++index)
      for (std::int64_t step = 0; step < 30; ++step, ++batches) {
        const MicroBatch one{.worker = Rank{worker}, .step = step, .index = index};
        loss += objective->gradient(theta.data(), nullptr, std::span(&one, 1)).loss_sum;
      }
  // E[log sum exp] - E[logit] over masks of four values, which are each 4/3 with probability 3/4 and otherwise 0.
  double expected = 0;
  const double weights[] = {1 / 256.0, 12 / 256.0, 54 / 256.0, 108 / 256.0, 81 / 256.0};
  for (int kept = 0; kept <= 4; ++kept)
    expected += weights[kept] * (std::log(kept * std::exp(4 / 3.0) + 4 - kept) - kept / 3.0);
  EXPECT_NEAR(loss / batches, expected, 0.03);
}

TEST_F(ScriptModules, AFileThatIsNoModuleIsAFault) {
  std::ofstream(file()) << "no archive";
  EXPECT_THAT(fault(), HasSubstr("is not a module saved by torch.jit.script or torch.jit.trace: "));
}

TEST_F(ScriptModules, AModuleThatCannotBeTrainedIsAFault) {
  save_linear("y = y + self.count",
              {{.name = "count", .shape = {4}, .kind = Kind::frozen_parameter, .type = Type::integers}});
  EXPECT_THAT(fault(), HasSubstr("parameter count has elements of type Long; must have float32"));
  save_linear("", {{.name = "wide", .shape = {4}, .kind = Kind::frozen_parameter, .type = Type::doubles}});
  EXPECT_THAT(fault(), HasSubstr("parameter wide has elements of type Double"));
  save_script(file(), {}, "return x");
  EXPECT_THAT(fault(), HasSubstr("has no trainable parameters"));
  save_linear("y = y.detach()");
  EXPECT_THAT(fault(), HasSubstr("has no gradient with respect to any parameter"));
  save_linear("self.calls = self.calls + 1");
  EXPECT_THAT(fault(), HasSubstr("changes the number calls"));
  save_linear("self.moved.add_(1)", {{.name = "moved", .shape = {4}, .kind = Kind::buffer, .type = Type::doubles}});
  EXPECT_THAT(fault(), HasSubstr("buffer moved, which changes in training, has elements of type Double"));
}

TEST_F(ScriptModules, AForwardThatSuitsNotTheDataIsAFault) {
  save_linear("");
  EXPECT_THAT(fault({.width = 5}),
              testing::AllOf(HasSubstr("its forward fails on inputs of shape [4, 5]: "), HasSubstr("mat1 and mat2")));
  save_linear("assert x.size(0) != 4, 'no fours'");
  EXPECT_THAT(fault(),
              testing::AllOf(HasSubstr("its forward fails on inputs of shape [4, 3]: "), HasSubstr("no fours")));
  save_linear("y = torch.cat([y, y], 1)");
  EXPECT_THAT(fault(), HasSubstr("returns shape [4, 8] for inputs of shape [4, 3]; must return (4, 4)"));
  save_script(file(), {{.name = "weight", .shape = {4, 3}}}, "y = torch.linear(x, self.weight)\nreturn y, y");
  EXPECT_THAT(fault(), HasSubstr("returns Tuple; must return a tensor"));
  save_linear("y = y.double()");
  EXPECT_THAT(fault(), HasSubstr("returns elements of type Double"));
}

// The reader detects a tensor that changes. If it changes only later, the run detects it.
TEST_F(ScriptModules, ATensorThatChangesUnseenFailsTheRun) {
  save_linear("if x.size(0) == 5:\n    self.late.add_(1)", {{.name = "late", .shape = {4}, .kind = Kind::buffer}});
  const auto objective = objective_of(load());
  const auto theta = objective->initial_parameters(1);
  EXPECT_THROW(objective->gradient(theta.data(), nullptr, std::span(micro_batches.data(), 1)), ScriptFault);
}

// The same layers: on copies of the inputs, and in place.
TEST_F(ScriptModules, MayChangeTheirInputsInPlace) {
  const std::vector<ScriptTensor> tensors = {
      {.name = "weight", .shape = {4, 3}},
      {.name = "mean", .shape = {3}, .values = {0, 0, 0}, .kind = Kind::buffer},
      {.name = "variance", .shape = {3}, .values = {1, 1, 1}, .kind = Kind::buffer}};
  const auto of = [&](const std::string& doubled, const std::string& rest) {
    save_script(file(), tensors, fmt::format("x = {}\n{}return torch.linear(x, self.weight)", doubled, rest));
    return objective_of(load());
  };
  const std::string normalised =
      "x = torch.batch_norm(x, None, None, self.mean, self.variance, self.training, 0.1, 1e-05, False)\n";
  for (const std::string& rest : {std::string(), normalised}) {
    const auto expected = of("x * 2 + 1", rest), found = of("x.mul_(2).add_(1)", rest);
    const auto theta = expected->initial_parameters(1), buffers = expected->initial_buffers();
    const auto other = expected->initial_parameters(1);
    EXPECT_EQ(flatten(found->gradient(theta.data(), buffers.data(), micro_batches)),
              flatten(expected->gradient(theta.data(), buffers.data(), micro_batches)));
    const std::vector<const float*> members = {theta.data(), other.data()},
                                    of_members = {buffers.data(), buffers.data()};
    EXPECT_EQ(found->evaluate_ensemble(members, of_members, Split::test, 0, 50).loss,
              expected->evaluate_ensemble(members, of_members, Split::test, 0, 50).loss);
    if (!rest.empty()) {
      EXPECT_EQ(found->batch_statistics(theta.data(), micro_batches),
                expected->batch_statistics(theta.data(), micro_batches));
    }
  }
}

// A trace of a module contains the mode in which it was traced as a constant.
TEST_F(ScriptModules, WhatATraceHasFixedIsSaid) {
  const auto note = [&](const std::string& lines) {
    save_linear(lines, {{.name = "mean", .shape = {4}, .kind = Kind::buffer},
                        {.name = "variance", .shape = {4}, .values = {1, 1, 1, 1}, .kind = Kind::buffer}});
    return load().note();
  };
  const std::string norm = "y = torch.batch_norm(y, None, None, self.mean, self.variance, {}, 0.1, 1e-05, False)\n",
                    dropout = "y = torch.dropout(y, 0.5, {})\n";
  const auto with = [](const std::string& line, const char* mode) { return fmt::format(fmt::runtime(line), mode); };
  EXPECT_EQ(note(with(norm, "self.training") + with(dropout, "self.training")), "");
  EXPECT_THAT(note(with(norm, "self.training") + with(dropout, "False") + with(dropout, "False")),
              HasSubstr("its code has 2 dropouts without effect, both in training and in evaluation"));
  EXPECT_THAT(note(with(norm, "False") + with(dropout, "self.training")),
              HasSubstr("its code has 1 normalisation by the file's statistics, both in training and"));
  EXPECT_THAT(note(with(norm, "False") + with(dropout, "False")),
              HasSubstr("1 dropout without effect and 1 normalisation by the file's statistics"));
  EXPECT_THAT(note("if x.size(0) > 2:\n    " + with(dropout, "False")), HasSubstr("1 dropout"));
  save_linear(with(dropout, "True"));
  EXPECT_THAT(fault(), HasSubstr("draws random numbers in evaluation; it may do so only in training: its code has 1 "
                                 "dropout in effect, both in training and in evaluation, because torch.jit.trace "
                                 "saved it in train() mode; torch.jit.script keeps both modes"));
}

// Modules of a user that take tokens: their inputs for texts of different lengths, and the use of their outputs.
// References process one text at a time, so they need no padding.
namespace script_texts_tests {

using testing::HasSubstr;
using Kind = TextTask::Kind;

constexpr std::int64_t vocabulary = 23, classes = 4, longest = 12;
const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                               {.worker = Rank{0}, .step = 0, .index = 2},
                                               {.worker = Rank{1}, .step = 8, .index = 0}};
const std::shared_ptr<const Dataset> texts = random_texts(vocabulary, classes, 3, longest, 200, 50);

// For a text the network `linear` computes the mean of the rows of its tokens, plus a bias.
const std::vector<ScriptTensor> bag = {{.name = "weight", .shape = {vocabulary, classes}},
                                       {.name = "offset", .shape = {classes}}};
struct Bag {
  std::string name, arguments, forward;
  bool pads;
};
const std::vector<Bag> bags = {
    {"told lengths", "x, lengths",
     "e = torch.embedding(self.weight, x)\n"
     "held = (torch.arange(x.size(1)).unsqueeze(0) < lengths.unsqueeze(1)).unsqueeze(2)\n"
     "return (e * held).sum(1) / lengths.unsqueeze(1) + self.offset",
     true},
    {"lengths may be none", "x, lengths: Optional[Tensor] = None",
     "if lengths is None:\n    return torch.embedding(self.weight, x).sum(1)\n"
     "e = torch.embedding(self.weight, x)\n"
     "held = (torch.arange(x.size(1)).unsqueeze(0) < lengths.unsqueeze(1)).unsqueeze(2)\n"
     "return (e * held).sum(1) / lengths.unsqueeze(1) + self.offset",
     true},
    {"sees padding", "x",
     "held = (x != 0).unsqueeze(2)\n"
     "return (torch.embedding(self.weight, x) * held).sum(1) / held.sum(1) + self.offset",
     true},
    {"knows none", "x", "return torch.embedding(self.weight, x).mean(1) + self.offset", false},
};

// Decoders, which mix the rows of a text's tokens: `around` from all places, `before` from this and earlier places.
const std::vector<ScriptTensor> decoder = {{.name = "words", .shape = {vocabulary, 3}},
                                           {.name = "output", .shape = {vocabulary, 3}}};
const char* const around =
    "e = torch.embedding(self.words, x) * (x != 0).unsqueeze(2)\n"
    "e = torch.tanh(e + e.sum(1, True))\nreturn torch.linear(e, self.output)";
const char* const before = "e = torch.cumsum(torch.embedding(self.words, x), 1)\nreturn torch.linear(e, self.output)";

class ScriptsOfTexts : public ScriptFolder {
 protected:
  using Objective = std::shared_ptr<const TorchObjective>;
  static Objective objective_of(const Network& network, const std::shared_ptr<const Dataset>& of = texts) {
    return std::make_shared<TorchObjective>(network, of, sampling, 32);
  }
  Objective saved(const std::vector<ScriptTensor>& tensors, const std::string& forward,
                  const ScriptOptions& options = {}, const std::string& arguments = "x") const {
    save_script(file(), tensors, forward, arguments);
    return objective_of(load(texts->size(), options));
  }
  std::string fault_of(const std::vector<ScriptTensor>& tensors, const std::string& forward,
                       const ScriptOptions& options = {}) const {
    save_script(file(), tensors, forward);
    return fault(texts->size(), options);
  }
};

void expect_near(std::span<const float> found, std::span<const double> expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << i;
}

std::vector<double> in_doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

TEST_F(ScriptsOfTexts, ComputeWhatABagOfWordsDoesHoweverPaddingIsToldToThem) {
  const auto layers = objective_of(linear_network(texts->size().shape, classes));
  for (const Bag& one : bags) {
    SCOPED_TRACE(one.name);
    const auto script = saved(bag, one.forward, {}, one.arguments);
    EXPECT_EQ(script->network().task().pads, one.pads);
    EXPECT_TRUE(script->fuses_micro_batches());
    const auto theta = script->initial_parameters(1);
    const auto all = std::span(micro_batches);
    for (const auto kept : {all, all.first(1), all.subspan(1)}) {
      const auto ours = script->gradient(theta.data(), nullptr, kept);
      const auto theirs = layers->gradient(theta.data(), nullptr, kept);
      expect_near(flatten(ours), in_doubles(flatten(theirs)), 1e-6);
      EXPECT_NEAR(ours.loss_sum, theirs.loss_sum, 1e-5);
    }
    const auto found = script->evaluate(theta.data(), nullptr, Split::test, 3, 45);
    const auto expected = layers->evaluate(theta.data(), nullptr, Split::test, 3, 45);
    EXPECT_NEAR(found.loss, expected.loss, 1e-4);
    EXPECT_EQ(found.correct, expected.correct);
    EXPECT_EQ(found.samples, 42);
  }
}

// A micro-batch's gradient does not depend on what it is fused with.
TEST_F(ScriptsOfTexts, TheSumOverMicroBatchesIsThatOfEach) {
  for (const Bag& one : bags) {
    SCOPED_TRACE(one.name);
    const auto script = saved(bag, one.forward, {}, one.arguments);
    const auto theta = script->initial_parameters(1);
    std::vector<double> sum(theta.size());
    for (const MicroBatch& each : micro_batches) {
      const auto part = flatten(script->gradient(theta.data(), nullptr, {&each, 1}));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    expect_near(flatten(script->gradient(theta.data(), nullptr, micro_batches)), sum, 1e-6);
  }
}

// A text and the tokens to predict in it: hidden ones by the rules of dataset.hpp, or the next token at each place.
struct Asked {
  std::vector<std::int64_t> tokens, places, answers;
};

Asked ask_of(Kind kind, std::uint32_t sample, std::int64_t epoch) {
  const auto tokens = sample_tokens(*texts, Split::train, sample);
  Asked asked;
  if (kind == Kind::causal_lm) {
    asked.tokens.assign(tokens.begin(), tokens.end() - 1);
    asked.answers.assign(tokens.begin() + 1, tokens.end());
    for (std::size_t i = 0; i < asked.tokens.size(); ++i) asked.places.push_back(static_cast<std::int64_t>(i));
    return asked;
  }
  const MaskedText masked =
      mask(tokens, texts->size(), {}, masking_stream(sampling.seed, Split::train, sample, epoch, {}));
  asked.tokens.assign(masked.tokens.begin(), masked.tokens.end());
  for (const std::int32_t place : masked.places) {
    asked.places.push_back(place);
    asked.answers.push_back(tokens[static_cast<std::size_t>(place)]);
  }
  return asked;
}

struct Reference {
  double loss = 0;
  std::vector<double> gradient;
};

// Computes in double precision, text by text. A micro-batch's loss is the mean over all tokens to predict in its texts.
Reference reference(Kind kind, const std::vector<float>& theta) {
  const auto parameter = [&](std::int64_t at) {
    return torch::tensor(in_doubles(theta), torch::kDouble)
        .narrow(0, at * vocabulary * 3, vocabulary * 3)
        .view({vocabulary, 3});
  };
  const torch::Tensor words = parameter(0).clone().requires_grad_(), output = parameter(1).clone().requires_grad_();
  const Sampler sampler(sampling);
  torch::Tensor loss = torch::zeros({}, torch::kDouble);
  for (const MicroBatch& one : micro_batches) {
    std::vector<std::uint32_t> samples;
    sampler.append_samples(one, samples);
    torch::Tensor sum = torch::zeros({}, torch::kDouble);
    std::size_t targets = 0;
    for (const std::uint32_t sample : samples) {
      const Asked asked = ask_of(kind, sample, one.step.value() / sampler.steps_per_epoch());
      const torch::Tensor tokens = torch::tensor(asked.tokens), all = words.index_select(0, tokens);
      const torch::Tensor e = all * tokens.ne(0).unsqueeze(1);  // a hidden token may be shown as padding
      const torch::Tensor mixed = kind == Kind::causal_lm ? all.cumsum(0) : torch::tanh(e + e.sum(0, true));
      const torch::Tensor logits = torch::matmul(mixed, output.t()).index_select(0, torch::tensor(asked.places));
      sum = sum + torch::nn::functional::cross_entropy(
                      logits, torch::tensor(asked.answers),
                      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
      targets += asked.answers.size();
    }
    loss = loss + sum / static_cast<double>(targets);
  }
  loss.backward();
  const torch::Tensor flat = torch::cat({words.grad().flatten(), output.grad().flatten()});
  return {loss.item<double>(), {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()}};
}

TEST_F(ScriptsOfTexts, FindHiddenAndNextTokens) {
  for (const auto& [kind, forward] : {std::pair{Kind::masked_lm, around}, {Kind::causal_lm, before}}) {
    SCOPED_TRACE(forward);
    const auto script = saved(decoder, forward, {.task = {.kind = kind}});
    EXPECT_TRUE(script->network().task().pads);
    const auto theta = script->initial_parameters(1);
    const auto found = script->gradient(theta.data(), nullptr, micro_batches);
    const Reference expected = reference(kind, theta);
    EXPECT_NEAR(found.loss_sum, expected.loss, 1e-4);
    expect_near(flatten(found), expected.gradient, 1e-5);
  }
}

// An evaluation predicts all tokens of the test texts except the first tokens.
TEST_F(ScriptsOfTexts, AnEvaluationIsOverAllThatIsAskedFor) {
  const auto script = saved(decoder, before, {.task = {.kind = Kind::causal_lm}});
  std::int64_t targets = 0;
  for (std::uint32_t sample = 0; sample < 50; ++sample)
    targets += std::ssize(sample_tokens(*texts, Split::test, sample)) - 1;
  const auto theta = script->initial_parameters(1);
  EXPECT_EQ(script->evaluate(theta.data(), nullptr, Split::test, 0, 50).samples, targets);
}

TEST_F(ScriptsOfTexts, LongerTextsAreCut) {
  const auto cut = [&](Split split, std::int64_t count) {
    TokenSequences sequences;
    for (std::uint32_t sample = 0; sample < count; ++sample) {
      const auto tokens = sample_tokens(*texts, split, sample);
      std::int64_t label = 0;
      texts->gather(split, {&sample, 1}, nullptr, &label);
      sequences.add(tokens.first(std::min<std::size_t>(tokens.size(), 5)), label);
    }
    return sequences;
  };
  const auto shorter = make_token_dataset(texts->size(), cut(Split::train, 200), cut(Split::test, 50));
  const auto layers = objective_of(linear_network(texts->size().shape, classes), shorter);
  const auto script = saved(bag, bags[2].forward, {.task = {.longest = 5}});
  const auto theta = script->initial_parameters(1);
  expect_near(flatten(script->gradient(theta.data(), nullptr, micro_batches)),
              in_doubles(flatten(layers->gradient(theta.data(), nullptr, micro_batches))), 1e-6);
}

TEST_F(ScriptsOfTexts, DropoutIsAFunctionOfTheMicroBatch) {
  const auto script =
      saved(bag, "return torch.dropout(torch.embedding(self.weight, x), 0.5, self.training).mean(1) + self.offset");
  EXPECT_FALSE(script->fuses_micro_batches());
  const auto theta = script->initial_parameters(1);
  std::vector<double> sum(theta.size());
  for (const MicroBatch& each : micro_batches) {
    const auto part = flatten(script->gradient(theta.data(), nullptr, {&each, 1}));
    EXPECT_EQ(part, flatten(script->gradient(theta.data(), nullptr, {&each, 1})));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  expect_near(flatten(script->gradient(theta.data(), nullptr, micro_batches)), sum, 1e-6);
}

// The fault is found before training, even if few sequences are that short.
TEST_F(ScriptsOfTexts, AModuleThatFailsOnTheShortestSequenceIsAFault) {
  const std::string needs_four =
      "assert x.size(1) > 3, 'too short'\nreturn torch.embedding(self.weight, x).mean(1) + self.offset";
  const auto fault_with = [&](std::int32_t padding, std::int64_t shortest, const std::string& forward) {
    save_script(file(), bag, forward);
    DatasetSize size = texts->size();
    size.marks.padding = padding;
    size.shortest = shortest;
    return fault(size);
  };
  for (const std::int32_t padding : {0, -1}) {
    EXPECT_THAT(fault_with(padding, 3, needs_four),
                testing::AllOf(HasSubstr("its forward fails on inputs of shape [4, 3]: "), HasSubstr("too short"),
                               HasSubstr("; the data set's shortest sequence has 3 tokens")));
    EXPECT_EQ(fault_with(padding, 4, needs_four), "");
  }
  const std::string of_all_places = "return torch.embedding(self.weight, x).reshape(-1, 48)[:, :4]";
  EXPECT_THAT(fault_with(-1, 3, of_all_places),
              HasSubstr("returns shape [1, 4] for inputs of shape [4, 3]; must return (4, 4)"));
  EXPECT_EQ(fault_with(-1, longest, of_all_places), "") << "all sequences are as long";
  save_script(file(), bag, needs_four);
  EXPECT_THAT(fault(texts->size(), {.task = {.longest = 2}}), HasSubstr("too short"));
}

// A module may need whole rows of one length, although a causal model does not see the tokens to come.
TEST_F(ScriptsOfTexts, ACausalModuleMayNeedSequencesOfOneLength) {
  const std::string of_eleven = "assert x.size(1) == 11, 'another length'\n";
  DatasetSize size = texts->size();
  size.marks.padding = -1;
  size.shortest = longest;
  save_script(file(), decoder, of_eleven + before);
  EXPECT_EQ(fault(size, {.task = {.kind = Kind::causal_lm}}), "");
  save_script(file(), decoder, of_eleven + around);
  EXPECT_THAT(fault(size, {.task = {.kind = Kind::causal_lm}}), HasSubstr("its logits at a position depend on later"));
}

TEST_F(ScriptsOfTexts, WhatCannotBeTrainedIsAFault) {
  EXPECT_THAT(fault_of(bag, "y = torch.embedding(self.weight, x).mean(1) + self.offset\nreturn y - y.mean(0, True)"),
              HasSubstr("its outputs for a sequence depend on the other sequences of the batch"));
  EXPECT_THAT(fault_of(bag, "return torch.embedding(self.weight, x, -1, False, True).mean(1) + self.offset"),
              HasSubstr("its parameter weight has a sparse gradient"));
  EXPECT_THAT(fault_of(bag, "return torch.embedding(self.weight, x) + self.offset"),
              HasSubstr("returns shape [4, 12, 4] for inputs of shape [4, 12]; must return (4, 4)"));
  EXPECT_THAT(fault_of(bag, bags[3].forward, {.task = {.kind = Kind::masked_lm}}),
              HasSubstr("returns shape [4, 4] for inputs of shape [4, 12]; must return (4, 12, 23)"));
  EXPECT_THAT(fault_of(decoder, around, {.task = {.kind = Kind::causal_lm}}),
              HasSubstr("its logits at a position depend on later tokens"));
  EXPECT_THAT(fault_of({{.name = "weight", .shape = {22, 4}}}, "return torch.embedding(self.weight, x).mean(1)"),
              testing::AllOf(HasSubstr("its forward fails on inputs of shape [4, 12]: "),
                             HasSubstr("the data set has 23 different tokens, numbered from 0, and its longest "
                                       "sequence has 12 tokens")));
  EXPECT_THAT(fault_of({{.name = "weight", .shape = {vocabulary, 4}},
                        {.name = "seen", .kind = ScriptTensor::Kind::buffer, .type = ScriptTensor::Type::integers}},
                       "self.seen.add_(1)\nreturn torch.embedding(self.weight, x).mean(1)"),
              HasSubstr("its buffer seen changes in training; a module for tokens must not have such buffers"));
}

// Changes both the tokens and their lengths in place.
TEST_F(ScriptsOfTexts, MayChangeTheirInputsInPlace) {
  const std::string rest =
      "e = torch.embedding(self.weight, x)\n"
      "held = (torch.arange(x.size(1)).unsqueeze(0) < lengths.unsqueeze(1)).unsqueeze(2)\n"
      "return (e * held).sum(1) / lengths.unsqueeze(1) + self.offset";
  const std::string next = fmt::format("(x + 1) % {}", vocabulary);
  const auto expected =
      saved(bag, fmt::format("x = {}\nlengths = (lengths + 1) // 2\n{}", next, rest), {}, "x, lengths");
  const auto found =
      saved(bag, fmt::format("x = x.copy_({})\nlengths = lengths.copy_((lengths + 1) // 2)\n{}", next, rest), {},
            "x, lengths");
  const auto theta = expected->initial_parameters(1), other = found->initial_parameters(2);
  EXPECT_EQ(flatten(found->gradient(theta.data(), nullptr, micro_batches)),
            flatten(expected->gradient(theta.data(), nullptr, micro_batches)));
  const std::vector<const float*> members = {theta.data(), other.data()}, none = {nullptr, nullptr};
  EXPECT_EQ(found->evaluate_ensemble(members, none, Split::test, 0, 50).loss,
            expected->evaluate_ensemble(members, none, Split::test, 0, 50).loss);
}

}  // namespace script_texts_tests

// The mean-squared error of a user's module in closed form. Outputs are W x; samples have two numbers as targets.

constexpr std::int64_t features = 3, targets = 2, samples_of_each = 40;

// Inputs and targets are normal and independent of each other.
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

// Over these samples: the sum of (w_k x - y_k)^2 / 2 over targets k, and its gradients (w_k x - y_k) x.
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

  // An ensemble's output is the mean of its members' outputs, so for linear functions it is that of the mean W.
  std::vector<float> other = w, mean = w;
  for (std::size_t i = 0; i < w.size(); ++i) other[i] += 0.5f * static_cast<float>(i), mean[i] = (w[i] + other[i]) / 2;
  const float* const members[] = {w.data(), other.data()};
  const float* const none[] = {nullptr, nullptr};
  const double of_mean = closed_form(mean, Split::test, samples).loss;
  EXPECT_NEAR(objective->evaluate_ensemble(members, none, Split::test, 3, 38).loss, of_mean, 1e-5 * of_mean);
}

// For each target, the sum of the samples' Hessians is 2 / targets times the sum of x x^T.
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
