// STSyn: Local SGD whose round ends when the K-th worker has done U local steps. Nobody stops before: the fast take
// more than U, and what the slow have done by then counts. All who have done a step are averaged.
// Source:  Zhu, Zhang, Wang 2024, "STSyn: Speeding Up Local SGD With Straggler-Tolerant Synchronization": the abstract,
//          and the authors' published code with its page.
// Shapes:  gradient, parameters, difference: (P,) flat float32.
// Cost:    per round N models down, a difference of P floats up from each worker that has a step, and up to three notes
//          without values per worker: U steps are done, the round is over, there is nothing to bring.
// Differs: how workers learn of the end is not established; here they tell the server of their U-th step, and it tells
//          all of the end, which cancels the steps under way. What is done until that note has come counts too. The
//          mean is one of models, with `weights` also one by steps. The code for unlike data stops a worker after 1.5 U
//          steps of a round, and leaves out the one with most steps (of several the first), for no reason that is
//          given; its other scripts and its page have neither. Both are options, off by default. Moments stay with
//          their worker; the code makes a new optimizer in each round, without momentum. The last round is as short as
//          a budget of steps has steps left. Who can take no further step, since its data or the budget's time are used
//          up, counts as done, and stays until the round's end. For one that has left nobody waits: K is at most as
//          many as are there. A worker that is down at the round's end is heard once it is up. A lost state takes the
//          round's steps with it, and the worker begins the round anew from its model; where it had told of U steps
//          that counts.
// Checks:  K = N and equal constant times are Local SGD with H = U, to rounding; exponential times: E[X(K:N)] of sums
//          of U steps, by their Erlang law, and N E[X(K:N)] / mean steps in them, which we derived (the paper's closed
//          forms are not established); hand-worked timelines; a recursion in double precision.
#pragma once

#include <limits>

#include "algorithms/method/algorithm.hpp"
#include "algorithms/quorum/uneven_mean.hpp"

namespace syncopate {

struct StsynOptions {
  static constexpr Step no_cap{std::numeric_limits<Step::Rep>::max()};
  int quorum = 1;            // K
  Step local_steps{1};       // U
  Step most_steps = no_cap;  // of a worker in a round, at least U
  UnevenMean mean{};
};

class Stsyn : public Algorithm {
 public:
  explicit Stsyn(const StsynOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1,
            .publishes_rounds = true,
            .sends_gradients = true,
            .rejects_gradients = options_.mean.leaves_out_most};
  }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  StsynOptions options_;
};

std::unique_ptr<Algorithm> make_stsyn(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
