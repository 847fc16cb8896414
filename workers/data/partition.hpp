// Training data that are divided among the workers once for a whole run, unequally: what federated learning compares
// methods on.
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

// The keys of [training] that say how sequences make a micro-batch: batching, token_budget.
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

// The table [training.partition], and what it makes of a data set.
// None: workers take disjoint shards of each epoch.
std::optional<PartitionOptions> read_partition(Settings& training);

// Of all training samples, (n,).
std::vector<std::int64_t> labels_of(const Dataset& dataset);

// The training samples of each worker; reads all labels.
std::vector<std::vector<std::uint32_t>> divide(const Dataset& dataset, int workers, const PartitionOptions& options,
                                               std::uint64_t seed);

// The lengths of what a sampler gives, where the data set is one of sequences.
class Dataset;

// The length of a sequence, for all that goes by one: how many of its tokens a model computes.
struct ComputedTokens {
  std::int64_t longest = 0;  // what sequences are cut to; 0: none is cut
  // Each next token is asked for, so that the last is only an answer: of L tokens L - 1 are computed, and of one that
  // one.
  bool last_is_answer = false;

  std::int32_t of(std::span<const std::int32_t> tokens) const;
};

// Of all training samples, (n,). Throws DataFault where the samples are no sequences.
std::vector<std::int32_t> training_lengths(const Dataset& dataset, const ComputedTokens& computed = {});

// `lengths` of all training samples; not empty.
std::shared_ptr<const BatchLengths> sampled_lengths(std::shared_ptr<const Sampler> sampler,
                                                    std::shared_ptr<const std::vector<std::int32_t>> lengths);

// What the samples of micro-batches are: their classes, and how long they are (ComputedTokens), in eight bins of about
// as many training samples each. For what dropping does to the data.
struct KindCounts {
  std::vector<std::int64_t> by_class;   // samples
  std::vector<std::int64_t> by_length;  // empty where samples have no length
};

class SampleKinds {
 public:
  SampleKinds(const Dataset& dataset, std::shared_ptr<const Sampler> sampler, const ComputedTokens& computed = {});

  // [bin]: the longest that is in it; the bin before has the one below it.
  const std::vector<std::int32_t>& longest() const { return longest_; }
  // [bin]: the test samples in it; in the last one also those that are longer than all training samples.
  const std::vector<std::vector<std::uint32_t>>& test_samples() const { return test_samples_; }
  KindCounts none() const;
  void add(const MicroBatch& micro_batch, KindCounts& counts) const;
  // Of all micro-batches of the first so many steps of every worker.
  KindCounts of_steps(Step steps) const;
  // Of so many micro-batches of each worker, its first ones; by worker.
  KindCounts of_first(std::span<const std::int64_t> micro_batches) const;

 private:
  std::shared_ptr<const Sampler> sampler_;
  std::vector<std::int64_t> classes_;  // by training sample
  std::vector<std::uint8_t> bins_;     // likewise; empty: no lengths
  std::vector<std::int32_t> longest_;
  std::vector<std::vector<std::uint32_t>> test_samples_;
  std::int64_t class_count_ = 0;
};

}  // namespace syncopate
