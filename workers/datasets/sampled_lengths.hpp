// The lengths of what a sampler gives, where the data set is one of sequences.
#pragma once

#include <memory>
#include <vector>

#include "workers/datasets/batch_lengths.hpp"
#include "workers/datasets/sampler.hpp"

namespace syncopate {

class Dataset;

// Of all training samples, (n,). Throws DataFault where the samples are no sequences.
std::vector<std::int32_t> training_lengths(const Dataset& dataset);

// `lengths` of all training samples; not empty.
std::shared_ptr<const BatchLengths> sampled_lengths(std::shared_ptr<const Sampler> sampler,
                                                    std::shared_ptr<const std::vector<std::int32_t>> lengths);

}  // namespace syncopate
