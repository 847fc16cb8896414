// Networks on texts, compared with modules of torch::nn in double precision with the same parameters. The modules
// process one text at a time, so they need no padding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/idx_files.hpp"
#include "tests/workers/npy_files.hpp"
#include "tests/workers/random_texts.hpp"
#include "tests/workers/reference_gpt.hpp"
#include "tests/workers/reference_text_transformer.hpp"
#include "tests/workers/sample_tokens.hpp"
#include "tests/workers/script_files.hpp"
#include "workers/base/random.hpp"
#include "workers/data/datasets.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/batch.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/script_model.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {
namespace {

using Kind = TextTask::Kind;
using Norm = TextTransformerOptions::Norm;
using Pooling = TextTransformerOptions::Pooling;

constexpr std::int64_t vocabulary = 23, classes = 4;
const SampleShape shape{.width = 12, .vocabulary = vocabulary};
const SamplerOptions sampling{.samples = 200, .workers = 2, .micro_batches = 3, .micro_batch_size = 5, .seed = 9};
const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                               {.worker = Rank{0}, .step = 0, .index = 2},
                                               {.worker = Rank{1}, .step = 8, .index = 0}};

// Predictions from a text: logits (predictions, choices) from the module's forward pass, and targets (predictions,).
struct Asked {
  torch::Tensor logits, answers;
};

struct Case {
  std::string name;
  Network network;
  std::shared_ptr<torch::nn::Module> module;
  std::function<Asked(Split split, std::uint32_t sample, std::int64_t epoch)> ask;
  std::function<std::vector<torch::Tensor>()> parameters = [this] { return module->parameters(); };  // by layer
  std::shared_ptr<const Dataset> texts = random_texts(vocabulary, classes, 3, 12, 200, 50);
  TorchObjective objective{network, texts, sampling, 32};
};

torch::Tensor tokens_of(const Dataset& texts, Split split, std::uint32_t sample) {
  const auto tokens = sample_tokens(texts, split, sample);
  return torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end())).unsqueeze(0);
}

torch::Tensor label_of(const Dataset& texts, Split split, std::uint32_t sample) {
  std::int64_t label = 0;
  texts.gather(split, {&sample, 1}, nullptr, &label);
  return torch::tensor({label});
}

// Softmax regression on the share that each word has of the text.
struct BagModule : torch::nn::Module {
  BagModule() {
    weight = register_parameter("weight", torch::empty({vocabulary, classes}));
    bias = register_parameter("bias", torch::empty({classes}));
  }
  torch::Tensor forward(const torch::Tensor& tokens) const {
    const auto shares = torch::one_hot(tokens, vocabulary).to(torch::kDouble).mean(1);
    return torch::addmm(bias, shares, weight);
  }
  torch::Tensor weight, bias;
};

template <typename Module>
std::shared_ptr<Case> classifier(const std::string& name, const Network& network, std::shared_ptr<Module> module) {
  const std::shared_ptr<Case> one(new Case{.name = name, .network = network, .module = module, .ask = {}});
  one->ask = [module, &texts = *one->texts](Split split, std::uint32_t sample, std::int64_t) {
    return Asked{module->forward(tokens_of(texts, split, sample)), label_of(texts, split, sample)};
  };
  return one;
}

