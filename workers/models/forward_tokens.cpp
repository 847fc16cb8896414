// What layers of tokens compute: tensors (n, places, width).
#include <cmath>

#include "workers/models/forward_pass.hpp"

namespace syncopate {
namespace {

constexpr double epsilon = 1e-5;  // the default of torch::nn::LayerNorm

}  // namespace

void ForwardPass::operator()(const layer::Patches& layer) {
  const auto n = x_.size(0), channels = x_.size(1), size = layer.size;
  const auto rows = x_.size(2) / size, columns = x_.size(3) / size;
  x_ = x_.reshape({n, channels, rows, size, columns, size})
           .permute({0, 2, 4, 3, 5, 1})
           .reshape({n, rows * columns, size * size * channels});
}

void ForwardPass::operator()(const layer::Positions& layer) {
  const std::vector<float>& table = network_.tables()[static_cast<std::size_t>(layer.table)];
  // from_blob takes no const memory; nothing here writes to it.
  x_ = x_ + at::from_blob(const_cast<float*>(table.data()), {x_.size(1), x_.size(2)}, at::kFloat);
}

void ForwardPass::operator()(const layer::LayerNorm& layer) {
  x_ = at::layer_norm(x_, {x_.size(-1)}, parameter(layer.weight), parameter(layer.bias), epsilon);
}

// softmax(Q K^T / sqrt(d)) V, head by head.
void ForwardPass::operator()(const layer::Attention& layer) {
  const auto n = x_.size(0), places = x_.size(1), width = x_.size(2) / (3 * layer.heads);
  const auto parts = x_.reshape({n, places, 3, layer.heads, width}).permute({2, 0, 3, 1, 4}).unbind();
  const auto scale = 1 / std::sqrt(static_cast<double>(width));
  const auto shares = at::softmax(at::matmul(parts[0] * scale, parts[1].transpose(2, 3)), 3);
  x_ = at::matmul(shares, parts[2]).transpose(1, 2).reshape({n, places, layer.heads * width});
}

void ForwardPass::operator()(const layer::MeanTokens&) { x_ = x_.mean(1); }

}  // namespace syncopate
