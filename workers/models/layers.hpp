// Fixed positions of tokens on a grid: sines and cosines of both coordinates at geometrically spaced frequencies.
// Source: Vaswani et al. 2017 for one coordinate; for two, Beyer et al. 2022, "Better plain ViT baselines".
#pragma once

#include <cstdint>
#include <vector>

namespace syncopate {

// (height x width, dimension), row by row: sin x w_i, cos x w_i, sin y w_i, cos y w_i, each for i = 0 .. d / 4 - 1,
// with w_i = 10000^(-i / (d / 4 - 1)). The dimension d is a multiple of 4, and at least 8.
std::vector<float> sine_positions_2d(std::int64_t height, std::int64_t width, std::int64_t dimension);

}  // namespace syncopate
