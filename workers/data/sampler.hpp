// Selects the samples of micro-batches: sampling without replacement, in disjoint shards that are redrawn in each
// epoch.
// Source: data order of the reference code of Gu et al. 2024 (repository hmgxr128/QSR).
//
// Every epoch has one permutation of the data set. Worker k of K takes its elements k, k + K, k + 2K, ...; samples
// after the epoch's last whole step are not used. If the data are divided among the workers for the whole run
// (partition.hpp), each worker repeats its own samples, each time in a new order. Samples after its last whole
// micro-batch are not used in that pass.
//
// If sequences are formed into micro-batches by their lengths, worker k takes micro-batches k, k + K, k + 2K, ... of
// the epoch. All epochs have as many steps as the first epoch has whole steps. An epoch for which packing gives fewer
// micro-batches repeats its first micro-batches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "workers/base/random.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// The lengths of the sequences in micro-batches, on which computation times may depend.
class BatchLengths {
 public:
  virtual ~BatchLengths() = default;

  // Appends the lengths of the micro-batch's samples, in their order, each at least 1.
  virtual void append(const MicroBatch& micro_batch, std::vector<std::int32_t>& lengths) const = 0;

  // K workers, M micro-batches per step and worker, S steps per epoch.
  virtual int workers() const = 0;
  virtual int micro_batches() const = 0;
  virtual std::int64_t steps_per_epoch() const = 0;
  // Whether workers have separate data and therefore different distributions of lengths.
  virtual bool differs_by_worker() const = 0;

  // Lower bounds over all micro-batches, for the number of samples and for their lengths.
  virtual std::int64_t fewest_samples() const = 0;
  virtual std::int32_t shortest() const = 0;
};

// An epoch's samples, formed into micro-batches by their lengths. Micro-batch i consists of the samples
// order[begins[i]] to order[begins[i + 1] - 1].
// Source:  packing is next-fit bin packing, in the drawn order; bucketing is that of the batch iterators of torchtext
//          and fairseq.
// Shapes:  order (n,) sample numbers; lengths (n,) by sample number.
struct EpochBatches {
  std::vector<std::uint32_t> order{};
  std::vector<std::size_t> begins{};  // number of micro-batches + 1

  std::int64_t micro_batches() const { return static_cast<std::int64_t>(begins.size()) - 1; }
  std::span<const std::uint32_t> operator[](std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return std::span(order).subspan(begins[at], begins[at + 1] - begins[at]);
  }
};

// Packs samples in the given order: each micro-batch takes samples while all their tokens fit the budget. A sample that
// is longer than the budget is a micro-batch of its own.
EpochBatches packed(std::vector<std::uint32_t> order, std::span<const std::int32_t> lengths, std::int64_t token_budget);

// Sorts the first `samples` samples of the order (a multiple of `size`) by length, with a stable sort. Cuts them into
// micro-batches of `size` samples and shuffles these with the stream.
EpochBatches bucketed(std::vector<std::uint32_t> order, std::span<const std::int32_t> lengths, std::int64_t samples,
                      std::int64_t size, const RandomStream& stream);

// How sequences form a micro-batch.
enum class Batching {
  count,     // B samples in the given order, each with its own length
  padded,    // as `count`, but each sample takes the time of the longest one
  packed,    // samples whose tokens fit a budget
  bucketed,  // B samples of similar length, each takes the time of the longest one
};

struct SamplerOptions {
  std::int64_t samples = 0;           // n, size of the training set
  int workers = 1;                    // K
  int micro_batches = 1;              // M, per optimizer step and worker
  std::int64_t micro_batch_size = 1;  // B
  std::uint64_t seed = 0;
  std::int64_t first_step = 0;                       // number of steps before the run's first step; shifts the data
  std::vector<std::vector<std::uint32_t>> shards{};  // by worker, for the whole run; empty: redrawn in each epoch
  Batching batching = Batching::count;               // packed and bucketed need lengths, and allow no shards
  std::int64_t token_budget = 0;                     // for packed micro-batches
  std::shared_ptr<const std::vector<std::int32_t>> lengths{};  // (n,)
  // Replaces every sample of a micro-batch by its longest sequence, so that computing it takes the time of a padded
  // micro-batch. A copy has no more tokens to predict than the sample that it replaces. Only for measuring times;
  // needs lengths.
  bool repeats_longest = false;

