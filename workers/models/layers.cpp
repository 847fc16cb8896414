#include <algorithm>
#include <cassert>
#include <cmath>

#include "workers/models/network.hpp"

namespace syncopate {

// The layers of images, with the shapes that they leave.
namespace {

// Once impossible, it stays so: a later layer must not turn it positive again.
std::int64_t pixels_after(std::int64_t pixels, const ConvolutionOptions& options) {
  const auto room = pixels + 2 * options.padding - options.kernel;
  return pixels <= 0 || room < 0 ? 0 : room / options.stride + 1;
}

}  // namespace

Network& Network::convolution(const ConvolutionOptions& options) {
  assert(form_ == Form::image);
  const auto& [channels, kernel, bias, stride, padding, deviation] = options;
  const Initial usual{.spread = 1 / std::sqrt(static_cast<double>(shape_.channels * kernel * kernel))};
  const auto weights = deviation ? Initial{.spread = *deviation, .law = Initial::Law::normal} : usual;
  const std::string name = next_name("convolution");
  layer::Convolution layer{.stride = stride, .padding = padding};
  layer.weight = add_parameter(name + ".weight", {channels, shape_.channels, kernel, kernel}, weights);
  if (bias) layer.bias = add_parameter(name + ".bias", {channels}, deviation ? Initial{} : usual);
  shape_ = {.channels = channels,
            .height = pixels_after(shape_.height, options),
            .width = pixels_after(shape_.width, options)};
  return append(layer);
}

Network& Network::batch_norm(double scale) {
  const int weight = add_scale_and_shift("batch_norm", scale);
  append(layer::BatchNorm{.weight = weight, .bias = weight + 1, .buffers = static_cast<int>(buffers_.size())});
  for (const float initial : {0.0f, 1.0f}) {
    const auto size = static_cast<std::size_t>(shape_.channels);
    buffers_.push_back({.size = size, .offset = buffer_floats(), .initial = initial});
  }
  return *this;
}

Network& Network::group_norm(std::int64_t groups, double scale) {
  assert(shape_.channels % groups == 0);
  const int weight = add_scale_and_shift("group_norm", scale);
  return append(layer::GroupNorm{.weight = weight, .bias = weight + 1, .groups = groups});
}

Network& Network::max_pool() {
  shape_.height /= 2;
  shape_.width /= 2;
  return append(layer::MaxPool{});
}

Network& Network::mean_pool() {
  assert(form_ == Form::image);
  shape_ = {.channels = shape_.channels};
  form_ = Form::vector;
  return append(layer::MeanPool{});
}

Network& Network::begin_residual() {
  residual_shapes_.push_back(shape_);
  return append(layer::ResidualBegin{});
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

// The layers of texts, with the shapes that they leave. Tokens of texts have their width as channels.
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
  const int table = add_parameter("places.weight", {places, width}, initial);
  shape_ = {.channels = width};
  form_ = Form::texts;
  return append(layer::WordEmbedding{.words = embedded_words_, .places = table});
}

Network& Network::text_attention(std::int64_t heads, bool causal) {
  assert(form_ == Form::texts && shape_.channels % (3 * heads) == 0);
  shape_.channels /= 3;
  return append(layer::TextAttention{.heads = heads, .causal = causal});
}

Network& Network::first_tokens() {
  assert(form_ == Form::texts);
  form_ = Form::vector;
  return append(layer::FirstTokens{});
}

Network& Network::mean_of_texts() {
  assert(form_ == Form::texts);
  form_ = Form::vector;
  return append(layer::MeanOfTexts{});
}

Network& Network::asked_tokens() {
  assert(form_ == Form::texts);
  form_ = Form::vector;
  return append(layer::AskedTokens{});
}

Network& Network::decode_words(bool bias) {
  assert(form_ == Form::vector && embedded_words_ >= 0 &&
         parameters_[static_cast<std::size_t>(embedded_words_)].shape[1] == shape_.channels);
  layer::Linear decoder{.weight = embedded_words_};
  if (bias) decoder.bias = add_parameter("words.bias", {input_.vocabulary}, {});
  shape_.channels = input_.vocabulary;
  return append(decoder);
}

// The layers of tokens, with the shapes that they leave. Tokens keep the height and width of the grid that they were
// cut from, and have their width as channels.
Network& Network::patches(std::int64_t size) {
  assert(form_ == Form::image && shape_.height % size == 0 && shape_.width % size == 0);
  shape_ = {.channels = shape_.channels * size * size, .height = shape_.height / size, .width = shape_.width / size};
  form_ = Form::tokens;
  return append(layer::Patches{.size = size});
}

Network& Network::sine_positions() {
  assert(form_ == Form::tokens);
  tables_.push_back(sine_positions_2d(shape_.height, shape_.width, shape_.channels));
  return append(layer::Positions{.table = static_cast<int>(tables_.size()) - 1});
}

Network& Network::layer_norm() {
  assert(form_ != Form::image);
  const int weight = add_scale_and_shift("layer_norm", 1);
  return append(layer::LayerNorm{.weight = weight, .bias = weight + 1});
}

Network& Network::attention(std::int64_t heads) {
  assert(form_ == Form::tokens && shape_.channels % (3 * heads) == 0);
  shape_.channels /= 3;
  return append(layer::Attention{.heads = heads});
}

Network& Network::mean_tokens() {
  assert(form_ == Form::tokens);
  shape_ = {.channels = shape_.channels};
  form_ = Form::vector;
  return append(layer::MeanTokens{});
}

}  // namespace syncopate
