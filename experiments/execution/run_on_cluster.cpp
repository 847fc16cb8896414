#include "experiments/execution/run_on_cluster.hpp"

#include <utility>

#include "workers/simulated/fibers_then_lockstep.hpp"

namespace syncopate {

RunTraining::RunTraining(const Run& run, std::shared_ptr<const Objective> trained, int threads,
                         std::function<void(const MicroBatch&)> on_kept, ProcessGroup* processes)
    : objective(std::move(trained)), executor(threads) {
  const Training::Options options{.clip_norm = run.training.clip_norm,
                                  .train_samples = run.evaluation.train_samples,
                                  .seed = run.seed,
                                  .start = run.training.start,
                                  .on_kept = std::move(on_kept),
                                  .processes = processes,
                                  .workers = run.cluster.workers};
  training.emplace(objective, run.training.optimizer, options, executor);
  if (objective) return;
  training->set_parameter_bytes(run.training.parameter_bytes);
  training->set_tensors(run.training.tensors);
}

std::unique_ptr<Cluster> make_simulated_cluster(const Run& run, Training& training, RunObserver* observer,
                                                RunRecord* record) {
  return make_simulated_cluster({.workers = run.cluster.workers,
                                 .servers = run.algorithm->traits().servers,
                                 .micro_batches = run.cluster.micro_batches,
                                 .compute_time = *run.cluster.compute_time,
                                 .network = *run.cluster.network,
                                 .training = training,
                                 .observer = observer,
                                 .record = record,
                                 .outages = run.cluster.outages.get(),
                                 .pauses = run.cluster.pauses.get(),
                                 .only_servers_send_to_workers = run.algorithm->traits().has_servers_alone()},
                                run.same_course_from());
}

RunContext context_of(const Run& run, Cluster& cluster, Training& training, RunObserver* observer, RunRecord* record) {
  return {.cluster = cluster,
          .training = training,
          .learning_rate = *run.training.learning_rate,
          .budget = run.budget,
          .micro_batches = run.cluster.micro_batches,
          .samples_per_micro_batch = run.training.samples_per_micro_batch,
          .observer = observer,
          .record = record,
          .initial_model = training.initial_state(),
          .seed = run.seed,
          .data_of = run.cluster.data_of};
}

}  // namespace syncopate
