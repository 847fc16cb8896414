#include "algorithms/quorum/backup_workers.hpp"

#include <algorithm>
#include <utility>

#include "algorithms/quorum/gradient_round.hpp"

namespace syncopate {

void BackupWorkers::run(Worker& worker) const {
  if (options_.servers > 1) worker.scale_rate(rate_factor(quorum_));  // worker 0 publishes what the servers step
  while (worker.receive_model()) {
    auto gradient = worker.compute_step_gradient(cancels() ? Deadline::until_message() : Deadline());
    if (gradient) worker.send_gradient(*std::move(gradient));
  }
}

void BackupWorkers::serve(Server& server) const {
  GradientRound round(server);
  while (server.budget_left()) {
    if (cancels()) server.send_model(Receivers::all);
    for (int needed = std::min(quorum_, server.workers_left()); round.gradients() < needed;) {
      if (!cancels()) server.send_model(Receivers::waiting);  // late workers too: they get the newest model at once
      const auto message = server.receive();
      if (message)
        round.take(*message, {.maximum_staleness = 0});
      else
        needed = std::min(quorum_, server.workers_left(round.givers()));  // who can give a gradient to this step
    }
    if (round.gradients() == 0) return;  // all workers have left
    round.step(rate_factor(round.gradients()));
  }
}

// Late work that goes on makes its worker late for the next step too: the order statistic is then a lower bound.
Forecast BackupWorkers::forecast(const PredictionInput& input) const {
  // Messages of several servers go side by side.
  const double around_s = input.gradient_message_s(options_.servers) + input.message_s(options_.servers);
  return predict_quorum(quorum_, cancels(), {around_s, input.on_server_link_s(options_.servers)}, input);
}

std::unique_ptr<Algorithm> make_backup_workers(Settings& settings, const AlgorithmContext& context) {
  using Late = BackupOptions::Late;
  using Rate = BackupOptions::Rate;
  constexpr std::int64_t most_servers = 1000;
  BackupOptions options;
  // At least one gradient makes a step.
  const auto backups = settings.integer({"backups", "How many workers a step does not wait for (b)."}, 0,
                                        Stated(context.workers - 1, "workers - 1"));
  options.late = settings.choice({"late", "Whether late work is finished, and dropped on arrival, or cancelled."},
                                 {{"finish", Late::finish}, {"cancel", Late::cancel}}, options.late);
  options.rate = settings.choice({"learning_rate", "The file's learning rate, or that times the quorum."},
                                 {{"as-given", Rate::as_given}, {"times-quorum", Rate::times_quorum}}, options.rate);
  options.servers = static_cast<int>(
      settings.integer({"servers", "How many servers share the model, a slice each."}, 1, most_servers, 1));
  if (options.servers > 1 && options.late == BackupOptions::Late::cancel)
    settings.fault("servers", "must be 1 with late = \"cancel\": each server would cancel at its own time");
  if (options.servers > 1 && settings.has("average"))
    settings.fault("servers",
                   "must be 1 with average: worker 0, which assembles the model, does not see every version");
  return std::make_unique<BackupWorkers>(context.workers - static_cast<int>(backups), options);
}

std::unique_ptr<Algorithm> make_k_sync(Settings& settings, const AlgorithmContext& context) {
  const auto gradients =
      settings.integer({"gradients", "How many workers' gradients make a step (K); k-batch-sync takes any."}, 1,
                       Stated(context.workers, "workers"));
  return std::make_unique<BackupWorkers>(static_cast<int>(gradients),
                                         BackupOptions{.late = BackupOptions::Late::cancel});
}

}  // namespace syncopate
