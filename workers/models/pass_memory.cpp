#include "workers/models/pass_memory.hpp"

#include <type_traits>
#include <variant>
#include <vector>

namespace syncopate {
namespace {

// Replays shapes as Network's builders have left them, and adds up what each layer holds, in floats per sample.
class Walk {
 public:
  explicit Walk(const Network& network)
      : network_(network),
        shape_(network.input()),
        places_(network.input().has_tokens() ? network.input().width : 1),
        held_(shape_.has_tokens() ? 0 : shape_.features()) {}

  void operator()(const layer::Flatten&) { shape_ = {.channels = shape_.features()}; }
  void operator()(const layer::Linear& layer) { give_channels(weight(layer.weight)[0]); }
  void operator()(const layer::Convolution& layer) {
    const std::vector<std::int64_t>& filter = weight(layer.weight);
    const auto pixels = [&](std::int64_t before) {
      return (before + 2 * layer.padding - filter[2]) / layer.stride + 1;
    };
    shape_ = {.channels = filter[0], .height = pixels(shape_.height), .width = pixels(shape_.width)};
    held_ += filter[1] * filter[2] * filter[3] * shape_.height * shape_.width;  // unfolded
    give();
  }
  void operator()(const layer::Relu&) { give(); }
  void operator()(const layer::Silu&) { give(); }
  void operator()(const layer::Gelu&) { give(); }
  void operator()(const layer::Tanh&) { give(); }
  void operator()(const layer::Dropout&) { give(2); }  // and which are dropped
  void operator()(const layer::BatchNorm&) { give(); }
  void operator()(const layer::GroupNorm&) { give(); }
  void operator()(const layer::LayerNorm&) { give(); }
  void operator()(const layer::MaxPool&) {
    shape_.height /= 2, shape_.width /= 2;
    give(3);  // and where the largest were, 8 bytes each
  }
  void operator()(const layer::MeanPool&) { become_vector(); }
  void operator()(const layer::ResidualBegin&) {}
  void operator()(const layer::ResidualEnd&) { give(); }
  void operator()(const layer::Patches& layer) {
    shape_ = {.channels = shape_.channels * layer.size * layer.size,
              .height = shape_.height / layer.size,
              .width = shape_.width / layer.size};
    give();
  }
  void operator()(const layer::Positions&) { give(); }
  void operator()(const layer::Attention& layer) { attend(layer.heads); }
  void operator()(const layer::TextAttention& layer) { attend(layer.heads); }
  void operator()(const layer::MeanTokens&) { become_vector(); }
  void operator()(const layer::BagOfWords& layer) {
    shape_ = {.channels = weight(layer.weight)[1]};
    places_ = 1;
    give();
  }
  void operator()(const layer::WordEmbedding& layer) {
    shape_ = {.channels = weight(layer.words)[1]};
    give(3);  // words, places, and their sum
  }
  void operator()(const layer::FirstTokens&) { become_vector(); }
  void operator()(const layer::MeanOfTexts&) { become_vector(); }
  void operator()(const layer::AskedTokens&) { give(); }  // as if all were asked for
  void operator()(const layer::Script&) { is_known_ = false; }

  // While the backward pass goes back through a layer, gradients of what came in and went out are there too.
  std::optional<std::int64_t> floats() const { return is_known_ ? std::optional(held_ + 2 * largest_) : std::nullopt; }

 private:
  const std::vector<std::int64_t>& weight(int index) const {
    return network_.parameters()[static_cast<std::size_t>(index)].shape;
  }
  std::int64_t here() const { return shape_.features() * places_; }
  void give(std::int64_t copies = 1) {
    held_ += copies * here();
    largest_ = std::max(largest_, here());
  }
  void give_channels(std::int64_t channels) {
    shape_.channels = channels;
    give();
  }
  void become_vector() {
    shape_ = {.channels = shape_.channels};
    places_ = 1;
    give();
  }
  // Queries, keys and values apart, scores before and after the softmax, and what the heads give.
  void attend(std::int64_t heads) {
    const std::int64_t tokens = shape_.height * shape_.width * places_;
    held_ += here() + 2 * heads * tokens * tokens;
    largest_ = std::max(largest_, heads * tokens * tokens);
    give_channels(shape_.channels / 3);
  }

  const Network& network_;
  SampleShape shape_;
  std::int64_t places_;  // of texts: as many tokens as the longest has
  std::int64_t held_;
  std::int64_t largest_ = 0;
  bool is_known_ = true;
};

}  // namespace

std::optional<std::int64_t> pass_bytes(const Network& network, std::int64_t samples) {
  Walk walk(network);
  for (const Layer& layer : network.layers()) std::visit(walk, layer);
  const auto floats = walk.floats();
  if (!floats) return {};
  return static_cast<std::int64_t>(sizeof(float)) * samples * *floats;
}

}  // namespace syncopate
