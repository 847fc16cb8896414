// Mixup: each sample of a micro-batch is mixed with another of it, and so are their losses.
// Source: Zhang et al. 2018, "mixup: beyond empirical risk minimization".
//   x := (1 - l) x + l x_p,  loss (1 - l) L(y) + l L(y_p),  l ~ Beta(alpha, alpha) once per micro-batch, p a
//   permutation.
//
// Both are a function of (seed, worker, step, micro-batch), since it is the micro-batch that is mixed: with other
// numbers of workers or other sizes samples meet other partners; methods of equal ones meet the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "workers/training/objective.hpp"

namespace syncopate {

struct Mixture {
  float share = 0;                      // l, of the partner
  std::vector<std::uint32_t> partners;  // (B,), places in the micro-batch
};

// `alpha`: > 0.
Mixture drawn_mixture(std::uint64_t seed, const MicroBatch& micro_batch, std::size_t samples, double alpha);

// Of inputs (B, features), row by row.
void mix(const Mixture& mixture, std::span<float> inputs);

}  // namespace syncopate
