// Streaming DiLoCo: a model's fragments are synchronised one after the other, each once in a round of H local steps.
// While a fragment's average is under way, the workers take tau more steps. Then an outer optimizer steps along the
// average, and the workers adopt the new fragment, or mix it with their own.
// Source:  Douillard et al. 2025, "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch";
//          the rules follow others' code of it (pytorch/torchft).
// Shapes:  gradient, parameters, outer momentum: (d,) flat float32; fragment p: (d / P,) of them.
//          Units: delay in local steps, mixing without one.
// Cost:    an all-reduce of d / P floats per fragment and round, or the bytes of its compressed exchange: in all as
//          much as DiLoCo, 1 / P of it at a time. Two more vectors of d floats per worker. With steps of c s and an
//          all-reduce time of A(floats), H steps take H c + P max(0, A(d / P) - tau c) if tau <= H / P; with a longer
//          delay max(H c, P A(d / P)). A worker that is late by less than tau c - A delays nobody; a worker that is
//          always slower determines the time of a round.
// Differs: fragments are equal slices (rounds.hpp); the paper's are layers. A fragment's average starts when it is due,
//          p H / P steps into the round (p = 1 to P), and comes back tau steps later; the code starts it tau steps
//          before it is due, so everything happens tau steps earlier. It requires H to be a multiple of P, and tau < H
//          / P,
//          so that only one average is under way at a time; here due steps are rounded up, and tau <= H. The workers'
//          models are averaged; their mean is as far from the outer model as the mean of their differences. If tau = H,
//          a fragment's next average starts before the last one's outer step, so its outer gradient is the distance to
//          the stepped model, not to the one at its start.
//          A worker's fragment becomes (1 - mixing) new + mixing own: with 0 it is the new one, with 1 the own one. The
//          tau steps made meanwhile are not added back. Each fragment has its own outer momentum. With `compression`
//          workers send the fragment's outer gradient, its difference to the outer model; with error feedback each
//          worker has a residual per fragment. The paper sends outer gradients of 4 bits without a residual; `fp4` is
//          modelled on this. That the paper uses its format is not established, and neither is the paper's outer
//          learning rate.
//          The outer model is evaluated: each fragment as it is after its last outer step. After the last step workers
//          wait for pending averages; steps since a fragment's last average are in no outer model, unless there is only
//          one fragment. Moments stay with their workers. A worker that loses its state goes back to its copy from the
//          last time that it started or finished an average; started averages continue. If a worker leaves, the run
//          ends with an explanation.
// Checks:  P = 1, tau = 0, mixing = 0 is DiLoCo bit for bit; P fragments, tau = 0, a plain outer step of rate 1: each
//          fragment's own Local SGD; mixing = 1: workers that train alone; a recursion in double precision.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

class StreamingDiloco : public LocalRounds {
 public:
  StreamingDiloco(std::shared_ptr<const SyncPeriod> period, std::shared_ptr<const OuterOptimizer> outer,
                  FragmentsOfRound fragments, const StatePolicies& policies)
      : LocalRounds({.period = std::move(period),
                     .fragments = std::move(fragments),
                     .outer = std::move(outer),
                     .policies = policies}) {}
};

inline std::unique_ptr<Algorithm> make_streaming_diloco(Settings& settings, const AlgorithmContext& context) {
  const std::size_t faults = settings.faults_so_far();
  RoundChoices choices{.period = read_sync_period(settings, context)};
  const bool has_period = settings.faults_so_far() == faults;
  choices.outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  choices.fragments = read_fragments_of_round(settings, context, has_period ? choices.period.get() : nullptr);
  choices.policies = read_overlapped_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
