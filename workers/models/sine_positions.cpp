#include "workers/models/sine_positions.hpp"

#include <cassert>
#include <cmath>

namespace syncopate {

std::vector<float> sine_positions_2d(std::int64_t height, std::int64_t width, std::int64_t dimension) {
  assert(dimension % 4 == 0 && dimension >= 8);
  const auto frequencies = dimension / 4;
  std::vector<double> omega;
  for (std::int64_t i = 0; i < frequencies; ++i)
    omega.push_back(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(frequencies - 1)));

  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(height * width * dimension));
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (const auto coordinate : {x, y}) {
        const auto at = static_cast<double>(coordinate);
        for (const double w : omega) table.push_back(static_cast<float>(std::sin(at * w)));
        for (const double w : omega) table.push_back(static_cast<float>(std::cos(at * w)));
      }
    }
  }
  return table;
}

}  // namespace syncopate
