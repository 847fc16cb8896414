// Backup workers with a token queue: a server averages the first N gradients of a step, from any of W workers. A worker
// that has sent a gradient needs a token to continue. Each step makes max(N, W) tokens, which workers get in the order
// in which their gradients arrive.
// Source:  TensorFlow 1.x, sync_replicas_optimizer.py (SyncReplicasOptimizer), for Chen et al. 2016.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down; W gradients per step, of which W - N are dropped even if nobody is
//          slow, because left-over tokens send fast workers to compute for a step that is over.
// Differs: each worker clips its gradients, as in TensorFlow. There is one accumulator for all parameters (TensorFlow
//          has one per variable, and these may take gradients of different workers). The model comes with the token
//          (TensorFlow reads it separately). An update takes no time. A worker that ends takes a token with it, as in
//          TensorFlow. Once no token is left, TensorFlow hangs; here the run fails with an explanation.
// Checks:  N = W without initial tokens equals synchronous SGD bit for bit; W gradients are computed per step.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

class BackupTokens : public FreshGradients {
 public:
  // quorum: N, at least 1; may exceed the number of workers, which then give several gradients to a step.
  // initial_tokens: tokens in the queue at the start, for more gradients of step 0; at least max(0, N - W). Default: N.
  explicit BackupTokens(int quorum, std::optional<int> initial_tokens = {})
      : quorum_(quorum), initial_tokens_(initial_tokens.value_or(quorum)) {}

  void run(Worker& worker) const override {
    // The token says to which step a gradient belongs; the worker's own count of gradients determines its samples.
    while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient(Samples::in_turn));
    worker.receive();  // a worker whose data are used up takes the token of its last gradient out of the queue
  }

  // Throws RunFailure if all workers wait for tokens and none is left.
  void serve(Server& server) const override {
    std::deque<Step> tokens(static_cast<std::size_t>(initial_tokens_), Step{0});
    std::deque<Rank> waiting;  // workers waiting for a token, in order of arrival
    const auto hand_out_tokens = [&] {
      for (; !tokens.empty() && !waiting.empty(); tokens.pop_front(), waiting.pop_front())
        server.send_model(waiting.front(), tokens.front());
    };
    GradientRound round(server);
    server.send_model(Receivers::all);  // the first step needs no token
    while (server.budget_left()) {
      hand_out_tokens();
      while (round.gradients() < quorum_) {
        const int left = server.workers_left();
        if (static_cast<int>(waiting.size()) == left && left > 0)
          server.fail(fmt::format(
              "deadlock of the token queue in step {}: {} of {} gradients have arrived, and all {} workers wait "
              "for tokens; those that ended ({}) took their tokens with them",
              server.step().value(), round.gradients(), quorum_, left, server.size() - left));
        const auto message = server.receive();
        if (!message && server.workers_left() == 0) return;
        if (!message) continue;
        round.take(*message, {.maximum_staleness = 0});
        waiting.push_back(message->from);
        hand_out_tokens();
      }
      round.step();
      tokens.insert(tokens.end(), static_cast<std::size_t>(std::max(server.size(), quorum_)), server.step());
    }
  }

  Traits traits() const override {
    Traits traits = FreshGradients::traits();
    traits.takes_data_in_turn = true;
    return traits;
  }

 private:
  int quorum_;
  int initial_tokens_;
};

inline std::unique_ptr<Algorithm> make_backup_tokens(Settings& settings, const AlgorithmContext& context) {
  constexpr std::int64_t most = 1'000'000;
  const std::size_t faults = settings.faults_so_far();
  std::int64_t quorum = 1;
  if (const auto written = settings.optional_integer(
          {"quorum", "Gradients per step, instead of backups; may exceed the number of workers."}, 1, most)) {
    quorum = *written;
    context.work.check(settings, "quorum", quorum);
    if (settings.has("backups")) settings.fault("backups", "must not be given together with quorum");
  } else {
    quorum = context.workers - settings.integer({"backups", "How many gradients a step does not wait for (b)."}, 0,
                                                Stated(context.workers - 1, "workers - 1"));
  }
  // With fewer initial tokens, step 0 would never get its `quorum` gradients.
  const std::int64_t fewest = std::max<std::int64_t>(0, quorum - context.workers);
  const bool known = settings.faults_so_far() == faults;
  const auto tokens =
      settings.integer({"initial_tokens", "Tokens in the queue at the start."},
                       Stated(known ? fewest : 0, "quorum - workers"), most, Stated(quorum, "the quorum"));
  return std::make_unique<BackupTokens>(static_cast<int>(quorum), static_cast<int>(tokens));
}

}  // namespace syncopate
