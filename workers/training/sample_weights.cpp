#include "workers/training/sample_weights.hpp"

#include "workers/training/training.hpp"

namespace syncopate {

double model_weight(double weight, const Training& training, Rank worker) {
  if (weight != by_samples) return weight;
  const auto* const data = training.time_only() ? nullptr : dynamic_cast<const DividedData*>(&training.objective());
  const std::int64_t samples = data ? data->samples_of(worker) : 0;
  return samples > 0 ? static_cast<double>(samples) : 1;
}

}  // namespace syncopate