std::shared_ptr<Case> transformer(const std::string& name, const TextTransformerOptions& options) {
  const auto module = std::make_shared<reference::TextTransformerModule>(vocabulary, classes, options);
  const Network network = text_transformer_network(shape, classes, options);
  std::shared_ptr<Case> one;
  switch (options.task.kind) {
    case Kind::classification:
      one = classifier(name, network, module);
      break;
    case Kind::masked_lm:
      one = std::shared_ptr<Case>(new Case{.name = name, .network = network, .module = module, .ask = {}});
      one->ask = [=, &texts = *one->texts](Split split, std::uint32_t sample, std::int64_t epoch) {
        const auto is = tokens_of(texts, split, sample)[0];
        const MaskingOptions& masking = options.task.masking;
        const MaskedText masked = mask(sample_tokens(texts, split, sample), texts.size(), masking,
                                       masking_stream(sampling.seed, split, sample, epoch, masking));
        const std::vector<std::int64_t> shown(masked.tokens.begin(), masked.tokens.end()),
            places(masked.places.begin(), masked.places.end());
        return Asked{module->forward(torch::tensor(shown).unsqueeze(0), places),
                     is.index_select(0, torch::tensor(places, torch::kLong))};
      };
      break;
    case Kind::causal_lm:
      one = std::shared_ptr<Case>(new Case{.name = name, .network = network, .module = module, .ask = {}});
      one->ask = [=, &texts = *one->texts](Split split, std::uint32_t sample, std::int64_t) {
        auto is = tokens_of(texts, split, sample);
        if (options.task.longest > 0) is = is.slice(1, 0, options.task.longest);
        std::vector<std::int64_t> places(static_cast<std::size_t>(is.size(1)) - 1);
        std::iota(places.begin(), places.end(), 0);
        return Asked{module->forward(is, places), is[0].slice(0, 1)};  // no place sees later tokens
      };
  }
  one->parameters = [module] { return module->parameters_by_layer(); };
  return one;
}

std::shared_ptr<Case> gpt(const std::string& name, const GptOptions& options, std::int64_t shortest = 3,
                          std::int64_t longest = 12) {
  const auto module = std::make_shared<reference::GptModule>(vocabulary, options);
  const std::shared_ptr<Case> one(
      new Case{.name = name,
               .network = gpt_network({.width = longest, .vocabulary = vocabulary}, options),
               .module = module,
               .ask = {},
               .texts = random_texts(vocabulary, classes, shortest, longest, 200, 50)});
  one->ask = [=, &texts = *one->texts](Split split, std::uint32_t sample, std::int64_t) {
    auto is = tokens_of(texts, split, sample)[0];
    if (options.cut) is = is.slice(0, 0, options.context + 1);
    return Asked{module->forward(is.slice(0, 0, -1)), is.slice(0, 1)};
  };
  return one;
}

constexpr auto rotary = GptOptions::Positions::rotary;
constexpr auto rms = GptOptions::Norm::rms;

std::vector<std::shared_ptr<Case>> cases() {
  return {classifier("bag of words", linear_network(shape, classes), std::make_shared<BagModule>()),
          transformer("classes by the first token, post-norm",
                      {.width = 8, .depth = 2, .heads = 2, .mlp_width = 12, .positions = 12}),
          transformer("classes by the mean, pre-norm", {.width = 6,
                                                        .depth = 1,
                                                        .heads = 3,
                                                        .mlp_width = 5,
                                                        .positions = 14,
                                                        .norm = Norm::before,
                                                        .pooling = Pooling::mean}),
          transformer("hidden words", {.task = {.kind = Kind::masked_lm, .masking = {.share = 0.4}},
                                       .width = 8,
                                       .depth = 1,
                                       .heads = 2,
                                       .mlp_width = 12,
                                       .positions = 12}),
          transformer("next words, pre-norm", {.task = {.kind = Kind::causal_lm},
                                               .width = 8,
                                               .depth = 2,
                                               .heads = 1,
                                               .mlp_width = 12,
                                               .positions = 12,
                                               .norm = Norm::before}),
          transformer("next words of texts that are cut", {.task = {.kind = Kind::causal_lm, .longest = 6},
                                                           .width = 8,
                                                           .depth = 1,
                                                           .heads = 4,
                                                           .mlp_width = 12,
                                                           .positions = 6}),
          gpt("GPT as GPT-2", {.width = 8, .depth = 2, .heads = 2, .context = 11, .mlp_width = 12}),
          gpt("GPT with rotary positions and a head of its own, without biases", {.width = 12,
                                                                                  .depth = 2,
                                                                                  .heads = 3,
                                                                                  .context = 30,
                                                                                  .mlp_width = 5,
                                                                                  .positions = rotary,
                                                                                  .rotary_base = 50,
                                                                                  .tied = false,
                                                                                  .bias = false}),
          gpt("GPT with RMS norms, of texts that are cut", {.width = 8,
                                                            .depth = 1,
                                                            .heads = 4,
                                                            .context = 5,
                                                            .mlp_width = 12,
                                                            .positions = rotary,
                                                            .norm = rms,
                                                            .cut = true}),
          gpt("GPT of texts longer than a block of attention",
              {.width = 8, .depth = 1, .heads = 2, .context = 150, .mlp_width = 8}, 60, 90),
          gpt("rotary GPT of texts longer than a block of attention",
              {.width = 12, .depth = 1, .heads = 3, .context = 200, .mlp_width = 8, .positions = rotary}, 66, 80)};
}

