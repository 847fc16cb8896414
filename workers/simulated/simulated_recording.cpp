// What the simulated cluster tells the record of a run about micro-batches.
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

void SimulatedCluster::add_duration(Rank rank, const MicroBatch& slot, Duration duration) {
  const Duration added = options_.compute_time.added(rank, slot.step, static_cast<std::uint32_t>(slot.index));
  options_.record->durations->push_back({rank, slot.step, slot.index, duration, added});
}

}  // namespace syncopate
