// Dynamic backup workers, a rule modelled on DBW: synchronous SGD with a server that chooses in each step the number
// k of gradients to wait for, so that the expected gain per time is largest.
// Source:  after Xu, Neglia and Sebastianelli 2020, "Dynamic Backup Workers for Parallel Machine Learning" (DBW). Only
//          its abstract is known: each iteration's number follows from an estimated gain per time. The rest is ours.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: times in seconds on the server's clock.
// Cost:    per step N models down and up to N gradients up, P floats each. The server computes the norm of each
//          gradient, so the simulated cluster cannot run ahead of the arithmetic. If a step used a single gradient, the
//          server stores it while a worker may still compute another one of that version: N x P floats at most.
// Differs: the first step waits for all gradients. The spread of the gradients in a step then gives estimates of the
//          gradient's squared norm and variance. One gradient has no spread, so k would stay at 1 for ever once it is
//          1. Therefore the gradient of such a step is compared with the next one of its version, which arrives late.
//          The estimated arrival time of the k-th gradient includes late gradients. All estimates are moving means over
//          steps (`memory`). The gain is a bound (see best_gradients) with a given product of rate and smoothness. The
//          paper is said to estimate the gain from losses, and to wait for more gradients again when the loss rises.
//          Late work continues and is dropped on arrival; skipped samples and clipping are as in backup_workers.hpp.
//          With `compression`, norm and variance are those of the decoded gradients, with the compression's own noise.
// Checks:  with fewest = most it equals backup workers, to rounding; the arithmetic of the gain; it waits for more
//          gradients the noisier they are relative to their size, also after steps of one gradient.
#pragma once

#include <span>

#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

// Moments of workers' gradients: the squared norm of their expectation, and the variance of one gradient, summed over
// the parameters. Units: squared norms.
struct GradientMoments {
  double squared_norm = 0;
  double variance = 0;
};
// Estimates the moments, without bias except that neither can be below 0, from the mean squared norm of k gradients and
// the squared norm of their mean. None for k = 1, which has no information about the variance.
std::optional<GradientMoments> gradient_moments(double mean_squared_norm, double squared_norm_of_mean, int gradients);

// Returns the k >= 1 with the largest gain per time, or the number of all gradients if no k has a gain above 0.
// arrival_s[k - 1]: when the k-th gradient arrives. rate_times_smoothness: eta L, in (0, 2), the learning rate times
// the loss's smoothness. The gain is a lower bound for the decrease of the loss F in a step along the mean of k
// gradients of variance V: (eta - L eta^2 / 2) |grad F|^2 - (L eta^2 / 2) V / k.
int best_gradients(const GradientMoments& moments, double rate_times_smoothness, std::span<const double> arrival_s);

struct DynamicBackupOptions {
  int fewest = 1;                    // minimum number of gradients per step
  std::optional<int> most{};         // none: the number of workers
  double rate_times_smoothness = 1;  // eta L, in (0, 2)
  double memory = 0.9;               // weight of the old value in a moving mean, in [0, 1)
};

// A server's observations of workers' gradients, as moving means over steps: their moments, and the time from the
// start of a version to the arrival of its k-th gradient, even if the step has ended before.
class ObservedGradients {
 public:
  explicit ObservedGradients(const DynamicBackupOptions& options) : options_(options) {}

  void begin_version(Time now) { versions_.push_back({now}); }
  // Records the arrival of the next gradient of a version, which may be an old version.
  void take_arrival(Step of_version, Time now);
  void take_moments(const std::optional<GradientMoments>& newest);

  // The number of gradients that the next step waits for, with this many workers; the maximum if no moments are known.
  int wanted(int workers) const;

 private:
  struct Version {
    Time begun;
    std::size_t arrived = 0;
  };
  double mixed(double mean, double newest) const { return options_.memory * mean + (1 - options_.memory) * newest; }

  DynamicBackupOptions options_;
  std::vector<Version> versions_;
  std::vector<double> arrival_s_;  // [k - 1]: mean arrival time of a version's k-th gradient, for each k seen so far
  std::optional<GradientMoments> moments_;
};

class DynamicBackup : public FreshGradients {
 public:
  explicit DynamicBackup(const DynamicBackupOptions& options) : options_(options) {}

  void run(Worker& worker) const override { send_gradient_per_model(worker, LateWork::finish); }
  void serve(Server& server) const override;
  Traits traits() const override {
    Traits traits = FreshGradients::traits();
    traits.follows_values = true;
    traits.held.models = 1;
    return traits;
  }

 private:
  DynamicBackupOptions options_;
};

std::unique_ptr<Algorithm> make_dynamic_backup(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
