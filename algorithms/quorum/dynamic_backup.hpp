// Dynamic backup workers, a rule after DBW: synchronous SGD with a server that waits for another number of gradients in
// each step, that by which it expects to gain most per time.
// Source:  after Xu, Neglia and Sebastianelli 2020, "Dynamic Backup Workers for Parallel Machine Learning". Its
//          abstract alone is established: the number of backup workers follows, at each iteration, from an estimated
//          gain per time. Everything else here is this project's own.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: times in seconds on the server's clock.
// Cost:    per step N models down and up to N gradients up, P floats each, as backup workers; the server takes the norm
//          of each gradient, so that the simulated cluster cannot compute ahead of it. It keeps a gradient of each
//          version of which a step took one alone and that a worker may still be at: N x P floats at most.
// Differs: the first step waits for all. From then on: squared norm and variance of the gradient come from the spread
//          of those that were taken, or, where it was one alone, of it and the next one of its version, which comes
//          late (a step of one has no spread, and k would stay at 1 for good); the arrival of the k-th from all that
//          come, late ones included; each is a moving mean over steps (`memory`). The gain is the bound of
//          the arithmetic below has a given product of rate and smoothness, where the paper is said to estimate it from
//          losses, and to fall back to more gradients when the loss rises. Late work goes on and is dropped on arrival;
//          no step is made of it, and its worker skips the samples of the versions that it has missed
//          (backup_workers.hpp, as is who clips). With a `compression` norm and noise are those of what the server
//          decodes, with the compression's own noise, not those of the gradients that were computed.
// Checks:  with a number that may not change it is backup workers, to rounding; the arithmetic of the gain;
//          the more noise the gradients have beside their size, the more are waited for, also after steps of one.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "workers/base/units.hpp"

namespace syncopate {

// What a step along the mean of k workers' gradients is expected to gain, and the number of gradients by which it gains
// most per time.
// Source:  after Xu, Neglia and Sebastianelli 2020, "Dynamic Backup Workers for Parallel Machine Learning", of which
//          the abstract alone is established. The bound is that of a smooth loss: along a mean of k gradients of
//          variance V, at rate eta, with a smoothness of L, the loss falls by at least (eta - L eta^2 / 2) |grad F|^2 -
//          (L eta^2 / 2) V / k.
// Shapes:  scalars; times (N,).   Units: times in seconds; squared norms as the gradients'.
// Checks:  unbiased on drawn gradients; no variance asks for one gradient, equal times for all; brute force otherwise.
// Of workers' gradients: the squared norm of their expectation, and the variance of one, summed over the parameters.
struct GradientMoments {
  double squared_norm = 0;
  double variance = 0;
};
// From k gradients: the mean of their squared norms, and the squared norm of their mean. Nothing for k = 1, which tells
// nothing of the variance.
std::optional<GradientMoments> gradient_moments(double mean_squared_norm, double squared_norm_of_mean, int gradients);

// The k from 1 on that gains most per time; arrival_s[k - 1]: when the k-th gradient comes. All of them where none
// gains. rate_times_smoothness: eta L, in (0, 2).
int best_gradients(const GradientMoments& moments, double rate_times_smoothness, std::span<const double> arrival_s);

// What a server has seen of workers' gradients: how large and how noisy they are, and when the k-th of a step comes;
// and how many are worth waiting for.
// Source:  after Xu, Neglia and Sebastianelli 2020.
// Shapes:  scalars; times (N,).   Units: times in seconds on the server's clock.
// Differs: moving means over steps. Of the k-th arrival of a version also where its step was over by then. A later one
//          is never taken to come sooner than an earlier one.
struct DynamicBackupOptions {
  int fewest = 1;                    // gradients that a step may wait for
  std::optional<int> most{};         // none: all workers'
  double rate_times_smoothness = 1;  // eta L, in (0, 2)
  double memory = 0.9;               // share that a moving mean keeps, in [0, 1)
};

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
            .rejects_gradients = true};
  }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("how many gradients a step waits for follows from the gradients");
  }

 private:
  DynamicBackupOptions options_;
};

std::unique_ptr<Algorithm> make_dynamic_backup(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
