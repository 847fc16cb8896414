// training.device. The processor as another device computes the same bits as the processor, for every kind of network
// and function of an objective. Networks compute where their parameters are. States are copied once. bfloat16 rounds
// the factors of products.
#include "workers/models/device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/version.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/planned_objective.hpp"
#include "tests/workers/random_images.hpp"
#include "tests/workers/random_texts.hpp"
#include "tests/workers/script_files.hpp"
#include "workers/base/process.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/batch.hpp"
#include "workers/models/device_tensors.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t classes = 3, vocabulary = 40, longest = 9;
constexpr SampleShape image{.channels = 2, .height = 8, .width = 8};
constexpr SampleShape text{.width = longest, .vocabulary = vocabulary};
const SamplerOptions sampling{.samples = 60, .workers = 2, .micro_batches = 2, .micro_batch_size = 4, .seed = 11};
const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 1},
                                               {.worker = Rank{1}, .step = 3, .index = 0}};

struct Case {
  const char* name;
  Network network;
  double mixup = 0;
  double label_smoothing = 0;
  // The largest relative distance of a gradient in bfloat16. Deep networks that normalise few values amplify rounding.
  double bfloat16_distance = 0.15;
};

Network transformer(TextTask::Kind kind, TextTransformerOptions::Pooling pooling, double dropout) {
  return text_transformer_network(text, classes,
                                  {.task = {.kind = kind},
                                   .width = 8,
                                   .depth = 2,
                                   .heads = 2,
                                   .mlp_width = 12,
                                   .positions = longest,
                                   .norm = TextTransformerOptions::Norm::before,
                                   .pooling = pooling,
                                   .dropout = dropout});
}

// Every kind of layer is in one of the networks.
std::vector<Case> cases() {
  using enum TextTask::Kind;
  using enum TextTransformerOptions::Pooling;
  std::vector<Case> all;
  all.push_back({"linear", linear_network(image, classes)});
  all.push_back({"mlp", mlp_network(image, classes, {12, 7}, 0.3), 0.4, 0.1});
  all.push_back(
      {"cnn", cnn_network(image, classes, {.channels = {4, 5}, .kernel = 2, .dense = 6, .batch_norm = true})});
  all.push_back({"resnet", resnet_network(image, classes, {.width = 4, .dropout = 0.2})});
  all.push_back({"resnet with groups", resnet_network(image, classes,
                                                      {.width = 4,
                                                       .norm = ResnetOptions::Norm::group,
                                                       .groups = 2,
                                                       .activation = ResnetOptions::Activation::silu})});
  all.push_back(
      {"vit", vision_transformer_network(
                  image, classes, {.patch = 4, .width = 8, .depth = 2, .heads = 2, .head_width = 4, .mlp_width = 12})});
  all.push_back({"bag of words", linear_network(text, classes)});
  all.push_back({"classes of texts", transformer(classification, first, 0.2)});
  all.push_back({"classes of texts by means", transformer(classification, mean, 0)});
  all.push_back({"hidden words", transformer(masked_lm, first, 0.1), 0, 0.1});
  all.push_back({"next words", transformer(causal_lm, first, 0)});
  ImagenetResnetOptions basic{.depth = 18, .width = 4, .stem = ImagenetResnetOptions::Stem::cifar};
  basic.norm = ResnetOptions::Norm::group;
  basic.groups = 2;
  const ImagenetResnetOptions bottleneck{.depth = 50, .width = 4, .zero_init_residual = true};
  all.push_back({"imagenet-resnet of basic blocks", imagenet_resnet_network(image, classes, basic)});
  all.back().bfloat16_distance = 0.4;  // 0.33 on processors without instructions for bfloat16
  all.push_back({"imagenet-resnet of bottlenecks", imagenet_resnet_network(image, classes, bottleneck)});
  all.back().bfloat16_distance = 0.7;
  const GptOptions gpt{.width = 8, .depth = 2, .heads = 2, .context = longest, .mlp_width = 12};
  GptOptions dropped = gpt, rotary = gpt;
  dropped.dropout = 0.1;
  rotary.positions = GptOptions::Positions::rotary;
  rotary.norm = GptOptions::Norm::rms;
  rotary.tied = rotary.bias = false;
  all.push_back({"gpt", gpt_network(text, dropped)});
  all.push_back({"gpt with rotary positions", gpt_network(text, rotary)});
  return all;
}

