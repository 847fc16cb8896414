// What a backward pass has by the time that something stops it: the gradients of a model's last tensors.
//
// The backward pass goes through the tensors from the last that the model uses to the first, and its time is theirs in
// proportion to their elements (an approximation: see Preempt::layer). In the flat vector, where the weights of all
// layers come before what else they have, the last tensors are the end of either range.
#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "workers/training/objective.hpp"

namespace syncopate {

// Elements [weights_from, weights()) and [others_from, P) of a flat vector; by default all.
struct LastLayers {
  std::size_t weights_from = 0;
  std::size_t others_from = 0;
  bool are_all() const { return *this == LastLayers{}; }
  bool have(std::size_t element, std::size_t weights) const {
    return element >= (element < weights ? weights_from : others_from);
  }
  auto operator<=>(const LastLayers&) const = default;
};

class BackwardOrder {
 public:
  explicit BackwardOrder(const Objective& objective);

  // What is done when `share` of the backward pass's time, in [0, 1), is over: a tensor is as soon as all elements up
  // to its first one are. None: no tensor is.
  std::optional<LastLayers> done_by(double share) const;

  // Tensors with elements, in the order of the flat vector: where each ends, and whether it is one of those.
  std::size_t tensors() const { return flat_.size(); }
  std::size_t end_of(std::size_t tensor) const { return flat_[tensor].offset + flat_[tensor].size; }
  bool is_done(std::size_t tensor, const LastLayers& done) const { return done.have(flat_[tensor].offset, weights_); }

 private:
  struct Tensor {
    std::size_t offset;
    std::size_t size;
  };
  std::vector<Tensor> flat_;
  std::vector<Tensor> last_first_;
  std::size_t weights_;
  std::size_t parameters_;
};

// Leaves those layers of a gradient. The others' elements, which have no segments then, are zero.
void leave_layers(std::vector<GradientSegment>& segments, const LastLayers& layers, std::size_t weights);

}  // namespace syncopate
