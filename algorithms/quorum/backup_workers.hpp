// Synchronous SGD with backup workers: a server averages the first N gradients of a step and does not wait for those of
// the last b workers. If it cancels late work, this is K-sync SGD with K = N.
// Source:  Chen et al. 2016, "Revisiting Distributed Synchronous SGD", Algorithms 3 and 4; K-sync: Dutta et al. 2018,
//          "Slow and Stale Gradients Can Win the Race". Begunov and Tyurin 2026, arXiv 2602.03802,
//          call it m-synchronous SGD; by their abstract it is near-optimal, up to logarithms, for many random times.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per step N + b models down and up to N + b gradients up, P floats each, shared by the servers.
// Differs: a late worker adopts the newest model and its step (the paper's pseudo-code does not say). Late work
//          continues and is dropped on arrival, as in the paper; late = "cancel" stops it. Each of several servers
//          takes the first N slices that it receives. Workers wait for all slices of a version, and worker 0 publishes
//          the model that it has assembled. N falls to the number of workers left. The table `average` gives the
//          paper's averaged parameters.
//          The paper's workers draw from the whole set, independently. Here each worker goes through its part of every
//          epoch without replacement, and the server's step selects the samples, so that a step's samples do not depend
//          on which workers are late. A late worker skips the samples of the steps that it has missed. Each worker
//          clips its gradients before it sends them, as in TensorFlow's SyncReplicasOptimizer (the paper needs no
//          clipping); synchronous SGD clips their mean.
// Checks:  b = 0 equals synchronous SGD bit for bit, if nothing is clipped; a gradient is dropped exactly if it is
//          not of the server's current version; divisor N x M; a late worker skips samples.
#pragma once

#include <algorithm>

#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

struct BackupOptions {
  enum class Rate {
    as_given,      // the file's learning rate
    times_quorum,  // the file's rate times the number of gradients in the mean (the paper: 0.045 N)
  };
  enum class CountedFrom {
    start,  // the step's start: when the server has sent its model
    first,  // the arrival of the step's first gradient
  };
  LateWork late = LateWork::finish;
  Rate rate = Rate::as_given;
  int servers = 1;  // with more than one, neither cancellation nor a moving average is possible
  // After this time a step uses the gradients that have arrived, at least one (backup_timeout.hpp). None: no limit.
  std::optional<Duration> timeout{};
  CountedFrom counted_from = CountedFrom::start;
};

class BackupWorkers : public FreshGradients {
 public:
  // quorum: N, the number of gradients that make a step; the other workers of the cluster are the backups.
  explicit BackupWorkers(int quorum, const BackupOptions& options = {}) : quorum_(quorum), options_(options) {}

  void run(Worker& worker) const override {
    if (options_.servers > 1) worker.scale_rate(rate_factor(quorum_));  // for worker 0, which publishes the model
    send_gradient_per_model(worker, options_.late);
  }

  void serve(Server& server) const override {
    GradientRound round(server);
    while (server.budget_left()) {
      if (cancels()) server.send_model(Receivers::all);
      gather(server, round);
      if (round.gradients() == 0) return;  // all workers have left
      round.step(rate_factor(round.gradients()));
    }
  }

  Traits traits() const override {
    Traits traits = FreshGradients::traits();
    traits.servers = options_.servers;
    traits.has_formulas = !options_.timeout;
    return traits;
  }

  Forecast forecast(const PredictionInput& input) const override {
    if (options_.timeout) return {};
    // Messages to and from several servers travel in parallel, so they take the time of one slice.
    const double round_trip_s = input.gradient_message_s(options_.servers) + input.message_s(options_.servers);
    return predict_quorum(quorum_, cancels(), round_trip_s, input);
  }

 private:
  bool cancels() const { return options_.late == LateWork::cancel; }
  double rate_factor(int count) const { return options_.rate == BackupOptions::Rate::times_quorum ? count : 1; }

  // Receives the gradients of a step, until there are enough or its time is over.
  void gather(Server& server, GradientRound& round) const {
    const auto end_from_now = [&] { return options_.timeout ? later(server.now(), *options_.timeout) : never; };
    const bool from_start = options_.counted_from == BackupOptions::CountedFrom::start;
    Time end = from_start ? end_from_now() : never;
    for (int needed = std::min(quorum_, server.workers_left()); round.gradients() < needed;) {
      if (!cancels()) server.send_model(Receivers::waiting);  // a late worker gets the newest model on arrival
      const bool may_end = round.gradients() > 0;
      const auto message = server.receive(may_end ? std::max(end, server.now()) : never);
      if (!message && may_end && server.now() >= end) return;
      // Only workers that have given a gradient to this step, or have not left, can contribute to it.
      if (!message) needed = std::min(quorum_, server.workers_left(round.givers()));
      if (!message || !round.take(*message, {.maximum_staleness = 0})) continue;
      if (!from_start && round.gradients() == 1) end = end_from_now();
    }
  }

  int quorum_;
  BackupOptions options_;
};

inline std::unique_ptr<Algorithm> make_backup_workers(Settings& settings, const AlgorithmContext& context) {
  using Rate = BackupOptions::Rate;
  constexpr std::int64_t most_servers = 1000;
  BackupOptions options;
  const auto backups = settings.integer({"backups", "How many workers a step does not wait for (b)."}, 0,
                                        Stated(context.workers - 1, "workers - 1"));
  options.late = read_late_work(settings);
  options.rate = settings.choice({"learning_rate", "The file's learning rate, or that rate times the quorum."},
                                 {{"as-given", Rate::as_given}, {"times-quorum", Rate::times_quorum}}, options.rate);
  options.servers = static_cast<int>(
      settings.integer({"servers", "How many servers share the model; each holds one slice."}, 1, most_servers, 1));
  if (options.servers > 1 && options.late == LateWork::cancel)
    settings.fault("servers", "must be 1 with late = \"cancel\": several servers would cancel at different times");
  if (options.servers > 1 && settings.has("average"))
    settings.fault("servers",
                   "must be 1 with `average`, which needs every version of the model: with several servers, worker 0 "
                   "assembles the model and misses some versions");
  return std::make_unique<BackupWorkers>(context.workers - static_cast<int>(backups), options);
}

inline std::unique_ptr<Algorithm> make_k_sync(Settings& settings, const AlgorithmContext& context) {
  const auto gradients = settings.integer(
      {"gradients",
       "Gradients per step, each from a different worker (K); k-batch-sync takes gradients from any workers."},
      1, Stated(context.workers, "workers"));
  return std::make_unique<BackupWorkers>(static_cast<int>(gradients), BackupOptions{.late = LateWork::cancel});
}

}  // namespace syncopate
