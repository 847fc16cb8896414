// MindFlayer SGD: a server's step consists of trials, that is, of gradients that workers give up after a time limit.
// Each worker makes a fixed number of trials at the server's newest model, successful or not. The sum of the
// gradients of successful trials is divided by their expected number.
// Source:  Maranjyan, Shaikh Omar, Richtarik, "MindFlayer SGD", UAI 2025, arXiv 2410.04285; class FixedClipping
//          (fixed_clipping_master) of the authors' published code (vectozavr/ringmaster-lmo), which is taken for the
//          paper's method.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: limits in seconds on each worker's clock.
// Cost:    per step N models down and B_1 + ... + B_N messages up, with P floats if the trial succeeds, else with none.
// Differs: worker i makes B_i trials with the time limit t_i, each of which succeeds with probability p_i. The step
//          goes along (sum of the successful gradients) / (sum of p_i B_i). We have not read the paper's text; the
//          formula is FixedClipping's. It is not established how the paper chooses t_i, B_i and p_i: the file gives
//          all of them. If all p_i are wrong by a factor, so is the learning rate. A worker that has made its trials
//          waits for the next model. A step whose trials have all failed has a gradient of zero, so that steps stay
//          unbiased; momentum and weight decay still act. If a worker leaves within a step, the trials that it has made
//          count. A trial is a step of M micro-batches, with one limit; in the code it is one gradient.
//          `rule = "clipping-rennala"` is another class of the same code (below). Not implemented: the code's other
//          classes named after MindFlayer, in which the clock ends a step (mindflayer_master,
//          mindflayer_clientwise_master, clipping_mindflayer_master).
// Checks:  with infinite limits and one trial per worker it is synchronous SGD bit for bit; a hand-worked timeline with
//          different limits, trials and probabilities; a step without any success; the mean over many runs is the same
//          with limited and unlimited trials; a limit that no trial ever meets ends the run with a message.
#pragma once

#include <map>

#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

struct MindflayerOptions {
  struct Trials {
    int count = 1;                      // B_i
    Duration limit = longest_duration;  // t_i, for each trial
    double arrival_probability = 1;     // p_i, probability that a trial succeeds
  };
  Trials usual{};
  std::map<int, Trials> of_workers{};  // by rank: workers with other values

  const Trials& of(Rank worker) const {
    const auto own = of_workers.find(worker.value);
    return own == of_workers.end() ? usual : own->second;
  }
  std::int64_t trials_of_all(int workers) const;
};

class Mindflayer : public Algorithm {
 public:
  explicit Mindflayer(MindflayerOptions options) : options_(std::move(options)) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1, .steps_along_fresh_mean = true, .sends_gradients = true, .held = {.models = 0, .moments = 0}};
  }

 private:
  MindflayerOptions options_;
};

std::unique_ptr<Algorithm> make_mindflayer(Settings& settings, const AlgorithmContext& context);

// Clipping Rennala, `rule = "clipping-rennala"` of the method `mindflayer`: K-batch-sync in which each gradient has a
// time limit. A worker abandons a gradient that is not finished by then and begins the next one. A step ends after S
// trials of all workers together, successful or not.
// Source:  class ClippingRennala (clipping_rennala_master) of the published code of MindFlayer's authors
//          (vectozavr/ringmaster-lmo). It is not the paper's method.
// Cost:    per step N models down and S or more messages up, with P floats if the trial succeeds, else with none.
// Differs: the step goes along `correction` x (sum of the gradients) / S. By default the factor is 1, as in the code;
//          the inverse of the success rate makes the step unbiased. A trial is a step of M micro-batches. All workers
//          have the same limit; in the code each has its own. A step whose trials have all failed continues until one
//          succeeds, and S then counts all of them. Work that is in progress at the end of a step is cancelled and not
//          counted. If a server's own link carries too few gradients, see k_batch_sync.hpp. Before results version 6
//          this was the only rule of `mindflayer`.
// Checks:  an infinite limit is K-batch-sync with K = S bit for bit; with exponential times X of mean mu and limit t,
//          many trials take S E[min(X, t)] / N, and a share 1 - exp(-t / mu) succeeds; a hand-worked timeline; a limit
//          that no trial ever meets ends the run with a message.
struct ClippingRennalaOptions {
  int trials = 1;                     // S, trials per step of all workers together
  Duration limit = longest_duration;  // for each trial
  double correction = 1;              // factor of the mean over trials
};

class ClippingRennala : public FreshGradients {
 public:
  explicit ClippingRennala(const ClippingRennalaOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;

 private:
  ClippingRennalaOptions options_;
};

}  // namespace syncopate
