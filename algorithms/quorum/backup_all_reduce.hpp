// Backup workers without a server: an all-reduce takes place once N of N + b workers have arrived, over their gradients
// only (a participant mask). Late workers get the results they have missed and step along them in order.
// Source:  Chen et al. 2016 names the rule (Algorithms 3 and 4), for parameter servers; this form is ours.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per step, in which late workers must take part while they compute.
// Differs: all parameters are averaged over the same workers, and every worker holds the optimizer's state. A late
//          worker skips the samples of the steps that it has missed (backup_workers.hpp). The mean is clipped, not each
//          gradient.
// Checks:  b = 0 equals synchronous SGD bit for bit; without network costs its steps use the gradients of the same
//          workers as those of backup_workers.hpp.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class BackupAllReduce : public Algorithm {
 public:
  // quorum: N, the number of workers that an all-reduce waits for; all remaining workers if fewer are left.
  explicit BackupAllReduce(int quorum) : quorum_(quorum) {}

  void run(Worker& worker) const override {
    while (worker.budget_left()) {
      Gradient gradient = worker.compute_step_gradient();
      for (const PartialSum& round :
           worker.partial_all_reduce_sum(std::move(gradient), {.quorum = quorum_}, LateGradient::drop))
        worker.descend(round.sum / (round.contributors * worker.micro_batches()));
      worker.publish();
    }
  }

  Traits traits() const override {
    return {.steps_along_fresh_mean = true,
            .can_overlap_backward = true,
            .held = {.models = 0, .moments = 0},
            .exchanged_whole = "a sum is over the first workers only, and compressed sums need all workers"};
  }

 private:
  int quorum_;
};

inline std::unique_ptr<Algorithm> make_backup_all_reduce(Settings& settings, const AlgorithmContext& context) {
  const auto backups =
      settings.integer({"backups", "How many workers a step does not wait for (b)."}, 0,
                       Stated(context.workers - 1, "workers - 1"));  // at least one gradient makes a step
  return std::make_unique<BackupAllReduce>(context.workers - static_cast<int>(backups));
}

}  // namespace syncopate
