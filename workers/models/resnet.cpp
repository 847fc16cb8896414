#include "workers/models/resnet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace syncopate {
namespace {

constexpr std::int64_t smallest_image = 4;  // two strides of 2 leave one pixel

void convolution(Network& network, std::int64_t channels, std::int64_t stride) {
  const auto fan_in = static_cast<double>(network.output().channels * 3 * 3);
  network.convolution({.channels = channels,
                       .kernel = 3,
                       .bias = false,
                       .stride = stride,
                       .padding = 1,
                       .deviation = std::sqrt(2 / fan_in)});
}

void normalise(Network& network, const ResnetOptions& options, double scale = 1) {
  if (options.norm == ResnetOptions::Norm::group)
    network.group_norm(options.groups, scale);
  else
    network.batch_norm(scale);
}

void activate(Network& network, const ResnetOptions& options) {
  if (options.activation == ResnetOptions::Activation::silu)
    network.silu();
  else
    network.relu();
}

void block(Network& network, std::int64_t channels, std::int64_t stride, const ResnetOptions& options) {
  network.begin_residual();
  convolution(network, channels, stride);
  normalise(network, options);
  activate(network, options);
  network.dropout(options.dropout);
  convolution(network, channels, 1);
  normalise(network, options, options.zero_init_residual ? 0 : 1);
  network.end_residual(stride);
  activate(network, options);
}

ResnetOptions read_options(Settings& table) {
  using enum ResnetOptions::Norm;
  using enum ResnetOptions::Activation;
  constexpr std::int64_t deepest = 6 * 200 + 2;  // its authors' deepest
  ResnetOptions options;
  options.depth = table.integer({"depth", "Layers: 6 n + 2, such as 8, 14, 20 and 56."}, 8, deepest, options.depth);
  options.width = table.integer({"width", "Channels of the first stage; the others have two and four times as many."},
                                1, largest_width, options.width);
  options.norm = table.choice({"norm", "Normalisation: by the micro-batch, or of each sample by groups of channels."},
                              {{"batch", batch}, {"group", group}}, options.norm);
  if (options.norm == group)
    options.groups = table.integer({"groups", "Groups of channels."}, 1, largest_width, options.groups);
  options.activation = table.choice({"activation", "What follows the normalisations and the sums."},
                                    {{"relu", relu}, {"silu", silu}}, options.activation);
  options.zero_init_residual =
      table.flag({"zero_init_residual", "Whether the weights of each block's last normalisation start as 0, not as 1."},
                 options.zero_init_residual);
  options.dropout =
      table.number({"dropout", "Share of what a block's first convolution gives that is zero in training."},
                   dropout_range, options.dropout);
  return options;
}

void check(const ResnetOptions& options, Settings& table) {
  if (const auto above = (options.depth - 2) % 6; above != 0)
    table.fault("depth",
                fmt::format("must be 6 n + 2, such as {} and {}", options.depth - above, options.depth - above + 6));
  if (options.norm == ResnetOptions::Norm::group && options.width % options.groups != 0)
    table.fault("groups", fmt::format("must divide the width, {}", options.width));
}

std::optional<Misfit> misfit(const DatasetSize& data) {
  if (std::min(data.shape.height, data.shape.width) >= smallest_image) return {};
  return Misfit{
      .key = "",
      .needed = fmt::format("the strides of [models.resnet] need images of at least {0} x {0}", smallest_image)};
}

}  // namespace

Network resnet_network(const SampleShape& input, std::int64_t classes, const ResnetOptions& options) {
  Network network(input);
  convolution(network, options.width, 1);
  normalise(network, options);
  activate(network, options);
  for (const std::int64_t stage : {1, 2, 4}) {
    for (std::int64_t i = 0; i < (options.depth - 2) / 6; ++i)
      block(network, stage * options.width, stage > 1 && i == 0 ? 2 : 1, options);
  }
  return network.mean_pool().begin_head().linear(classes, {.deviation = 0.01}).lay_out();
}

Model read_resnet(Settings& table) {
  const std::size_t faults = table.faults_so_far();
  const ResnetOptions options = read_options(table);
  if (table.faults_so_far() == faults) check(options, table);
  if (table.faults_so_far() > faults) return {};
  return {.misfit = misfit,
          .network = [options](const DatasetSize& data) { return resnet_network(data.shape, data.classes, options); },
          .chunk_samples = 32};
}

}  // namespace syncopate
