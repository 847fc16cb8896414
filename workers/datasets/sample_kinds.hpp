// What the samples of micro-batches are: their classes, and how long they are (ComputedTokens), in eight bins of about
// as many training samples each. For what dropping does to the data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "workers/datasets/dataset.hpp"
#include "workers/datasets/sampled_lengths.hpp"
#include "workers/datasets/sampler.hpp"

namespace syncopate {

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
