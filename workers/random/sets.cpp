#include "workers/random/sets.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace syncopate {
namespace {

// The next set in lexicographic order; false after the last.
bool advance(std::vector<int>& set, int count) {
  const int size = static_cast<int>(set.size());
  int i = size - 1;
  while (i >= 0 && set[static_cast<std::size_t>(i)] == count - size + i) --i;
  if (i < 0) return false;
  std::iota(set.begin() + i, set.end(), set[static_cast<std::size_t>(i)] + 1);
  return true;
}

double number_of_sets(int count, int chosen) {
  double sets = 1;
  for (int i = 0; i < chosen; ++i) sets *= static_cast<double>(count - i) / (i + 1);
  return std::round(sets);
}

}  // namespace

// Floyd's algorithm.
std::vector<int> draw_set(int count, int chosen, const RandomStream& stream, std::uint32_t first) {
  std::vector<int> result;
  for (int i = 0; i < chosen; ++i) {
    const int top = count - chosen + i;
    const double u = stream.uniform(first + static_cast<std::uint32_t>(i));
    const int drawn = std::min(top, static_cast<int>(u * (top + 1)));
    result.push_back(std::find(result.begin(), result.end(), drawn) == result.end() ? drawn : top);
  }
  return result;
}

bool holds_for_sets(int count, int chosen, int most_sets, const RandomStream& stream,
                    const std::function<bool(std::span<const int>)>& holds_for) {
  if (number_of_sets(count, chosen) > most_sets) {
    for (int i = 0; i < most_sets; ++i)
      if (!holds_for(draw_set(count, chosen, stream, static_cast<std::uint32_t>(i * chosen)))) return false;
    return true;
  }
  std::vector<int> set(static_cast<std::size_t>(chosen));
  std::iota(set.begin(), set.end(), 0);
  do {
    if (!holds_for(set)) return false;
  } while (advance(set, count));
  return true;
}

}  // namespace syncopate
