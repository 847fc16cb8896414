#include "workers/training/objective.hpp"

#include <cassert>
#include <cmath>

namespace syncopate {

bool is_embedding(std::string_view tensor) {
  const auto has = [&](std::string_view part) { return tensor.find(part) != std::string_view::npos; };
  return has("embedding") || has("words") || has("places");
}

EvaluationSums Objective::evaluate_samples(const float* parameters, const float* buffers, Split split,
                                           std::span<const std::uint32_t> samples) const {
  EvaluationSums sums;
  for (const std::uint32_t sample : samples)
    sums += evaluate(parameters, buffers, split, sample, std::int64_t{sample} + 1);
  return sums;
}

EvaluationSums Objective::evaluate_ensemble(std::span<const float* const> parameters,
                                            std::span<const float* const> buffers, Split split, std::int64_t begin,
                                            std::int64_t end) const {
  assert(!parameters.empty() && parameters.size() == buffers.size());
  const auto members = static_cast<double>(parameters.size());
  double loss = 0;
  double correct = 0;
  std::int64_t samples = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const EvaluationSums sums = evaluate(parameters[i], buffers[i], split, begin, end);
    loss += sums.loss / members;
    correct += static_cast<double>(sums.correct) / members;
    samples = sums.samples;
  }
  return {.loss = loss, .correct = std::llround(correct), .samples = samples};
}

}  // namespace syncopate
