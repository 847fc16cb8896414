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

#include <algorithm>

#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

struct TimeoutOptions {
  enum class CountedFrom {
    start,  // the step's start: when the server has sent its model
    first,  // the arrival of the step's first gradient
  };
  Duration timeout{};
  CountedFrom counted_from = CountedFrom::start;
  LateWork late = LateWork::finish;
};

class BackupTimeout : public FreshGradients {
 public:
  using CountedFrom = TimeoutOptions::CountedFrom;
  explicit BackupTimeout(const TimeoutOptions& options) : options_(options) {}

  void run(Worker& worker) const override { send_gradient_per_model(worker, options_.late); }

  void serve(Server& server) const override {
    GradientRound round(server);
    while (server.budget_left()) {
      if (cancels()) server.send_model(Receivers::all);
      gather(server, round);
      if (round.gradients() == 0) return;  // all workers have left
      round.step();
    }
  }

 private:
  bool cancels() const { return options_.late == LateWork::cancel; }

  void gather(Server& server, GradientRound& round) const {
    const bool from_start = options_.counted_from == CountedFrom::start;
    Time end = from_start ? later(server.now(), options_.timeout) : never;
    for (int there = server.workers_left(); round.gradients() < there;) {
      if (!cancels()) server.send_model(Receivers::waiting);  // a late worker gets the newest model on arrival
      const bool may_end = round.gradients() > 0;
      const auto message = server.receive(may_end ? std::max(end, server.now()) : never);
      if (!message && may_end && server.now() >= end) return;
      if (!message) there = server.workers_left(round.givers());
      if (!message || !round.take(*message, {.maximum_staleness = 0})) continue;
      if (!from_start && round.gradients() == 1) end = later(server.now(), options_.timeout);
    }
  }

  TimeoutOptions options_;
};

inline std::unique_ptr<Algorithm> make_backup_timeout(Settings& settings, const AlgorithmContext&) {
  using CountedFrom = TimeoutOptions::CountedFrom;
  TimeoutOptions options;
  options.timeout = from_seconds(settings.number(
      {"timeout_s", "Time after which a step uses the gradients that have arrived.", "s"}, Range::at_least(0)));
  options.counted_from = settings.choice(
      {"counted_from", "Whether timeout_s begins when the step's model is sent, or when its first gradient arrives."},
      {{"start", CountedFrom::start}, {"first", CountedFrom::first}}, options.counted_from);
  options.late = read_late_work(settings);
  return std::make_unique<BackupTimeout>(options);
}

}  // namespace syncopate
