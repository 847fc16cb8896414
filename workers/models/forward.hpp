// What a network computes. Only .cpp files that include LibTorch can use it; the tensors are declared
// here without it.
#pragma once

#include <vector>

#include "workers/models/network.hpp"

namespace at {
class Tensor;
}

namespace syncopate {

struct LinearPass;
struct SequenceBatch;
struct Visits;

// Batch normalisation by the batch's own statistics (train), or by the running ones (evaluate), and dropout in training
// alone; measure: as train, and the running statistics become the batch's.
enum class Mode { train, evaluate, measure };

// Views of the flat vector (P,), one per parameter in the network's order, without a copy.
std::vector<at::Tensor> view_parameters(const Network& network, const float* flat);

// Views of the flat buffers, one per buffer in the network's order.
std::vector<at::Tensor> view_buffers(const Network& network, float* flat);

// Logits (n, classes) of inputs (n, channels, height, width). In train mode the running statistics
// in `buffers` move towards the batch's, with PyTorch's momentum of 0.1. `visits`: whose the rows are, (n,); null where
// nothing is drawn for them.
at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters,
                   const std::vector<at::Tensor>& buffers, const at::Tensor& inputs, Mode mode,
                   const Visits* visits = nullptr);

// The same in train mode of a network without buffers, with all that its linear layers take in and give.
at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters, const at::Tensor& inputs,
                   const Visits* visits, std::vector<LinearPass>& passes);

// The same of texts, by a network without buffers.
at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters, const SequenceBatch& texts,
                   Mode mode, const Visits* visits = nullptr);

}  // namespace syncopate
