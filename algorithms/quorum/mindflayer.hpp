// MindFlayer SGD: K-batch-sync in which each gradient has a time limit. What is not done by then is given up, and the
// worker begins the next one. A step is made of a fixed number of trials, whether they have come to a gradient or not.
// Source:  "MindFlayer SGD", UAI 2025, arXiv 2410.04285: the limit, and a fixed number of trials; the sum over all of
//          them, and that everything is cancelled at a step's end, by published code of authors of Ringmaster
//          (asynchronous LMO).
// Shapes:  gradient, parameters: (P,) flat float32.   Units: limit in seconds on each worker's clock.
// Cost:    per step N models down, S or more messages up: gradients of P floats, failed trials of none.
// Differs: the step goes along correction x (sum of the gradients) / S. The factor is 1 unless it is given, as an
//          argument is in the code; that the paper takes one over the probability of being done in time is not
//          confirmed. A step of M micro-batches has one limit. All workers have the same limit. A step whose trials
//          have all failed goes on until one succeeds, and counts all. What is on its way when a step is made counts
//          for nothing; where a server's own link carries too few gradients, see k_batch_sync.hpp.
// Checks:  an endless limit is K-batch-sync with K = S bit for bit; exponential times: many trials take S E[min(X, t)]
//          / N and keep 1 - exp(-t / mu); a hand-worked timeline; a limit that nobody ever meets ends the run with a
//          message.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct MindflayerOptions {
  int trials = 1;                     // S
  Duration limit = longest_duration;  // of a gradient
  double correction = 1;              // of the sum over trials
};

class Mindflayer : public Algorithm {
 public:
  explicit Mindflayer(const MindflayerOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1, .steps_along_fresh_mean = true, .sends_gradients = true, .rejects_gradients = true};
  }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  MindflayerOptions options_;
};

std::unique_ptr<Algorithm> make_mindflayer(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
