#include "workers/datasets/token_sequences.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

namespace syncopate {
namespace {

class TokenDataset : public Dataset {
 public:
  TokenDataset(const DatasetSize& size, TokenSequences train, TokenSequences test)
      : size_(size), splits_{std::move(train), std::move(test)} {
    assert(size.train == of(Split::train).count() && size.test == of(Split::test).count());
  }

  const DatasetSize& size() const override { return size_; }

  void gather(Split split, std::span<const std::uint32_t> samples, float*, std::int64_t* labels) const override {
    for (const std::uint32_t sample : samples) *labels++ = of(split).label(sample);
  }

  std::span<const std::int32_t> tokens(Split split, std::uint32_t sample) const override {
    return of(split).tokens(sample);
  }

  std::span<const std::int32_t> token_labels(Split split, std::uint32_t sample) const override {
    return of(split).token_labels(sample);
  }

 private:
  const TokenSequences& of(Split split) const { return splits_[split == Split::train ? 0 : 1]; }

  DatasetSize size_;
  std::array<TokenSequences, 2> splits_;
};

}  // namespace

void TokenSequences::add(std::span<const std::int32_t> tokens, std::int64_t label) {
  assert(!tokens.empty());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(tokens_.size());
  labels_.push_back(label);
  largest_ = std::max(largest_, std::ranges::max(tokens));
  longest_ = std::max<std::int64_t>(longest_, std::ssize(tokens));
  shortest_ = count() == 1 ? std::ssize(tokens) : std::min<std::int64_t>(shortest_, std::ssize(tokens));
}

void TokenSequences::add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> token_labels) {
  assert(tokens.size() == token_labels.size() && tokens_.size() == token_labels_.size());
  token_labels_.insert(token_labels_.end(), token_labels.begin(), token_labels.end());
  add(tokens, 0);
}

std::span<const std::int32_t> TokenSequences::of(const std::vector<std::int32_t>& all, std::uint32_t sequence) const {
  const std::size_t begin = sequence == 0 ? 0 : ends_[sequence - 1];
  return std::span(all).subspan(begin, ends_[sequence] - begin);
}

std::shared_ptr<const Dataset> make_token_dataset(const DatasetSize& size, TokenSequences train, TokenSequences test) {
  return std::make_shared<TokenDataset>(size, std::move(train), std::move(test));
}

}  // namespace syncopate