std::shared_ptr<const Objective> objective_of(const Case& of, const Arithmetic& arithmetic) {
  const std::shared_ptr<const Dataset> data = of.network.input().has_tokens()
                                                  ? random_texts(vocabulary, classes, 4, longest, 60, 20)
                                                  : std::make_shared<const RandomImages>(image, classes, 60, 20);
  return make_torch_objective({.network = of.network,
                               .dataset = data,
                               .sampling = sampling,
                               .chunk_samples = 8,
                               .label_smoothing = of.label_smoothing,
                               .mixup = of.mixup,
                               .arithmetic = arithmetic});
}

using Bits = std::vector<std::uint64_t>;

void append(Bits& bits, std::span<const float> values) {
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
}
void append(Bits& bits, double value) { bits.push_back(std::bit_cast<std::uint64_t>(value)); }

void append(Bits& bits, const PartialGradient& gradient) {
  std::size_t end = 0;
  for (const GradientSegment& segment : gradient.segments) {
    EXPECT_EQ(segment.offset, end);
    end += segment.size;
    append(bits, {segment.data, segment.size});
  }
  bits.push_back(end);
  append(bits, gradient.loss_sum);
  append(bits, gradient.buffers_sum);
}

struct Model {
  std::vector<float> parameters, buffers;
};

Model initial(const Objective& objective, std::uint64_t seed = 3) {
  return {objective.initial_parameters(seed), objective.initial_buffers()};
}

// The results of all functions that compute on the device.
Bits all_results(const Objective& objective) {
  const Model model = initial(objective), other = initial(objective, 4);
  Bits bits;
  append(bits, objective.gradient(model.parameters.data(), model.buffers.data(), micro_batches));
  append(bits, objective.gradient(model.parameters.data(), model.buffers.data(), std::span(micro_batches).first(1)));
  const float* const members[] = {model.parameters.data(), other.parameters.data()};
  const float* const statistics[] = {model.buffers.data(), other.buffers.data()};
  for (const std::size_t count : {1u, 2u}) {
    const EvaluationSums sums = objective.evaluate_ensemble(std::span(members).first(count),
                                                            std::span(statistics).first(count), Split::test, 1, 20);
    append(bits, sums.loss);
    bits.push_back(static_cast<std::uint64_t>(sums.correct));
    bits.push_back(static_cast<std::uint64_t>(sums.samples));
  }
  for (const double value : objective.derivative(model.parameters.data(), model.buffers.data(), Split::test, 0, 12, {}))
    append(bits, value);
  append(bits, objective.batch_statistics(model.parameters.data(), micro_batches));
  if (!objective.has_batched_gradients()) return bits;
  const std::span<const MicroBatch> lists[] = {std::span(micro_batches).first(1), std::span(micro_batches).last(1)};
  const auto apart = objective.batched_gradients(model.parameters.data(), model.buffers.data(), lists);
  for (const std::size_t list : {0u, 1u}) {
    append(bits, apart->of(list));
    std::vector<float> sum = other.parameters;
    apart->add_to(sum.data(), list);
    append(bits, sum);
  }
  return bits;
}

TEST(Device, TheProcessorAsAnotherDeviceGivesTheSameBits) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    EXPECT_EQ(all_results(*objective_of(each, {.device = "cpu:copy"})), all_results(*objective_of(each, {})));
  }
}

