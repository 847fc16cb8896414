#include "workers/datasets/sample_kinds.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "workers/datasets/partition_section.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

constexpr std::size_t most_bins = 8;

// Of lengths: where a bin is full, it ends with all samples of one length.
std::vector<std::int32_t> bin_ends(std::vector<std::int32_t> lengths) {
  std::ranges::sort(lengths);
  std::vector<std::int32_t> ends;
  for (std::size_t bin = 1; bin <= most_bins; ++bin) {
    const std::int32_t end = lengths[bin * lengths.size() / most_bins - 1];
    if (ends.empty() || end > ends.back()) ends.push_back(end);
  }
  return ends;
}

}  // namespace

SampleKinds::SampleKinds(const Dataset& dataset, std::shared_ptr<const Sampler> sampler, const ComputedTokens& computed)
    : sampler_(std::move(sampler)), classes_(labels_of(dataset)), class_count_(dataset.size().classes) {
  if (!dataset.size().shape.has_tokens() || static_cast<std::size_t>(dataset.size().train) < most_bins) return;
  const std::vector<std::int32_t> lengths = training_lengths(dataset, computed);
  longest_ = bin_ends(lengths);
  for (const std::int32_t length : lengths)
    bins_.push_back(static_cast<std::uint8_t>(std::ranges::lower_bound(longest_, length) - longest_.begin()));
  test_samples_.resize(longest_.size());
  for (std::uint32_t sample = 0; sample < dataset.size().test; ++sample) {
    const std::int32_t length = computed.of(dataset.tokens(Split::test, sample));
    const auto bin = std::ranges::lower_bound(longest_, length) - longest_.begin();
    test_samples_[static_cast<std::size_t>(std::min(bin, std::ssize(longest_) - 1))].push_back(sample);
  }
}

KindCounts SampleKinds::none() const {
  return {.by_class = std::vector<std::int64_t>(static_cast<std::size_t>(class_count_)),
          .by_length = std::vector<std::int64_t>(longest_.size())};
}

void SampleKinds::add(const MicroBatch& micro_batch, KindCounts& counts) const {
  thread_local std::vector<std::uint32_t> samples;
  samples.clear();
  sampler_->append_samples(micro_batch, samples);
  for (const std::uint32_t sample : samples) {
    if (class_count_ > 0) ++counts.by_class[static_cast<std::size_t>(classes_[sample])];
    if (!bins_.empty()) ++counts.by_length[bins_[sample]];
  }
}

KindCounts SampleKinds::of_steps(Step steps) const {
  const SamplerOptions& options = sampler_->options();
  return of_first(std::vector(static_cast<std::size_t>(options.workers), steps.value() * options.micro_batches));
}

KindCounts SampleKinds::of_first(std::span<const std::int64_t> micro_batches) const {
  const std::int64_t of_step = sampler_->options().micro_batches;
  KindCounts counts = none();
  for (std::size_t worker = 0; worker < micro_batches.size(); ++worker)
    for (std::int64_t i = 0; i < micro_batches[worker]; ++i) {
      if (i % of_step == 0) throw_if_interrupted();
      add({Rank{static_cast<int>(worker)}, i / of_step, static_cast<int>(i % of_step)}, counts);
    }
  return counts;
}

}  // namespace syncopate
