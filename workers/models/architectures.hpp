// The networks one can name: sizes as in the experiment file, for any input shape and class count.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/models/model.hpp"
#include "workers/models/network.hpp"

namespace syncopate {

// Softmax regression; of texts on the shares of their words.
Network linear_network(const SampleShape& input, std::int64_t classes);

// Fully connected with ReLU between layers; `hidden` holds the widths of the hidden layers. Dropout is of what these
// give.
Network mlp_network(const SampleShape& input, std::int64_t classes, const std::vector<std::int64_t>& hidden,
                    double dropout = 0);

struct CnnOptions {
  std::vector<std::int64_t> channels = {16, 32};  // of each convolution
  std::int64_t kernel = 5;
  std::int64_t dense = 64;  // width of the layer before the last
  bool batch_norm = false;  // after each convolution, which then has no bias
  double dropout = 0;       // of what the layer before the last gives
};

// Per entry of `channels`: convolution (no padding), ReLU, 2 x 2 max-pooling; then two dense layers.
// The images must be large enough: see smallest_image.
Network cnn_network(const SampleShape& input, std::int64_t classes, const CnnOptions& options);

// Smallest height and width of which the convolutions and poolings leave anything.
std::int64_t smallest_image(const CnnOptions& options);

// The tables [models.linear], [models.mlp] and [models.cnn].
Model read_linear(Settings& table);
Model read_mlp(Settings& table);
Model read_cnn(Settings& table);

}  // namespace syncopate