SequenceBatch on(const at::Device& device, SequenceBatch texts) {
  const auto move = [&](at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(device);
  };
  for (at::Tensor* const tensor : {&texts.tokens, &texts.places, &texts.begins, &texts.asked}) move(*tensor);
  for (TextGroup& group : texts.groups)
    for (at::Tensor* const tensor : {&group.tokens_of_slots, &group.slots_of_tokens, &group.lengths}) move(*tensor);
  return texts;
}

// LibTorch's device "meta" has shapes without values. Like a GPU's operators, its operators refuse most pairs of
// tensors of two devices. So the test finds a tensor that a network creates in main memory without a GPU. Some versions
// of the device lack operators, such as convolutions and layer normalisation; the test sees a network up to the first
// of these. Dropout would read the lengths of texts, which have no values on this device, so texts are computed as in
// an evaluation.
TEST(Device, NetworksComputeWhereTheirParametersAre) {
  const at::Device meta(at::kMeta);
  const std::vector<std::vector<std::int32_t>> sentences = {{1, 5, 6, 2}, {1, 7, 8, 2}, {1, 9, 2}};
  SequenceBatch texts({sentences[0], sentences[1], sentences[2]});
  texts.asked = at::arange(1, 9, 2, at::kLong);
  const std::vector<std::uint32_t> samples = {0, 1, 2, 3, 4};
  const std::vector<std::int64_t> epochs(samples.size());
  const Visits visits{.seed = 1, .samples = samples, .epochs = epochs};
  int whole = 0;
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    const auto flat = [&](std::size_t size) { return at::zeros({static_cast<std::int64_t>(size)}, meta); };
    auto parameters = view_parameters(each.network, flat(each.network.parameter_floats()));
    for (at::Tensor& parameter : parameters) parameter.requires_grad_();
    const auto buffers = view_buffers(each.network, flat(each.network.buffer_floats()));
    const at::Tensor images = at::zeros({5, image.channels, image.height, image.width}, meta);
    try {
      const at::Tensor outputs = each.network.input().has_tokens()
                                     ? forward(each.network, parameters, {}, on(meta, texts), Mode::evaluate)
                                     : forward(each.network, parameters, buffers, images, Mode::train, &visits);
      EXPECT_TRUE(outputs.is_meta());
      for (const at::Tensor& gradient : gradients_of(outputs.sum(), parameters)) EXPECT_TRUE(gradient.is_meta());
      ++whole;
    } catch (const c10::Error& problem) {
      EXPECT_THAT(problem.what(), testing::AnyOf(HasSubstr("not implemented"), HasSubstr("Could not run 'aten::"),
                                                 HasSubstr("or Meta kernel")));
    }
  }
  EXPECT_GE(whole, 2) << "linear and mlp";
}

// Several threads of the pool share a device.
TEST(Device, ThreadsShareADevice) {
  const Case resnet{"resnet", resnet_network(image, classes, {.width = 4})};
  const auto objective = objective_of(resnet, {.device = "cpu:copy"});
  const Bits alone = all_results(*objective_of(resnet, {}));
  std::vector<Bits> found(4);
  std::vector<std::thread> threads;
  for (Bits& bits : found) threads.emplace_back([&] { bits = all_results(*objective); });
  for (std::thread& thread : threads) thread.join();
  for (const Bits& bits : found) EXPECT_EQ(bits, alone);
}

Bits gradient_bits(const Objective& objective, const Model& model) {
  Bits bits;
  append(bits, objective.gradient(model.parameters.data(), model.buffers.data(), micro_batches));
  return bits;
}

