// Backup workers by a token queue: a server averages the first N gradients of a step, whoever they come from;
// a worker needs a token to go on, and tokens of a step are handed out first come, first served.
// Source:  TensorFlow 1.x, sync_replicas_optimizer.py (SyncReplicasOptimizer), for Chen et al. 2016.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per gradient P floats up and P down; W gradients per step, of which W - N are dropped even if nobody is
//          slow, because left-over tokens send fast workers to compute for a step that is over.
// Differs: gradients are clipped by each worker, as there. One accumulator for all parameters (there one per variable,
//          which may take different gradients); a token brings the model along (there a read of its own); an update
//          takes no time. Workers that end take a token with them, as there: if then no token is left, there training
//          hangs, here it ends with an explanation.
// Checks:  N = W without initial tokens equals synchronous SGD bit for bit; W gradients are computed per step.
#pragma once

#include <optional>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class BackupTokens : public Algorithm {
 public:
  // quorum: N, at least 1; may be more than there are workers, who then give several gradients to a step.
  // initial_tokens: for leaving step 0; at least max(0, N - W). None given: N.
  explicit BackupTokens(int quorum, std::optional<int> initial_tokens = {})
      : quorum_(quorum), initial_tokens_(initial_tokens.value_or(quorum)) {}

  void run(Worker& worker) const override;
  // Throws RunFailure when all workers wait for tokens and none is left.
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1,
            .steps_along_fresh_mean = true,
            .takes_data_in_turn = true,
            .sends_gradients = true,
            .rejects_gradients = true};
  }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("how many tokens are there depends on all steps before");
  }

 private:
  int quorum_;
  int initial_tokens_;
};

std::unique_ptr<Algorithm> make_backup_tokens(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
