#include "workers/models/network.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

#include "workers/base/random.hpp"

namespace syncopate {

namespace {

// Draws values uniform in (-1, 1), or standard normal.
void draw(const RandomStream& stream, Initial::Law law, std::vector<double>& values) {
  if (law == Initial::Law::normal) return fill_standard_normal(stream, 0, values);
  stream.fill_uniform(0, values);
  for (double& value : values) value = 2 * value - 1;
}

// A size of 0 means that the layer is impossible. It stays 0, so that no later layer makes it positive again.
template <OneOf<ConvolutionOptions, layer::MaxPool> Options>
std::int64_t pixels_after(std::int64_t pixels, const Options& options) {
  const auto room = pixels + 2 * options.padding - options.kernel;
  return pixels <= 0 || room < 0 ? 0 : room / options.stride + 1;
}

// The initial distributions of the weights and biases of a layer with this many inputs.
std::pair<Initial, Initial> laws_of(NormalWeights deviation, std::int64_t inputs) {
  if (deviation) return {{.spread = *deviation, .law = Initial::Law::normal}, {}};
  const Initial usual{.spread = 1 / std::sqrt(static_cast<double>(inputs))};
  return {usual, usual};
}

}  // namespace

std::vector<float> initial_parameters(const Network& network, std::uint64_t seed) {
  std::vector<float> flat(network.parameter_floats());
  std::vector<double> values;
  for (std::size_t p = 0; p < network.parameters().size(); ++p) {
    const Parameter& parameter = network.parameters()[p];
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(parameter.offset);
    if (parameter.given) {
      std::ranges::copy(*parameter.given, begin);
      continue;
    }
    const Initial& initial = parameter.initial;
    values.assign(parameter.size, 0);
    if (initial.spread > 0)
      draw({.seed = seed, .purpose = Purpose::initial_parameters, .step = static_cast<std::int64_t>(p)}, initial.law,
           values);
    std::ranges::transform(values, begin,
                           [&](double value) { return static_cast<float>(initial.centre + value * initial.spread); });
  }
  return flat;
}

std::string Network::next_name(std::string_view word) const {
  const auto before = std::ranges::count_if(contents_.parameters, [&](const Parameter& parameter) {
    return parameter.name.starts_with(word) && parameter.name.ends_with(".weight");
  });
  return std::string(word) + std::to_string(before + 1);
}

int Network::add_parameter(std::string name, std::vector<std::int64_t> shape, const Initial& initial) {
  std::size_t size = 1;
  for (const auto extent : shape) size *= static_cast<std::size_t>(std::max<std::int64_t>(extent, 0));
  contents_.parameters.push_back(
      {.name = std::move(name), .shape = std::move(shape), .size = size, .initial = initial});
  return static_cast<int>(contents_.parameters.size()) - 1;
}

int Network::add_scale_and_shift(std::string_view word, double scale, bool shifts) {
  const std::string name = next_name(word);
  const int weight = add_parameter(name + ".weight", {shape_.channels}, {.centre = scale});
  if (shifts) add_parameter(name + ".bias", {shape_.channels}, {});
  return weight;
}

Network& Network::linear(std::int64_t outputs, const LinearOptions& options) {
  if (form_ == Form::image) {
    shape_ = {.channels = shape_.features()};
    form_ = Form::vector;
    append(layer::Flatten{});
  }
  const auto [weights, biases] = laws_of(options.deviation, shape_.channels);
  const std::string name = next_name("linear");
  layer::Linear layer{.weight = add_parameter(name + ".weight", {outputs, shape_.channels}, weights)};
  if (options.bias) layer.bias = add_parameter(name + ".bias", {outputs}, biases);
  shape_.channels = outputs;
  return append(layer);
}

// Reserves an even number of random numbers for the layer, because they are drawn in pairs.
Network& Network::dropout(double share) {
  assert(share >= 0 && share < 1);
  if (share == 0) return *this;
  append(layer::Dropout{.share = share, .first_number = dropout_numbers_});
  const std::int64_t places = form_ == Form::texts ? input_.width : 1;  // number of tokens of the longest text
  dropout_numbers_ += (std::max<std::int64_t>(shape_.features() * places, 0) + 1) / 2 * 2;
  return *this;
}

// Layers for images.
Network& Network::convolution(const ConvolutionOptions& options) {
  assert(form_ == Form::image);
  const auto& [channels, kernel, bias, stride, padding, deviation] = options;
  const auto [weights, biases] = laws_of(deviation, shape_.channels * kernel * kernel);
  const std::string name = next_name("convolution");
  layer::Convolution layer{.stride = stride, .padding = padding};
  layer.weight = add_parameter(name + ".weight", {channels, shape_.channels, kernel, kernel}, weights);
  if (bias) layer.bias = add_parameter(name + ".bias", {channels}, biases);
  shape_ = {.channels = channels,
            .height = pixels_after(shape_.height, options),
            .width = pixels_after(shape_.width, options)};
  return append(layer);
}

Network& Network::batch_norm(double scale) {
  const int weight = add_scale_and_shift("batch_norm", scale);
  append(layer::BatchNorm{.weight = weight, .bias = weight + 1, .buffers = static_cast<int>(buffers().size())});
  const auto size = static_cast<std::size_t>(shape_.channels);
  for (const float initial : {0.0f, 1.0f})
    contents_.buffers.push_back({.size = size,
                                 .offset = buffer_floats(),
                                 .shape = {shape_.channels},
                                 .initial = std::make_shared<const std::vector<float>>(size, initial)});
  return *this;
}

Network& Network::group_norm(std::int64_t groups, double scale) {
  assert(shape_.channels % groups == 0);
  const int weight = add_scale_and_shift("group_norm", scale);
  return append(layer::GroupNorm{.weight = weight, .bias = weight + 1, .groups = groups});
}

Network& Network::max_pool(const layer::MaxPool& options) {
  assert(form_ == Form::image && 2 * options.padding <= options.kernel);
  shape_.height = pixels_after(shape_.height, options);
  shape_.width = pixels_after(shape_.width, options);
  return append(options);
}

Network& Network::mean_pool() {
  assert(form_ == Form::image || form_ == Form::tokens || form_ == Form::texts);
  shape_ = {.channels = shape_.channels};
  form_ = Form::vector;
  return append(layer::MeanPool{});
}

Network& Network::begin_residual() {
  residual_shapes_.push_back(shape_);
  return append(layer::ResidualBegin{});
}

Network& Network::begin_shortcut() {
  std::swap(shape_, residual_shapes_.back());
  return append(layer::ShortcutBegin{});
}

Network& Network::end_residual(std::int64_t stride) {
  const SampleShape before = residual_shapes_.back();
  residual_shapes_.pop_back();
  assert((before.height + stride - 1) / stride == shape_.height &&
         (before.width + stride - 1) / stride == shape_.width);
  const auto zeros = shape_.channels - before.channels;
  assert(zeros >= 0);
  return append(layer::ResidualEnd{.stride = stride, .zeros_before = zeros / 2, .zeros_after = zeros - zeros / 2});
}

std::vector<float> sine_positions_2d(std::int64_t height, std::int64_t width, std::int64_t dimension) {
  assert(dimension % 4 == 0 && dimension >= 8);
  const auto frequencies = dimension / 4;
  std::vector<double> omega;
  for (std::int64_t i = 0; i < frequencies; ++i)
    omega.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(frequencies - 1)));

  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(height * width * dimension));
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (const auto coordinate : {x, y}) {
        const auto at = static_cast<double>(coordinate);
        for (const double w : omega) table.push_back(static_cast<float>(std::sin(at * w)));
        for (const double w : omega) table.push_back(static_cast<float>(std::cos(at * w)));
      }
    }
  }
  return table;
}