// A state's values do not change, so a state that was announced is on the device already. To show this, the test
// changes the values, which the program never does.
TEST(Device, AStateIsCopiedOnce) {
  const Case mlp{"mlp", mlp_network(image, classes, {12})};
  const auto copying = objective_of(mlp, {.device = "cpu:copy"}), direct = objective_of(mlp, {});
  Model model = initial(*direct);
  const Bits before = gradient_bits(*direct, model);
  auto owner = std::make_shared<int>(0);
  copying->next_parameters_belong_to(owner);
  EXPECT_EQ(gradient_bits(*copying, model), before);
  for (float& value : model.parameters) value *= 1.5f;
  const Bits after = gradient_bits(*direct, model);
  ASSERT_NE(after, before);
  std::thread([&] {  // another thread finds the copy, too
    copying->next_parameters_belong_to(owner);
    EXPECT_EQ(gradient_bits(*copying, model), before);
  })
      .join();
  EXPECT_EQ(gradient_bits(*copying, model), after) << "the state of this call was not announced";
  copying->next_parameters_belong_to(std::make_shared<int>(0));
  EXPECT_EQ(gradient_bits(*copying, model), after) << "another state";
  copying->next_parameters_belong_to(owner);
  EXPECT_EQ(gradient_bits(*copying, model), before);
  owner = std::make_shared<int>(0);  // the first state is gone
  copying->next_parameters_belong_to(owner);
  EXPECT_EQ(gradient_bits(*copying, model), after);
}

// The nearest number with eight significant bits, ties to even.
float rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u);
}

// One dense layer. Logits are rounded products of rounded factors; the loss and its gradient are in single precision.
TEST(Device, Bfloat16RoundsTheFactorsOfProducts) {
  if (const std::string why = why_no_arithmetic({.bfloat16 = true}); !why.empty()) GTEST_SKIP() << why;
  const Case linear{"linear", linear_network(image, classes)};
  const auto exact = objective_of(linear, {}), half = objective_of(linear, {.bfloat16 = true});
  EXPECT_FALSE(half->has_batched_gradients());
  const Model model = initial(*exact);
  const auto features = static_cast<std::size_t>(image.features());
  const RandomImages data(image, classes, 60, 20);
  std::vector<std::uint32_t> samples(20);
  for (std::uint32_t i = 0; i < 20; ++i) samples[i] = i;
  std::vector<float> inputs(20 * features);
  std::vector<std::int64_t> labels(20);
  data.gather(Split::test, samples, inputs.data(), labels.data());
  const float *const weights = model.parameters.data(), *const bias = weights + classes * features;
  double loss = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    std::vector<double> logits;
    for (std::size_t c = 0; c < classes; ++c) {
      double sum = rounded(bias[c]);
      for (std::size_t f = 0; f < features; ++f)
        sum += static_cast<double>(rounded(inputs[i * features + f])) * rounded(weights[c * features + f]);
      logits.push_back(rounded(static_cast<float>(sum)));
    }
    double total = 0;
    for (const double logit : logits) total += std::exp(logit);
    loss += std::log(total) - logits[static_cast<std::size_t>(labels[i])];
  }
  const auto sums_of = [&](const Objective& of) {
    return of.evaluate(model.parameters.data(), nullptr, Split::test, 0, 20).loss;
  };
  // A sum that lies near the middle of two numbers may be rounded either way, by one part in 256 of a logit.
  EXPECT_NEAR(sums_of(*half), loss, 20 * 0.002);
  EXPECT_NE(sums_of(*half), sums_of(*exact));
  EXPECT_EQ(all_results(*objective_of(linear, {.device = "cpu:copy", .bfloat16 = true})), all_results(*half));
}

// Gradients differ from those in single precision by a few roundings of one part in 256.
TEST(Device, Bfloat16GradientsAreNearThoseOfFloat32) {
  if (const std::string why = why_no_arithmetic({.bfloat16 = true}); !why.empty()) GTEST_SKIP() << why;
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    const auto exact = objective_of(each, {}), half = objective_of(each, {.bfloat16 = true});
    const Model model = initial(*exact);
    const auto of = [&](const Objective& objective) {
      return flatten(objective.gradient(model.parameters.data(), model.buffers.data(), micro_batches));
    };
    EXPECT_LT(relative_distance(of(*half), of(*exact)), each.bfloat16_distance);
  }
}

