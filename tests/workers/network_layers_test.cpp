// Networks as data: numbers of parameters as published, positions, names, and the initial values of each layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "workers/models/architectures.hpp"
#include "workers/models/network.hpp"

namespace syncopate {
namespace {

using Norm = ResnetOptions::Norm;

constexpr SampleShape cifar{.channels = 3, .height = 32, .width = 32};

std::vector<float> values_of(const Network& network, const std::vector<float>& flat, const std::string& name) {
  for (const auto& tensor : network.tensors())
    if (tensor.name == name) {
      const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(tensor.offset);
      return {begin, begin + static_cast<std::ptrdiff_t>(tensor.size)};
    }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

TEST(NetworkLayers, ResnetsHaveAsManyParametersAsPublished) {
  for (const auto norm : {Norm::batch, Norm::group})
    for (const auto& [depth, parameters] : {std::pair{8, 75'290u}, std::pair{20, 269'722u}, std::pair{56, 853'018u}}) {
      const auto network = resnet_network(cifar, 10, {.depth = depth, .norm = norm});
      EXPECT_EQ(network.parameter_floats(), parameters) << depth;
      EXPECT_EQ(network.output(), (SampleShape{.channels = 10}));
      EXPECT_EQ(network.buffers().empty(), norm == Norm::group);
    }
}

TEST(NetworkLayers, VisionTransformersHaveAsManyParametersAsPublished) {
  const SampleShape imagenet{.channels = 3, .height = 224, .width = 224};
  const VisionTransformerOptions base{
      .patch = 16, .width = 768, .depth = 12, .heads = 12, .head_width = 64, .mlp_width = 3072};
  EXPECT_EQ(vision_transformer_network(imagenet, 1000, base).parameter_floats(), 86'381'800u);
  EXPECT_EQ(vision_transformer_network(cifar, 10, {}).parameter_floats(), 2'676'778u);
}

// Published numbers of parameters: 335,141,888 for BERT-Large with two segments and no task, 124,439,808 for GPT-2.
TEST(NetworkLayers, TransformersOfTextsHaveAsManyParametersAsPublished) {
  TextTransformerOptions large{.width = 1024, .depth = 24, .heads = 16, .mlp_width = 4096, .positions = 512};
  const SampleShape text{.width = 512, .vocabulary = 30522};
  constexpr std::size_t bert = 335'141'888 - 2 * 1024, dense = 1024 * 1024 + 1024;
  EXPECT_EQ(text_transformer_network(text, 3, large).parameter_floats(), bert + 3 * 1024 + 3);
  large.pooling = TextTransformerOptions::Pooling::mean;
  EXPECT_EQ(text_transformer_network(text, 3, large).parameter_floats(), bert - dense + 3 * 1024 + 3);
  large.task.kind = TextTask::Kind::masked_lm;
  const Network masked = text_transformer_network(text, 1, large);
  EXPECT_EQ(masked.parameter_floats(), bert - dense + dense + 2 * 1024 + 30522);
  EXPECT_EQ(masked.output().channels, 30522);
  const TextTransformerOptions small{.task = {.kind = TextTask::Kind::causal_lm},
                                     .width = 768,
                                     .depth = 12,
                                     .heads = 12,
                                     .mlp_width = 3072,
                                     .positions = 1024,
                                     .norm = TextTransformerOptions::Norm::before};
  EXPECT_EQ(text_transformer_network({.width = 1024, .vocabulary = 50257}, 1, small).parameter_floats(), 124'439'808u);
}

// Parameters of a GPT: embeddings of tokens and positions, blocks, the last normalisation, a head of its own.
std::size_t gpt_parameters(std::int64_t vocabulary, const GptOptions& o) {
  const std::int64_t d = o.width, m = o.mlp_width;
  const bool shifts = o.bias && o.norm == GptOptions::Norm::layer;
  const std::int64_t norm = d * (shifts ? 2 : 1);
  const std::int64_t block = 2 * norm + 4 * d * d + 2 * d * m + (o.bias ? 5 * d + m : 0);
  const std::int64_t places = o.positions == GptOptions::Positions::learned ? o.context * d : 0;
  return static_cast<std::size_t>(vocabulary * d * (o.tied ? 1 : 2) + places + o.depth * block + norm);
}

// GPT-2 with 124 million parameters as published. Pythia's models with 70 and 160 million parameters have the same
// sizes as a GPT with rotary positions and a head of its own.
TEST(NetworkLayers, GptsHaveAsManyParametersAsPublishedAndByTheFormula) {
  using enum GptOptions::Positions;
  const auto count = [](std::int64_t vocabulary, const GptOptions& options) {
    const Network network = gpt_network({.width = options.context + 1, .vocabulary = vocabulary}, options);
    EXPECT_EQ(network.output().channels, vocabulary);
    EXPECT_EQ(network.parameter_floats(), gpt_parameters(vocabulary, options));
    return network.parameter_floats();
  };
  GptOptions small{.width = 768, .depth = 12, .heads = 12, .context = 1024, .mlp_width = 3072};
  EXPECT_EQ(count(50257, small), 124'439'808u);
  small.context = 2048, small.positions = rotary, small.tied = false;
  EXPECT_EQ(count(50304, small), 162'322'944u);
  EXPECT_EQ(count(50304, {.width = 512,
                          .depth = 6,
                          .heads = 8,
                          .context = 2048,
                          .mlp_width = 2048,
                          .positions = rotary,
                          .tied = false}),
            70'426'624u);
  for (const auto positions : {learned, rotary})
    for (const bool tied : {false, true})
      for (const bool bias : {false, true})
        for (const auto norm : {GptOptions::Norm::layer, GptOptions::Norm::rms})
          count(257, {.width = 24,
                      .depth = 3,
                      .heads = 4,
                      .context = 40,
                      .mlp_width = 50,
                      .positions = positions,
                      .tied = tied,
                      .bias = bias,
                      .norm = norm});
}

TEST(NetworkLayers, ResnetsForLargeImagesHaveAsManyParametersAsPublished) {
  const SampleShape imagenet{.channels = 3, .height = 224, .width = 224};
  for (const auto norm : {Norm::batch, Norm::group})
    for (const auto& [depth, parameters] :
         {std::pair{18, 11'689'512u}, std::pair{34, 21'797'672u}, std::pair{50, 25'557'032u},
          std::pair{101, 44'549'160u}, std::pair{152, 60'192'808u}}) {
      const auto network = imagenet_resnet_network(imagenet, 1000, {.depth = depth, .norm = norm});
      EXPECT_EQ(network.parameter_floats(), parameters) << depth;
      EXPECT_EQ(network.output(), (SampleShape{.channels = 1000}));
      EXPECT_EQ(network.buffers().empty(), norm == Norm::group);
    }
  // The stem for small images has filters of 3 x 3 instead of 7 x 7.
  EXPECT_EQ(imagenet_resnet_network(cifar, 10, {.stem = ImagenetResnetOptions::Stem::cifar}).parameter_floats(),
            11'689'512u - 990 * 513 - 3 * 64 * 40);
}

// For d = 8, each coordinate has the frequencies 1 and 1e-4. Rows of the table are grid points (y, x).
TEST(NetworkLayers, PositionsAreSinesAndCosinesOfBothCoordinates) {
  const auto table = sine_positions_2d(2, 2, 8);
  const float s = std::sin(1.0f), c = std::cos(1.0f), small = 1e-4f, near_one = std::cos(1e-4f);
  EXPECT_THAT(table, testing::Pointwise(testing::FloatNear(1e-7f),
                                        std::vector<float>{0, 0,     1, 1,        0, 0,     1, 1,         // (0, 0)
                                                           s, small, c, near_one, 0, 0,     1, 1,         // (0, 1)
                                                           0, 0,     1, 1,        s, small, c, near_one,  // (1, 0)
                                                           s, small, c, near_one, s, small, c, near_one}));
}

TEST(NetworkLayers, ParametersAreNamedByKindAndNumber) {
  const auto network = resnet_network(cifar, 10, {.norm = Norm::group});
  std::vector<std::string> names;
  for (const auto& tensor : network.tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::IsSupersetOf({"convolution1.weight", "convolution7.weight", "group_norm7.bias",
                                            "linear1.weight", "linear1.bias"}));
  EXPECT_EQ(names.size(), 7u + 2 * 7 + 2);
}

double mean_square(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return sum / static_cast<double>(values.size());
}

// The mean square of n normal numbers has the relative standard error sqrt(2 / n); 31.73 % exceed one deviation.
void expect_normal(const std::vector<float>& values, double variance) {
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(mean_square(values) / variance, 1, 5 * std::sqrt(2 / n));
  const auto beyond_one = std::ranges::count_if(values, [&](float x) { return x * x > variance; });
  EXPECT_NEAR(static_cast<double>(beyond_one) / n, 0.3173, 5 * std::sqrt(0.3173 * 0.6827 / n));
}

TEST(NetworkLayers, ResnetsStartByTheirFanIn) {
  const auto network = resnet_network(cifar, 10, {.depth = 14});
  const auto flat = initial_parameters(network, 1);
  expect_normal(values_of(network, flat, "convolution3.weight"), 2.0 / (16 * 9));
  expect_normal(values_of(network, flat, "convolution6.weight"), 2.0 / (16 * 9));  // 16 to 32 channels
  expect_normal(values_of(network, flat, "convolution13.weight"), 2.0 / (64 * 9));
  expect_normal(values_of(network, flat, "linear1.weight"), 1e-4);
  EXPECT_THAT(values_of(network, flat, "linear1.bias"), testing::Each(0.0f));
  EXPECT_THAT(values_of(network, flat, "batch_norm4.weight"), testing::Each(1.0f));
  EXPECT_THAT(values_of(network, flat, "batch_norm4.bias"), testing::Each(0.0f));
}

// Deviations of torchvision's ResNets: sqrt(2 / fan-out). The dense layer is uniform within 1 / sqrt(fan-in).
TEST(NetworkLayers, ResnetsForLargeImagesStartByTheirFanOut) {
  const auto network = imagenet_resnet_network(cifar, 10, {.depth = 50, .zero_init_residual = true});
  const auto flat = initial_parameters(network, 1);
  expect_normal(values_of(network, flat, "convolution1.weight"), 2.0 / (64 * 49));
  expect_normal(values_of(network, flat, "convolution2.weight"), 2.0 / 64);          // 64 to 64 channels
  expect_normal(values_of(network, flat, "convolution4.weight"), 2.0 / 256);         // 64 to 256 channels
  expect_normal(values_of(network, flat, "convolution5.weight"), 2.0 / 256);         // the first shortcut
  expect_normal(values_of(network, flat, "convolution13.weight"), 2.0 / (128 * 9));  // stride 2
  EXPECT_NEAR(mean_square(values_of(network, flat, "linear1.weight")) * 2048, 1.0 / 3, 0.02);
  // A block's normalisations: three of its branch, then that of its shortcut.
  EXPECT_THAT(values_of(network, flat, "batch_norm4.weight"), testing::Each(0.0f));
  for (const char* const other :
       {"batch_norm1.weight", "batch_norm2.weight", "batch_norm3.weight", "batch_norm5.weight"})
    EXPECT_THAT(values_of(network, flat, other), testing::Each(1.0f)) << other;
}

TEST(NetworkLayers, GptsStartAsGpt2) {
  const auto network =
      gpt_network({.width = 65, .vocabulary = 300},
                  {.width = 64, .depth = 8, .heads = 4, .context = 64, .mlp_width = 256, .tied = false});
  const auto flat = initial_parameters(network, 1);
  for (const char* const inner :
       {"words.weight", "places.weight", "linear1.weight", "linear3.weight", "linear33.weight"})
    expect_normal(values_of(network, flat, inner), 0.02 * 0.02);
  for (const char* const outer : {"linear2.weight", "linear4.weight", "linear32.weight"})
    expect_normal(values_of(network, flat, outer), 0.02 * 0.02 / 16);
  for (const char* const bias : {"linear1.bias", "linear2.bias", "linear4.bias", "layer_norm1.bias"})
    EXPECT_THAT(values_of(network, flat, bias), testing::Each(0.0f)) << bias;
  EXPECT_THAT(values_of(network, flat, "layer_norm17.weight"), testing::Each(1.0f));
}

TEST(NetworkLayers, BlocksMayStartAsTheIdentity) {
  for (const auto norm : {Norm::batch, Norm::group}) {
    const std::string kind = norm == Norm::batch ? "batch_norm" : "group_norm";
    const auto network = resnet_network(cifar, 10, {.norm = norm, .zero_init_residual = true});
    const auto flat = initial_parameters(network, 1);
    for (const int last : {3, 5, 7})
      EXPECT_THAT(values_of(network, flat, kind + std::to_string(last) + ".weight"), testing::Each(0.0f)) << last;
    for (const int other : {1, 2, 4, 6})
      EXPECT_THAT(values_of(network, flat, kind + std::to_string(other) + ".weight"), testing::Each(1.0f)) << other;
  }
}

TEST(NetworkLayers, VisionTransformersStartAsLinearLayersOfTorch) {
  const auto network = vision_transformer_network(cifar, 10, {});
  const auto flat = initial_parameters(network, 1);
  for (const auto& [name, fan_in] : {std::pair{"linear1.weight", 48.0}, std::pair{"linear2.weight", 192.0},
                                     std::pair{"linear5.weight", 768.0}, std::pair{"linear5.bias", 768.0}}) {
    const auto values = values_of(network, flat, name);
    // x^2 has the mean bound^2 / 3 and the variance 4 / 45 bound^4. The tolerance is five standard errors.
    EXPECT_NEAR(mean_square(values) * fan_in, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / static_cast<double>(values.size())));
    for (const float value : values) EXPECT_LE(std::abs(value), 1 / std::sqrt(fan_in));
  }
  EXPECT_THAT(values_of(network, flat, "layer_norm3.weight"), testing::Each(1.0f));
}

// Tensors of a model have names, by which settings select them, and they lie one after the other in the flat vector.

using testing::ElementsAre;

std::vector<std::string> names_of(const Network& network) {
  std::vector<std::string> names;
  std::size_t end = 0;
  for (const auto& tensor : network.tensors()) {
    EXPECT_EQ(tensor.offset, end) << tensor.name;
    end += tensor.size;
    names.push_back(tensor.name);
  }
  EXPECT_EQ(end, network.parameter_floats());
  return names;
}

TEST(ParameterNames, CountTheLayersOfAKind) {
  EXPECT_THAT(names_of(mlp_network({.width = 5}, 3, {4})),
              ElementsAre("linear1.weight", "linear2.weight", "linear1.bias", "linear2.bias"));
  const SampleShape image{.channels = 1, .height = 12, .width = 12};
  EXPECT_THAT(names_of(cnn_network(image, 3, {.channels = {2}, .kernel = 3, .dense = 4, .batch_norm = true})),
              ElementsAre("convolution1.weight", "linear1.weight", "linear2.weight", "batch_norm1.weight",
                          "batch_norm1.bias", "linear1.bias", "linear2.bias"));
}

}  // namespace
}  // namespace syncopate
