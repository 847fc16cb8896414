// What a module of the user's own computes.
#include <cstddef>
#include <functional>
#include <vector>

#include "workers/models/forward_pass.hpp"
#include "workers/models/script_module.hpp"
#include "workers/models/seeded_draws.hpp"

namespace syncopate {
namespace {

// The statistics of the batch itself. A module moves a buffer from v to (1 - m) v + m s, with a momentum m of its own:
// from 0 it comes to m s, from 1 to 1 - m + m s.
void measure(const std::function<void()>& forward, const Network& network, const std::vector<at::Tensor>& buffers) {
  const auto start_from = [&](float value) {
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const Buffer& buffer = network.buffers()[b];
      if (buffer.counts)
        at::Tensor(buffers[b]).copy_(at::from_blob(const_cast<float*>(buffer.given->data()), buffers[b].sizes()));
      else
        at::Tensor(buffers[b]).fill_(value);
    }
    SeededDraws::repeat();
    forward();
  };
  start_from(0);
  std::vector<at::Tensor> from_0;
  for (const at::Tensor& buffer : buffers) from_0.push_back(buffer.clone());
  start_from(1);
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (network.buffers()[b].counts || buffers[b].numel() == 0) continue;
    const at::Tensor of_0 = from_0[b].flatten();
    // Where the statistic is smallest, the difference is exact to the last bits.
    const auto place = of_0.abs().argmin();
    const double momentum = 1 - (buffers[b].flatten()[place] - of_0[place]).item<double>();
    at::Tensor(buffers[b]).copy_(from_0[b] / momentum);
  }
}

}  // namespace

std::vector<std::int64_t> script_input_sizes(std::int64_t samples, const SampleShape& shape) {
  if (shape.channels == 1 && shape.height == 1) return {samples, shape.width};
  return {samples, shape.channels, shape.height, shape.width};
}

void ForwardPass::operator()(const layer::Script& layer) {
  const at::Tensor inputs = x_.view(script_input_sizes(x_.size(0), network_.input()));
  const auto forward = [&] { x_ = layer.module->forward(parameters_, buffers_, inputs, mode_); };
  if (mode_ == Mode::measure && !buffers_.empty())
    measure(forward, network_, buffers_);
  else
    forward();
}

}  // namespace syncopate
