// What EDiT makes of the workers' pseudo-gradients before they are summed: outliers among their norms are left out, the
// others weigh the less the longer they are, and what comes of them is clipped. Numbers alone: no model, no cluster.
// Source:  Cheng et al. 2025, "EDiT"; the rules after its authors' code, as its data-parallel path has them.
// Shapes:  norms (workers, modules) in double precision; a module is a tensor or the whole model.
// Cost:    W numbers kept per worker and module; nothing is sent.
// Differs: an outlier's norm is not taken into the statistics; in the code's sharded path it is, with 1e6 added, after
//          which it sees nothing for a thousand rounds: a fault, which is not offered. Mean and variance begin at 0, as
//          there. What is no number is an outlier's norm from the first round on; there it never is, and spoils the
//          statistics. Where nobody can be an outlier, or no worker has a number, it makes weights equal and is not
//          clipped, so that the run is seen to have diverged.
//          The share of the steps (`step_share`) is that of the round, there that since the run began. What an
//          outlier's steps would weigh is lost, as there.
// Checks:  mean, variance and first outlier of constant norms in closed form; a second implementation that keeps all
//          norms; weights against the softmax, of equal norms exactly equal.
#pragma once

#include <span>
#include <vector>

#include "algorithms/local_sgd/norm_statistics.hpp"
#include "algorithms/local_sgd/penalty_options.hpp"
#include "workers/settings/settings.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// What has been found of one round. [worker x modules + module] by rank.
struct Penalty {
  int modules = 0;
  std::vector<NormStatistics> statistics{};  // afterwards
  std::vector<double> factors{};             // N times the weight: 1 is what a worker has in a plain mean
  std::vector<bool> rolled_back{};           // of each module: all workers are outliers, and not all without a number

  std::span<const double> factors_of(Rank worker) const {
    if (factors.empty()) return {};  // nobody was looked at
    return std::span(factors).subspan(static_cast<std::size_t>(worker.value * modules),
                                      static_cast<std::size_t>(modules));
  }
};

// `before`: the statistics of the round before; none at first. `steps`: of each worker in this round; only where
// weights go by them.
Penalty penalise(std::span<const NormStatistics> before, std::span<const double> norms, std::span<const double> steps,
                 int modules, const PenaltyOptions& options);

// What a sum of this norm is multiplied by: min(1, phi / (norm + 1e-6)).
double clip_factor(double norm, double clip_norm);

// Reads outlier_factor, outlier_warmup, outlier_smoothing, temperature, step_share and clip_norm.
PenaltyOptions read_penalty(Settings& settings);

}  // namespace syncopate
