// Streaming DiLoCo: a model's fragments are synchronised one after the other, each once in a round of H local steps,
// and each average is under way while the workers take tau steps more. An outer optimizer steps along it, and the
// workers take the new fragment on, or mix it with their own.
// Source:  Douillard et al. 2025, "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch";
//          the rules after others' code of it (pytorch/torchft).
// Shapes:  gradient, parameters, outer momentum: (d,) flat float32; fragment p: (d / P,) of them.
//          Units: delay in local steps, mixing without one.
// Cost:    an all-reduce of d / P floats per fragment and round, or what a compression of it exchanges: as much as
//          DiLoCo in all, 1 / P of it at a time. Two
//          more vectors of d floats per worker. H steps take H c + P max(0, A(d / P) - tau c) where steps take c each,
//          A is what an all-reduce takes, and tau <= H / P; with a longer delay max(H c, P A(d / P)). Who is late by
//          less than tau c - A delays nobody; who is slower for good sets the pace, as with all overlapped averages.
// Differs: fragments are equal slices (fragments.hpp); the paper's are layers. A fragment's average starts at its turn,
//          p H / P steps into the round (p = 1 to P), and comes back tau steps later; the code starts it tau steps
//          before its turn, which shifts all by tau steps. The code wants H to be a multiple of P, and tau < H / P, so
//          that one average is under way at a time; here turns are rounded up, and tau <= H. Averaged are the workers'
//          models, whose mean lies as far from the outer model as the mean of their differences. Where tau = H a
//          fragment's next average starts before the outer step of the last one, so that its outer gradient is then
//          the distance to the stepped model, not to the one at its start. What an outer step
//          finds in a worker's fragment is mixed as (1 - mixing) new + mixing own: 0 takes the new one, 1 keeps the own
//          one. The tau steps made meanwhile are not added back. Each fragment has its own outer momentum. What
//          travels has single precision unless `compression` says otherwise: then it is the fragment's outer gradient,
//          its difference to the outer model, with a residual for each worker and fragment where there is error
//          feedback. The paper's have 4 bits without a residual; `fp4` is after it, in a format that is not established
//          as the paper's, nor is its outer learning rate.
//          The outer model is evaluated: it has each fragment as it is after its last outer step. After the last step
//          those averages that are under way are waited for; what workers have done since a fragment's last turn is in
//          no outer model, unless there is one fragment alone. Moments stay with their workers.
//          A worker that loses its state goes back to its copy of the last time that it started or finished an average;
//          what has been started goes on. If one leaves, the run ends and says why.
// Checks:  P = 1, tau = 0, mixing = 0 is DiLoCo bit for bit; P fragments, tau = 0, a plain outer step of rate 1: each
//          fragment's own Local SGD; mixing = 1: workers that train alone; a recursion in double precision.
#pragma once

#include <memory>

#include "algorithms/local_sgd/fragments.hpp"
#include "algorithms/local_sgd/local_sgd.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"

namespace syncopate {

struct StreamingOptions {
  Fragments fragments{1};
  Step delay{};       // tau
  double mixing = 0;  // alpha
};

class StreamingDiloco : public Algorithm {
 public:
  StreamingDiloco(std::shared_ptr<const SyncPeriod> period, std::shared_ptr<const OuterOptimizer> outer,
                  StreamingOptions options, const StatePolicies& policies)
      : period_(std::move(period)), outer_(std::move(outer)), options_(std::move(options)), policies_(policies) {}

  void run(Worker& worker) const override;
  Traits traits() const override;
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  std::shared_ptr<const SyncPeriod> period_;
  std::shared_ptr<const OuterOptimizer> outer_;
  StreamingOptions options_;
  StatePolicies policies_;
};

std::unique_ptr<Algorithm> make_streaming_diloco(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