  bool is_formed() const { return batching == Batching::packed || batching == Batching::bucketed; }
  bool pads() const { return batching == Batching::padded || batching == Batching::bucketed; }
  // floor(n / (K M B)); 0: too few samples for one step. Not valid for packed micro-batches.
  std::int64_t steps_per_epoch() const { return samples / (std::int64_t{workers} * micro_batches * micro_batch_size); }
};

// Thread-safe. The functions of BatchLengths need lengths in the options. They return the lengths of the micro-batches'
// own samples, even with repeats_longest.
class Sampler final : public BatchLengths {
 public:
  // Throws DataFault for fewer samples than a step needs, for a worker with fewer than a micro-batch, and for more than
  // 2^32 - 1 samples.
  explicit Sampler(SamplerOptions options);

  const SamplerOptions& options() const { return options_; }

  void append(const MicroBatch& micro_batch, std::vector<std::int32_t>& lengths) const override;
  int workers() const override { return options_.workers; }
  int micro_batches() const override { return options_.micro_batches; }
  std::int64_t steps_per_epoch() const override { return steps_per_epoch_; }
  bool differs_by_worker() const override { return !options_.shards.empty(); }
  std::int64_t fewest_samples() const override {
    return options_.batching == Batching::packed ? 1 : options_.micro_batch_size;
  }
  std::int32_t shortest() const override { return *std::ranges::min_element(*options_.lengths); }

  // Returns the step that determines the data: the micro-batch's step plus first_step.
  std::int64_t step_of(const MicroBatch& micro_batch) const { return options_.first_step + micro_batch.step.value(); }
  MicroBatch in_data(const MicroBatch& micro_batch) const {
    return {.worker = micro_batch.worker, .step = step_of(micro_batch), .index = micro_batch.index};
  }

  // Appends the sample numbers of a micro-batch, (B,). Packed micro-batches have different numbers of samples. Unless
  // micro-batches are formed by length, an index of M or more continues with the next samples of the worker's shard,
  // which starts again after its end.
  void append_samples(const MicroBatch& micro_batch, std::vector<std::uint32_t>& out) const;

  // B; for packed micro-batches the rounded mean over the first epoch.
  std::int64_t samples_per_micro_batch() const { return samples_per_micro_batch_; }

  // How often the workers together (or this worker, if it has separate samples) have processed their data before this
  // micro-batch.
  std::int64_t epoch(const MicroBatch& micro_batch) const;

 private:
  using Order = std::shared_ptr<const EpochBatches>;
  struct Drawn {
    Rank worker{};
    std::int64_t epoch = 0;  // or number of the pass over the worker's own samples
    Order order;
  };
  void check() const;
  // As append_samples(), but without repeats_longest.
  void append_own(const MicroBatch& micro_batch, std::vector<std::uint32_t>& out) const;
  std::int64_t micro_batches_of_pass(Rank worker) const {
    return std::ssize(options_.shards[static_cast<std::size_t>(worker.value)]) / options_.micro_batch_size;
  }
  // Returns the order of `size` samples. It is cached, because the next micro-batches need the same order.
  Order order(Rank worker, std::int64_t epoch, std::size_t size) const;
  EpochBatches draw_order(Rank worker, std::int64_t epoch, std::size_t size) const;

  SamplerOptions options_;
  std::int64_t steps_per_epoch_ = 0;
  std::int64_t samples_per_micro_batch_ = 1;
  std::size_t remembered_;
  mutable std::mutex mutex_;
  mutable std::vector<Drawn> recent_;  // most recently used first
};

}  // namespace syncopate
