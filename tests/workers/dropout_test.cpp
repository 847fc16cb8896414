// Dropout: the number of dropped features, the scope of masks, and gradients compared with a reference with the same
// masks.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/random_images.hpp"
#include "tests/workers/random_texts.hpp"
#include "tests/workers/sample_tokens.hpp"
#include "workers/data/dataset.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/batch.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/network.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

struct Batch {
  std::vector<std::uint32_t> samples;
  std::vector<std::int64_t> epochs;
  std::uint64_t seed = 5;
  Visits visits() const { return {.seed = seed, .samples = samples, .epochs = epochs}; }
};

Network only_dropout(std::int64_t features, double share, int layers = 1) {
  Network network({.channels = 1, .height = 1, .width = features});
  for (int i = 0; i < layers; ++i) network.dropout(share);
  return network.lay_out();
}

// The output for inputs of one, which is the mask itself: (n, features).
at::Tensor mask_of(const Network& network, const Batch& batch, Mode mode = Mode::train) {
  const auto inputs = torch::ones({static_cast<std::int64_t>(batch.samples.size()), network.input().features()});
  const Visits visits = batch.visits();
  return forward(network, {}, {}, inputs, mode, &visits);
}

Batch many_samples(std::uint32_t count) {
  Batch batch{.samples = std::vector<std::uint32_t>(count), .epochs = std::vector<std::int64_t>(count, 3)};
  std::iota(batch.samples.begin(), batch.samples.end(), 0u);
  return batch;
}

TEST(Dropout, TakesItsShareAndScalesTheOthers) {
  for (const double share : {0.1, 0.5, 0.75}) {
    const auto mask = mask_of(only_dropout(301, share), many_samples(200));
    const double zeros = mask.eq(0).sum().item<double>();
    const double n = 200 * 301, deviation = std::sqrt(n * share * (1 - share));
    EXPECT_NEAR(zeros, n * share, 5 * deviation);
    EXPECT_TRUE(mask.eq(0).logical_or(mask.eq(static_cast<float>(1 / (1 - share)))).all().item<bool>());
    // Places are dropped equally often: the probability that one of 301 deviates by six standard deviations is below
    // 1e-6.
    const auto by_place = mask.eq(0).sum(0).to(torch::kDouble);
    EXPECT_LT((by_place - 200 * share).abs().max().item<double>(), 6 * std::sqrt(200 * share * (1 - share)));
  }
}

TEST(Dropout, IsOffInEvaluationsAndANoneIsNoLayer) {
  const auto network = only_dropout(20, 0.5);
  EXPECT_TRUE(mask_of(network, many_samples(4), Mode::evaluate).eq(1).all().item<bool>());
  EXPECT_TRUE(only_dropout(20, 0).layers().empty());
}

