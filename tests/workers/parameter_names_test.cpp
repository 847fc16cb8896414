// Tensors of a model have names, by which settings choose among them, and follow each other in the flat vector.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "workers/models/architectures.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

std::vector<std::string> names_of(const Network& network) {
  std::vector<std::string> names;
  std::size_t end = 0;
  for (const auto& tensor : network.tensors()) {
    EXPECT_EQ(tensor.offset, end) << tensor.name;
    end += tensor.size;
    names.push_back(tensor.name);
  }
  EXPECT_EQ(end, network.parameter_floats());
  return names;
}

TEST(ParameterNames, CountTheLayersOfAKind) {
  EXPECT_THAT(names_of(mlp_network({.width = 5}, 3, {4})),
              ElementsAre("linear1.weight", "linear2.weight", "linear1.bias", "linear2.bias"));
  const SampleShape image{.channels = 1, .height = 12, .width = 12};
  EXPECT_THAT(names_of(cnn_network(image, 3, {.channels = {2}, .kernel = 3, .dense = 4, .batch_norm = true})),
              ElementsAre("convolution1.weight", "linear1.weight", "linear2.weight", "batch_norm1.weight",
                          "batch_norm1.bias", "linear1.bias", "linear2.bias"));
}

}  // namespace
}  // namespace syncopate
