// Training data that are divided among the workers once for a whole run, unequally: what federated learning compares
// methods on.
// Source: by Dirichlet shares of each class, Yurochkin et al. 2019; by label, McMahan et al. 2017; by size, Li et al.
//         2022 ("quantity skew").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace syncopate {

struct PartitionOptions {
  enum class Kind {
    dirichlet,  // of each class, workers have shares drawn from Dirichlet(alpha): the smaller, the more unequal
    label,      // sorted by label and cut into equal shards, of which each worker gets `shards`
    size,       // workers have shares of the whole set from Dirichlet(alpha), with all labels alike
  };
  Kind kind = Kind::dirichlet;
  double alpha = 0.5;  // > 0
  int shards = 2;      // >= 1
};

// The sample numbers of each worker, ascending; every sample is one worker's. `labels`: (n,), in [0, classes).
std::vector<std::vector<std::uint32_t>> divide(std::span<const std::int64_t> labels, std::int64_t classes, int workers,
                                               const PartitionOptions& options, std::uint64_t seed);

}  // namespace syncopate