// A module's parameters in the order of the flat vector: matrices first, then the others.
std::vector<torch::Tensor> flat_order(const Case& one) {
  std::vector<torch::Tensor> order = one.parameters();
  std::stable_partition(order.begin(), order.end(),
                        [](const torch::Tensor& parameter) { return parameter.dim() >= 2; });
  return order;
}

void set_parameters(const Case& one, const std::vector<float>& flat) {
  one.module->to(torch::kDouble);
  torch::NoGradGuard no_grad;
  std::size_t offset = 0;
  for (auto& parameter : flat_order(one)) {
    const auto size = static_cast<std::size_t>(parameter.numel());
    ASSERT_LE(offset + size, flat.size());
    parameter.copy_(torch::from_blob(const_cast<float*>(flat.data()) + offset, parameter.sizes(), torch::kFloat));
    offset += size;
  }
  ASSERT_EQ(offset, flat.size());
}

// The mean loss over all predictions from a micro-batch's texts. Labels are smoothed as in PyTorch.
torch::Tensor loss_of(const Case& one, const MicroBatch& micro_batch, double smoothing = 0) {
  std::vector<std::uint32_t> numbers;
  Sampler(sampling).append_samples(micro_batch, numbers);
  std::vector<torch::Tensor> logits, answers;
  for (const std::uint32_t number : numbers) {
    const Asked asked = one.ask(Split::train, number, micro_batch.step.value() / one.objective.steps_per_epoch());
    logits.push_back(asked.logits);
    answers.push_back(asked.answers);
  }
  return at::cross_entropy_loss(torch::cat(logits), torch::cat(answers), {}, at::Reduction::Mean, -100, smoothing);
}

TEST(TextModels, GradientsAgreeWithModulesInDoublePrecision) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    const auto flat = some_parameters(one->objective);
    set_parameters(*one, flat);
    torch::Tensor loss = torch::zeros({}, torch::kDouble);
    for (const MicroBatch& micro_batch : micro_batches) loss = loss + loss_of(*one, micro_batch);
    loss.backward();
    std::vector<double> expected;
    for (const auto& parameter : flat_order(*one)) {
      const auto gradient = parameter.grad().contiguous();
      expected.insert(expected.end(), gradient.data_ptr<double>(), gradient.data_ptr<double>() + gradient.numel());
    }
    const PartialGradient found = one->objective.gradient(flat.data(), nullptr, micro_batches);
    EXPECT_LT(relative_distance(flatten(found), expected), 2e-6);
    EXPECT_NEAR(found.loss_sum, loss.item<double>(), 1e-5 * loss.item<double>());
  }
}

TEST(TextModels, WhatMicroBatchesGiveDoesNotDependOnThoseBesideThem) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    const auto flat = some_parameters(one->objective);
    std::vector<double> sum(flat.size());
    double loss = 0;
    for (const MicroBatch& micro_batch : micro_batches) {
      const PartialGradient alone = one->objective.gradient(flat.data(), nullptr, {&micro_batch, 1});
      const auto values = flatten(alone);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      loss += alone.loss_sum;
    }
    const PartialGradient together = one->objective.gradient(flat.data(), nullptr, micro_batches);
    EXPECT_LT(relative_distance(flatten(together), sum), 1e-6);
    EXPECT_NEAR(together.loss_sum, loss, 1e-5 * loss);
  }
}

