#include "workers/training/last_layers.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

BackwardOrder::BackwardOrder(const Objective& objective)
    : weights_(objective.weights()), parameters_(objective.parameters()) {
  std::vector<ParameterTensor> tensors = objective.tensors();
  std::erase_if(tensors, [](const ParameterTensor& tensor) { return tensor.size == 0; });
  for (const ParameterTensor& tensor : tensors) flat_.push_back({tensor.offset, tensor.size});
  std::ranges::stable_sort(tensors, {}, &ParameterTensor::place);
  for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor)
    last_first_.push_back({tensor->offset, tensor->size});
}

std::optional<LastLayers> BackwardOrder::done_by(double share) const {
  LastLayers done{.weights_from = weights_, .others_from = parameters_};
  std::size_t elements = 0;
  for (const Tensor& tensor : last_first_) {
    elements += tensor.size;
    if (static_cast<double>(elements) / static_cast<double>(parameters_) > share) break;
    (tensor.offset < weights_ ? done.weights_from : done.others_from) = tensor.offset;
  }
  const bool is_nothing = done.weights_from == weights_ && done.others_from == parameters_;
  return is_nothing ? std::nullopt : std::optional(done);
}

void leave_layers(std::vector<GradientSegment>& segments, const LastLayers& layers, std::size_t weights) {
  std::vector<GradientSegment> left;
  const auto leave = [&](const GradientSegment& segment, std::size_t from, std::size_t to) {
    const std::size_t begin = std::max(from, segment.offset), end = std::min(to, segment.offset + segment.size);
    if (begin >= end) return;
    left.push_back({.offset = begin,
                    .size = end - begin,
                    .data = segment.data + (begin - segment.offset),
                    .owner = segment.owner});
  };
  for (const GradientSegment& segment : segments) {
    leave(segment, layers.weights_from, weights);
    leave(segment, std::max(layers.others_from, weights), segment.offset + segment.size);
  }
  segments = std::move(left);
}

}  // namespace syncopate
