// PullObjective with four tensors: two layers, each with a weight matrix and a bias. In the flat vector of eight
// elements the matrices come first. A backward pass reaches bias 2, matrix 2, bias 1 and matrix 1, in this order.
#pragma once

#include <vector>

#include "tests/workers/pull_objective.hpp"

namespace syncopate {

class LayeredPullObjective : public PullObjective {
 public:
  LayeredPullObjective() : PullObjective(8, 6) {}
  std::vector<ParameterTensor> tensors() const override {
    return {{.name = "1.weight", .offset = 0, .size = 2, .place = 0},
            {.name = "2.weight", .offset = 2, .size = 4, .place = 2},
            {.name = "1.bias", .offset = 6, .size = 1, .place = 1},
            {.name = "2.bias", .offset = 7, .size = 1, .place = 3}};
  }
  // The share of the backward pass after which an element's gradient exists. The pass reaches element 7, then 2 to 5,
  // 6, and 0 to 1. So one, five, six and eight of the eight elements are done.
  static double exists_after(std::size_t element) {
    return element == 7 ? 0.125 : element >= 2 && element < 6 ? 0.625 : element == 6 ? 0.75 : 1;
  }
};

}  // namespace syncopate
