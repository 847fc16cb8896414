// Which workers are sampled, and which others each represents. A cluster of many workers has few laws as a rule: some
// are slower for good, some are concerned by a delay. However few they are, a sample must have one of them.
// Units:   seconds.
#pragma once

#include <vector>

#include "workers/delays/compute_time.hpp"

namespace syncopate {

// Workers of one law, as far as their delays declare it.
struct WorkerGroup {
  int workers = 1;
  StepLaw declared{};         // of a step of any of them
  std::vector<Rank> drawn{};  // at least one
};

// A group for each worker, by rank, where they are at most `most`. Otherwise those with equal declared laws are a
// group, and share `most` draws by their number. Of more laws than `most` the slowest ones are kept apart, and the
// others make groups of neighbours.
std::vector<WorkerGroup> group_workers(const ComputeTime& compute_time, int workers, int micro_batches, int most);

// Mean and variance over the workers of all parts: within them, and between.
struct LawOfPart {
  StepLaw law{};
  int workers = 1;
};
StepLaw together(const std::vector<LawOfPart>& parts);

}  // namespace syncopate
