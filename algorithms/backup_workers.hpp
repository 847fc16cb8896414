// Synchronous SGD with backup workers: a server averages the first N of N + b gradients of a step.
// Source:  Chen et al. 2016, "Revisiting Distributed Synchronous SGD", Algorithms 3 and 4.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per step N + b models down and up to N + b gradients up, P floats each.
// Differs: one server holds all parameters, so all slices average the same N workers; a late worker
//          adopts the newest model and its step (the paper's pseudo-code is silent). Late gradients
//          are dropped on arrival and not cancelled, as in the paper.
// Checks:  b = 0 equals synchronous SGD bit for bit; dropped exactly if the step differs; divisor N x M.
#pragma once

#include "algorithms/algorithm.hpp"

namespace syncopate {

class BackupWorkers : public Algorithm {
 public:
  // quorum: N, how many gradients make a step; the other workers of the cluster are the backups.
  explicit BackupWorkers(int quorum) : quorum_(quorum) {}

  void run(Worker& worker) const override;
  bool has_server() const override { return true; }
  void serve(Server& server) const override;

 private:
  int quorum_;
};

std::unique_ptr<Algorithm> make_backup_workers(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