TEST(TextModels, SmoothedLabelsAreThoseOfPyTorchAndTheLossThatIsToldIsWithoutThem) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    const TorchObjective smoothed(one->network, one->texts, sampling, 32, 0.2);
    const auto flat = some_parameters(one->objective);
    set_parameters(*one, flat);
    loss_of(*one, micro_batches[1], 0.2).backward();
    std::vector<double> expected;
    for (const auto& parameter : flat_order(*one)) {
      const auto gradient = parameter.grad().contiguous();
      expected.insert(expected.end(), gradient.data_ptr<double>(), gradient.data_ptr<double>() + gradient.numel());
    }
    const PartialGradient found = smoothed.gradient(flat.data(), nullptr, {&micro_batches[1], 1});
    EXPECT_LT(relative_distance(flatten(found), expected), 2e-6);
    EXPECT_EQ(found.loss_sum, one->objective.gradient(flat.data(), nullptr, {&micro_batches[1], 1}).loss_sum);
  }
}

// Worker 0 has only five texts, so each of its micro-batches has all of them.
TEST(TextModels, WordsAreHiddenAnewInEachPassThroughAWorkersOwnTexts) {
  const auto one = cases()[3];
  ASSERT_EQ(one->name, "hidden words");
  SamplerOptions own = sampling;
  own.shards.resize(2);
  for (std::uint32_t sample = 0; sample < 200; ++sample) own.shards[sample < 5 ? 0 : 1].push_back(sample);
  const TorchObjective objective(one->network, one->texts, own, 32);
  const auto flat = some_parameters(objective);
  set_parameters(*one, flat);
  torch::NoGradGuard no_grad;
  for (const int pass : {0, 1, 2, 5}) {
    std::vector<torch::Tensor> logits, answers;
    for (std::uint32_t sample = 0; sample < 5; ++sample) {
      const Asked asked = one->ask(Split::train, sample, pass);
      logits.push_back(asked.logits);
      answers.push_back(asked.answers);
    }
    const double loss = at::cross_entropy_loss(torch::cat(logits), torch::cat(answers)).item<double>();
    const MicroBatch micro_batch{.worker = Rank{0}, .step = pass / 3, .index = pass % 3};
    c10::AutoGradMode with_gradients(true);
    EXPECT_NEAR(objective.gradient(flat.data(), nullptr, {&micro_batch, 1}).loss_sum, loss, 1e-5 * loss) << pass;
  }
}

TEST(TextModels, EvaluationsSumOverAllThatIsAsked) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    const auto flat = some_parameters(one->objective);
    set_parameters(*one, flat);
    torch::NoGradGuard no_grad;
    for (const Split split : {Split::train, Split::test}) {
      double loss = 0;
      std::int64_t correct = 0, asked = 0;
      for (std::uint32_t sample = 3; sample < 48; ++sample) {
        const Asked one_text = one->ask(split, sample, 0);
        loss += at::cross_entropy_loss(one_text.logits, one_text.answers, {}, at::Reduction::Sum).item<double>();
        correct += one_text.logits.argmax(1).eq(one_text.answers).sum().item<std::int64_t>();
        asked += one_text.answers.numel();
      }
      const EvaluationSums sums = one->objective.evaluate(flat.data(), nullptr, split, 3, 48);
      EXPECT_NEAR(sums.loss, loss, 1e-5 * loss);
      EXPECT_EQ(sums.correct, correct);
      EXPECT_EQ(sums.samples, asked);
    }
  }
}

