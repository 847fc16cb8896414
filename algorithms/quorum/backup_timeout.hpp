// Backup workers by time-out: a step uses the gradients that have arrived at its time-out, however many there are.
// Source:  this project's own, after Chen et al. 2016, "Revisiting Distributed Synchronous SGD": backup workers whose
//          number depends on how many are late.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: timeout in seconds on the server's clock.
// Cost:    per step N models down and up to N gradients up, P floats each.
// Differs: a step uses at least one gradient, and ends before the time-out if all have arrived. A gradient that arrives
//          exactly at the time-out counts. Late work, skipped samples and clipping are as in backup_workers.hpp.
// Checks:  an infinite time-out equals synchronous SGD, and a time-out of 0 equals backup workers that wait for one
//          gradient, bit for bit; hand-worked timelines.
#pragma once

#include "algorithms/quorum/backup_workers.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_backup_timeout(Settings& settings, const AlgorithmContext& context) {
  using CountedFrom = BackupOptions::CountedFrom;
  BackupOptions options;
  options.timeout = from_seconds(settings.number(
      {"timeout_s", "Time after which a step uses the gradients that have arrived.", "s"}, Range::at_least(0)));
  options.counted_from = settings.choice(
      {"counted_from", "Whether timeout_s begins when the step's model is sent, or when its first gradient arrives."},
      {{"start", CountedFrom::start}, {"first", CountedFrom::first}}, options.counted_from);
  options.late = read_late_work(settings);
  return std::make_unique<BackupWorkers>(context.workers, options);
}

}  // namespace syncopate
