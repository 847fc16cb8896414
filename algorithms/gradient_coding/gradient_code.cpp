#include "algorithms/gradient_coding/gradient_code.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace syncopate {

int GradientCode::groups_that_answer(std::vector<char> answered, const std::function<bool(Rank)>& has_left) const {
  for (std::size_t worker = 0; worker < parts.size(); ++worker)
    if (!parts[worker].empty() && !has_left(Rank{static_cast<int>(worker)}))
      answered[static_cast<std::size_t>(group[worker])] = 1;
  return static_cast<int>(std::count(answered.begin(), answered.end(), 1));
}

GradientCode fractional_repetition(int workers, int stragglers) {
  assert(workers % (stragglers + 1) == 0);
  const int size = stragglers + 1;
  GradientCode code;
  code.groups = code.needed = workers / size;
  code.merges = false;
  for (int worker = 0; worker < workers; ++worker) {
    const int group = worker / size;
    code.group.push_back(group);
    auto& parts = code.parts.emplace_back();
    for (int part = group * size; part < (group + 1) * size; ++part) parts.push_back({part});
  }
  code.decode = [](std::span<const Rank> arrived) { return std::vector<double>(arrived.size(), 1.0); };
  return code;
}

GradientCode ignore_stragglers(int workers, int stragglers) {
  GradientCode code;
  code.groups = workers;
  code.needed = workers - stragglers;
  code.exact = code.merges = false;
  code.group.resize(static_cast<std::size_t>(workers));
  std::iota(code.group.begin(), code.group.end(), 0);
  for (int worker = 0; worker < workers; ++worker) code.parts.push_back({{worker}});
  code.decode = [workers](std::span<const Rank> arrived) {
    const auto count = static_cast<double>(arrived.size());
    return std::vector<double>(arrived.size(), workers / count);
  };
  return code;
}

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

}  // namespace syncopate