// These tensors as one vector.
std::vector<double> flatten(const std::vector<torch::Tensor>& parts) {
  std::vector<double> flat;
  for (const torch::Tensor& part : parts) {
    const auto values = part.contiguous();
    flat.insert(flat.end(), values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  return flat;
}

TEST(TextModels, DerivativesOfAnEvaluationAreThoseOfModulesInDoublePrecision) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    const auto flat = some_parameters(one->objective);
    set_parameters(*one, flat);
    std::vector<torch::Tensor> logits, answers;
    for (std::uint32_t sample = 3; sample < 48; ++sample) {  // more than one chunk of 32 samples
      const Asked asked = one->ask(Split::test, sample, 0);
      logits.push_back(asked.logits);
      answers.push_back(asked.answers);
    }
    const auto loss = torch::cross_entropy_loss(torch::cat(logits), torch::cat(answers));
    const auto parameters = flat_order(*one);
    const auto gradient = torch::autograd::grad({loss}, parameters, {}, true, true);
    std::vector<double> direction(flat.size());
    for (std::size_t i = 0; i < direction.size(); ++i) direction[i] = std::sin(static_cast<double>(i));
    torch::Tensor product = torch::zeros({}, torch::kDouble);
    std::size_t offset = 0;
    for (const torch::Tensor& part : gradient) {
      product = product + (part * torch::from_blob(direction.data() + offset, part.sizes(), torch::kDouble)).sum();
      offset += static_cast<std::size_t>(part.numel());
    }
    const auto curved = torch::autograd::grad({product}, parameters);
    EXPECT_LT(
        relative_distance(one->objective.derivative(flat.data(), nullptr, Split::test, 3, 48, {}), flatten(gradient)),
        1e-12);
    EXPECT_LT(relative_distance(one->objective.derivative(flat.data(), nullptr, Split::test, 3, 48, direction),
                                flatten(curved)),
              1e-11);
  }
}

TEST(TextModels, AnEnsemblePredictsTheMeanOfItsMembersProbabilities) {
  for (const auto& one : cases()) {
    SCOPED_TRACE(one->name);
    const auto first = some_parameters(one->objective);
    auto second = first;
    for (std::size_t i = 0; i < second.size(); ++i) second[i] -= 0.1f * static_cast<float>(i % 3);
    torch::NoGradGuard no_grad;
    double loss = 0;
    for (std::uint32_t sample = 0; sample < 50; ++sample) {
      torch::Tensor mean, answers;
      for (const auto& flat : {first, second}) {
        set_parameters(*one, flat);
        const Asked asked = one->ask(Split::test, sample, 0);
        const auto half = asked.logits.softmax(1) / 2;
        mean = mean.defined() ? mean + half : half;
        answers = asked.answers;
      }
      loss += at::nll_loss(mean.log(), answers, {}, at::Reduction::Sum).item<double>();
    }
    const std::vector<const float*> members = {first.data(), second.data()}, buffers = {nullptr, nullptr};
    EXPECT_NEAR(one->objective.evaluate_ensemble(members, buffers, Split::test, 0, 50).loss, loss, 1e-5 * loss);
  }
}

// The batch of these texts, which requests the outputs of all tokens.
SequenceBatch all_of(const std::vector<std::vector<std::int32_t>>& texts) {
  SequenceBatch batch(std::vector<std::span<const std::int32_t>>(texts.begin(), texts.end()));
  batch.asked = torch::arange(batch.tokens.numel());
  return batch;
}

// Texts of equal and of different lengths, since texts of different lengths are padded.
TEST(Gpt, NoTokenSeesALaterOne) {
  for (const auto positions : {GptOptions::Positions::learned, rotary}) {
    const Network network = gpt_network(
        shape, {.width = 8, .depth = 2, .heads = 2, .context = 12, .mlp_width = 12, .positions = positions});
    const auto flat = initial_parameters(network, 1);
    const auto outputs = [&](const std::vector<std::vector<std::int32_t>>& texts) {
      torch::NoGradGuard no_grad;
      return forward(network, view_parameters(network, flat_view(flat.data(), flat.size())), {}, all_of(texts),
                     Mode::evaluate);
    };
    const auto before = outputs({{5, 6, 7, 8, 9}, {5, 6, 7, 8, 9}, {5, 6, 7, 8}});
    const auto after = outputs({{5, 6, 7, 8, 9}, {5, 6, 7, 10, 9}, {5, 6, 11, 8}});
    for (const std::int64_t same : {0, 1, 2, 3, 4, 5, 6, 7, 10, 11})
      EXPECT_TRUE(before[same].equal(after[same])) << same;
    for (const std::int64_t other : {8, 9, 12, 13}) EXPECT_FALSE(before[other].allclose(after[other])) << other;
  }
}

