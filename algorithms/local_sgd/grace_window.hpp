// An adaptive grace window: how long a server waits for further answers once it has a quorum, out of the time that
// overlapped steps leave it.
// Source:  Douillard et al. 2026, "Decoupled DiLoCo", Eq. 3, as others tell it:
//          xi_grace <= gamma max(0, tau xi_step - xi_quorum - xi_sync).
// Units:   seconds; tau in steps.
// Differs: the averages are exponential, their factor is an option (1: the newest values alone). 1/2, and a fixed
//          window until there are estimates, are those of an implementation by others; gamma is not established.
// Checks:  gamma = 0 is no window; the formula, the averages in double precision.
#pragma once

#include <limits>
#include <optional>

#include "workers/settings/settings.hpp"

namespace syncopate {

struct GraceOptions {
  double margin = 0;         // gamma, in [0, 1]
  double overlap_steps = 2;  // tau
  double averaging = 0.5;    // weight of the newest value in each average, in (0, 1]
  double initial_s = 0;      // until there are estimates
  double longest_s = std::numeric_limits<double>::infinity();
};
// Reads a table such as { margin = 0.5, overlap_steps = 2 }.
GraceOptions read_grace(Settings settings);

class GraceWindow {
 public:
  explicit GraceWindow(const GraceOptions& options) : options_(options) {}

  void note_step(double seconds) { take_in(seconds, step_s_); }      // xi_step: a local step
  void note_quorum(double seconds) { take_in(seconds, quorum_s_); }  // xi_quorum: from a round's start to its quorum
  void note_sync(double seconds) { take_in(seconds, sync_s_); }      // xi_sync: from a round's end to workers' models

  std::optional<double> step_s() const { return step_s_; }
  double length_s() const;

 private:
  void take_in(double seconds, std::optional<double>& average) const;

  GraceOptions options_;
  std::optional<double> step_s_, quorum_s_, sync_s_;  // none: nothing was noted yet
};

}  // namespace syncopate
