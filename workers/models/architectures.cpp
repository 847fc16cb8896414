#include "workers/models/architectures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <type_traits>

namespace syncopate {

namespace {

// Samples per batch. Measured: dense layers become faster up to 512; convolutions become slower above 128, where their
// activations exceed the cache.
constexpr std::int64_t dense_chunk = 512;
constexpr std::int64_t convolution_chunk = 128;

// Returns a misfit if images are too small for some layers.
std::optional<Misfit> misfit_of_image(const SampleShape& shape, std::int64_t smallest, const char* layers) {
  if (std::min(shape.height, shape.width) >= smallest) return {};
  return Misfit{.needed = fmt::format("the {1} need images of at least {0} x {0}", smallest, layers)};
}

// Appends a convolution and a normalisation. With a stride of 1 the convolution keeps the size of images. The deviation
// of its weights is sqrt(2 / fan).
template <OneOf<ResnetOptions, ImagenetResnetOptions> Options>
void convolve(Network& network, std::int64_t channels, std::int64_t kernel, std::int64_t stride, const Options& options,
              double scale = 1) {
  constexpr bool counts_inputs = std::is_same_v<Options, ResnetOptions>;  // true: fan-in; false: fan-out
  const std::int64_t fan = (counts_inputs ? network.output().channels : channels) * kernel * kernel;
  network.convolution({.channels = channels,
                       .kernel = kernel,
                       .bias = false,
                       .stride = stride,
                       .padding = kernel / 2,
                       .deviation = std::sqrt(2 / static_cast<double>(fan))});
  if (options.norm == ResnetOptions::Norm::group)
    network.group_norm(options.groups, scale);
  else
    network.batch_norm(scale);
}

void activate(Network& network, const ResnetOptions& options) {
  if (options.activation == ResnetOptions::Activation::silu)
    network.silu();
  else
    network.relu();
}

void block(Network& network, std::int64_t channels, std::int64_t stride, const ResnetOptions& options) {
  network.begin_residual();
  convolve(network, channels, 3, stride, options);
  activate(network, options);
  network.dropout(options.dropout);
  convolve(network, channels, 3, 1, options, options.zero_init_residual ? 0 : 1);
  network.end_residual(stride);
  activate(network, options);
}

// Keys that both kinds of residual networks have.
ResnetOptions::Norm read_norm(Settings& table, ResnetOptions::Norm usual) {
  return table.choice({"norm", "Normalisation over the micro-batch, or of each sample over groups of channels."},
                      {{"batch", ResnetOptions::Norm::batch}, {"group", ResnetOptions::Norm::group}}, usual);
}
std::int64_t read_groups(Settings& table, std::int64_t usual) {
  return table.integer({"groups", "Number of groups of channels."}, 1, largest_width, usual);
}
bool read_zero_init(Settings& table, bool usual) {
  return table.flag(
      {"zero_init_residual", "Whether the weights of each block's last normalisation start at 0 instead of 1."}, usual);
}

// The number of blocks in each stage (Table 1 of the paper), and whether they are bottlenecks.
struct ImagenetStages {
  std::int64_t depth;
  std::array<std::int64_t, 4> blocks;
  bool has_bottlenecks;
};
constexpr ImagenetStages imagenet_stages[] = {{18, {2, 2, 2, 2}, false},
                                              {34, {3, 4, 6, 3}, false},
                                              {50, {3, 4, 6, 3}, true},
                                              {101, {3, 4, 23, 3}, true},
                                              {152, {3, 8, 36, 3}, true}};

const ImagenetStages* stages_of(std::int64_t depth) {
  const auto* const found = std::ranges::find(imagenet_stages, depth, &ImagenetStages::depth);
  return found == std::end(imagenet_stages) ? nullptr : found;
}

void imagenet_block(Network& network, std::int64_t width, std::int64_t stride, bool is_bottleneck,
                    const ImagenetResnetOptions& options) {
  const std::int64_t outputs = is_bottleneck ? 4 * width : width;
  const bool is_projected = stride > 1 || network.output().channels != outputs;
  network.begin_residual();
  if (is_bottleneck) {
    convolve(network, width, 1, 1, options);
    network.relu();
  }
  convolve(network, width, 3, stride, options);
  network.relu();
  convolve(network, outputs, is_bottleneck ? 1 : 3, 1, options, options.zero_init_residual ? 0 : 1);
  if (is_projected) {
    network.begin_shortcut();
    convolve(network, outputs, 1, stride, options);
  }
  network.end_residual().relu();
}

using Kind = TextTask::Kind;
using Norm = TextTransformerOptions::Norm;
using Pooling = TextTransformerOptions::Pooling;

constexpr double deviation = 0.02;
constexpr LinearOptions dense{.deviation = deviation};

void head(Network& network, std::int64_t classes, const TextTransformerOptions& options) {
  network.begin_head();
  switch (options.task.kind) {
    case Kind::classification:
      if (options.pooling == Pooling::first)
        network.first_tokens().linear(options.width, dense).tanh();
      else
        network.mean_pool();
      network.dropout(options.dropout).linear(classes, dense);
      break;
    case Kind::masked_lm:
      network.asked_tokens().linear(options.width, dense).gelu().layer_norm().decode_words(true);
      break;
    case Kind::causal_lm:
      network.asked_tokens().decode_words(false);
  }
}

std::optional<Misfit> misfit(const DatasetSize& data, const TextTransformerOptions& options) {
  const TextTask& task = options.task;
  if (task.kind == Kind::classification && data.classes < 2)
    return Misfit{.key = "task", .needed = "needs samples with labels of at least two classes"};
  if (task.kind == Kind::masked_lm && data.marks.mask < 0)
    return Misfit{.key = "task",
                  .needed = "needs a data set with a token that hides others, such as datasets.npy.mask"};
  const ComputedTokens computed = computed_by(task);
  if (const std::int64_t needed = computed.of(data.shape.width); needed > options.positions)
    return Misfit{.key = "positions",
                  .needed = fmt::format("must be at least {}, the length of the longest text{}, unless `cut` is true",
                                        needed, computed.last_is_answer ? " without its last token" : "")};
  return {};
}

// Keys that transformers have in common.
std::int64_t read_depth(Settings& table, std::int64_t usual) {
  constexpr std::int64_t deepest = 1024;
  return table.integer({"depth", "Number of blocks, each an attention and a perceptron."}, 1, deepest, usual);
}
std::int64_t read_heads(Settings& table, std::int64_t usual) {
  return table.integer({"heads", "Number of heads of each attention."}, 1, 1024, usual);
}
std::int64_t read_text_width(Settings& table, std::int64_t usual) {
  return table.integer({"width", "Features per token; a multiple of `heads`."}, 1, largest_width, usual);
}
std::int64_t read_mlp_width(Settings& table, std::int64_t most, const Stated<std::int64_t>& usual) {
  return table.integer({"mlp_width", "Width of the perceptrons' hidden layer."}, 1, most, usual);
}
double read_text_dropout(Settings& table, double usual) {
  return table.number({"dropout", "Dropout: share of embeddings and of branches' outputs that training sets to 0."},
                      dropout_range, usual);
}

}  // namespace

Network linear_network(const SampleShape& input, std::int64_t classes) {
  return input.has_tokens() ? Network(input).bag_of_words(classes).lay_out() : mlp_network(input, classes, {});
}

Network mlp_network(const SampleShape& input, std::int64_t classes, const std::vector<std::int64_t>& hidden,
                    double dropout) {
  Network network(input);
  for (const auto width : hidden) network.linear(width).relu().dropout(dropout);
  return network.begin_head().linear(classes).lay_out();
}

Network cnn_network(const SampleShape& input, std::int64_t classes, const CnnOptions& options) {
  Network network(input);
  for (const auto channels : options.channels) {
    network.convolution({.channels = channels, .kernel = options.kernel, .bias = !options.batch_norm});
    if (options.batch_norm) network.batch_norm();
    network.relu().max_pool();
  }
  return network.linear(options.dense).relu().dropout(options.dropout).begin_head().linear(classes).lay_out();
}

std::int64_t smallest_image(const CnnOptions& options) {
  std::int64_t size = 1;
  for (std::size_t stage = 0; stage < options.channels.size(); ++stage) size = 2 * size + options.kernel - 1;
  return size;
}

Model read_linear(Settings&) {
  return {.inputs = Model::Inputs::either,
          .misfit = [](const DatasetSize& data) -> std::optional<Misfit> {
            if (data.classes >= 2) return {};
            return Misfit{.needed = "needs samples with labels of at least two classes"};
          },
          .network = [](const DatasetSize& data) { return linear_network(data.shape, data.classes); },
          .chunk_samples = dense_chunk};
}

Model read_mlp(Settings& table) {
  const auto hidden =
      table.integers({"hidden", "Widths of the hidden layers."}, 1, largest_width, std::vector<std::int64_t>{256});
  const double dropout = table.number(
      {"dropout", "Dropout: share of the hidden layers' outputs that training sets to 0."}, dropout_range, 0.0);
  return {.network = [hidden, dropout](
                         const DatasetSize& data) { return mlp_network(data.shape, data.classes, hidden, dropout); },
          .chunk_samples = dense_chunk};
}

Model read_cnn(Settings& table) {
  CnnOptions options;
  options.channels = table.integers({"channels", "Channels of the convolutions, one number per convolution."}, 1,
                                    largest_width, options.channels);
  options.kernel =
      table.integer({"kernel", "Width and height of the convolutions' filters.", "pixels"}, 1, 1024, options.kernel);
  options.dense =
      table.integer({"dense", "Width of the dense layer after the convolutions."}, 1, largest_width, options.dense);
  options.batch_norm =
      table.flag({"batch_norm", "Whether the convolutions are followed by batch normalisation."}, options.batch_norm);
  options.dropout = table.number({"dropout", "Dropout: share of the dense layer's outputs that training sets to 0."},
                                 dropout_range, options.dropout);
  if (options.channels.empty())
    for (const char* key : {"kernel", "batch_norm"})
      forbid(table, key, "has no effect without convolutions (channels = [])");
  return {.misfit =
              [smallest = smallest_image(options)](const DatasetSize& data) {
                return misfit_of_image(data.shape, smallest, "convolutions of [models.cnn]");
              },
          .network = [options](const DatasetSize& data) { return cnn_network(data.shape, data.classes, options); },
          .chunk_samples = convolution_chunk};
}

Network resnet_network(const SampleShape& input, std::int64_t classes, const ResnetOptions& options) {
  Network network(input);
  convolve(network, options.width, 3, 1, options);
  activate(network, options);
  for (const std::int64_t stage : {1, 2, 4}) {
    for (std::int64_t i = 0; i < (options.depth - 2) / 6; ++i)
      block(network, stage * options.width, stage > 1 && i == 0 ? 2 : 1, options);
  }
  return network.mean_pool().begin_head().linear(classes, {.deviation = 0.01}).lay_out();
}

Model read_resnet(Settings& table) {
  using enum ResnetOptions::Activation;
  constexpr std::int64_t deepest = 6 * 200 + 2;  // the deepest network in the paper
  const std::size_t faults = table.faults_so_far();
  ResnetOptions options;
  options.depth =
      table.integer({"depth", "Number of layers: 6 n + 2, such as 8, 14, 20 and 56."}, 8, deepest, options.depth);
  options.width =
      table.integer({"width", "Channels of the first stage; the second has twice and the third four times as many."}, 1,
                    largest_width, options.width);
  options.norm = read_norm(table, options.norm);
  if (options.norm == ResnetOptions::Norm::group) options.groups = read_groups(table, options.groups);
  options.activation = table.choice({"activation", "The activation after normalisations and sums."},
                                    {{"relu", relu}, {"silu", silu}}, options.activation);
  options.zero_init_residual = read_zero_init(table, options.zero_init_residual);
  options.dropout =
      table.number({"dropout", "Dropout: share of the outputs of a block's first convolution that training sets to 0."},
                   dropout_range, options.dropout);
  if (table.faults_so_far() == faults) {
    if (const auto above = (options.depth - 2) % 6; above != 0)
      table.fault("depth",
                  fmt::format("must be 6 n + 2, such as {} and {}", options.depth - above, options.depth - above + 6));
    if (options.norm == ResnetOptions::Norm::group && options.width % options.groups != 0)
      table.fault("groups", fmt::format("must divide `width`, {}", options.width));
  }
  if (table.faults_so_far() > faults) return {};
  constexpr std::int64_t smallest = 4;  // pixels; two strides of 2 then leave one pixel
  return {
      .misfit =
          [](const DatasetSize& data) { return misfit_of_image(data.shape, smallest, "strides of [models.resnet]"); },
      .network = [options](const DatasetSize& data) { return resnet_network(data.shape, data.classes, options); },
      .chunk_samples = 32};
}

Network imagenet_resnet_network(const SampleShape& input, std::int64_t classes, const ImagenetResnetOptions& options) {
  const ImagenetStages* const stages = stages_of(options.depth);
  assert(stages);
  Network network(input);
  const bool is_large = options.stem == ImagenetResnetOptions::Stem::imagenet;
  convolve(network, options.width, is_large ? 7 : 3, is_large ? 2 : 1, options);
  network.relu();
  if (is_large) network.max_pool({.kernel = 3, .stride = 2, .padding = 1});
  std::int64_t width = options.width;
  for (std::size_t stage = 0; stage < stages->blocks.size(); ++stage, width *= 2)
    for (std::int64_t i = 0; i < stages->blocks[stage]; ++i)
      imagenet_block(network, width, stage > 0 && i == 0 ? 2 : 1, stages->has_bottlenecks, options);
  return network.mean_pool().begin_head().linear(classes).lay_out();
}

Model read_imagenet_resnet(Settings& table) {
  using enum ResnetOptions::Norm;
  using enum ImagenetResnetOptions::Stem;
  const std::size_t faults = table.faults_so_far();
  ImagenetResnetOptions options;
  options.depth = table.integer({"depth", "Number of layers: 18, 34, 50, 101 or 152."}, 18, 152, options.depth);
  options.width = table.integer(
      {"width", "Channels of the first stage's 3 x 3 convolutions; each further stage has twice as many."}, 1,
      largest_width / 32, options.width);
  options.stem =
      table.choice({"stem", "First layers: 7 x 7 convolution and pooling, or for small images a 3 x 3 convolution."},
                   {{"imagenet", imagenet}, {"cifar", cifar}}, options.stem);
  options.norm = read_norm(table, options.norm);
  options.groups = read_groups(table, options.groups);
  if (options.norm == batch) forbid(table, "groups", "has no effect with batch normalisation");
  options.zero_init_residual = read_zero_init(table, options.zero_init_residual);
  if (table.faults_so_far() == faults) {
    if (!stages_of(options.depth)) table.fault("depth", "must be 18, 34, 50, 101 or 152");
    if (options.norm == group && options.width % options.groups != 0)
      table.fault("groups", fmt::format("must divide `width`, {}", options.width));
  }
  if (table.faults_so_far() > faults) return {};
  // Each stride of 2 needs at least two pixels. The stem for large images has two more strides.
  const std::int64_t smallest = options.stem == imagenet ? 17 : 5;
  return {.misfit =
              [smallest](const DatasetSize& data) {
                return misfit_of_image(data.shape, smallest, "strides of [models.imagenet-resnet]");
              },
          .network =
              [options](const DatasetSize& data) { return imagenet_resnet_network(data.shape, data.classes, options); },
          .chunk_samples = 32};
}

Network text_transformer_network(const SampleShape& input, std::int64_t classes,
                                 const TextTransformerOptions& options) {
  Network network(input);
  network.embed_words(options.width, options.positions, deviation);
  if (options.norm == Norm::after) network.layer_norm();
  network.dropout(options.dropout);
  const auto add_branch = [&](const auto& append_branch) {
    network.begin_residual();
    if (options.norm == Norm::before) network.layer_norm();
    append_branch();
    network.linear(options.width, dense).dropout(options.dropout).end_residual();
    if (options.norm == Norm::after) network.layer_norm();
  };
  for (std::int64_t i = 0; i < options.depth; ++i) {
    add_branch([&] {
      network.linear(3 * options.width, dense)
          .attention({.heads = options.heads, .causal = options.task.kind == Kind::causal_lm});
    });
    add_branch([&] { network.linear(options.mlp_width, dense).gelu(); });
  }
  if (options.norm == Norm::before) network.layer_norm();
  head(network, classes, options);
  return network.asks(options.task).lay_out();
}

Model read_text_transformer(Settings& table) {
  const std::size_t faults = table.faults_so_far();
  TextTransformerOptions options;
  options.task.kind = table.choice(
      {"task", "What is predicted: classes of texts, hidden words, or each next word."},
      {{"classification", Kind::classification}, {"masked-lm", Kind::masked_lm}, {"causal-lm", Kind::causal_lm}},
      options.task.kind);
  options.width = read_text_width(table, options.width);
  options.depth = read_depth(table, options.depth);
  options.heads = read_heads(table, options.heads);
  options.mlp_width = read_mlp_width(table, largest_width, options.mlp_width);
  options.positions =
      table.integer({"positions", "Length of the longest sequence.", "tokens"}, 1, 1 << 20, options.positions);
  options.norm =
      table.choice({"norm", "Whether sums are normalised (post, as in BERT) or the inputs of branches (pre)."},
                   {{"post", Norm::after}, {"pre", Norm::before}}, options.norm);
  options.pooling =
      table.choice({"pooling", "Input of the classifier of texts: the first token, or the mean of all tokens."},
                   {{"first", Pooling::first}, {"mean", Pooling::mean}}, options.pooling);
  options.dropout = read_text_dropout(table, options.dropout);
  if (table.flag({"cut", "Whether sequences with more tokens than `positions` are cut."}, false))
    options.task.longest = options.positions;
  options.task.masking = read_masking(table, options.task.kind == Kind::masked_lm, "the task \"masked-lm\"");
  if (options.task.kind != Kind::classification) table.leave_out("pooling");
  if (table.faults_so_far() == faults && options.width % options.heads != 0)
    table.fault("width", fmt::format("must be a multiple of `heads`, {}", options.heads));
  if (table.faults_so_far() > faults) return {};
  return {
      .inputs = Model::Inputs::tokens,
      .misfit = [options](const DatasetSize& data) { return misfit(data, options); },
      .network =
          [options](const DatasetSize& data) { return text_transformer_network(data.shape, data.classes, options); },
      .computed = computed_by(options.task),
      .longest_key = "positions",
      .chunk_samples = 64};
}

Network gpt_network(const SampleShape& input, const GptOptions& options) {
  const LinearOptions inner{.bias = options.bias, .deviation = options.deviation};
  const LinearOptions outer{.bias = options.bias,
                            .deviation = options.deviation / std::sqrt(2 * static_cast<double>(options.depth))};
  const bool is_rotary = options.positions == GptOptions::Positions::rotary;
  Network network(input);
  const auto normalise = [&]() -> Network& {
    return options.norm == GptOptions::Norm::rms ? network.rms_norm() : network.layer_norm(options.bias);
  };
  network.embed_words(options.width, is_rotary ? 0 : options.context, options.deviation).dropout(options.dropout);
  const int rotary =
      is_rotary ? network.rotary_table(options.context, options.width / options.heads, options.rotary_base) : -1;
  for (std::int64_t i = 0; i < options.depth; ++i) {
    network.begin_residual();
    normalise()
        .linear(3 * options.width, inner)
        .attention({.heads = options.heads, .causal = true, .rotary = rotary, .in_blocks = true});
    network.linear(options.width, outer).dropout(options.dropout).end_residual();
    network.begin_residual();
    normalise().linear(options.mlp_width, inner).gelu();
    network.linear(options.width, outer).dropout(options.dropout).end_residual();
  }
  normalise().begin_head().asked_tokens();
  if (options.tied)
    network.decode_words(/*bias=*/false);
  else
    network.linear(input.vocabulary, {.bias = false, .deviation = options.deviation});
  return network.asks({.kind = Kind::causal_lm, .longest = options.cut ? options.context + 1 : 0}).lay_out();
}

Model read_gpt(Settings& table) {
  using enum GptOptions::Positions;
  const std::size_t faults = table.faults_so_far();
  GptOptions options;
  options.width = read_text_width(table, options.width);
  options.depth = read_depth(table, options.depth);
  options.heads = read_heads(table, options.heads);
  options.context = table.integer(
      {"context", "Most tokens that the model sees; the last token of a sequence is only predicted.", "tokens"}, 1,
      1 << 20, options.context);
  options.mlp_width = read_mlp_width(table, 4 * largest_width, Stated(4 * options.width, "4 x width"));
  options.positions = table.choice({"positions", "Learned vectors per position, or rotations of queries and keys."},
                                   {{"learned", learned}, {"rotary", rotary}}, options.positions);
  options.rotary_base = table.number({"rotary_base", "Base of the rotations' frequencies."},
                                     {.low = 1, .low_open = true}, options.rotary_base);
  if (options.positions == learned) forbid(table, "rotary_base", "has no effect with learned positions");
  options.tied = table.flag({"tied", "Whether the head uses the weights of the token embedding."}, options.tied);
  options.bias = table.flag({"bias", "Whether dense layers and layer normalisations have biases."}, options.bias);
  options.norm = table.choice({"norm", "Layer normalisation, or division by the root mean square."},
                              {{"layer", GptOptions::Norm::layer}, {"rms", GptOptions::Norm::rms}}, options.norm);
  options.dropout = read_text_dropout(table, options.dropout);
  options.deviation = table.number({"deviation", "Standard deviation of initial weights."},
                                   {.low = 0, .low_open = true}, options.deviation);
  options.cut = table.flag({"cut", "Whether sequences with more tokens than `context` + 1 are cut."}, options.cut);
  const std::int64_t multiple = (options.positions == rotary ? 2 : 1) * options.heads;
  if (table.faults_so_far() == faults && options.width % multiple != 0)
    table.fault("width", fmt::format("must be a multiple of {}`heads`, {}", options.positions == rotary ? "2 x " : "",
                                     multiple));
  if (table.faults_so_far() > faults) return {};
  return {.inputs = Model::Inputs::tokens,
          .misfit = [options](const DatasetSize& data) -> std::optional<Misfit> {
            if (options.cut || data.shape.width <= options.context + 1) return {};
            return Misfit{.key = "context",
                          .needed = fmt::format("must be at least {}, one less than the length of the longest text, "
                                                "unless `cut` is true",
                                                data.shape.width - 1)};
          },
          .network = [options](const DatasetSize& data) { return gpt_network(data.shape, options); },
          .computed = {.longest = options.cut ? options.context + 1 : 0, .last_is_answer = true},
          .longest_key = "context",
          .chunk_samples = 8};
}

Network vision_transformer_network(const SampleShape& input, std::int64_t classes,
                                   const VisionTransformerOptions& options) {
  Network network(input);
  network.patches(options.patch).layer_norm().linear(options.width).layer_norm().sine_positions();
  network.dropout(options.dropout);
  const auto inner = options.heads * options.head_width;
  for (std::int64_t i = 0; i < options.depth; ++i) {
    network.begin_residual().layer_norm().linear(3 * inner, {.bias = false}).attention({.heads = options.heads});
    network.linear(options.width, {.bias = false}).dropout(options.dropout).end_residual();
    network.begin_residual().layer_norm().linear(options.mlp_width).gelu().dropout(options.dropout);
    network.linear(options.width).dropout(options.dropout).end_residual();
  }
  return network.mean_pool().layer_norm().begin_head().linear(classes).lay_out();
}

Model read_vision_transformer(Settings& table) {
  const std::size_t faults = table.faults_so_far();
  const VisionTransformerOptions usual;
  const VisionTransformerOptions options = {
      .patch = table.integer({"patch", "Width and height of a patch; each patch is a token.", "pixels"}, 1, 1024,
                             usual.patch),
      .width = table.integer({"width", "Features per token; a multiple of 4."}, 8, largest_width, usual.width),
      .depth = read_depth(table, usual.depth),
      .heads = read_heads(table, usual.heads),
      .head_width =
          table.integer({"head_width", "Width of each head's queries, keys and values; independent of `width`."}, 1,
                        largest_width, usual.head_width),
      .mlp_width = read_mlp_width(table, largest_width, usual.mlp_width),
      .dropout = table.number(
          {"dropout", "Dropout: share of the outputs of patches, attentions and perceptrons that training sets to 0."},
          dropout_range, usual.dropout)};
  if (table.faults_so_far() == faults && options.width % 4 != 0)
    table.fault("width", "must be a multiple of 4, because positions are sines and cosines of two coordinates");
  if (table.faults_so_far() > faults) return {};
  return {
      .misfit = [patch = options.patch](const DatasetSize& data) -> std::optional<Misfit> {
        if (data.shape.height % patch == 0 && data.shape.width % patch == 0) return {};
        return Misfit{.key = "patch", .needed = "must divide the images' height and width"};
      },
      .network =
          [options](const DatasetSize& data) { return vision_transformer_network(data.shape, data.classes, options); },
      .chunk_samples = 32};
}

}  // namespace syncopate
