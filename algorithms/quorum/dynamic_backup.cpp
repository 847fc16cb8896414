#include "algorithms/quorum/dynamic_backup.hpp"

#include <algorithm>
#include <map>

#include "algorithms/quorum/gradient_round.hpp"
#include "algorithms/quorum/gradient_spread.hpp"
#include "algorithms/quorum/observed_gradients.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {

void DynamicBackup::run(Worker& worker) const {
  while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient());
}

void DynamicBackup::serve(Server& server) const {
  GradientRound round(server);
  ObservedGradients observed(options_);
  std::map<Step, GradientSpread> alone;    // by version: steps of one gradient, until the next one of it comes
  ByRank<Step> version_of(server.size());  // that each worker computes at
  while (server.budget_left()) {
    observed.begin_version(server.now());
    GradientSpread spread;
    for (int needed = observed.wanted(server.workers_left()); round.gradients() < needed;) {
      server.send_model(Receivers::waiting);  // late workers too: they get the newest model at once
      const auto message = server.receive();
      if (!message) {
        needed = std::min(needed, server.workers_left(round.givers()));
        continue;
      }
      observed.take_arrival(message->step, server.now());
      if (message->step == server.step()) {
        spread.add(server, message->gradient);
      } else if (const auto before = alone.find(message->step); before != alone.end()) {
        before->second.add(server, message->gradient);
        observed.take_moments(before->second.moments(server));
        alone.erase(before);
      }
      const bool counts = round.take(*message, {.maximum_staleness = 0});
      version_of[message->from] = server.step() + (counts ? 1 : 0);
    }
    if (round.gradients() == 0) return;  // all workers have left
    observed.take_moments(spread.moments(server));
    if (spread.gradients() == 1) alone[server.step()] = spread;
    round.step();
    std::erase_if(alone, [&](const auto& one) { return std::ranges::find(version_of, one.first) == version_of.end(); });
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
