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

// Of a sequence that is cut to `longest` tokens; 0: none is cut.
std::int32_t cut_length(std::span<const std::int32_t> tokens, std::int64_t longest);

// Of all training samples, (n,), as they are computed: cut to `longest` tokens, where that is not 0. Throws DataFault
// where the samples are no sequences.
std::vector<std::int32_t> training_lengths(const Dataset& dataset, std::int64_t longest = 0);

// `lengths` of all training samples; not empty.
std::shared_ptr<const BatchLengths> sampled_lengths(std::shared_ptr<const Sampler> sampler,
                                                    std::shared_ptr<const std::vector<std::int32_t>> lengths);

}  // namespace syncopate
