// The simple vision transformer: patches, normalised, projected and normalised again, plus fixed positions; blocks of
// attention and of a perceptron with exact GELU, each normalised first and added; the mean over the patches,
// normalised; a dense layer. No class token; dropout is an option that the source does not have; queries, keys, values
// and what heads give are projected without biases.
// Source:  Beyer et al. 2022, "Better plain ViT baselines for ImageNet-1k"; layers as in vit-pytorch's SimpleViT.
// Differs: older versions of that code lack the two normalisations around the patches' projection.
#pragma once

#include <cstdint>

#include "workers/models/model.hpp"
#include "workers/models/network.hpp"

namespace syncopate {

struct VisionTransformerOptions {
  std::int64_t patch = 4;    // pixels; divides height and width
  std::int64_t width = 192;  // of a token; a multiple of 4, at least 8
  std::int64_t depth = 6;    // blocks
  std::int64_t heads = 3;
  std::int64_t head_width = 64;
  std::int64_t mlp_width = 768;
  double dropout = 0;  // of the embedded patches, and of what attentions and both layers of perceptrons give
};

Network vision_transformer_network(const SampleShape& input, std::int64_t classes,
                                   const VisionTransformerOptions& options);

// The table [models.vit].
Model read_vision_transformer(Settings& table);

}  // namespace syncopate
