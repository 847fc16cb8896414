// Synchronous SGD with backup workers: a server averages the first N of N + b gradients of a step.
// With late work cancelled it is K-sync SGD, K = N.
// Source:  Chen et al. 2016, "Revisiting Distributed Synchronous SGD", Algorithms 3 and 4; K-sync: Dutta et al. 2018,
//          "Slow and Stale Gradients Can Win the Race".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per step N + b models down and up to N + b gradients up, P floats each, shared by the servers.
// Differs: a late worker adopts the newest model and its step (the paper's pseudo-code is silent). Late work goes on
//          and is dropped on arrival, as in the paper; late = "cancel" stops it. Each of several servers takes its own
//          first N; all wait for all slices of a version, and worker 0 publishes what it has assembled. N falls to the
//          number of workers that are left. The paper's averaged parameters: table `average`. Data: the paper's workers
//          draw from the whole set, independently. Here each has a part of every epoch, without replacement, and goes
//          through it by the server's steps, so that what is drawn for a step is the same whoever is late: samples of
//          the versions that a late worker has missed are not seen in that epoch. Gradients are clipped by each worker,
//          before they are sent, as with TensorFlow's SyncReplicasOptimizer (the paper needed no clipping), and not
//          their mean, as synchronous SGD's.
// Checks:  b = 0 equals synchronous SGD bit for bit, if nothing is clipped; dropped exactly if the step differs;
//          divisor N x M; a late worker skips the samples of the versions that it missed.
#pragma once

#include <optional>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct BackupOptions {
  enum class Late {
    finish,  // a late worker finishes its gradient, which is dropped when it arrives (the paper)
    cancel,  // every new model goes to all, and ends what they are at: a step takes the N-th fastest worker's time
  };
  enum class Rate {
    as_given,      // the file's learning rate
    times_quorum,  // the file's, times the number of gradients in the mean (the paper: 0.045 N)
  };
  Late late = Late::finish;
  Rate rate = Rate::as_given;
  int servers = 1;  // more: without cancellation and a moving average
};

class BackupWorkers : public Algorithm {
 public:
  // quorum: N, how many gradients make a step; the other workers of the cluster are the backups.
  explicit BackupWorkers(int quorum, const BackupOptions& options = {}) : quorum_(quorum), options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = options_.servers,
            .steps_along_fresh_mean = true,
            .sends_gradients = true,
            .rejects_gradients = true};
  }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  bool cancels() const { return options_.late == BackupOptions::Late::cancel; }
  double rate_factor(int count) const { return options_.rate == BackupOptions::Rate::times_quorum ? count : 1; }

  int quorum_;
  BackupOptions options_;
};

std::unique_ptr<Algorithm> make_backup_workers(Settings& settings, const AlgorithmContext& context);
std::unique_ptr<Algorithm> make_k_sync(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
