// What a server has seen of workers' gradients: how large and how noisy they are, and when the k-th of a step comes;
// and how many are worth waiting for.
// Source:  after Xu, Neglia and Sebastianelli 2020 (dynamic_backup.hpp says what of it is established).
// Shapes:  scalars; times (N,).   Units: times in seconds on the server's clock.
// Differs: moving means over steps. Of the k-th arrival of a version also where its step was over by then. A later one
//          is never taken to come sooner than an earlier one.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "algorithms/quorum/expected_gain.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

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

}  // namespace syncopate
