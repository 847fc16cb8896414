// Forms micro-batches by the lengths of sequences, and divides training data unequally among workers for a whole run,
// as in comparisons for federated learning.
// Source: division by Dirichlet shares of each class: Yurochkin et al. 2019; by label: McMahan et al. 2017; by size: Li
//         et al. 2022 ("quantity skew").
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/data/dataset.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/sampler.hpp"

namespace syncopate {

// Reads how sequences form micro-batches: the keys `batching` and `token_budget` of [training].
void read_batching(Settings& training, SamplerOptions& sampling);

struct PartitionOptions {
  enum class Kind {
    dirichlet,  // each class is divided in shares from Dirichlet(alpha); the smaller alpha, the more unequal
    label,      // samples are sorted by label and cut into equal shards; each worker gets `shards` of them
    size,       // the whole set, in random order, is divided in shares from Dirichlet(alpha)
  };
  Kind kind = Kind::dirichlet;
  double alpha = 0.5;  // Dirichlet's concentration; above 0
  int shards = 2;      // per worker; at least 1
};

// Returns each worker's sample numbers, ascending. Every sample belongs to one worker. `labels`: (n,), in [0, classes).
std::vector<std::vector<std::uint32_t>> divide(std::span<const std::int64_t> labels, std::int64_t classes, int workers,
                                               const PartitionOptions& options, std::uint64_t seed);

// Reads the table [training.partition]. Nullopt: workers take disjoint shards that are drawn in each epoch.
std::optional<PartitionOptions> read_partition(Settings& training);

// Returns the labels of all training samples, (n,).
std::vector<std::int64_t> labels_of(const Dataset& dataset);

// Defines the length of a sequence, on which times and micro-batches depend: the number of tokens that a model
// computes.
struct ComputedTokens {
  std::int64_t longest = 0;  // sequences are truncated to this length; 0: never
  // For models that predict each next token: the last token is only predicted, never an input, so L - 1 of L tokens are
  // computed. (A sequence of one token counts as one.)
  bool last_is_answer = false;

  std::int32_t of(std::int64_t tokens) const {
    const std::int64_t shown = longest > 0 ? std::min(tokens, longest) : tokens;
    return static_cast<std::int32_t>(last_is_answer && shown > 1 ? shown - 1 : shown);
  }
};

// Returns the lengths of all training samples, (n,). Throws DataFault if the samples are not sequences.
std::vector<std::int32_t> training_lengths(const Dataset& dataset, const ComputedTokens& computed = {});

// Numbers of samples by class, and by length (ComputedTokens) in up to eight bins with about equal numbers of training
// samples. They show which data are lost with dropped micro-batches.
struct KindCounts {
  std::vector<std::int64_t> by_class;   // samples per class
  std::vector<std::int64_t> by_length;  // samples per bin; empty if samples have no length
};

class SampleKinds {
 public:
  SampleKinds(const Dataset& dataset, std::shared_ptr<const Sampler> sampler, const ComputedTokens& computed = {});

  // The longest length in each bin.
  const std::vector<std::int32_t>& longest() const { return longest_; }
  // The test samples in each bin. The last bin also contains those that are longer than all training samples.
  const std::vector<std::vector<std::uint32_t>>& test_samples() const { return test_samples_; }
  KindCounts none() const {
    return {.by_class = std::vector<std::int64_t>(static_cast<std::size_t>(class_count_)),
            .by_length = std::vector<std::int64_t>(longest_.size())};
  }
  void add(const MicroBatch& micro_batch, KindCounts& counts) const;
  // Counts the samples in the first `steps` steps of all workers.
  KindCounts of_steps(Step steps) const;
  // Counts the samples in the first micro-batches of each worker; `micro_batches` is their number by worker.
  KindCounts of_first(std::span<const std::int64_t> micro_batches) const;

 private:
  std::shared_ptr<const Sampler> sampler_;
  std::vector<std::int64_t> classes_;  // class of each training sample
  std::vector<std::uint8_t> bins_;     // bin of each training sample; empty: no lengths
  std::vector<std::int32_t> longest_;
  std::vector<std::vector<std::uint32_t>> test_samples_;
  std::int64_t class_count_ = 0;
};

}  // namespace syncopate
