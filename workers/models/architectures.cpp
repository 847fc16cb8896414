#include "workers/models/architectures.hpp"

namespace syncopate {

Network linear_network(const SampleShape& input, std::int64_t classes) { return mlp_network(input, classes, {}); }

Network mlp_network(const SampleShape& input, std::int64_t classes, const std::vector<std::int64_t>& hidden) {
  Network network(input);
  for (const auto width : hidden) network.linear(width).relu();
  return network.linear(classes).lay_out();
}

Network cnn_network(const SampleShape& input, std::int64_t classes, const CnnOptions& options) {
  Network network(input);
  for (const auto channels : options.channels) {
    network.convolution(channels, options.kernel, !options.batch_norm);
    if (options.batch_norm) network.batch_norm();
    network.relu().max_pool();
  }
  return network.linear(options.dense).relu().linear(classes).lay_out();
}

std::int64_t smallest_image(const CnnOptions& options) {
  std::int64_t size = 1;
  for (std::size_t stage = 0; stage < options.channels.size(); ++stage) size = 2 * size + options.kernel - 1;
  return size;
}

}  // namespace syncopate
