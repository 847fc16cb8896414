// Modules that were saved as TorchScript: the same network as one of layers, gradient by gradient; what a training
// keeps of a module; and what cannot be trained.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/random_images.hpp"
#include "tests/workers/script_files.hpp"
#include "tests/workers/script_folder.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/models/torch_script.hpp"

namespace syncopate {
namespace {

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
  // A linear layer from 3 features to 4 classes, with other tensors and lines before its result `y`.
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

// Also with parameters that forward does not use, and with ones that nobody trains.
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

// The mean of a batch is another one where more samples stand in it.
TEST_F(ScriptModules, AreFusedOnlyWhereSamplesDoNotMix) {
  save_linear("");
  EXPECT_TRUE(load().fuses());
  EXPECT_FALSE(load(vectors, {.fused = false}).fuses());
  save_linear("if self.training:\n    y = y - torch.mean(y, [0], True)");
  EXPECT_FALSE(load().fuses());
  save_linear("y = y * (1 if self.training else 2)");
  EXPECT_TRUE(load().fuses());
}

// A last layer that starts at zero gives the same whatever it is given.
TEST_F(ScriptModules, SamplesThatMixBeforeALayerOfZerosAreNotFused) {
  const ScriptTensor zeros{.name = "weight", .shape = {4, 3}, .values = std::vector<float>(12)};
  save_script(file(), {zeros},
              "if self.training:\n    x = x - torch.mean(x, [0], True)\nreturn torch.linear(x, self.weight)");
  EXPECT_FALSE(load().fuses());
  save_script(file(), {zeros}, "return torch.linear(x, self.weight)");
  EXPECT_TRUE(load().fuses());
}

// How many samples are evaluated together would decide the accuracy.
TEST_F(ScriptModules, SamplesThatMixInEvaluationAreAFault) {
  const auto mixes = HasSubstr("its outputs for a sample depend in evaluation on those that stand beside it");
  save_linear("y = y - torch.mean(y, [0], True)");
  EXPECT_THAT(fault(), mixes);
  save_linear("if not self.training:\n    y = y - torch.mean(y, [0], True)");
  EXPECT_THAT(fault(), mixes);
  // Batch normalisation without running statistics, before a layer that starts at zero.
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
  EXPECT_THAT(fault(), HasSubstr("its forward draws random numbers in evaluation; it may in training alone"));
}

// What the few samples that are always tried do not show.
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
  EXPECT_THAT(fault(), HasSubstr("its forward gives numbers that are not finite for random inputs of shape [4, 3]"));
}

// How often it was called: integers stand beside floats, and each micro-batch goes on from its model's.
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
  // The two summands have the same gradient, that of the logits, also where it is summed over micro-batches.
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

// Whatever other threads compute, and whatever was computed before.
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

// Threads have parts of their own, not only modules: none sees the parameters, or the mode, of another.
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

// Half of what passes is dropped, and the rest doubled: on average nothing has changed.
TEST_F(ScriptModules, DropoutDropsItsShare) {
  save_script(file(),
              {{.name = "weight", .shape = {4, 3}, .values = std::vector<float>(12)},
               {.name = "scale", .shape = {4}, .values = {1, 1, 1, 1}}},
              "return torch.linear(x, self.weight) + self.scale * torch.dropout(torch.ones([x.size(0), 4]), 0.25, "
              "self.training)");
  const auto objective = objective_of(load());
  const auto theta = objective->initial_parameters(1);
  // The loss of equal logits is log 4; masks of another share would move its mean.
  double loss = 0;
  int batches = 0;
  for (int worker = 0; worker < 2; ++worker)
    for (int index = 0; index < 3; ++index)
      for (std::int64_t step = 0; step < 30; ++step, ++batches) {
        const MicroBatch one{.worker = Rank{worker}, .step = step, .index = index};
        loss += objective->gradient(theta.data(), nullptr, std::span(&one, 1)).loss_sum;
      }
  // E[log sum exp] - E[logit]: masks of four values, each 4/3 with probability 3/4.
  double expected = 0;
  const double weights[] = {1 / 256.0, 12 / 256.0, 54 / 256.0, 108 / 256.0, 81 / 256.0};
  for (int kept = 0; kept <= 4; ++kept)
    expected += weights[kept] * (std::log(kept * std::exp(4 / 3.0) + 4 - kept) - kept / 3.0);
  EXPECT_NEAR(loss / batches, expected, 0.03);
}

TEST_F(ScriptModules, AFileThatIsNoModuleIsAFault) {
  std::ofstream(file()) << "no archive";
  EXPECT_THAT(fault(), HasSubstr("is no module that torch.jit.script or torch.jit.trace has saved: "));
}

TEST_F(ScriptModules, AModuleThatCannotBeTrainedIsAFault) {
  save_linear("y = y + self.count",
              {{.name = "count", .shape = {4}, .kind = Kind::frozen_parameter, .type = Type::integers}});
  EXPECT_THAT(fault(), HasSubstr("parameter count has elements of type Long; must have float32"));
  save_linear("", {{.name = "wide", .shape = {4}, .kind = Kind::frozen_parameter, .type = Type::doubles}});
  EXPECT_THAT(fault(), HasSubstr("parameter wide has elements of type Double"));
  save_script(file(), {}, "return x");
  EXPECT_THAT(fault(), HasSubstr("has no parameters that are trained"));
  save_linear("y = y.detach()");
  EXPECT_THAT(fault(), HasSubstr("does not depend on its parameters"));
  save_linear("self.calls = self.calls + 1");
  EXPECT_THAT(fault(), HasSubstr("changes the number calls"));
  save_linear("self.moved.add_(1)", {{.name = "moved", .shape = {4}, .kind = Kind::buffer, .type = Type::doubles}});
  EXPECT_THAT(fault(), HasSubstr("buffer moved, which training changes, has elements of type Double"));
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

// Seen when the file is read, or else when it happens.
TEST_F(ScriptModules, ATensorThatChangesUnseenFailsTheRun) {
  save_linear("if x.size(0) == 5:\n    self.late.add_(1)", {{.name = "late", .shape = {4}, .kind = Kind::buffer}});
  const auto objective = objective_of(load());
  const auto theta = objective->initial_parameters(1);
  EXPECT_THROW(objective->gradient(theta.data(), nullptr, std::span(micro_batches.data(), 1)), ScriptFault);
}

// The same layers on copies of what is given, and in place.
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

// A trace writes the mode that it was made in as a constant.
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
              HasSubstr("its code has 2 dropouts without effect, in training and in evaluation alike"));
  EXPECT_THAT(note(with(norm, "False") + with(dropout, "self.training")),
              HasSubstr("its code has 1 normalisation by the file's statistics, in training and"));
  EXPECT_THAT(note(with(norm, "False") + with(dropout, "False")),
              HasSubstr("1 dropout without effect and 1 normalisation by the file's statistics"));
  EXPECT_THAT(note("if x.size(0) > 2:\n    " + with(dropout, "False")), HasSubstr("1 dropout"));
  save_linear(with(dropout, "True"));
  EXPECT_THAT(fault(), HasSubstr("draws random numbers in evaluation; it may in training alone: its code has 1 dropout "
                                 "in effect, in training and in evaluation alike, as torch.jit.trace of a module in "
                                 "train() writes it; torch.jit.script keeps both modes"));
}

}  // namespace
}  // namespace syncopate
