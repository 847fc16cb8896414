#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "workers/mpi/mpi_collectives.hpp"

namespace syncopate {
namespace {

FlatVector vector_of(const std::vector<float>& values) {
  FlatVector vector(values.size());
  std::copy(values.begin(), values.end(), vector.data());
  return vector;
}

std::vector<float> values_of(const FlatVector& vector) { return {vector.span().begin(), vector.span().end()}; }

constexpr ValueLayout narrow{.parameters = 5, .buffers = 2};
constexpr ValueLayout wide{.parameters = 5, .buffers = 2, .wide = true};

TEST(ValueLayout, ASliceIsItsParametersAndTheFirstHasTheBuffers) {
  const FlatVector whole = vector_of({1, 2, 3, 4, 5, 10, 20});
  EXPECT_EQ(values_of(cut(whole, narrow, {.index = 0, .count = 2})), (std::vector<float>{1, 2, 10, 20}));
  EXPECT_EQ(values_of(cut(whole, narrow, {.index = 1, .count = 2})), (std::vector<float>{3, 4, 5}));
  const FlatVector exact = vector_of({1, 2, 3, 4, 5, .1f, .2f, .3f, .4f, .5f, 10, 20});
  EXPECT_EQ(values_of(cut(exact, wide, {.index = 0, .count = 2})), (std::vector<float>{1, 2, .1f, .2f, 10, 20}));
  EXPECT_EQ(values_of(cut(exact, wide, {.index = 1, .count = 2})), (std::vector<float>{3, 4, 5, .3f, .4f, .5f}));
}

// More slices than parameters: some are empty.
TEST(ValueLayout, SlicesSpreadOutMakeTheWholeAgain) {
  for (const ValueLayout& layout : {narrow, wide})
    for (const int count : {1, 2, 3, 5, 8}) {
      std::vector<float> values;
      for (std::size_t i = 0; i < layout.size(); ++i) values.push_back(static_cast<float>(i) + 0.5f);
      const FlatVector whole = vector_of(values);
      std::vector<float> sum(layout.size(), 0.0f);
      for (int index = 0; index < count; ++index) {
        const Slice slice{.index = index, .count = count};
        const auto part = values_of(spread(cut(whole, layout, slice), layout, slice));
        ASSERT_EQ(part.size(), layout.size());
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      EXPECT_EQ(sum, values) << count << " slices";
    }
}

TEST(ValueLayout, WideSumsKeepWhatOneFloatCannot) {
  FlatVector total = widened(vector_of({1, 2, 3, 4, 5, 10, 20}), narrow);
  ASSERT_EQ(total.size(), wide.size());
  add_values(total, vector_of({0x1p40f, 0, 0, 0, 0, 0.5f, 0, 0, 0, 0, 1, 1}), wide);
  EXPECT_EQ(values_of(total), (std::vector<float>{0x1p40f, 2, 3, 4, 5, 1.5f, 0, 0, 0, 0, 11, 21}));
  add_values(total, vector_of({-0x1p40f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), wide);
  EXPECT_EQ(total.data()[0], 1.5f);
  EXPECT_EQ(total.data()[5], 0);
}

TEST(ValueLayout, NarrowSumsAreElementwise) {
  FlatVector total = vector_of({1, 2, 3, 4, 5, 10, 20});
  add_values(total, vector_of({1, 1, 1, 1, 1, 2, 3}), narrow);
  EXPECT_EQ(values_of(total), (std::vector<float>{2, 3, 4, 5, 6, 12, 23}));
}

}  // namespace
}  // namespace syncopate
