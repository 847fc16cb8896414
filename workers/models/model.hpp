// A model whose keys are read: what it needs, and how it is made. Each model has a reader that gives one, and a row of
// registry.cpp that names the reader.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "workers/datasets/sampled_lengths.hpp"
#include "workers/models/network.hpp"
#include "workers/settings/settings.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

inline constexpr std::int64_t largest_width = 1 << 16;
// A share of what is dropped: all of it would leave nothing to scale.
inline constexpr Range dropout_range{.low = 0, .high = 1, .high_open = true};

// Why samples of some shape do not suit a model.
struct Misfit {
  std::string key;     // of the model's table, that could be another; empty: none
  std::string needed;  // "the convolutions need images of at least 16 x 16"
};

// Why no network can be made for samples of some shape, of a key of the model's table.
struct ModelFault : std::runtime_error {
  ModelFault(std::string faulty_key, const std::string& what) : std::runtime_error(what), key(std::move(faulty_key)) {}
  std::string key;
};

// A network on a data set, an objective without data, or neither. All functions are empty after a fault.
struct Model {
  enum class Inputs { numbers, tokens, either };
  Inputs inputs = Inputs::numbers;
  // What a data set of these inputs lacks for it, if it does; empty: nothing ever. The network is made of those that
  // fit.
  std::function<std::optional<Misfit>(const DatasetSize&)> misfit{};
  // It may throw a ModelFault where that takes more than the shape. To be called while the settings live.
  std::function<Network(const DatasetSize&)> network{};
  // Throws a ModelFault where micro-batches of so many samples cannot be trained on. Empty: any can. Called as
  // `network`.
  std::function<void(const DatasetSize&, std::int64_t samples)> try_micro_batch{};
  bool learns_targets = false;       // numbers instead of classes
  bool learns_token_labels = false;  // a label of each token instead of one for all
  ComputedTokens computed{};         // of sequences
  std::string longest_key{};         // what they are cut by
  // Samples of a network that are evaluated together, for the best speed on one core with the kernels that
  // blas_kernel.hpp chooses.
  std::int64_t chunk_samples = 0;

  std::function<std::shared_ptr<const Objective>(std::uint64_t seed, Step first_step)> objective{};
  std::int64_t parameters = 0;  // of such an objective

  bool time_only = false;
};

}  // namespace syncopate