// Values are unit vectors, so outputs are the shares of attention. The ratio of two shares is the exponential of a
// difference of scores.
TEST(Gpt, RotaryScoresDependOnDifferencesOfPositions) {
  constexpr std::int64_t d = 8, words = 5;
  Network network({.width = 6, .vocabulary = words});
  network.embed_words(3 * d, 0, 1).attention({.causal = true, .rotary = network.rotary_table(6, d, 100)}).lay_out();
  auto weights = torch::cos(torch::arange(words * 3 * d, torch::kDouble).square()).view({words, 3 * d});
  weights.narrow(1, 2 * d, d).copy_(torch::eye(words, d));
  const auto ratios = [&](const std::vector<std::int32_t>& text, std::int64_t place) {
    const auto shares = forward(network, {weights}, {}, all_of({text}), Mode::evaluate)[place];
    return torch::stack({shares[0], shares[1]}).log() - shares[2].log();
  };
  const auto at_start = ratios({0, 1, 2}, 2);
  EXPECT_TRUE(at_start.allclose(ratios({4, 0, 1, 2}, 3), 1e-5));
  EXPECT_TRUE(at_start.allclose(ratios({4, 3, 3, 0, 1, 2}, 5), 1e-5));
  EXPECT_FALSE(at_start.allclose(ratios({1, 0, 2}, 2), 1e-2));
  EXPECT_FALSE(at_start.allclose(ratios({0, 1, 4, 2}, 3), 1e-2));
}

// A block has four matrices: for queries, keys and values; for the output of attention; and the perceptron's two.
TEST(Gpt, MuonTakesTheMatricesOfAllBlocksWithEitherHead) {
  for (const bool tied : {true, false}) {
    const auto tensors = gpt_network({.width = 9, .vocabulary = 11},
                                     {.width = 8, .depth = 2, .heads = 2, .context = 8, .mlp_width = 12, .tied = tied})
                             .tensors();
    const std::vector<bool> chosen = make_muon({}, nullptr)->matrices(tensors);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (chosen[i]) names.push_back(tensors[i].name);
    EXPECT_THAT(names, testing::ElementsAre("linear1.weight", "linear2.weight", "linear3.weight", "linear4.weight",
                                            "linear5.weight", "linear6.weight", "linear7.weight", "linear8.weight"));
  }
}

TEST(Gpt, TheGradientOfATiedMatrixIsTheSumOfBothUses) {
  GptOptions options{.width = 8, .depth = 1, .heads = 2, .context = 11, .mlp_width = 12};
  const auto texts = random_texts(vocabulary, classes, 3, 12, 200, 50);
  const TorchObjective tied(gpt_network(shape, options), texts, sampling, 32);
  options.tied = false;
  const TorchObjective separate(gpt_network(shape, options), texts, sampling, 32);

  constexpr std::size_t matrix = vocabulary * 8;  // the embedding is the first matrix, a separate head the last
  const std::size_t matrices = tied.weights();
  const auto of_tied = some_parameters(tied);
  std::vector<float> of_separate = of_tied;
  of_separate.insert(of_separate.begin() + static_cast<std::ptrdiff_t>(matrices), of_tied.begin(),
                     of_tied.begin() + matrix);
  ASSERT_EQ(of_separate.size(), separate.parameters());
  const auto found = flatten(tied.gradient(of_tied.data(), nullptr, micro_batches));
  const auto parts = flatten(separate.gradient(of_separate.data(), nullptr, micro_batches));
  double largest = 0;
  for (std::size_t i = 0; i < matrix; ++i) {
    EXPECT_NEAR(found[i], parts[i] + parts[matrices + i], 1e-6);
    largest = std::max(largest, std::abs(static_cast<double>(parts[i])));
  }
  EXPECT_GT(largest, 0.01);
}

