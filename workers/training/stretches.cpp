#include "workers/training/stretches.hpp"

#include <algorithm>

namespace syncopate {

bool is_named(std::string_view tensor, const std::vector<std::string>& parts) {
  return std::ranges::any_of(parts, [&](const std::string& part) { return tensor.find(part) != tensor.npos; });
}

std::vector<Stretch> stretches_of(const Objective& objective, const Optimizer& optimizer) {
  const WeightDecay& decay = optimizer.weight_decay();
  std::vector<Stretch> stretches;
  for (const ParameterTensor& tensor : objective.tensors()) {
    if (tensor.size == 0) continue;
    const bool is_weight = tensor.offset < objective.weights();
    const bool excluded = (decay.scope == DecayScope::weights && !is_weight) || is_named(tensor.name, decay.exclude);
    const bool continues = optimizer.passes() == 0 && !stretches.empty() && stretches.back().excluded == excluded;
    if (continues)
      stretches.back().end += tensor.size;
    else
      stretches.push_back({tensor.offset, tensor.offset + tensor.size, excluded});
  }
  return stretches;
}

}  // namespace syncopate
