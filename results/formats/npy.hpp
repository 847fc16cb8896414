// parameters.npy: float32 arrays in NumPy's format, version 1.0.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace syncopate {

// One vector is an array of shape (P,), several of equal size one of shape (vectors, P).
std::string npy(const std::vector<std::vector<float>>& vectors);

// What npy wrote, the rows one after the other. Throws std::runtime_error for anything else.
std::vector<float> floats_from_npy(std::string_view bytes);

}  // namespace syncopate