// Layers for texts. For tokens of texts, `channels` is their width.
Network& Network::bag_of_words(std::int64_t outputs) {
  assert(form_ == Form::words);
  const Initial initial{.spread = 1 / std::sqrt(static_cast<double>(shape_.vocabulary))};
  const std::string name = next_name("bag_of_words");
  const layer::BagOfWords bag{.weight = add_parameter(name + ".weight", {shape_.vocabulary, outputs}, initial),
                              .bias = add_parameter(name + ".bias", {outputs}, {})};
  shape_ = {.channels = outputs};
  form_ = Form::vector;
  return append(bag);
}

Network& Network::embed_words(std::int64_t width, std::int64_t places, double deviation) {
  assert(form_ == Form::words && embedded_words_ < 0);
  const Initial initial{.spread = deviation, .law = Initial::Law::normal};
  embedded_words_ = add_parameter("words.weight", {shape_.vocabulary, width}, initial);
  layer::WordEmbedding layer{.words = embedded_words_};
  if (places > 0) layer.places = add_parameter("places.weight", {places, width}, initial);
  shape_ = {.channels = width};
  form_ = Form::texts;
  return append(layer);
}

int Network::rotary_table(std::int64_t places, std::int64_t head_width, double base) {
  tables_.push_back(std::make_shared<const std::vector<float>>(rotary_positions(places, head_width, base)));
  return static_cast<int>(tables_.size()) - 1;
}

