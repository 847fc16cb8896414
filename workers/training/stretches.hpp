// Which elements of the flat vector an optimizer treats alike.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "workers/training/objective.hpp"
#include "workers/training/optimizer.hpp"

namespace syncopate {

struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool excluded = false;  // weight decay does not concern it
};

// By ascending place, without gaps; none is empty. Of a layer-wise optimizer each is a tensor.
std::vector<Stretch> stretches_of(const Objective& objective, const Optimizer& optimizer);

// Whether a tensor's name contains one of these.
bool is_named(std::string_view tensor, const std::vector<std::string>& parts);

}  // namespace syncopate
