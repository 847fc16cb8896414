// Dynamic backup workers, a rule after DBW: synchronous SGD with a server that waits for another number of gradients in
// each step, that by which it expects to gain most per time.
// Source:  after Xu, Neglia and Sebastianelli 2020, "Dynamic Backup Workers for Parallel Machine Learning". Its
//          abstract alone is established: the number of backup workers follows, at each iteration, from an estimated
//          gain per time. Everything else here is this project's own.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: times in seconds on the server's clock.
// Cost:    per step N models down and up to N gradients up, P floats each, as backup workers; the server takes the norm
//          of each gradient, so that the simulated cluster cannot compute ahead of it. It keeps a gradient of each
//          version of which a step took one alone and that a worker may still be at: N x P floats at most.
// Differs: the first step waits for all. From then on: squared norm and variance of the gradient come from the spread
//          of those that were taken, or, where it was one alone, of it and the next one of its version, which comes
//          late (a step of one has no spread, and k would stay at 1 for good); the arrival of the k-th from all that
//          come, late ones included; each is a moving mean over steps (`memory`). The gain is the bound of
//          expected_gain.hpp with a given product of rate and smoothness, where the paper is said to estimate it from
//          losses, and to fall back to more gradients when the loss rises. Late work goes on and is dropped on arrival;
//          no step is made of it, and its worker skips the samples of the versions that it has missed
//          (backup_workers.hpp, as is who clips). With a `compression` norm and noise are those of what the server
//          decodes, with the compression's own noise, not those of the gradients that were computed.
// Checks:  with a number that may not change it is backup workers, to rounding; the arithmetic in expected_gain.hpp;
//          the more noise the gradients have beside their size, the more are waited for, also after steps of one.
#pragma once

#include "algorithms/method/algorithm.hpp"
#include "algorithms/quorum/observed_gradients.hpp"

namespace syncopate {

class DynamicBackup : public Algorithm {
 public:
  explicit DynamicBackup(const DynamicBackupOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1,
            .follows_values = true,
            .steps_along_fresh_mean = true,
            .sends_gradients = true,
            .rejects_gradients = true};
  }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("how many gradients a step waits for follows from the gradients");
  }

 private:
  DynamicBackupOptions options_;
};

std::unique_ptr<Algorithm> make_dynamic_backup(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
