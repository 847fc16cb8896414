// Streaming DiLoCo: a model's fragments are synchronised one after the other, each once in a round of H local steps.
// While a fragment's average is under way, the workers take tau more steps. Then an outer optimizer steps along the
// average, and the workers adopt the new fragment, or mix it with their own.
// Source:  Douillard et al. 2025, "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch";
//          the rules follow others' code of it (pytorch/torchft).
// Shapes:  gradient, parameters, outer momentum: (d,) flat float32; fragment p: (d / P,) of them.
// Units:   delay in local steps, mixing without one.
// Cost:    an all-reduce of d / P floats per fragment and round, or the bytes of its compressed exchange. These are in
//          all the bytes of DiLoCo, 1 / P of them at a time. Each worker stores two more vectors of d floats. With
//          steps of c s each and all-reduces of n floats that take A(n), a round takes H c + P max(0, A(d / P) - tau c)
//          if tau <= H / P, and max(H c, P A(d / P)) with a longer delay. A worker that is late by less than tau
//          c - A(d / P) delays nobody; a worker that is always slower determines the time of a round.
// Differs: fragments are equal slices (rounds.hpp); the paper's are layers. A fragment's average starts when it is due,
//          p H / P steps into the round (p = 1 to P), and ends tau steps later; in the code all this is tau steps
//          earlier. The code requires that P divides H and that tau < H / P, so that only one average is under way at a
//          time; here due steps are rounded up, and tau <= H. Workers average their models; the outer gradient is the
//          outer model minus this mean. If tau = H, a fragment's next average starts before the outer step along its
//          last one. The outer gradient is then taken from the outer model after that step.
//          A worker's fragment becomes (1 - mixing) x new + mixing x own. The tau steps taken meanwhile are not added
//          back. Each fragment has its own outer momentum. With `compression` workers send a fragment's difference to
//          the outer model; with error feedback each worker has a residual per fragment. The paper sends outer
//          gradients of 4 bits without a residual; `fp4` is modelled on this. It is not established whether the paper
//          uses the same format, and which outer learning rate it uses.
//          The outer model is evaluated: each fragment after its last outer step. After the last local step workers
//          wait for pending averages; steps since a fragment's last average are in no outer model, unless there is only
//          one fragment. Moments stay with their workers. A worker that loses its state goes back to its copy from the
//          last time that it started or finished an average; started averages continue. If a worker leaves, the run
//          ends with an explanation.
// Checks:  with P = 1, tau = 0 and mixing = 0 it is DiLoCo bit for bit; with tau = 0 and a plain outer step of rate 1
//          each fragment has its own Local SGD; with mixing = 1 workers train alone; a recursion in double precision.
#pragma once

#include "algorithms/local_sgd/local_rounds.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_streaming_diloco(Settings& settings, const AlgorithmContext& context) {
  const std::size_t faults = settings.faults_so_far();
  RoundChoices choices{.period = read_sync_period(settings, context)};
  const bool has_period = settings.faults_so_far() == faults;
  choices.outer = make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the averages."}));
  choices.fragments = read_fragments_of_round(settings, context, has_period ? choices.period.get() : nullptr);
  choices.policies = read_buffer_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
