// Decoupled DiLoCo: workers (learners) take local steps and never wait. A server (syncer) has one fragment of the model
// due at a time: it takes the outer gradients of the first K workers, and of those who come within a grace window,
// merges them, steps with an outer optimizer, and sends the fragment to all, who put it in the place of their own.
// Source:  Douillard et al. 2026, "Decoupled DiLoCo" (arXiv 2604.21428), as others describe and implement it: neither
//          its text nor code of its authors was at hand.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32; fragments are equal slices of that. Steps are local
//          ones.
// Cost:    per round a fragment and 24 bytes up from each worker that answers, a fragment and 24 bytes down to all.
// Differs: a worker answers at the end of its step: where a round is open, and it has taken s >= `minimum_steps` since
//          it got the round's fragment, it sends that with its counts. In the paper workers report counts after each
//          step, and the server pulls fragments. Rounds come one after another; the paper has up to tau under way.
//          Steps since a worker's answer are overwritten in that fragment; they count as lost where they are in no
//          fragment any more. Tokens are counted as micro-batches (merge_rule.hpp). Not established are the paper's
//          outer rate and momentum, and its gamma: they must be given. Nor is it how its learners restart by their
//          counters, and what it makes of a fragment whose sender had missed one.
//          `anchor` is the server's last value (the paper's, the default) or the one that a worker began from (that of
//          an implementation by others). They differ where late answers count in their fragment's next round (`late`,
//          ours); by default these are dropped.
//          As two accounts have it, the paper's defaults are K = 1, P = H = 24 and tau = 2, for 8 learners. Here the
//          quorum is all workers, the model one fragment, and there is no launch floor and no grace window, so that
//          without a key the method is DiLoCo through a server; `overlap_steps` (tau) is 2. Embeddings have the plain
//          mean under the norm-preserving merge, as in the paper (merge_rule.hpp).
//          `local_steps` (H) spaces rounds by H / fragments times the slowest answer's step time, the launch floor of
//          that implementation; without it a round begins at the end of the one before. A worker whose step is longer
//          than a round has its only fragment overwritten each time, and then gives nothing.
//          Schedule: a local step's rate is that of the step which all had come to on average when the worker's newest
//          fragment was sent, and of its own steps since. Inner moments stay.
// Ends:    a quorum is never more than the workers left; one that is down is waited for where the quorum needs it, else
//          no longer than the grace window. When a budget of seconds is over, the others have left, and the open round
//          waits for the rest: a worker that is down then, or far slower, makes the run that much longer (a budget of
//          steps does not have this). A lost state takes the steps since the last answer with it: the worker
//          waits for the server's newest model, goes on from that, and asks which round is open. A worker whose data
//          are used up leaves; its steps since its last answer are lost.
// Checks:  with all, equal batches, mean: DiLoCo; n local steps take the sum of their times, whatever K, grace and
//          network; without grace the first K, with a long one all.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "algorithms/local_sgd/fragment_answers.hpp"
#include "algorithms/local_sgd/fragments.hpp"
#include "algorithms/local_sgd/grace_window.hpp"
#include "algorithms/local_sgd/merge_rule.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct DecoupledOptions {
  enum class Anchor {
    server,  // outer gradients are the server's last value less the worker's
    base,    // what the worker began from less what it has come to
  };

  std::optional<int> quorum{};        // K; none: all
  Fragments fragments{1};             // P
  std::optional<Step> local_steps{};  // H; none: rounds follow each other at once
  Step minimum_steps{1};
  std::optional<GraceOptions> grace{};
  MergeRule merge = MergeRule::rda;
  Anchor anchor = Anchor::server;
  LateAnswers late = LateAnswers::drop;
  std::shared_ptr<const OuterOptimizer> outer{};  // never null

  bool workers_subtract() const { return anchor == Anchor::base; }
  double steps_per_round() const { return static_cast<double>(local_steps->value()) / fragments.count(); }
};

class DecoupledDiLoCo : public Algorithm {
 public:
  explicit DecoupledDiLoCo(const DecoupledOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {
        .servers = 1,
        .publishes_rounds = true,
        .takes_data_in_turn = true,
        .averaged_slices = options_.fragments.count(),
        .sends_gradients = options_.workers_subtract(),
        .rejects_gradients = options_.late == LateAnswers::drop,
        .exchanged_whole = "workers send whole fragments; with anchor = \"base\" they send differences, which can be"};
  }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("which local steps are overwritten depends on when fragments come");
  }

 private:
  // The server's model after an outer step of one fragment.
  ModelStatePtr stepped(const Server& server, Slice fragment, const std::vector<FragmentAnswer>& answers,
                        ModelStatePtr& momentum) const;

  DecoupledOptions options_;
};

std::unique_ptr<Algorithm> make_decoupled_diloco(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