// Labels of tokens in a user's data set: loss and accuracy are means over tokens with labels. The reference sees whole
// rows with padding, and PyTorch's cross-entropy ignores the label -100.
namespace token_labels_tests {

constexpr std::int64_t vocabulary = 12, labels = 5, outputs = 6, width = 3, length = 8, train = 60, test = 20;
const SamplerOptions sampling{.samples = train, .workers = 2, .micro_batches = 2, .micro_batch_size = 5, .seed = 9};
const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                               {.worker = Rank{0}, .step = 1, .index = 1},
                                               {.worker = Rank{1}, .step = 7, .index = 0}};

// x and y are both (n, length).
struct Rows {
  std::vector<std::int64_t> x, y;
  torch::Tensor tokens(std::int64_t row) const { return torch::tensor(of(x, row)).unsqueeze(0); }
  torch::Tensor answers(std::int64_t row) const { return torch::tensor(of(y, row)); }

 private:
  static std::vector<std::int64_t> of(const std::vector<std::int64_t>& all, std::int64_t row) {
    return {all.begin() + row * length, all.begin() + (row + 1) * length};
  }
};

// Rows of 3 to 8 tokens, padded with 0. The first token never has a label, the second always has one, and a third of
// the others have one.
Rows drawn(std::uint64_t seed, std::int64_t count) {
  Rows rows;
  for (std::int64_t row = 0; row < count; ++row) {
    std::vector<double> uniform(3 * length);
    RandomStream{.seed = seed, .step = row}.fill_uniform(0, uniform);
    const auto own = 3 + static_cast<std::int64_t>(6 * uniform[0]);
    for (std::int64_t place = 0; place < length; ++place) {
      const auto below = [&](std::int64_t which, std::int64_t limit) {
        return static_cast<std::int64_t>(uniform[static_cast<std::size_t>(which * length + place)] * double(limit));
      };
      const bool asked = place == 1 || (place > 1 && below(0, 3) == 0);
      rows.x.push_back(place < own ? 1 + below(1, vocabulary - 1) : 0);
      rows.y.push_back(place < own && asked ? below(2, labels) : -100);
    }
  }
  return rows;
}

class TokenLabels : public IdxFiles {
 protected:
  void SetUp() override {
    IdxFiles::SetUp();
    const auto save = [&](const std::string& split, const Rows& rows, std::int64_t count) {
      const std::string shape = "(" + std::to_string(count) + ", " + std::to_string(length) + ")";
      write("x_" + split + ".npy", npy_file("<i8", shape, bytes_of(rows.x)));
      write("y_" + split + ".npy", npy_file("<i8", shape, bytes_of(rows.y)));
    };
    save("train", train_rows, train);
    save("test", test_rows, test);
    save_script(directory_ / "model.pt",
                {{.name = "words", .shape = {vocabulary, width}}, {.name = "output", .shape = {outputs, width}}},
                "e = torch.embedding(self.words, x) * (x != 0).unsqueeze(2)\n"
                "return torch.linear(torch.tanh(e + e.sum(1, True)), self.output)");
  }
  TorchObjective objective(std::int64_t longest = 0) const {
    const auto data = npy_arrays({.padding = 0}).load(directory_);
    const ScriptOptions options{.task = {.kind = TextTask::Kind::masked_lm, .longest = longest}};
    return {script_network(directory_ / "model.pt", directory_.string(), data->size(), options), data, sampling, 7};
  }

  const Rows train_rows = drawn(1, train), test_rows = drawn(2, test);
};

std::vector<float> some_parameters() {
  std::vector<float> theta((vocabulary + outputs) * width);
  for (std::size_t i = 0; i < theta.size(); ++i) theta[i] = static_cast<float>(std::cos(1.7 * static_cast<double>(i)));
  return theta;
}

