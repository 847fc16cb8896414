// A data set of tokens, held in memory without padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "workers/datasets/dataset.hpp"

namespace syncopate {

// Sequences one after another, each with its label, or with one for each token.
class TokenSequences {
 public:
  void add(std::span<const std::int32_t> tokens, std::int64_t label);
  void add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> token_labels);

  std::int64_t count() const { return std::ssize(labels_); }
  std::int64_t longest() const { return longest_; }
  std::int64_t shortest() const { return shortest_; }  // 0: there are none
  std::int32_t largest() const { return largest_; }    // token
  std::span<const std::int32_t> tokens(std::uint32_t sequence) const { return of(tokens_, sequence); }
  std::int64_t label(std::uint32_t sequence) const { return labels_[sequence]; }
  // None where sequences have one for all.
  std::span<const std::int32_t> token_labels(std::uint32_t sequence) const {
    return token_labels_.empty() ? std::span<const std::int32_t>() : of(token_labels_, sequence);
  }

 private:
  std::span<const std::int32_t> of(const std::vector<std::int32_t>& all, std::uint32_t sequence) const;

  std::vector<std::int32_t> tokens_;
  std::vector<std::size_t> ends_;  // in tokens_
  std::vector<std::int64_t> labels_;
  std::vector<std::int32_t> token_labels_;  // beside tokens_, or none
  std::int64_t longest_ = 0;
  std::int64_t shortest_ = 0;
  std::int32_t largest_ = -1;
};

// `size` must be that of the two.
std::shared_ptr<const Dataset> make_token_dataset(const DatasetSize& size, TokenSequences train, TokenSequences test);

}  // namespace syncopate
