// The layers of tokens, with the shapes that they leave. Tokens keep the height and width of the grid that they were
// cut from, and have their width as channels.
#include <cassert>

#include "workers/models/network.hpp"
#include "workers/models/sine_positions.hpp"

namespace syncopate {

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