struct Module {
  torch::Tensor words, output;
  explicit Module(const std::vector<float>& theta) {
    const torch::Tensor all = torch::tensor(std::vector<double>(theta.begin(), theta.end()), torch::kDouble);
    words = all.narrow(0, 0, vocabulary * width).view({vocabulary, width}).clone().requires_grad_();
    output = all.narrow(0, vocabulary * width, outputs * width).view({outputs, width}).clone().requires_grad_();
  }
  // The logits of one row: (length, outputs).
  torch::Tensor logits(const torch::Tensor& x) const {
    const torch::Tensor e = torch::embedding(words, x) * x.ne(0).unsqueeze(2);
    return torch::matmul(torch::tanh(e + e.sum(1, true)), output.t()).squeeze(0);
  }
};

TEST_F(TokenLabels, TheLossIsTheMeanOverThoseThatAreAskedFor) {
  const auto theta = some_parameters();
  const Module module(theta);
  const Sampler sampler(sampling);
  torch::Tensor loss = torch::zeros({}, torch::kDouble);
  for (const MicroBatch& one : micro_batches) {
    std::vector<std::uint32_t> samples;
    sampler.append_samples(one, samples);
    std::vector<torch::Tensor> logits, answers;
    for (const std::uint32_t sample : samples) {
      logits.push_back(module.logits(train_rows.tokens(sample)));
      answers.push_back(train_rows.answers(sample));
    }
    loss = loss + torch::nn::functional::cross_entropy(torch::cat(logits), torch::cat(answers));
  }
  loss.backward();
  const torch::Tensor expected = torch::cat({module.words.grad().flatten(), module.output.grad().flatten()});

  const auto found = objective().gradient(theta.data(), nullptr, micro_batches);
  EXPECT_NEAR(found.loss_sum, loss.item<double>(), 1e-5);
  std::vector<float> flat;
  for (const auto& segment : found.segments) flat.insert(flat.end(), segment.data, segment.data + segment.size);
  ASSERT_EQ(std::ssize(flat), expected.numel());
  for (std::int64_t i = 0; i < expected.numel(); ++i)
    EXPECT_NEAR(flat[static_cast<std::size_t>(i)], expected[i].item<double>(), 1e-5) << i;
}

TEST_F(TokenLabels, TheAccuracyIsOverThoseThatAreAskedFor) {
  const auto theta = some_parameters();
  const Module module(theta);
  double loss = 0;
  std::int64_t correct = 0, asked = 0;
  for (std::int64_t row = 0; row < test; ++row) {
    const torch::Tensor logits = module.logits(test_rows.tokens(row)), answers = test_rows.answers(row);
    for (std::int64_t place = 0; place < length; ++place) {
      const auto answer = answers[place].item<std::int64_t>();
      if (answer == -100) continue;
      ++asked;
      correct += logits[place].argmax().item<std::int64_t>() == answer;
      loss -= torch::log_softmax(logits[place], 0)[answer].item<double>();
    }
  }
  ASSERT_GT(correct, 0);
  const auto found = objective().evaluate(theta.data(), nullptr, Split::test, 0, test);
  EXPECT_EQ(found.samples, asked);
  EXPECT_EQ(found.correct, correct);
  EXPECT_NEAR(found.loss, loss, 1e-4);
}

// Sequences are cut to their first token, which has no label.
TEST_F(TokenLabels, AMicroBatchThatIsAskedForNothingMovesNothing) {
  const auto theta = some_parameters();
  const auto found = objective(1).gradient(theta.data(), nullptr, micro_batches);
  EXPECT_EQ(found.loss_sum, 0);
  for (const auto& segment : found.segments)
    EXPECT_THAT(std::vector(segment.data, segment.data + segment.size), testing::Each(0.0f));
}

}  // namespace token_labels_tests

}  // namespace
}  // namespace syncopate
