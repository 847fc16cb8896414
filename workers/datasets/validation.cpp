#include "workers/datasets/validation.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

#include "workers/datasets/pixel_scale.hpp"
#include "workers/random/permutation.hpp"

namespace syncopate {
namespace {

using Numbers = std::vector<std::uint32_t>;

class DividedDataset : public Dataset {
 public:
  DividedDataset(std::shared_ptr<const Dataset> inner, const ValidationOptions& options)
      : inner_(std::move(inner)), size_(with_validation(inner_->size(), options)) {
    const auto all = static_cast<std::size_t>(inner_->size().train);
    Numbers order = permutation({.seed = options.seed, .purpose = Purpose::validation}, all);
    const auto end = order.begin() + options.samples;
    validation_.assign(order.begin(), end);
    train_.assign(end, end + size_.train);
    std::ranges::sort(validation_);
    std::ranges::sort(train_);
  }

  const DatasetSize& size() const override { return size_; }
  StoredImage stored_image(std::uint32_t sample) const override { return inner_->stored_image(train_[sample]); }
  std::span<const PixelScale> pixel_scales() const override { return inner_->pixel_scales(); }

  std::span<const std::int32_t> tokens(Split split, std::uint32_t sample) const override {
    if (split == Split::test) return inner_->tokens(split, sample);
    return inner_->tokens(Split::train, (split == Split::train ? train_ : validation_)[sample]);
  }

  std::span<const std::int32_t> token_labels(Split split, std::uint32_t sample) const override {
    if (split == Split::test) return inner_->token_labels(split, sample);
    return inner_->token_labels(Split::train, (split == Split::train ? train_ : validation_)[sample]);
  }

  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    if (split == Split::test) return inner_->gather(split, samples, inputs, labels);
    inner_->gather(Split::train, in_whole_set(split, samples), inputs, labels);
  }

  void gather_targets(Split split, std::span<const std::uint32_t> samples, float* targets) const override {
    if (split == Split::test) return inner_->gather_targets(split, samples, targets);
    inner_->gather_targets(Split::train, in_whole_set(split, samples), targets);
  }

 private:
  // Until this thread's next call.
  std::span<const std::uint32_t> in_whole_set(Split split, std::span<const std::uint32_t> samples) const {
    const Numbers& own = split == Split::train ? train_ : validation_;
    thread_local Numbers numbers;
    numbers.resize(samples.size());
    std::ranges::transform(samples, numbers.begin(), [&](std::uint32_t sample) { return own[sample]; });
    return numbers;
  }

  std::shared_ptr<const Dataset> inner_;
  DatasetSize size_;
  Numbers train_, validation_;  // their numbers in the whole training set, ascending
};

}  // namespace

DatasetSize with_validation(DatasetSize size, const ValidationOptions& options) {
  assert(options.samples >= 0 && options.samples < size.train);
  assert(!options.subset || (*options.subset > 0 && *options.subset <= size.train - options.samples));
  size.train = options.subset.value_or(size.train - options.samples);
  size.validation = options.samples;
  return size;
}

std::shared_ptr<const Dataset> with_validation(std::shared_ptr<const Dataset> inner, const ValidationOptions& options) {
  return std::make_shared<DividedDataset>(std::move(inner), options);
}

}  // namespace syncopate
