// Backup workers by time-out: a step takes the gradients that have come when a time is over, however many there are,
// instead of a fixed number.
// Source:  this project's own, after Chen et al. 2016, "Revisiting Distributed Synchronous SGD": backup workers whose
//          number follows from who is late.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: timeout in seconds on the server's clock.
// Cost:    per step N models down and up to N gradients up, P floats each.
// Differs: a step takes one gradient at least, and does not wait for the time-out once all have come. A gradient that
//          arrives just then counts. What becomes of late work is as with backup workers, by count, and so are the
//          samples that a late worker skips, and who clips.
// Checks:  an endless time-out equals synchronous SGD, one of 0 backup workers of which one is taken, bit for bit;
//          times and drops by the drawn steps.
#pragma once

#include "algorithms/method/algorithm.hpp"
#include "algorithms/quorum/backup_workers.hpp"

namespace syncopate {

class GradientRound;

struct TimeoutOptions {
  using Late = BackupOptions::Late;
  enum class CountedFrom {
    start,  // of the step: when the server has sent its model
    first,  // the arrival of the step's first gradient
  };
  Duration timeout{};
  CountedFrom counted_from = CountedFrom::start;
  Late late = Late::finish;
};

class BackupTimeout : public Algorithm {
 public:
  explicit BackupTimeout(const TimeoutOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1, .steps_along_fresh_mean = true, .sends_gradients = true, .rejects_gradients = true};
  }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  bool cancels() const { return options_.late == TimeoutOptions::Late::cancel; }
  void gather(Server& server, GradientRound& round) const;

  TimeoutOptions options_;
};

std::unique_ptr<Algorithm> make_backup_timeout(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
