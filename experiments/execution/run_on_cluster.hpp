// What a run trains with, its cluster and its context, as all who execute runs assemble them.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "results/run/run.hpp"
#include "workers/cluster/run_record.hpp"

namespace syncopate {

// What the participants of a run train with. Members are destroyed from the last to the first: the executor before what
// its tasks refer to.
struct RunTraining {
  // Without an objective time alone passes. `threads`: of the executor. `on_kept`: see Training. `processes`: those
  // that divide the simulation; null: one does all.
  RunTraining(const Run& run, std::shared_ptr<const Objective> objective, int threads,
              std::function<void(const MicroBatch&)> on_kept = {}, ProcessGroup* processes = nullptr);
  ~RunTraining() { training->leave_processes(); }
  RunTraining(const RunTraining&) = delete;
  RunTraining& operator=(const RunTraining&) = delete;

  std::shared_ptr<const Objective> objective;
  std::optional<Training> training;
  Executor executor;
};

// On virtual time. `observer` and `record` may be null; what is given outlives the cluster.
std::unique_ptr<Cluster> make_simulated_cluster(const Run& run, Training& training, RunObserver* observer,
                                                RunRecord* record);

// What the run's participants share. The arguments outlive it.
RunContext context_of(const Run& run, Cluster& cluster, Training& training, RunObserver* observer,
                      RunRecord* record = nullptr);

}  // namespace syncopate
