// The layers of texts, with the shapes that they leave. Tokens of texts have their width as channels.
#include <cassert>
#include <cmath>

#include "workers/models/network.hpp"

namespace syncopate {

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

}  // namespace syncopate
