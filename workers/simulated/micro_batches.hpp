// Micro-batches of the simulated cluster: what a worker's own time is spent on, until a deadline, a message or an
// outage ends it. Nothing is computed here; a gradient is a promise.
#pragma once

#include <optional>

#include "workers/cluster/deadline.hpp"
#include "workers/delays/outages.hpp"
#include "workers/simulated/durations_ahead.hpp"
#include "workers/simulated/pauses_under_way.hpp"
#include "workers/simulated/stage.hpp"

namespace syncopate {

class MicroBatches {
 public:
  MicroBatches(Stage& stage, DurationsAhead& durations, PausesUnderWay& pauses);

  // See Cluster.
  std::optional<Gradient> compute(Rank self, const ModelStatePtr& at, const MicroBatch& slot, const MicroBatch& samples,
                                  const Deadline& deadline);
  Gradient compute_all(Rank self, const ModelStatePtr& at, const MicroBatch& first, int count);
  bool may_lose_state(Rank worker) const;
  bool has_lost_state(Rank worker);

  // How long outages hold the worker down beyond this time, of what is in its account.
  Duration down_beyond(Rank worker, Time time) const;

 private:
  [[gnu::noinline]] Gradient compute_each(Rank rank, const ModelStatePtr& at, const MicroBatch& first, int count);
  std::optional<Gradient> compute_until_message(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                                const MicroBatch& samples, const Deadline& deadline);
  std::optional<Passage> meet_outages(Rank rank, const MicroBatch& slot, const MicroBatch& samples,
                                      const Deadline& deadline);
  std::optional<Gradient> pass_through(Rank rank, const ModelStatePtr& at, const MicroBatch& slot,
                                       const MicroBatch& samples, const Passage& passage);
  // How long the slot takes with these samples.
  Duration duration_of(const MicroBatch& slot, const MicroBatch& samples) {
    if (!follows_samples_ || slot == samples) return durations_.of(slot);
    return stage_.options.compute_time.duration(slot, samples);
  }
  // What is left of a micro-batch that is not kept, with this share of its backward pass done.
  std::optional<Gradient> cut(const ModelStatePtr& at, const MicroBatch& samples, double backward_share) const {
    if (backward_share <= 0) return std::nullopt;
    return stage_.options.training.cut_gradient(at, samples, backward_share);
  }
  Passage wait_for_message(Rank rank, const Passage& planned);
  void wait_until(Rank rank, Time until, bool interruptible);

  Stage& stage_;
  DurationsAhead& durations_;
  PausesUnderWay& pauses_;
  ByRank<OutageProgress> outages_;  // by worker; empty: there are none
  bool each_is_seen_;               // by the record, an outage or a pause
  bool follows_samples_;            // durations do
};

}  // namespace syncopate
