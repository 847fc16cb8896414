#include "algorithms/quorum/backup_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "algorithms/quorum/gradient_round.hpp"

namespace syncopate {

void BackupTokens::run(Worker& worker) const {
  // The step's label comes with the token; samples are those of the worker's own steps.
  while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient(Samples::in_turn));
  worker.receive();  // without data: the token of its last gradient, lost to the others
}

void BackupTokens::serve(Server& server) const {
  std::deque<Step> tokens(static_cast<std::size_t>(initial_tokens_), Step{0});
  std::deque<Rank> waiting;  // for a token, in the order of their gradients
  const auto hand_out_tokens = [&] {
    for (; !tokens.empty() && !waiting.empty(); tokens.pop_front(), waiting.pop_front())
      server.send_model(waiting.front(), tokens.front());
  };
  GradientRound round(server);
  server.send_model(Receivers::all);  // the first step needs no token
  while (server.budget_left()) {
    hand_out_tokens();
    while (round.gradients() < quorum_) {
      const int left = server.workers_left();
      if (static_cast<int>(waiting.size()) == left && left > 0)
        server.fail(
            fmt::format("deadlock of the token queue in step {}: {} of {} gradients have come, and all {} workers wait "
                        "for tokens; the {} that ended took theirs with them",
                        server.step().value(), round.gradients(), quorum_, left, server.size() - left));
      const auto message = server.receive();
      if (!message && server.workers_left() == 0) return;
      if (!message) continue;
      round.take(*message, {.maximum_staleness = 0});
      waiting.push_back(message->from);
      hand_out_tokens();
    }
    round.step();
    tokens.insert(tokens.end(), static_cast<std::size_t>(std::max(server.size(), quorum_)), server.step());
  }
}

std::unique_ptr<Algorithm> make_backup_tokens(Settings& settings, const AlgorithmContext& context) {
  constexpr std::int64_t most = 1'000'000;
  const std::size_t faults = settings.faults_so_far();
  std::int64_t quorum = 1;
  if (const auto written = settings.optional_integer(
          {"quorum", "How many gradients make a step, instead of backups; it may be above the number of workers."}, 1,
          most)) {
    quorum = *written;
    context.work.check(settings, "quorum", quorum);
    if (settings.has("backups")) settings.fault("backups", "must not be given together with quorum");
  } else {
    quorum = context.workers - settings.integer({"backups", "How many workers' gradients a step does without (b)."}, 0,
                                                Stated(context.workers - 1, "workers - 1"));
  }
  // With fewer, nobody could leave step 0.
  const std::int64_t fewest = std::max<std::int64_t>(0, quorum - context.workers);
  const bool known = settings.faults_so_far() == faults;
  const auto tokens =
      settings.integer({"initial_tokens", "Tokens in the queue at the start."},
                       Stated(known ? fewest : 0, "quorum - workers"), most, Stated(quorum, "the quorum"));
  return std::make_unique<BackupTokens>(static_cast<int>(quorum), static_cast<int>(tokens));
}

}  // namespace syncopate
