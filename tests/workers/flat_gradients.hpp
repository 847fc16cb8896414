// Gradients of objectives as one vector, and the distance between two of them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "workers/training/objective.hpp"

namespace syncopate {

inline std::vector<float> flatten(const PartialGradient& gradient) {
  std::vector<float> flat;
  for (const GradientSegment& segment : gradient.segments) {
    EXPECT_EQ(segment.offset, flat.size()) << "segments must follow each other without gaps";
    flat.insert(flat.end(), segment.data, segment.data + segment.size);
  }
  return flat;
}

// |a - b| / |b| for vectors of floats or doubles.
template <typename A, typename B>
double relative_distance(const A& a, const B& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

// The initial parameters plus offsets, so that normalisations and biases (initially 1 and 0) have an effect, too.
inline std::vector<float> some_parameters(const Objective& objective) {
  std::vector<float> flat = objective.initial_parameters(3);
  for (std::size_t i = 0; i < flat.size(); ++i) flat[i] += 0.05f * static_cast<float>(i % 5);
  return flat;
}

}  // namespace syncopate
