// Samples of a data set, side by side in memory, as LibTorch's tensors. For sources with LibTorch alone.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "workers/datasets/dataset.hpp"
#include "workers/datasets/sampler.hpp"
#include "workers/datasets/visits.hpp"
#include "workers/models/cross_entropy.hpp"
#include "workers/training/flat_vector.hpp"

namespace syncopate {

// What is trained on, in the memory of a SampleBatch.
struct TrainingBatch {
  Visits visits;
  at::Tensor inputs;  // (n, channels, height, width)
  at::Tensor labels;
  at::Tensor targets{};  // defined: numbers instead of labels
  std::optional<MixedLabels> mixed{};
};

// Tensors live until the next samples are taken.
class SampleBatch {
 public:
  // That a thread uses again and again.
  static SampleBatch& of_this_thread();

  // Samples [first, first + count) of a split.
  void take(const Dataset& dataset, Split split, std::int64_t first, std::int64_t count);
  at::Tensor inputs(const Dataset& dataset);
  at::Tensor labels();
  at::Tensor targets();  // (n, targets); undefined where samples have classes

  // Micro-batch after micro-batch, as they are trained on. `mixup`: alpha; 0: none.
  TrainingBatch take_training(const Dataset& dataset, const Sampler& sampler, std::span<const MicroBatch> micro_batches,
                              double mixup);

 private:
  void make_room(const Dataset& dataset);
  void name_samples(const Sampler& sampler, std::span<const MicroBatch> micro_batches);
  void mix_samples(const Sampler& sampler, std::span<const MicroBatch> micro_batches, double alpha);

  std::vector<std::uint32_t> numbers_;
  std::vector<std::int64_t> epochs_;
  FlatVector inputs_;
  std::vector<std::int64_t> labels_;
  std::vector<float> targets_;                // numbers instead of labels
  std::vector<std::int64_t> partner_labels_;  // where samples are mixed with others
  std::vector<float> partner_shares_;
};

}  // namespace syncopate
