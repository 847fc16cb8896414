// Averages of models that count by their workers' numbers of training samples.
// Source:  McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data" (FedAvg).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "workers/units/units.hpp"

namespace syncopate {

class Training;

// What an objective is as well whose training data may be divided among the workers for the whole run.
class DividedData {
 public:
  virtual ~DividedData() = default;
  // Training samples that this worker alone has; 0: the data are not divided.
  virtual std::int64_t samples_of(Rank worker) const = 0;
};

// That of what a data set was divided into, by rank; empty: it is not.
inline std::int64_t samples_in(std::span<const std::vector<std::uint32_t>> shards, Rank worker) {
  return shards.empty() ? 0 : std::ssize(shards[static_cast<std::size_t>(worker.value)]);
}

// Averaging::weight of a model that counts by its worker's samples: the worker's collectives bring their number in its
// place. All have equal weights where the data are not divided, and in runs without a model.
inline constexpr double by_samples = -1;

// What stands for the weight, which may be by_samples.
double model_weight(double weight, const Training& training, Rank worker);

}  // namespace syncopate
