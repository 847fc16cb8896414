// What the simulated cluster tells the record of a run about micro-batches.
#include "workers/simulated/simulated_cluster.hpp"

namespace syncopate {

void SimulatedCluster::record_micro_batch(Rank rank, const MicroBatch& slot, Activity activity, Time end) {
  RunRecord& record = *options_.record;
  if (record.durations && activity == Activity::compute) {
    const Duration added = options_.compute_time.added(rank, slot.step, static_cast<std::uint32_t>(slot.index));
    record.durations->push_back({rank, slot.step, slot.index, end - now(rank), added});
  }
  if (record.spans) record.spans->add(rank, activity, end, micro_batch_name, slot.step, slot.index);
}

void SimulatedCluster::record_passage(Rank rank, const MicroBatch& slot, const Passage& passage) {
  RunRecord& record = *options_.record;
  if (record.durations && passage.kept) {
    const Duration added = options_.compute_time.added(rank, slot.step, static_cast<std::uint32_t>(slot.index));
    record.durations->push_back({rank, slot.step, slot.index, passage.worked, added});
  }
  if (!record.spans) return;
  const Activity work = passage.kept ? Activity::compute : Activity::discarded;
  for (const auto& [end, down] : passage.pieces)
    down ? record.spans->add(rank, Activity::down, end, outage_name)
         : record.spans->add(rank, work, end, micro_batch_name, slot.step, slot.index);
}

}  // namespace syncopate
