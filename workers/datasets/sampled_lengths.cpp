#include "workers/datasets/sampled_lengths.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "workers/datasets/dataset.hpp"

namespace syncopate {
namespace {

class SampledLengths final : public BatchLengths {
 public:
  SampledLengths(std::shared_ptr<const Sampler> sampler, std::shared_ptr<const std::vector<std::int32_t>> lengths)
      : sampler_(std::move(sampler)), lengths_(std::move(lengths)), shortest_(std::ranges::min(*lengths_)) {}

  void append(const MicroBatch& micro_batch, std::vector<std::int32_t>& lengths) const override {
    thread_local std::vector<std::uint32_t> samples;
    samples.clear();
    sampler_->append_samples(micro_batch, samples);
    for (const std::uint32_t sample : samples) lengths.push_back((*lengths_)[sample]);
  }
  int workers() const override { return sampler_->options().workers; }
  int micro_batches() const override { return sampler_->options().micro_batches; }
  std::int64_t steps_per_epoch() const override { return sampler_->steps_per_epoch(); }
  bool differs_by_worker() const override { return !sampler_->options().shards.empty(); }
  std::int64_t fewest_samples() const override {
    return sampler_->options().batching == Batching::packed ? 1 : sampler_->options().micro_batch_size;
  }
  std::int32_t shortest() const override { return shortest_; }

 private:
  std::shared_ptr<const Sampler> sampler_;
  std::shared_ptr<const std::vector<std::int32_t>> lengths_;
  std::int32_t shortest_;
};

}  // namespace

std::int32_t ComputedTokens::of(std::span<const std::int32_t> tokens) const {
  const std::int64_t shown = longest > 0 ? std::min<std::int64_t>(std::ssize(tokens), longest) : std::ssize(tokens);
  return static_cast<std::int32_t>(last_is_answer && shown > 1 ? shown - 1 : shown);
}

std::vector<std::int32_t> training_lengths(const Dataset& dataset, const ComputedTokens& computed) {
  if (!dataset.size().shape.has_tokens()) throw DataFault("the samples are no sequences, and have no lengths");
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(dataset.size().train));
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = computed.of(dataset.tokens(Split::train, static_cast<std::uint32_t>(i)));
  return lengths;
}

std::shared_ptr<const BatchLengths> sampled_lengths(std::shared_ptr<const Sampler> sampler,
                                                    std::shared_ptr<const std::vector<std::int32_t>> lengths) {
  return std::make_shared<SampledLengths>(std::move(sampler), std::move(lengths));
}

}  // namespace syncopate