// Texts of more than two blocks of queries.
TEST(Device, AttentionInBlocksInBfloat16IsNearThatOfFloat32) {
  if (const std::string why = why_no_arithmetic({.bfloat16 = true}); !why.empty()) GTEST_SKIP() << why;
  constexpr std::int64_t tokens = 2 * layer::attention_block + 9;
  const SampleShape texts{.width = tokens + 1, .vocabulary = vocabulary};
  GptOptions options{.width = 16, .depth = 2, .heads = 2, .context = tokens, .mlp_width = 12};
  const auto data = random_texts(vocabulary, classes, layer::attention_block, tokens + 1, 60, 20);
  for (const auto positions : {GptOptions::Positions::learned, GptOptions::Positions::rotary}) {
    options.positions = positions;
    const auto results = [&](const Arithmetic& arithmetic) {
      const auto objective = make_torch_objective({.network = gpt_network(texts, options),
                                                   .dataset = data,
                                                   .sampling = sampling,
                                                   .chunk_samples = 8,
                                                   .label_smoothing = 0,
                                                   .mixup = 0,
                                                   .arithmetic = arithmetic});
      const Model model = initial(*objective);
      auto all = flatten(objective->gradient(model.parameters.data(), nullptr, micro_batches));
      all.push_back(
          static_cast<float>(objective->evaluate(model.parameters.data(), nullptr, Split::test, 0, 20).loss / 20));
      return all;
    };
    const auto exact = results({}), half = results({.bfloat16 = true});
    EXPECT_NE(exact, half);
    EXPECT_LT(relative_distance(half, exact), 0.05);
    EXPECT_EQ(results({.device = "cpu:copy", .bfloat16 = true}), half);
  }
}

#if TORCH_VERSION_MAJOR >= 2
TEST(Device, LibTorchsAttentionIsThatOfTheFormula) {
  const at::Tensor all = at::sin(at::arange(3 * 2 * 3 * 70 * 4, at::kFloat)).view({3, 2, 3, 70, 4});
  const at::Tensor queries = all[0], keys = all[1], values = all[2];
  const at::Tensor later = at::triu(at::ones({70, 70}, at::kBool), 1);
  const at::Tensor scores = at::matmul(queries, keys.transpose(2, 3)) / 2;  // the root of d = 4
  const at::Tensor wanted = at::matmul(at::softmax(scores.masked_fill(later, -INFINITY), 3), values);
  EXPECT_TRUE(causal_attention_by_torch(queries, keys, values).allclose(wanted, 1e-5, 1e-6));
}
#endif

TEST(Device, ALackOfMemorySaysWhatToLower) {
  const Device device({.device = "cpu:copy", .batch_samples = 64});
  const std::string message = message_of<RunFailure>([&] {
    device.run([&]() -> int {
      throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "tried to allocate 2 GiB");
    });
  });
  // Libraries for GPUs report a lack of memory only in the text of an error.
  const auto fail = [](const char* text) { return [text]() -> int { TORCH_CHECK(false, text); }; };
  for (const char* const text :
       {"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", "MPS backend out of memory"})
    EXPECT_THAT(message_of<RunFailure>([&] { device.run(fail(text)); }), HasSubstr("training.micro_batch_size"));
  EXPECT_THROW(device.run(fail("shapes differ")), c10::Error);
  EXPECT_THAT(message, testing::AllOf(HasSubstr("training.device = \"cpu:copy\""),
                                      HasSubstr("lower training.device_batch from 64, training.micro_batch_size"),
                                      HasSubstr("tried to allocate 2 GiB")));
}

class DeviceKeys : public PlannedObjective {};

