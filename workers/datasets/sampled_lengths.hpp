// The lengths of what a sampler gives, where the data set is one of sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "workers/datasets/batch_lengths.hpp"
#include "workers/datasets/sampler.hpp"

namespace syncopate {

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

}  // namespace syncopate