std::vector<float> rotary_positions(std::int64_t places, std::int64_t dimension, double base) {
  assert(dimension % 2 == 0);
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(places * dimension));
  const auto angle = [&](std::int64_t place, std::int64_t i) {
    return static_cast<double>(place) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dimension));
  };
  for (std::int64_t place = 0; place < places; ++place) {
    for (std::int64_t i = 0; i < dimension / 2; ++i) table.push_back(static_cast<float>(std::cos(angle(place, i))));
    for (std::int64_t i = 0; i < dimension / 2; ++i) table.push_back(static_cast<float>(std::sin(angle(place, i))));
  }
  return table;
}

Network& Network::decode_words(bool bias) {
  assert(form_ == Form::vector && embedded_words_ >= 0 &&
         contents_.parameters[static_cast<std::size_t>(embedded_words_)].shape[1] == shape_.channels);
  layer::Linear decoder{.weight = embedded_words_};
  if (bias) decoder.bias = add_parameter("words.bias", {input_.vocabulary}, {});
  shape_.channels = input_.vocabulary;
  return append(decoder);
}

// Layers for tokens of images. Tokens keep the height and width of the grid of patches; `channels` is their width.
Network& Network::patches(std::int64_t size) {
  assert(form_ == Form::image && shape_.height % size == 0 && shape_.width % size == 0);
  shape_ = {.channels = shape_.channels * size * size, .height = shape_.height / size, .width = shape_.width / size};
  form_ = Form::tokens;
  return append(layer::Patches{.size = size});
}

Network& Network::sine_positions() {
  assert(form_ == Form::tokens);
  tables_.push_back(
      std::make_shared<const std::vector<float>>(sine_positions_2d(shape_.height, shape_.width, shape_.channels)));
  return append(layer::Positions{.table = static_cast<int>(tables_.size()) - 1});
}

Network& Network::layer_norm(bool bias) {
  assert(form_ != Form::image);
  const int weight = add_scale_and_shift("layer_norm", 1, bias);
  return append(layer::LayerNorm{.weight = weight, .bias = bias ? weight + 1 : -1});
}

Network& Network::rms_norm() {
  assert(form_ != Form::image);
  return append(layer::RmsNorm{.weight = add_scale_and_shift("rms_norm", 1, /*shifts=*/false)});
}

Network& Network::attention(const layer::Attention& options) {
  assert((form_ == Form::texts || (form_ == Form::tokens && !options.causal)) &&
         (options.causal || !options.in_blocks));
  assert(shape_.channels % (3 * options.heads) == 0);
  shape_.channels /= 3;
  return append(options);
}

Network& Network::script(std::shared_ptr<const ScriptModule> module, NetworkContents contents, std::int64_t outputs) {
  assert(layers_.empty());
  contents_ = std::move(contents);
  std::size_t offset = 0;
  for (Buffer& buffer : contents_.buffers) offset = (buffer.offset = offset) + buffer.size;
  shape_ = {.channels = outputs};
  form_ = Form::vector;
  return append(layer::Script{std::move(module)});
}

Network& Network::lay_out() {
  assert(residual_shapes_.empty());
  flat_order_.resize(contents_.parameters.size());
  std::iota(flat_order_.begin(), flat_order_.end(), std::size_t{0});
  std::stable_partition(flat_order_.begin(), flat_order_.end(),
                        [&](std::size_t p) { return contents_.parameters[p].shape.size() >= 2; });
  std::size_t offset = 0;
  for (const auto p : flat_order_) {
    contents_.parameters[p].offset = offset;
    offset += contents_.parameters[p].size;
  }
  return *this;
}

std::vector<ParameterTensor> Network::tensors() const {
  const bool is_tied = std::ranges::any_of(layers_, [this](const Layer& one) {
    const auto* linear = std::get_if<layer::Linear>(&one);
    return linear && linear->weight == embedded_words_;
  });
  std::vector<ParameterTensor> tensors;
  for (const auto p : flat_order_) {
    const Parameter& parameter = parameters()[p];
    tensors.push_back({.name = parameter.name,
                       .offset = parameter.offset,
                       .size = parameter.size,
                       .place = p,
                       .rows = parameter.shape.size() > 1 ? static_cast<std::size_t>(parameter.shape[0]) : 0,
                       .is_tied = is_tied && static_cast<int>(p) == embedded_words_});
  }
  return tensors;
}

std::size_t Network::parameter_floats() const {
  std::size_t sum = 0;
  for (const auto& parameter : contents_.parameters) sum += parameter.size;
  return sum;
}

std::size_t Network::weight_floats() const {
  std::size_t sum = 0;
  for (const auto& parameter : contents_.parameters)
    if (parameter.shape.size() >= 2) sum += parameter.size;
  return sum;
}

}  // namespace syncopate
