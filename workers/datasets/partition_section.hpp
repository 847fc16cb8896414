// The table [training.partition], and what it makes of a data set.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "workers/datasets/dataset.hpp"
#include "workers/datasets/partition.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// None: workers take disjoint shards of each epoch.
std::optional<PartitionOptions> read_partition(Settings& training);

// Of all training samples, (n,).
std::vector<std::int64_t> labels_of(const Dataset& dataset);

// The training samples of each worker; reads all labels.
std::vector<std::vector<std::uint32_t>> divide(const Dataset& dataset, int workers, const PartitionOptions& options,
                                               std::uint64_t seed);

}  // namespace syncopate
