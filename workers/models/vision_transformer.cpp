#include "workers/models/vision_transformer.hpp"

#include <fmt/format.h>

namespace syncopate {
namespace {

void attention(Network& network, const VisionTransformerOptions& options) {
  const auto inner = options.heads * options.head_width;
  network.begin_residual().layer_norm().linear(3 * inner, {.bias = false}).attention(options.heads);
  network.linear(options.width, {.bias = false}).dropout(options.dropout).end_residual();
}

void perceptron(Network& network, const VisionTransformerOptions& options) {
  network.begin_residual().layer_norm().linear(options.mlp_width).gelu().dropout(options.dropout);
  network.linear(options.width).dropout(options.dropout).end_residual();
}

std::optional<Misfit> misfit(const SampleShape& shape, std::int64_t patch) {
  if (shape.height % patch == 0 && shape.width % patch == 0) return {};
  return Misfit{.key = "patch", .needed = "must divide the images' height and width"};
}

}  // namespace

Network vision_transformer_network(const SampleShape& input, std::int64_t classes,
                                   const VisionTransformerOptions& options) {
  Network network(input);
  network.patches(options.patch).layer_norm().linear(options.width).layer_norm().sine_positions();
  network.dropout(options.dropout);
  for (std::int64_t i = 0; i < options.depth; ++i) {
    attention(network, options);
    perceptron(network, options);
  }
  return network.mean_tokens().layer_norm().begin_head().linear(classes).lay_out();
}

Model read_vision_transformer(Settings& table) {
  constexpr std::int64_t deepest = 1024;
  const std::size_t faults = table.faults_so_far();
  const VisionTransformerOptions usual;
  const VisionTransformerOptions options = {
      .patch =
          table.integer({"patch", "Width and height of a patch, which is a token.", "pixels"}, 1, 1024, usual.patch),
      .width = table.integer({"width", "Width of a token; a multiple of 4."}, 8, largest_width, usual.width),
      .depth = table.integer({"depth", "Blocks of attention and perceptron."}, 1, deepest, usual.depth),
      .heads = table.integer({"heads", "Heads of an attention."}, 1, 1024, usual.heads),
      .head_width = table.integer({"head_width", "Width of a head's queries, keys and values, whatever `width` is."}, 1,
                                  largest_width, usual.head_width),
      .mlp_width =
          table.integer({"mlp_width", "Width of the perceptrons' hidden layer."}, 1, largest_width, usual.mlp_width),
      .dropout =
          table.number({"dropout", "Share of what patches, attentions and perceptrons give that is zero in training."},
                       dropout_range, usual.dropout)};
  if (table.faults_so_far() == faults && options.width % 4 != 0)
    table.fault("width", "must be a multiple of 4: sines and cosines of two coordinates");
  if (table.faults_so_far() > faults) return {};
  return {
      .misfit = [patch = options.patch](const DatasetSize& data) { return misfit(data.shape, patch); },
      .network =
          [options](const DatasetSize& data) { return vision_transformer_network(data.shape, data.classes, options); },
      .chunk_samples = 32};
}

}  // namespace syncopate
