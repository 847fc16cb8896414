// What tests share that compare compressors with recursions in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace syncopate {

// Of each worker, drawn anew for each step.
inline std::vector<std::vector<float>> normal_gradients(int workers, std::size_t size, int step) {
  std::mt19937 engine(static_cast<unsigned>(7 * step + 1));
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> all(static_cast<std::size_t>(workers), std::vector<float>(size));
  for (auto& own : all)
    for (float& value : own) value = normal(engine);
  return all;
}

inline void expect_near(const std::vector<float>& found, const std::vector<double>& expected, double tolerance,
                        const std::string& where = "") {
  ASSERT_EQ(found.size(), expected.size()) << where;
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << where << " at " << i;
}

// The places of the k largest magnitudes, the largest first.
inline std::vector<std::size_t> largest(const std::vector<double>& values, std::size_t k) {
  std::vector<std::size_t> places(values.size());
  std::iota(places.begin(), places.end(), 0u);
  std::stable_sort(places.begin(), places.end(),
                   [&](auto a, auto b) { return std::fabs(values[a]) > std::fabs(values[b]); });
  places.resize(k);
  return places;
}

}  // namespace syncopate