TEST_F(DeviceKeys, AreCheckedOneByOne) {
  const auto report_of = [&](const std::vector<std::string>& keys) {
    std::vector<std::string> all = {"training.model=linear", "training.dataset=gaussian-mixture"};
    all.insert(all.end(), keys.begin(), keys.end());
    plan(all);
    return report;
  };
  EXPECT_EQ(report_of({}), "");
  EXPECT_EQ(report_of({"training.device=cpu:copy", "training.device_batch=64", "training.precision=bfloat16"}), "");
  EXPECT_EQ(report_of({"training.device=cuda:1", "training.deterministic=true"}), "");
  for (const char* const wrong : {"gpu", "cuda:", "cuda:x", "cuda:100", "CPU", "cpu:0"})
    EXPECT_THAT(report_of({std::string("training.device=") + wrong}), HasSubstr("must be \"cpu\", \"cuda\"")) << wrong;
  EXPECT_THAT(report_of({"training.deterministic=true"}), HasSubstr("always reproducible"));
  EXPECT_THAT(report_of({"training.device=mps", "training.precision=bfloat16"}), HasSubstr("must be \"float32\""));
  EXPECT_THAT(report_of({"training.model=quadratic", "training.device=cuda"}), HasSubstr("must be left out"));
}

// To run on the processor, a file for a GPU needs only another device.
TEST_F(DeviceKeys, ABatchOfTheDeviceIsIgnoredOnTheProcessorWithANote) {
  const std::vector<std::string> keys = {"training.model=linear", "training.dataset=gaussian-mixture"};
  const auto with = [&](std::initializer_list<const char*> more) {
    std::vector<std::string> all = keys;
    all.insert(all.end(), more.begin(), more.end());
    return plan(all);
  };
  const ObjectivePlan plain = with({}), ignored = with({"training.device=cpu", "training.device_batch=64"});
  EXPECT_EQ(report, "");
  EXPECT_EQ(ignored.arithmetic, plain.arithmetic);
  EXPECT_THAT(ignored.notes, testing::Contains(HasSubstr("command line: training.device_batch = 64; has no effect with "
                                                         "device = \"cpu\"")));
  EXPECT_THAT(with({"training.device=cpu:copy", "training.device_batch=64"}).notes,
              testing::SizeIs(plain.notes.size()));
  with({"training.device_batch=0"});
  EXPECT_EQ(report, "command line: training.device_batch = 0; must be an integer from 1 to 1048576");
}

TEST_F(DeviceKeys, AModuleThatDrawsRandomNumbersNeedsTheProcessor) {
  const std::string file = testing::TempDir() + "syncopate-device-" + std::to_string(getpid()) + ".pt";
  const auto report_of = [&](const std::string& line, const std::string& device) {
    save_script(file, {{.name = "weight", .shape = {10, 32}}}, line + "return torch.linear(x, self.weight)");
    plan({"training.model=torchscript", "models.torchscript.file='" + file + "'", "training.dataset=gaussian-mixture",
          "training.device=" + device});
    return report;
  };
  const std::string dropout = "x = torch.dropout(x, 0.5, self.training)\n";
  EXPECT_EQ(report_of("", "cuda"), "");
  EXPECT_EQ(report_of(dropout, "cpu:copy"), "");
  EXPECT_THAT(report_of(dropout, "cuda"),
              HasSubstr("training.device = \"cuda\"; must be \"cpu\": the forward of your module draws"));
  std::filesystem::remove(file);
}

TEST_F(DeviceKeys, ADeviceThatIsMissingIsNamedWithTheReason) {
  const ObjectivePlan planned =
      plan({"training.model=linear", "training.dataset=gaussian-mixture", "training.device=cuda:7"});
  EXPECT_EQ(report, "");
  if (why_no_arithmetic({.device = "cuda:7"}).empty()) GTEST_SKIP() << "this machine has eight GPUs";
  try {
    planned.load();
    FAIL() << "there is no such device";
  } catch (const std::runtime_error& problem) {
    EXPECT_THAT(problem.what(), HasSubstr("training.device = \"cuda:7\": "));
    EXPECT_THAT(problem.what(),
                testing::AnyOf(HasSubstr("has no CUDA"), HasSubstr("LibTorch finds"), HasSubstr("cannot be loaded")));
  }
}

}  // namespace
}  // namespace syncopate
