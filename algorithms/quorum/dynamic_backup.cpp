#include "algorithms/quorum/dynamic_backup.hpp"

#include <algorithm>

#include "algorithms/quorum/gradient_round.hpp"
#include "algorithms/quorum/observed_gradients.hpp"

namespace syncopate {
namespace {

double squared(double value) { return value * value; }

}  // namespace

void DynamicBackup::run(Worker& worker) const {
  while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient());
}

void DynamicBackup::serve(Server& server) const {
  const double micro_batches = server.micro_batches();
  GradientRound round(server);
  ObservedGradients observed(options_);
  while (server.budget_left()) {
    observed.begin_version(server.now());
    Gradient sum;
    double squared_norms = 0;
    for (int needed = observed.wanted(server.workers_left()); round.gradients() < needed;) {
      server.send_model(Receivers::waiting);  // late workers too: they get the newest model at once
      const auto message = server.receive();
      if (message) observed.take_arrival(message->step, server.now());
      if (message && message->step == server.step()) {
        squared_norms += squared(server.norm(message->gradient) / micro_batches);
        sum += message->gradient;
      }
      if (message)
        round.take(*message, {.maximum_staleness = 0});
      else
        needed = std::min(needed, server.workers_left(round.givers()));
    }
    const int gradients = round.gradients();
    if (gradients == 0) return;  // all workers have left
    const double norm_of_mean = server.norm(sum) / (gradients * micro_batches);
    observed.take_moments(gradient_moments(squared_norms / gradients, squared(norm_of_mean), gradients));
    round.step();
  }
}

std::unique_ptr<Algorithm> make_dynamic_backup(Settings& settings, const AlgorithmContext& context) {
  DynamicBackupOptions options;
  options.fewest = static_cast<int>(settings.integer({"fewest", "How many gradients a step waits for at least."}, 1,
                                                     Stated(context.workers, "workers"), 1));
  if (const auto most =
          settings.optional_integer({"most", "How many gradients a step waits for at most.", {}, "all workers'"}, 1,
                                    Stated(context.workers, "workers")))
    options.most = static_cast<int>(*most);
  if (options.most && *options.most < options.fewest) settings.fault("most", "must be at least `fewest`");
  options.rate_times_smoothness = settings.number(
      {"rate_times_smoothness", "Learning rate times the loss's smoothness (eta L): how much noise costs."},
      Range{.low = 0, .high = 2, .low_open = true, .high_open = true}, options.rate_times_smoothness);
  options.memory = settings.number({"memory", "Share that the moving means of what is observed keep per step."},
                                   Range{.low = 0, .high = 1, .high_open = true}, options.memory);
  if (context.time_only) settings.fault("algorithm", "needs a model: it waits by the size and noise of gradients");
  return std::make_unique<DynamicBackup>(options);
}

}  // namespace syncopate
