// Modules of the user's own that take tokens: what they are shown of texts of unlike length, and what is asked of what
// they give. The references see one text at a time, and so no padding.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/random_texts.hpp"
#include "tests/workers/script_folder.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/text_objective.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using Kind = TextTask::Kind;

constexpr std::int64_t vocabulary = 23, classes = 4, longest = 12;
const SamplerOptions sampling{.samples = 200, .workers = 2, .micro_batches = 3, .micro_batch_size = 5, .seed = 9};
const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                               {.worker = Rank{0}, .step = 0, .index = 2},
                                               {.worker = Rank{1}, .step = 8, .index = 0}};
const std::shared_ptr<const Dataset> texts = random_texts(vocabulary, classes, 3, longest, 200, 50);

// The mean of a row of each token, with a bias: what the network `linear` computes of texts.
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

// Rows of tokens mixed among the places before a decoder: `mixed` says how.
const std::vector<ScriptTensor> decoder = {{.name = "words", .shape = {vocabulary, 3}},
                                           {.name = "output", .shape = {vocabulary, 3}}};
const char* const around =
    "e = torch.embedding(self.words, x) * (x != 0).unsqueeze(2)\n"
    "e = torch.tanh(e + e.sum(1, True))\nreturn torch.linear(e, self.output)";
const char* const before = "e = torch.cumsum(torch.embedding(self.words, x), 1)\nreturn torch.linear(e, self.output)";

class ScriptsOfTexts : public ScriptFolder {
 protected:
  using Objective = std::shared_ptr<const TextObjective>;
  static Objective objective_of(const Network& network, const std::shared_ptr<const Dataset>& of = texts) {
    return std::make_shared<TextObjective>(network, of, sampling, 32);
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

// Beside which other texts one stands is of no concern.
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

// A text and what is asked of it, by the rules of dataset.hpp, or of each next token.
struct Asked {
  std::vector<std::int64_t> tokens, places, answers;
};

Asked ask_of(Kind kind, std::uint32_t sample, std::int64_t epoch) {
  const auto tokens = texts->tokens(Split::train, sample);
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

// In double precision, text by text; the loss of a micro-batch is the mean over all that its texts are asked for.
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
    std::size_t questions = 0;
    for (const std::uint32_t sample : samples) {
      const Asked asked = ask_of(kind, sample, one.step.value() / sampler.steps_per_epoch());
      const torch::Tensor tokens = torch::tensor(asked.tokens), all = words.index_select(0, tokens);
      const torch::Tensor e = all * tokens.ne(0).unsqueeze(1);  // padding may be shown in a hidden token's place
      const torch::Tensor mixed = kind == Kind::causal_lm ? all.cumsum(0) : torch::tanh(e + e.sum(0, true));
      const torch::Tensor logits = torch::matmul(mixed, output.t()).index_select(0, torch::tensor(asked.places));
      sum = sum + torch::nn::functional::cross_entropy(
                      logits, torch::tensor(asked.answers),
                      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
      questions += asked.answers.size();
    }
    loss = loss + sum / static_cast<double>(questions);
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

// All tokens of the training texts are asked for but the first ones.
TEST_F(ScriptsOfTexts, AnEvaluationIsOverAllThatIsAskedFor) {
  const auto script = saved(decoder, before, {.task = {.kind = Kind::causal_lm}});
  std::int64_t questions = 0;
  for (std::uint32_t sample = 0; sample < 50; ++sample) questions += std::ssize(texts->tokens(Split::test, sample)) - 1;
  const auto theta = script->initial_parameters(1);
  EXPECT_EQ(script->evaluate(theta.data(), nullptr, Split::test, 0, 50).samples, questions);
}

TEST_F(ScriptsOfTexts, LongerTextsAreCut) {
  const auto cut = [&](Split split, std::int64_t count) {
    TokenSequences sequences;
    for (std::uint32_t sample = 0; sample < count; ++sample) {
      const auto tokens = texts->tokens(split, sample);
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

// Before anything is trained, however few sequences are as short.
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

// A decoder of whole rows knows its length, and none of the tokens to come.
TEST_F(ScriptsOfTexts, ACausalModuleMayNeedSequencesOfOneLength) {
  const std::string of_eleven = "assert x.size(1) == 11, 'another length'\n";
  DatasetSize size = texts->size();
  size.marks.padding = -1;
  size.shortest = longest;
  save_script(file(), decoder, of_eleven + before);
  EXPECT_EQ(fault(size, {.task = {.kind = Kind::causal_lm}}), "");
  save_script(file(), decoder, of_eleven + around);
  EXPECT_THAT(fault(size, {.task = {.kind = Kind::causal_lm}}), HasSubstr("its logits at a place depend on later"));
}

TEST_F(ScriptsOfTexts, WhatCannotBeTrainedIsAFault) {
  EXPECT_THAT(fault_of(bag, "y = torch.embedding(self.weight, x).mean(1) + self.offset\nreturn y - y.mean(0, True)"),
              HasSubstr("its outputs for a sequence depend on those that stand beside it"));
  EXPECT_THAT(fault_of(bag, "return torch.embedding(self.weight, x, -1, False, True).mean(1) + self.offset"),
              HasSubstr("its parameter weight has a gradient that is sparse"));
  EXPECT_THAT(fault_of(bag, "return torch.embedding(self.weight, x) + self.offset"),
              HasSubstr("returns shape [4, 12, 4] for inputs of shape [4, 12]; must return (4, 4)"));
  EXPECT_THAT(fault_of(bag, bags[3].forward, {.task = {.kind = Kind::masked_lm}}),
              HasSubstr("returns shape [4, 4] for inputs of shape [4, 12]; must return (4, 12, 23)"));
  EXPECT_THAT(fault_of(decoder, around, {.task = {.kind = Kind::causal_lm}}),
              HasSubstr("its logits at a place depend on later tokens"));
  EXPECT_THAT(fault_of({{.name = "weight", .shape = {22, 4}}}, "return torch.embedding(self.weight, x).mean(1)"),
              testing::AllOf(HasSubstr("its forward fails on inputs of shape [4, 12]: "),
                             HasSubstr("the 23 tokens of the data set are below 23, and its longest sequence has 12")));
  EXPECT_THAT(fault_of({{.name = "weight", .shape = {vocabulary, 4}},
                        {.name = "seen", .kind = ScriptTensor::Kind::buffer, .type = ScriptTensor::Type::integers}},
                       "self.seen.add_(1)\nreturn torch.embedding(self.weight, x).mean(1)"),
              HasSubstr("its buffer seen changes in training; a module of tokens must have none that does"));
}

// Both the tokens and their lengths.
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

}  // namespace
}  // namespace syncopate
