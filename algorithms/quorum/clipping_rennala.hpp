// Clipping Rennala: K-batch-sync in which each gradient has a time limit. What is not done by then is given up, and the
// worker begins the next one. A step is made of a fixed number of trials of all workers together, whoever makes them
// and whether they have come to a gradient or not. It is `rule = "clipping-rennala"` of the method `mindflayer`.
// Source:  class ClippingRennala (clipping_rennala_master) of the published code of MindFlayer's authors
//          (vectozavr/ringmaster-lmo). It is not the paper's method (mindflayer.hpp).
// Shapes:  gradient, parameters: (P,) flat float32.   Units: limit in seconds on each worker's clock.
// Cost:    per step N models down, S or more messages up: gradients of P floats, failed trials of none.
// Differs: the step goes along correction x (sum of the gradients) / S. The factor is 1 unless it is given, as an
//          argument is in the code, which multiplies by it, too; one over the share that is done makes the step
//          unbiased. A step of M micro-batches has one limit. All workers have the same limit; the code has one for
//          each. A step whose trials have all failed goes on until one succeeds, and counts all. What is on its way
//          when a step is made is cancelled and counts for nothing; where a server's own link carries too few
//          gradients, see k_batch_sync.hpp. Before results version 6 this was all that the method `mindflayer` had.
// Checks:  an endless limit is K-batch-sync with K = S bit for bit; exponential times: many trials take S E[min(X, t)]
//          / N and keep 1 - exp(-t / mu); a hand-worked timeline; a limit that nobody ever meets ends the run with a
//          message.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct ClippingRennalaOptions {
  int trials = 1;                     // S, of all workers together
  Duration limit = longest_duration;  // of a gradient
  double correction = 1;              // of the sum over trials
};

class ClippingRennala : public Algorithm {
 public:
  explicit ClippingRennala(const ClippingRennalaOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1, .steps_along_fresh_mean = true, .sends_gradients = true, .rejects_gradients = true};
  }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  ClippingRennalaOptions options_;
};

std::unique_ptr<Algorithm> make_clipping_rennala(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
