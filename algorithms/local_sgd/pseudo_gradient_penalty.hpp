// What EDiT makes of the workers' pseudo-gradients before they are summed: outliers among their norms are left out, the
// others weigh the less the longer they are, and what comes of them is clipped. Numbers alone: no model, no cluster.
// Source:  Cheng et al. 2025, "EDiT"; the rules after its authors' code, as its data-parallel path has them.
// Shapes:  norms (workers, modules) in double precision; a module is a tensor or the whole model.
// Cost:    W numbers kept per worker and module; nothing is sent.
// Differs: an outlier's norm is not taken into the statistics; in the code's sharded path it is, with 1e6 added, after
//          which it sees nothing for a thousand rounds: a fault, which is not offered. Mean and variance begin at 0, as
//          there. What is no number is an outlier's norm from the first round on; there it never is, and spoils the
//          statistics. Where nobody can be an outlier, it makes weights equal and is not clipped, so that it shows.
//          The share of the steps (`step_share`) is that of the round, there that since the run began. What an
//          outlier's steps would weigh is lost, as there.
// Checks:  mean, variance and first outlier of constant norms in closed form; a second implementation that keeps all
//          norms; weights against the softmax, of equal norms exactly equal.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "workers/settings/settings.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct PenaltyOptions {
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  double outlier_factor = 3;        // deviations above the mean; inf: nobody is an outlier
  int outlier_warmup = 120;         // W: norms that come first, and z-scores that the threshold goes by
  double outlier_smoothing = 0.02;  // a
  double temperature = 1;           // T, in units of a norm; inf: all weigh alike
  double step_share = 0;            // r: how much of a weight goes by steps instead
  double clip_norm = infinity;      // phi

  bool finds_outliers() const { return outlier_factor < infinity; }
};

// What the norms of one worker's pseudo-gradients of one module have been so far.
class NormStatistics {
 public:
  // Whether it is too far above the mean: z > factor x max(1, deviation of the last W z-scores). Of none, before W.
  bool is_outlier(double norm, const PenaltyOptions& options) const;
  // mean += a (norm - mean);  variance = (1 - a) (variance + a (norm - old mean) (norm - new mean)).
  void take_in(double norm, const PenaltyOptions& options);

  double mean() const { return mean_; }
  double variance() const { return variance_; }

 private:
  double z_score(double norm, int warmup) const;
  double recent_deviation() const;

  std::int64_t taken_ = 0;
  double mean_ = 0;
  double variance_ = 0;
  std::vector<double> z_scores_;  // of the last W, each when it was taken in; a ring once there are W
};

// What has been found of one round. [worker x modules + module] by rank.
struct Penalty {
  int modules = 0;
  std::vector<NormStatistics> statistics{};  // afterwards
  std::vector<double> factors{};             // N times the weight: 1 is what a worker has in a plain mean
  std::vector<bool> rolled_back{};           // of each module: all workers are outliers

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

// The least W after which a constant norm is no outlier, whatever the last z-scores: that of the W-th one is
// sqrt(q^(W - 1) / (1 - q^W)) with q = 1 - a, since mean and variance begin at 0, and falls from there on. After much
// fewer all workers are outliers for ever.
int shortest_warmup(const PenaltyOptions& options);

// Reads outlier_factor, outlier_warmup, outlier_smoothing, temperature, step_share and clip_norm.
PenaltyOptions read_penalty(Settings& settings);

}  // namespace syncopate
