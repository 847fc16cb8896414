#include "algorithms/gradient_coding/fractional_repetition.hpp"

#include <cassert>

namespace syncopate {

GradientCode fractional_repetition(int workers, int stragglers) {
  assert(workers % (stragglers + 1) == 0);
  const int size = stragglers + 1;
  GradientCode code = code_of_single_workers(workers, workers / size);
  code.groups = code.needed;
  code.merges = false;
  for (const Rank worker : Ranks(workers)) {
    const int group = code.group[worker] = worker.value / size;
    for (int part = group * size; part < (group + 1) * size; ++part) code.parts[worker].push_back({part});
  }
  code.decode = [](std::span<const Rank> arrived) { return std::vector<double>(arrived.size(), 1.0); };
  return code;
}

GradientCode ignore_stragglers(int workers, int stragglers) {
  GradientCode code = code_of_single_workers(workers, workers - stragglers);
  code.exact = code.merges = false;
  for (const Rank worker : Ranks(workers)) code.parts[worker] = {{worker.value}};
  code.decode = [workers](std::span<const Rank> arrived) {
    const auto count = static_cast<double>(arrived.size());
    return std::vector<double>(arrived.size(), workers / count);
  };
  return code;
}

}  // namespace syncopate
