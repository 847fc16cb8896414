// Residual networks of 6 n + 2 layers for small images: a convolution, three stages of n blocks of two convolutions, of
// 1, 2 and 4 times the width, the second and third with a stride of 2; the mean over the pixels; a dense layer.
// Source: He et al. 2016, "Deep residual learning", section 4.2, with shortcut A, which has no parameters.
// Dropout: Zagoruyko and Komodakis 2016, "Wide residual networks".
// Differs: normalisation by groups, and SiLU in place of ReLU, are options for training by small micro-batches.
#pragma once

#include <cstdint>

#include "workers/models/model.hpp"
#include "workers/models/network.hpp"

namespace syncopate {

struct ResnetOptions {
  enum class Norm { batch, group };
  enum class Activation { relu, silu };

  std::int64_t depth = 8;   // 6 n + 2
  std::int64_t width = 16;  // channels of the first stage
  Norm norm = Norm::batch;
  std::int64_t groups = 8;  // divides the width; of Norm::group
  Activation activation = Activation::relu;
  double dropout = 0;               // between a block's convolutions, as in wide residual networks
  bool zero_init_residual = false;  // each block starts as the identity: its last normalisation's weights are zero
};

// Initial weights: normal of deviation sqrt(2 / fan-in) for convolutions (He et al. 2015), of 0.01 for the dense layer.
Network resnet_network(const SampleShape& input, std::int64_t classes, const ResnetOptions& options);

// The table [models.resnet].
Model read_resnet(Settings& table);

}  // namespace syncopate
