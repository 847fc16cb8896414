// How training data form micro-batches: batching of sequences, their lengths, and data divided among the workers once
// for a whole run, unequally, as in comparisons for federated learning.
// Source: by Dirichlet shares of each class, Yurochkin et al. 2019; by label, McMahan et al. 2017; by size, Li et al.
//         2022 ("quantity skew").
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/data/dataset.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/sampler.hpp"

namespace syncopate {

// How sequences form a micro-batch: the keys batching and token_budget of [training].
struct BatchingOptions {
  Batching kind = Batching::count;
  std::int64_t token_budget = 0;  // for packed micro-batches

  bool is_formed() const { return kind == Batching::packed || kind == Batching::bucketed; }
  bool pads() const { return kind == Batching::padded || kind == Batching::bucketed; }
};

BatchingOptions read_batching(Settings& training);

// Reports a fault and returns false if the batching needs sequences and the data set has none.
bool suits_batching(const DatasetPlan& data, const BatchingOptions& batching, std::string_view dataset,
                    Settings& training);

struct PartitionOptions {
  enum class Kind {
    dirichlet,  // workers have shares of each class from Dirichlet(alpha); a smaller alpha is more unequal
    label,      // sorted by label and cut into equal shards; each worker gets `shards` of them
    size,       // workers have shares of the whole set from Dirichlet(alpha), with labels mixed equally
  };
  Kind kind = Kind::dirichlet;
  double alpha = 0.5;  // > 0
  int shards = 2;      // >= 1
};

// The sample numbers of each worker, ascending; every sample belongs to one worker. `labels`: (n,), in [0, classes).
std::vector<std::vector<std::uint32_t>> divide(std::span<const std::int64_t> labels, std::int64_t classes, int workers,
                                               const PartitionOptions& options, std::uint64_t seed);

// The table [training.partition]. None: workers take disjoint shards of each epoch.
std::optional<PartitionOptions> read_partition(Settings& training);

// Labels of all training samples, (n,).
std::vector<std::int64_t> labels_of(const Dataset& dataset);

// The training samples of each worker; reads all labels.
inline std::vector<std::vector<std::uint32_t>> divide(const Dataset& dataset, int workers,
                                                      const PartitionOptions& options, std::uint64_t seed) {
  return divide(labels_of(dataset), dataset.size().classes, workers, options, seed);
}

// The length of a sequence, for everything that depends on lengths: how many of its tokens a model computes.
struct ComputedTokens {
  std::int64_t longest = 0;  // sequences are cut to this; 0: not cut
  // Each next token is asked for, so the last one is only an answer: a model computes L - 1 of L tokens, and one of
  // one.
  bool last_is_answer = false;

  std::int32_t of(std::span<const std::int32_t> tokens) const;
};

// The lengths of all training samples, (n,). Throws DataFault if the samples are not sequences.
std::vector<std::int32_t> training_lengths(const Dataset& dataset, const ComputedTokens& computed = {});

// `lengths` of all training samples; must not be empty.
std::shared_ptr<const BatchLengths> sampled_lengths(std::shared_ptr<const Sampler> sampler,
                                                    std::shared_ptr<const std::vector<std::int32_t>> lengths);

// Counts samples in micro-batches by class, and by length (ComputedTokens) in eight bins with about equal numbers of
// training samples. Shows which data are lost with dropped micro-batches.
struct KindCounts {
  std::vector<std::int64_t> by_class;   // samples
  std::vector<std::int64_t> by_length;  // empty if samples have no length
};

class SampleKinds {
 public:
  SampleKinds(const Dataset& dataset, std::shared_ptr<const Sampler> sampler, const ComputedTokens& computed = {});

  // [bin]: the longest length in the bin.
  const std::vector<std::int32_t>& longest() const { return longest_; }
  // [bin]: the test samples in the bin. The last bin also has those that are longer than all training samples.
  const std::vector<std::vector<std::uint32_t>>& test_samples() const { return test_samples_; }
  KindCounts none() const {
    return {.by_class = std::vector<std::int64_t>(static_cast<std::size_t>(class_count_)),
            .by_length = std::vector<std::int64_t>(longest_.size())};
  }
  void add(const MicroBatch& micro_batch, KindCounts& counts) const;
  // Counts all micro-batches in the first `steps` steps of every worker.
  KindCounts of_steps(Step steps) const;
  // Counts the first micro-batches of each worker: this many for each.
  KindCounts of_first(std::span<const std::int64_t> micro_batches) const;

 private:
  std::shared_ptr<const Sampler> sampler_;
  std::vector<std::int64_t> classes_;  // by training sample
  std::vector<std::uint8_t> bins_;     // by training sample; empty: no lengths
  std::vector<std::int32_t> longest_;
  std::vector<std::vector<std::uint32_t>> test_samples_;
  std::int64_t class_count_ = 0;
};

}  // namespace syncopate
