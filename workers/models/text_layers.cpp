// The layers of texts, with the shapes that they leave.
#include <cassert>
#include <cmath>

#include "workers/models/network.hpp"

namespace syncopate {

Network& Network::bag_of_words(std::int64_t outputs) {
  assert(form_ == Form::text);
  const Initial initial{.spread = 1 / std::sqrt(static_cast<double>(shape_.vocabulary))};
  const std::string name = next_name("bag_of_words");
  const layer::BagOfWords bag{.weight = add_parameter(name + ".weight", {shape_.vocabulary, outputs}, initial),
                              .bias = add_parameter(name + ".bias", {outputs}, {})};
  shape_ = {.channels = outputs};
  form_ = Form::vector;
  return append(bag);
}

}  // namespace syncopate
