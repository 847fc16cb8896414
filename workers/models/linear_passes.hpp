// Linear layers whose inputs and outputs a forward pass keeps: once the loss has been differentiated by the outputs,
// the weights' gradient of any rows of the batch is a product of these rows alone. For sources with LibTorch alone.
// Shapes:  inputs (n, i), outputs and the loss's gradients by them (n, o); weights (o, i).
// Cost:    per list of rows one product of (o, rows) and (rows, i) per layer, as in a pass over these rows alone; all
//          else that such a pass does is done once, for all rows.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "workers/models/layers.hpp"
#include "workers/models/network.hpp"

namespace syncopate {

struct LinearPass {
  layer::Linear layer;
  at::Tensor inputs;
  at::Tensor outputs;
};

// Whether all parameters of a network are those of linear layers of vectors, and no layer mixes samples.
bool is_made_of_linear_layers(const Network& network);

struct Rows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// The loss's gradients, by what linear layers have given.
class LinearGradients {
 public:
  // Of a loss times `share`. Frees what the backward pass goes through.
  LinearGradients(std::vector<LinearPass> passes, const at::Tensor& loss, double share);

  // By parameter, in the network's order: what these rows add to the gradient.
  std::vector<at::Tensor> of(Rows rows, std::size_t parameters) const;
  // The same added to these, without a tensor of its own for each.
  void add_to(std::vector<at::Tensor> parameters, Rows rows) const;

 private:
  std::vector<LinearPass> passes_;  // with gradients in the place of outputs
};

}  // namespace syncopate
