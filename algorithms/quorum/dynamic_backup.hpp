// Dynamic backup workers, a rule after DBW: synchronous SGD with a server that waits in each step for the number of
// gradients by which it expects to gain most per time.
// Source:  after Xu, Neglia and Sebastianelli 2020, "Dynamic Backup Workers for Parallel Machine Learning". Only its
//          abstract is established: the number follows, at each iteration, from an estimated gain per time. The rest is
//          ours.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: times in seconds on the server's clock.
// Cost:    per step N models down and up to N gradients up, P floats each. The server takes the norm of each gradient,
//          so that the simulated cluster cannot compute ahead of it. It keeps a gradient of each version of which a
//          step took one alone and that a worker may still be at: N x P floats at most.
// Differs: the first step waits for all. Then squared norm and variance of the gradient come from the spread of those
//          taken in a step. A step of one has no spread, and k would stay at 1 for good; so it is compared with the
//          next gradient of its version, which comes late. Arrival times of the k-th gradient include late ones. Each
//          is a moving mean over steps (`memory`). The gain is the bound below with a given product of rate and
//          smoothness; the paper is said to estimate it from losses, and to fall back to more gradients when the loss
//          rises. Late work goes on and is dropped on arrival; skipped samples and clipping: backup_workers.hpp. With
//          `compression` norm and noise are those of decoded gradients, with the compression's own noise.
// Checks:  with a number that may not change it is backup workers, to rounding; the arithmetic of the gain; the more
//          noise gradients have beside their size, the more are waited for, also after steps of one.
#pragma once

#include <span>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// Moments of workers' gradients: the squared norm of their expectation, and the variance of one, summed over the
// parameters. Units: squared norms.
struct GradientMoments {
  double squared_norm = 0;
  double variance = 0;
};
// Unbiased moments by k gradients' mean squared norm and the squared norm of their mean. None for k = 1, which says
// nothing of the variance.
std::optional<GradientMoments> gradient_moments(double mean_squared_norm, double squared_norm_of_mean, int gradients);

// The k, from 1 on, of the largest gain per time; all where none gains. arrival_s[k - 1]: when the k-th gradient comes.
// rate_times_smoothness: eta L, in (0, 2). The gain is the bound of a smooth loss: along a mean of k gradients of
// variance V it falls by at least (eta - L eta^2 / 2) |grad F|^2 - (L eta^2 / 2) V / k.
int best_gradients(const GradientMoments& moments, double rate_times_smoothness, std::span<const double> arrival_s);

struct DynamicBackupOptions {
  int fewest = 1;                    // gradients that a step may wait for
  std::optional<int> most{};         // none: all workers'
  double rate_times_smoothness = 1;  // eta L, in (0, 2)
  double memory = 0.9;               // share that a moving mean keeps, in [0, 1)
};

// A server's observations of workers' gradients, as moving means over steps: their moments, and when the k-th gradient
// of a version arrives, also where its step was over by then. Decides how many gradients are worth waiting for.
class ObservedGradients {
 public:
  explicit ObservedGradients(const DynamicBackupOptions& options) : options_(options) {}

  void begin_version(Time now) { versions_.push_back({now}); }
  // The next gradient of a version, which may be an old one.
  void take_arrival(Step of_version, Time now);
  void take_moments(const std::optional<GradientMoments>& newest);

  // How many gradients a step waits for, of so many workers; before the first moments all that it may.
  int wanted(int workers) const;

 private:
  struct Version {
    Time begun;
    std::size_t arrived = 0;
  };
  double mixed(double mean, double newest) const { return options_.memory * mean + (1 - options_.memory) * newest; }

  DynamicBackupOptions options_;
  std::vector<Version> versions_;
  std::vector<double> arrival_s_;  // of a version's k-th gradient; as many as have ever come
  std::optional<GradientMoments> moments_;
};

class DynamicBackup : public Algorithm {
 public:
  explicit DynamicBackup(const DynamicBackupOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1,
            .follows_values = true,
            .steps_along_fresh_mean = true,
            .sends_gradients = true,
            .rejects_gradients = true,
            .held = {.moments = 0}};
  }

 private:
  DynamicBackupOptions options_;
};

std::unique_ptr<Algorithm> make_dynamic_backup(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
