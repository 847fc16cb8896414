#include "workers/models/sample_batch.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "workers/models/mixup.hpp"

namespace syncopate {
namespace {

at::Tensor vector_tensor(std::vector<std::int64_t>& of) {
  return at::from_blob(of.data(), {std::ssize(of)}, at::kLong);
}

}  // namespace

SampleBatch& SampleBatch::of_this_thread() {
  thread_local SampleBatch batch;
  return batch;
}

void SampleBatch::make_room(const Dataset& dataset) {
  const std::size_t floats = numbers_.size() * static_cast<std::size_t>(dataset.size().shape.features());
  if (inputs_.size() != floats) inputs_ = FlatVector(floats);
  labels_.resize(numbers_.size());
  targets_.resize(numbers_.size() * static_cast<std::size_t>(dataset.size().targets));
}

void SampleBatch::take(const Dataset& dataset, Split split, std::int64_t first, std::int64_t count) {
  numbers_.resize(static_cast<std::size_t>(count));
  std::iota(numbers_.begin(), numbers_.end(), static_cast<std::uint32_t>(first));
  make_room(dataset);
  dataset.gather(split, numbers_, inputs_.data(), labels_.data());
  if (!targets_.empty()) dataset.gather_targets(split, numbers_, targets_.data());
}

at::Tensor SampleBatch::inputs(const Dataset& dataset) {
  const SampleShape& shape = dataset.size().shape;
  return at::from_blob(inputs_.data(), {std::ssize(numbers_), shape.channels, shape.height, shape.width}, at::kFloat);
}

at::Tensor SampleBatch::labels() { return vector_tensor(labels_); }

at::Tensor SampleBatch::targets() {
  if (targets_.empty()) return {};
  const auto samples = std::ssize(numbers_);
  return at::from_blob(targets_.data(), {samples, std::ssize(targets_) / samples}, at::kFloat);
}

TrainingBatch SampleBatch::take_training(const Dataset& dataset, const Sampler& sampler,
                                         std::span<const MicroBatch> micro_batches, double mixup) {
  name_samples(sampler, micro_batches);
  const Visits visits{.seed = sampler.options().seed, .samples = numbers_, .epochs = epochs_};
  make_room(dataset);
  dataset.gather_training(visits, inputs_.data(), labels_.data());
  if (!targets_.empty()) dataset.gather_targets(Split::train, numbers_, targets_.data());
  if (mixup > 0) mix_samples(sampler, micro_batches, mixup);
  TrainingBatch batch{.visits = visits, .inputs = inputs(dataset), .labels = labels(), .targets = targets()};
  if (mixup > 0)
    batch.mixed = {.labels = vector_tensor(partner_labels_),
                   .shares = at::from_blob(partner_shares_.data(), {std::ssize(partner_shares_)}, at::kFloat)};
  return batch;
}

void SampleBatch::name_samples(const Sampler& sampler, std::span<const MicroBatch> micro_batches) {
  const auto size = static_cast<std::size_t>(sampler.options().micro_batch_size);
  numbers_.resize(micro_batches.size() * size);
  epochs_.resize(numbers_.size());
  for (std::size_t m = 0; m < micro_batches.size(); ++m) {
    sampler.sample_numbers(micro_batches[m], std::span(numbers_).subspan(m * size, size));
    std::fill_n(epochs_.begin() + static_cast<std::ptrdiff_t>(m * size), size, sampler.epoch(micro_batches[m]));
  }
}

void SampleBatch::mix_samples(const Sampler& sampler, std::span<const MicroBatch> micro_batches, double alpha) {
  const std::size_t size = numbers_.size() / micro_batches.size(), features = inputs_.size() / numbers_.size();
  partner_labels_.resize(labels_.size());
  partner_shares_.resize(labels_.size());
  for (std::size_t m = 0; m < micro_batches.size(); ++m) {
    const Mixture mixture = drawn_mixture(sampler.options().seed, sampler.in_data(micro_batches[m]), size, alpha);
    mix(mixture, inputs_.span().subspan(m * size * features, size * features));
    for (std::size_t i = 0; i < size; ++i) {
      partner_labels_[m * size + i] = labels_[m * size + mixture.partners[i]];
      partner_shares_[m * size + i] = mixture.share;
    }
  }
}

}  // namespace syncopate
