// How training data come to micro-batches: batching of sequences, lengths, and data that are divided among the workers
// once for a whole run, unequally, as federated learning compares methods on.
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

// How sequences make a micro-batch: the keys batching and token_budget of [training].
struct BatchingOptions {
  Batching kind = Batching::count;
  std::int64_t token_budget = 0;  // of packed ones

  bool is_formed() const { return kind == Batching::packed || kind == Batching::bucketed; }
  bool pads() const { return kind == Batching::padded || kind == Batching::bucketed; }
};

BatchingOptions read_batching(Settings& training);

// A fault, and false, where the data set has no sequences and the batching is of sequences.
bool suits_batching(const DatasetPlan& data, const BatchingOptions& batching, std::string_view dataset,
                    Settings& training);

struct PartitionOptions {
  enum class Kind {
    dirichlet,  // of each class, workers have shares drawn from Dirichlet(alpha): the smaller, the more unequal
    label,      // sorted by label and cut into equal shards, of which each worker gets `shards`
    size,       // workers have shares of the whole set from Dirichlet(alpha), with all labels alike
  };
  Kind kind = Kind::dirichlet;
  double alpha = 0.5;  // > 0
  int shards = 2;      // >= 1
};

// The sample numbers of each worker, ascending; every sample is one worker's. `labels`: (n,), in [0, classes).
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

// The length of a sequence, for all that goes by one: how many of its tokens a model computes.
struct ComputedTokens {
  std::int64_t longest = 0;  // what sequences are cut to; 0: none is cut
  // Each next token is asked for, so that the last is only an answer: L - 1 of L tokens are computed, and one of one.
  bool last_is_answer = false;

  std::int32_t of(std::span<const std::int32_t> tokens) const;
};

// Lengths of all training samples, (n,). Throws DataFault where the samples are no sequences.
std::vector<std::int32_t> training_lengths(const Dataset& dataset, const ComputedTokens& computed = {});

// `lengths` of all training samples; not empty.
std::shared_ptr<const BatchLengths> sampled_lengths(std::shared_ptr<const Sampler> sampler,
                                                    std::shared_ptr<const std::vector<std::int32_t>> lengths);

// The classes of the samples in micro-batches, and their lengths (ComputedTokens) in eight bins with about equal
// numbers of training samples: shows which data dropped micro-batches take away.
struct KindCounts {
  std::vector<std::int64_t> by_class;   // samples
  std::vector<std::int64_t> by_length;  // empty where samples have no length
};

class SampleKinds {
 public:
  SampleKinds(const Dataset& dataset, std::shared_ptr<const Sampler> sampler, const ComputedTokens& computed = {});

  // [bin]: the longest length in it.
  const std::vector<std::int32_t>& longest() const { return longest_; }
  // [bin]: the test samples in it. The last one also has those that are longer than all training samples.
  const std::vector<std::vector<std::uint32_t>>& test_samples() const { return test_samples_; }
  KindCounts none() const {
    return {.by_class = std::vector<std::int64_t>(static_cast<std::size_t>(class_count_)),
            .by_length = std::vector<std::int64_t>(longest_.size())};
  }
  void add(const MicroBatch& micro_batch, KindCounts& counts) const;
  // All micro-batches in the first so many steps of every worker.
  KindCounts of_steps(Step steps) const;
  // The first so many micro-batches of each worker.
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
