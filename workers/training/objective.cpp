#include "workers/training/objective.hpp"

#include <cassert>
#include <cmath>
#include <stdexcept>

#include "workers/training/training.hpp"

namespace syncopate {

std::vector<ParameterTensor> Objective::tensors() const {
  return {{.name = "weights", .offset = 0, .size = weights()},
          {.name = "others", .offset = weights(), .size = parameters() - weights()}};
}

void GradientsApart::add_to(float* out, std::size_t list) const {
  for (const GradientSegment& segment : of(list).segments)
    for (std::size_t i = 0; i < segment.size; ++i) out[segment.offset + i] += segment.data[i];
}

std::unique_ptr<const GradientsApart> Objective::gradients_apart(const float*, const float*,
                                                                 std::span<const std::span<const MicroBatch>>) const {
  throw std::logic_error("this objective has no gradients apart");
}

EvaluationSums Objective::evaluate_samples(const float* parameters, const float* buffers, Split split,
                                           std::span<const std::uint32_t> samples) const {
  EvaluationSums sums;
  for (const std::uint32_t sample : samples) {
    const EvaluationSums one = evaluate(parameters, buffers, split, sample, std::int64_t{sample} + 1);
    sums.loss += one.loss;
    sums.correct += one.correct;
    sums.samples += one.samples;
  }
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

std::vector<float> Objective::batch_statistics(const float*, std::span<const MicroBatch>) const { return {}; }

std::vector<double> Objective::derivative(const float*, const float*, Split, std::int64_t, std::int64_t,
                                          std::span<const double>) const {
  throw std::logic_error("this objective has no derivatives of its evaluation");
}

double model_weight(double weight, const Training& training, Rank worker) {
  if (weight != by_samples) return weight;
  const auto* const data = training.time_only() ? nullptr : dynamic_cast<const DividedData*>(&training.objective());
  const std::int64_t samples = data ? data->samples_of(worker) : 0;
  return samples > 0 ? static_cast<double>(samples) : 1;
}

}  // namespace syncopate