TEST(Dropout, OfASampleIsTheSameInAnyBatchAndAnotherInEachEpoch) {
  const auto network = only_dropout(64, 0.5);
  const auto mask = mask_of(network, {.samples = {7, 9, 7, 4'000'000'000u}, .epochs = {0, 0, 1, 0}});
  const auto other = mask_of(network, {.samples = {9, 7}, .epochs = {0, 0}});
  EXPECT_TRUE(mask[0].equal(other[1]));
  EXPECT_TRUE(mask[1].equal(other[0]));
  for (const int row : {1, 2, 3}) EXPECT_FALSE(mask[0].equal(mask[row])) << row;
  EXPECT_FALSE(mask[0].equal(mask_of(network, {.samples = {7}, .epochs = {0}, .seed = 6})[0]));
}

// Each layer has its own draws: two layers that keep one half keep a quarter.
TEST(Dropout, OfTwoLayersIsDrawnTwice) {
  const auto kept = mask_of(only_dropout(101, 0.5, 2), many_samples(400)).ne(0).sum().item<double>();
  const double n = 400 * 101;
  EXPECT_NEAR(kept, n / 4, 5 * std::sqrt(n * 3 / 16));
}

// Masks (t, width) of texts of several lengths, which follow each other without padding.
at::Tensor mask_of_texts(const Network& network, const std::vector<float>& parameters,
                         const std::vector<std::vector<std::int32_t>>& texts, const Batch& batch) {
  const SequenceBatch sequences({texts.begin(), texts.end()});
  const Visits visits = batch.visits();
  const auto views = view_parameters(network, flat_view(parameters.data(), parameters.size()));
  return forward(network, views, {}, sequences, Mode::train, &visits) /
         forward(network, views, {}, sequences, Mode::evaluate, &visits);
}

TEST(Dropout, OfATextIsDrawnForItsTokensWhateverStandsBesideIt) {
  constexpr std::int64_t width = 64, longest = 20;
  const auto network_of = [](int layers) {
    Network network({.width = longest, .vocabulary = 9});
    network.embed_words(width, longest, 1);
    for (int i = 0; i < layers; ++i) network.dropout(0.5);
    return network.lay_out();
  };
  const Network one = network_of(1), two = network_of(2);
  const auto parameters = initial_parameters(one, 3);
  const std::vector<std::int32_t> a(longest, 5), b = {4, 2, 7};
  const auto mask = mask_of_texts(one, parameters, {a, b}, {.samples = {8, 3}, .epochs = {1, 1}});
  EXPECT_TRUE(mask.eq(0).logical_or(mask.eq(2)).all().item<bool>());
  EXPECT_NEAR(mask.ne(0).sum().item<double>(), 23 * width / 2.0, 5 * std::sqrt(23 * width / 4.0));
  const auto turned = mask_of_texts(one, parameters, {b, a}, {.samples = {3, 8}, .epochs = {1, 1}});
  EXPECT_TRUE(turned.narrow(0, 3, longest).equal(mask.narrow(0, 0, longest)));
  EXPECT_TRUE(turned.narrow(0, 0, 3).equal(mask.narrow(0, longest, 3)));
  const auto twice = mask_of_texts(two, parameters, {a}, {.samples = {8}, .epochs = {1}});
  EXPECT_NEAR(twice.ne(0).sum().item<double>(), longest * width / 4.0, 5 * std::sqrt(longest * width * 3 / 16.0))
      << "the second layer's numbers are others than the first one's of any place";
}

constexpr SampleShape image{.channels = 2, .height = 8, .width = 8};
constexpr std::int64_t classes = 3;
const SamplerOptions sampling{.samples = 60, .workers = 2, .micro_batches = 2, .micro_batch_size = 4, .seed = 11};
const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 1},
                                               {.worker = Rank{1}, .step = 4, .index = 0},
                                               {.worker = Rank{1}, .step = 9, .index = 1}};

TEST(Dropout, FusedMicroBatchesMeetTheMasksOfSingleOnes) {
  const auto images = std::make_shared<RandomImages>(image, classes, 60, 10);
  const VisionTransformerOptions vit{.patch = 4, .width = 8, .depth = 2, .heads = 2, .head_width = 4, .mlp_width = 12};
  const auto networks = [&](double dropout) -> std::vector<Network> {
    auto with = vit;
    with.dropout = dropout;
    return {mlp_network(image, classes, {9, 7}, dropout), vision_transformer_network(image, classes, with),
            cnn_network(image, classes, {.channels = {3}, .kernel = 3, .dense = 6, .dropout = dropout}),
            resnet_network(image, classes,
                           {.width = 4, .norm = ResnetOptions::Norm::group, .groups = 2, .dropout = dropout})};
  };
  const auto with = networks(0.4), without = networks(0);
  for (std::size_t i = 0; i < with.size(); ++i) {
    SCOPED_TRACE(i);
    const TorchObjective objective(with[i], images, sampling, 32), plain(without[i], images, sampling, 32);
    const auto theta = objective.initial_parameters(2);
    const auto together = flatten(objective.gradient(theta.data(), nullptr, micro_batches));
    std::vector<double> sum(theta.size());
    for (const auto& micro_batch : micro_batches) {
      const auto one = flatten(objective.gradient(theta.data(), nullptr, {&micro_batch, 1}));
      for (std::size_t p = 0; p < sum.size(); ++p) sum[p] += one[p];
    }
    EXPECT_LT(relative_distance(together, sum), 1e-5);
    EXPECT_GT(relative_distance(together, flatten(plain.gradient(theta.data(), nullptr, micro_batches))), 0.1);
    EXPECT_EQ(objective.evaluate(theta.data(), nullptr, Split::test, 0, 10).loss,
              plain.evaluate(theta.data(), nullptr, Split::test, 0, 10).loss);
  }
}

// One hidden layer, in double precision, with the masks of a network that has only dropout.
TEST(Dropout, GradientsAreThoseOfTheMaskedNetwork) {
  constexpr std::int64_t hidden = 6;
  constexpr double share = 0.3;
  const auto images = std::make_shared<RandomImages>(image, classes, 60, 10);
  const TorchObjective objective(mlp_network(image, classes, {hidden}, share), images, sampling, 32);
  const auto theta = objective.initial_parameters(2);
  const auto found = flatten(objective.gradient(theta.data(), nullptr, {&micro_batches[2], 1}));

  Batch batch{.samples = {}, .epochs = std::vector<std::int64_t>(4, 3), .seed = 11};
  const Sampler sampler(sampling);
  sampler.append_samples(micro_batches[2], batch.samples);
  ASSERT_EQ(sampler.steps_per_epoch(), 3);  // so step 9 is of epoch 3
  const auto mask = mask_of(only_dropout(hidden, share), batch).to(torch::kDouble);

  std::vector<float> inputs(4 * 128);
  std::vector<std::int64_t> labels(4);
  images->gather(Split::train, batch.samples, inputs.data(), labels.data());
  auto parameters = view_parameters(objective.network(), flat_view(theta.data(), theta.size()));
  for (auto& parameter : parameters) parameter = parameter.to(torch::kDouble).requires_grad_();
  const auto x = torch::from_blob(inputs.data(), {4, 128}).to(torch::kDouble);
  const auto inner = torch::relu(torch::linear(x, parameters[0], parameters[1])) * mask;
  const auto logits = torch::linear(inner, parameters[2], parameters[3]);
  at::cross_entropy_loss(logits, torch::from_blob(labels.data(), {4}, torch::kLong)).backward();
  std::vector<double> expected;
  for (const int p : {0, 2, 1, 3}) {
    const auto values = parameters[static_cast<std::size_t>(p)].grad().contiguous();
    expected.insert(expected.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  EXPECT_LT(relative_distance(found, expected), 1e-5);
}

// 200 texts of 3 to 12 tokens.
const auto texts = random_texts(23, classes, 3, 12, 200, 40);
using Kind = TextTask::Kind;

Network text_network(double dropout, Kind kind, std::int64_t depth = 2) {
  return text_transformer_network(texts->size().shape, classes,
                                  {.task = {.kind = kind},
                                   .width = 8,
                                   .depth = depth,
                                   .heads = 2,
                                   .mlp_width = 12,
                                   .positions = 12,
                                   .pooling = TextTransformerOptions::Pooling::mean,
                                   .dropout = dropout});
}

const SamplerOptions text_sampling{.samples = 200, .workers = 2, .micro_batches = 4, .micro_batch_size = 5, .seed = 11};

TEST(Dropout, OfFusedTextsIsThatOfSingleOnesAndEvaluationsHaveNone) {
  for (const Kind kind : {Kind::classification, Kind::masked_lm, Kind::causal_lm}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const TorchObjective objective(text_network(0.4, kind), texts, text_sampling, 32),
        plain(text_network(0, kind), texts, text_sampling, 32);
    const auto theta = objective.initial_parameters(2);
    ASSERT_EQ(theta, plain.initial_parameters(2));
    const auto together = flatten(objective.gradient(theta.data(), nullptr, micro_batches));
    std::vector<double> sum(theta.size());
    for (const auto& micro_batch : micro_batches) {
      const auto one = flatten(objective.gradient(theta.data(), nullptr, {&micro_batch, 1}));
      for (std::size_t p = 0; p < sum.size(); ++p) sum[p] += one[p];
    }
    EXPECT_LT(relative_distance(together, sum), 1e-5);
    EXPECT_GT(relative_distance(together, flatten(plain.gradient(theta.data(), nullptr, micro_batches))), 0.1);
    for (const Split split : {Split::train, Split::test})
      EXPECT_EQ(objective.evaluate(theta.data(), nullptr, split, 0, 40).loss,
                plain.evaluate(theta.data(), nullptr, split, 0, 40).loss);
  }
  EXPECT_EQ(text_network(0.4, Kind::classification).layers().size(),
            text_network(0, Kind::classification).layers().size() + 6)
      << "what is embedded, two branches of two blocks, and what is read";
}

// The sum of gradients over an epoch does not depend on how its texts are distributed, sorted and fused.
TEST(Dropout, OfATextIsTheSameWhicheverWorkerMeetsIt) {
  const auto epoch_of = [](int workers, int micro_batches, std::int64_t size, double dropout) {
    SamplerOptions dealt = text_sampling;
    dealt.workers = workers, dealt.micro_batches = micro_batches, dealt.micro_batch_size = size;
    const TorchObjective objective(text_network(dropout, Kind::classification), texts, dealt, 32);
    const auto theta = objective.initial_parameters(2);
    std::vector<double> sum(theta.size());
    for (std::int64_t step = 0; step < objective.steps_per_epoch(); ++step)
      for (int worker = 0; worker < workers; ++worker) {
        std::vector<MicroBatch> of_step;
        for (int m = 0; m < micro_batches; ++m) of_step.push_back({Rank{worker}, step, m});
        const auto one = flatten(objective.gradient(theta.data(), nullptr, of_step));
        for (std::size_t p = 0; p < sum.size(); ++p) sum[p] += one[p] * static_cast<double>(size);
      }
    return sum;
  };
  const auto few = epoch_of(2, 4, 5, 0.4);
  EXPECT_LT(relative_distance(epoch_of(5, 2, 20, 0.4), few), 1e-5);
  EXPECT_LT(relative_distance(epoch_of(1, 1, 200, 0.4), few), 1e-5);
  EXPECT_GT(relative_distance(epoch_of(2, 4, 5, 0), few), 0.1);
}

// Without blocks, tokens are embedded, normalised and masked, and their mean is masked. A dense layer follows. The
// reference takes each text separately, in double precision.
TEST(Dropout, GradientsOfTextsAreThoseOfTheMaskedNetwork) {
  constexpr double share = 0.3;
  constexpr std::int64_t width = 8, longest = 12;
  const TorchObjective objective(text_network(share, Kind::classification, 0), texts, text_sampling, 32);
  const auto theta = objective.initial_parameters(2);
  const MicroBatch micro_batch{.worker = Rank{1}, .step = 9, .index = 1};
  const auto found = flatten(objective.gradient(theta.data(), nullptr, {&micro_batch, 1}));

  Batch batch{.samples = {}, .epochs = std::vector<std::int64_t>(5, 1), .seed = 11};
  const Sampler sampler(text_sampling);
  sampler.append_samples(micro_batch, batch.samples);
  ASSERT_EQ(sampler.steps_per_epoch(), 5);  // so step 9 is of epoch 1
  auto parameters = view_parameters(objective.network(), flat_view(theta.data(), theta.size()));
  for (auto& parameter : parameters) parameter = parameter.to(torch::kDouble).requires_grad_();
  auto loss = torch::zeros({}, torch::kDouble);
  for (std::size_t i = 0; i < 5; ++i) {
    const auto tokens = sample_tokens(*texts, Split::train, batch.samples[i]);
    const auto length = static_cast<std::int64_t>(tokens.size());
    const auto mask = [&](std::int64_t first, std::int64_t rows) {
      std::vector<double> uniform(static_cast<std::size_t>(rows * width));
      batch.visits().stream(Purpose::dropout, i).fill_uniform(static_cast<std::uint32_t>(first), uniform);
      return torch::tensor(uniform, torch::kDouble).ge(share).to(torch::kDouble).view({rows, width}) / (1 - share);
    };
    const auto words = torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end()));
    auto x = torch::embedding(parameters[0], words) + parameters[1].narrow(0, 0, length);
    x = torch::layer_norm(x, {width}, parameters[2], parameters[3]) * mask(0, length);
    x = x.mean(0, true) * mask(longest * width, 1);
    std::int64_t label = 0;
    texts->gather(Split::train, {&batch.samples[i], 1}, nullptr, &label);
    loss = loss + at::cross_entropy_loss(torch::linear(x, parameters[4], parameters[5]), torch::tensor({label})) / 5;
  }
  loss.backward();
  std::vector<double> expected;
  for (const int p : {0, 1, 4, 2, 3, 5}) {
    const auto values = parameters[static_cast<std::size_t>(p)].grad().contiguous();
    expected.insert(expected.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  EXPECT_LT(relative_distance(found, expected), 1e-5);
}

}  // namespace
}  // namespace syncopate
