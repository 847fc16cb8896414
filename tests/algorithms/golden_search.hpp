// The threshold searches in tests/golden/dropcompute_search.json, and the micro-batch times in which they search. The
// recipe in that file generates these times.
#pragma once

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "workers/theory/paper_formulas.hpp"
#include "workers/time/quantile_table.hpp"

namespace syncopate {

// The searches in the given checkout.
inline const nlohmann::json& golden_searches(const std::string& checkout) {
  static const auto read = [&] {
    std::ifstream file(checkout + "/tests/golden/dropcompute_search.json");
    return nlohmann::json::parse(file);
  }();
  return read;
}

// The k-th uniform number of the recipe, for k = 1, 2, ...
inline double splitmix_uniform(std::uint64_t seed, std::uint64_t k) {
  std::uint64_t z = seed + k * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

inline double golden_noise(const std::string& kind, double u) {
  const LengthTable& lengths = LengthTable::of_reference_code();
  if (kind == "table") return 0.5 * lengths.quantile(u) / lengths.mean();
  return 0.1 * quantile(boost::math::normal(), std::max(u, 0x1p-54));
}

struct Recorded {
  std::vector<double> times;
  MicroBatchTimes view;
};

inline Recorded recorded(const nlohmann::json& recipe, int steps, std::uint64_t seed, double base) {
  const int workers = recipe.at("workers"), micro_batches = recipe.at("micro_batches");
  const std::string kind = recipe.value("kind", "table");
  Recorded result{.times = std::vector<double>(static_cast<std::size_t>(workers * steps * micro_batches)), .view = {}};
  for (std::size_t k = 0; k < result.times.size(); ++k)
    result.times[k] = base * (1 + golden_noise(kind, splitmix_uniform(seed, k + 1)));
  result.view = {result.times, workers, steps, micro_batches};
  return result;
}

inline Recorded recorded_search_case(const nlohmann::json& golden) {
  const auto& recipe = golden.at("search_case");
  return recorded(recipe, recipe.at("steps"), recipe.at("seed"), recipe.at("base_ms"));
}

}  // namespace syncopate
