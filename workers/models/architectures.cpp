#include "workers/models/architectures.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace syncopate {
namespace {

// Measured: dense layers gain up to here, convolutions lose once their activations leave the cache.
constexpr std::int64_t dense_chunk = 512;
constexpr std::int64_t convolution_chunk = 128;

Model dense(const std::vector<std::int64_t>& hidden, double dropout) {
  return {.network = [hidden, dropout](
                         const DatasetSize& data) { return mlp_network(data.shape, data.classes, hidden, dropout); },
          .chunk_samples = dense_chunk};
}

CnnOptions read_cnn_options(Settings& cnn) {
  const CnnOptions usual;
  return {.channels = cnn.integers({"channels", "Channels of the convolutions, one number per convolution."}, 1,
                                   largest_width, usual.channels),
          .kernel = cnn.integer({"kernel", "Width and height of their filters.", "pixels"}, 1, 1024, usual.kernel),
          .dense = cnn.integer({"dense", "Width of the dense layer behind them."}, 1, largest_width, usual.dense),
          .batch_norm = cnn.flag({"batch_norm", "Whether the convolutions are followed by batch normalisation."},
                                 usual.batch_norm),
          .dropout = cnn.number({"dropout", "Share of the dense layer's outputs that are zero in training."},
                                dropout_range, usual.dropout)};
}

// What no convolution has would pass unseen, however wrong it is.
void check_convolutions(Settings& cnn, const CnnOptions& options) {
  if (!options.channels.empty()) return;
  for (const char* key : {"kernel", "batch_norm"}) {
    if (cnn.has(key))
      cnn.fault(key, "must be left out: channels = [] leaves no convolution");
    else
      cnn.leave_out(key);
  }
}

}  // namespace

Network linear_network(const SampleShape& input, std::int64_t classes) {
  return input.has_tokens() ? Network(input).bag_of_words(classes).lay_out() : mlp_network(input, classes, {});
}

Network mlp_network(const SampleShape& input, std::int64_t classes, const std::vector<std::int64_t>& hidden,
                    double dropout) {
  Network network(input);
  for (const auto width : hidden) network.linear(width).relu().dropout(dropout);
  return network.begin_head().linear(classes).lay_out();
}

Network cnn_network(const SampleShape& input, std::int64_t classes, const CnnOptions& options) {
  Network network(input);
  for (const auto channels : options.channels) {
    network.convolution({.channels = channels, .kernel = options.kernel, .bias = !options.batch_norm});
    if (options.batch_norm) network.batch_norm();
    network.relu().max_pool();
  }
  return network.linear(options.dense).relu().dropout(options.dropout).begin_head().linear(classes).lay_out();
}

std::int64_t smallest_image(const CnnOptions& options) {
  std::int64_t size = 1;
  for (std::size_t stage = 0; stage < options.channels.size(); ++stage) size = 2 * size + options.kernel - 1;
  return size;
}

Model read_linear(Settings&) {
  Model model = dense({}, 0);
  model.inputs = Model::Inputs::either;
  model.misfit = [](const DatasetSize& data) -> std::optional<Misfit> {
    if (data.classes >= 2) return {};
    return Misfit{.key = "", .needed = "needs samples with labels, of at least two classes"};
  };
  model.network = [](const DatasetSize& data) { return linear_network(data.shape, data.classes); };
  return model;
}

Model read_mlp(Settings& table) {
  const auto hidden =
      table.integers({"hidden", "Widths of the hidden layers."}, 1, largest_width, std::vector<std::int64_t>{256});
  return dense(hidden, table.number({"dropout", "Share of the hidden layers' outputs that are zero in training."},
                                    dropout_range, 0.0));
}

Model read_cnn(Settings& table) {
  const CnnOptions options = read_cnn_options(table);
  check_convolutions(table, options);
  return {.misfit = [smallest = smallest_image(options)](const DatasetSize& data) -> std::optional<Misfit> {
            if (std::min(data.shape.height, data.shape.width) >= smallest) return {};
            return Misfit{.key = "",
                          .needed = fmt::format("the convolutions of [models.cnn] need images of at least "
                                                "{0} x {0}",
                                                smallest)};
          },
          .network = [options](const DatasetSize& data) { return cnn_network(data.shape, data.classes, options); },
          .chunk_samples = convolution_chunk};
}

}  // namespace syncopate
