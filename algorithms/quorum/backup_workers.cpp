#include "algorithms/quorum/backup_workers.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace syncopate {

void BackupWorkers::run(Worker& worker) const {
  Step published{};
  const auto publish_assembled = [&] {
    if (options_.servers > 1 && std::exchange(published, worker.step()) < worker.step()) worker.publish();
  };
  while (worker.receive_model(Worker::Versions::equal)) {
    publish_assembled();
    if (options_.late == BackupOptions::Late::finish)
      worker.send_gradient(worker.compute_step_gradient());
    else if (auto gradient = worker.compute_step_gradient_until_message())
      worker.send_gradient(*std::move(gradient));
  }
  publish_assembled();
}

void BackupWorkers::serve(Server& server) const {
  ModelStatePtr average = options_.average_decay ? server.model() : nullptr;
  while (server.budget_left()) {
    Gradient sum;
    const int count = gather(server, sum);
    if (count == 0) break;  // all workers have left
    if (options_.rate == BackupOptions::Rate::times_quorum) server.scale_learning_rate(count);
    if (!options_.average_decay) {
      server.descend(sum / (count * server.micro_batches()));
      if (options_.servers == 1) server.publish();
      continue;
    }
    const ModelStatePtr before = server.model();
    server.descend(sum / (count * server.micro_batches()));
    const double decay = *options_.average_decay;
    const bool lags = options_.averaged == BackupOptions::Averaged::before_update;
    average = server.combine({{decay, average}, {1 - decay, lags ? before : server.model()}});
    server.publish(average);
  }
  if (options_.servers > 1) server.send_last_model(Rank{0});
}

// Adds the first N gradients at this version to the sum, and returns how many they are.
int BackupWorkers::gather(Server& server, Gradient& sum) const {
  const bool cancels = options_.late == BackupOptions::Late::cancel;
  if (cancels) server.send_model_to_all();
  std::vector<Rank> accepted;
  int quorum = quorum_of_step(server, accepted);
  while (static_cast<int>(accepted.size()) < quorum) {
    if (!cancels) server.send_model_to_waiting();  // late workers too: they get the newest model at once
    const auto message = server.receive();
    if (!message) {
      quorum = quorum_of_step(server, accepted);
    } else if (message->step == server.step()) {
      server.keep(*message);
      sum += message->gradient;
      accepted.push_back(message->from);
    } else {
      server.discard(*message);
    }
  }
  return static_cast<int>(accepted.size());
}

// N, or fewer if fewer can give a gradient to this step: those who are left, and those who left after theirs.
int BackupWorkers::quorum_of_step(Server& server, const std::vector<Rank>& accepted) const {
  const int left = server.workers_left();
  if (left >= quorum_) return quorum_;
  const auto gave = std::count_if(accepted.begin(), accepted.end(), [&](Rank r) { return server.has_left(r); });
  return std::min(quorum_, left + static_cast<int>(gave));
}

// Late work that goes on makes its worker late for the next step too: the order statistic is then a lower bound.
Forecast BackupWorkers::forecast(const PredictionInput& input) const {
  const bool cancels = options_.late == BackupOptions::Late::cancel;
  const double message_s = input.message_s(options_.servers);  // those of several servers go side by side
  return predict_quorum(quorum_, cancels, {2 * message_s, message_s}, input);
}

std::unique_ptr<Algorithm> make_backup_workers(Settings& settings, const AlgorithmContext& context) {
  static constexpr std::string_view late[] = {"finish", "cancel"};
  static constexpr std::string_view averaged[] = {"before-update", "after-update"};
  static constexpr std::string_view rates[] = {"as-given", "times-quorum"};
  constexpr std::int64_t most_servers = 1000;
  BackupOptions options;
  // At least one gradient makes a step.
  const auto backups = settings.integer("backups", 0, context.workers - 1);
  if (settings.choice("late", late, "finish") == "cancel") options.late = BackupOptions::Late::cancel;
  if (settings.choice("learning_rate", rates, "as-given") == "times-quorum")
    options.rate = BackupOptions::Rate::times_quorum;
  if (settings.has("average")) {
    Settings average = settings.section("average");
    options.average_decay = average.number("decay", Range{.low = 0, .high = 1, .high_open = true}, 0.9999);
    if (average.choice("of", averaged, "before-update") == "after-update")
      options.averaged = BackupOptions::Averaged::after_update;
  }
  options.servers = static_cast<int>(settings.integer("servers", 1, most_servers, 1));
  if (options.servers > 1 && options.late == BackupOptions::Late::cancel)
    settings.fault("servers", "must be 1 with late = \"cancel\": each server would cancel at its own time");
  if (options.servers > 1 && options.average_decay)
    settings.fault("servers", "must be 1 with average: workers, who assemble the model, do not have the average");
  return std::make_unique<BackupWorkers>(context.workers - static_cast<int>(backups), options);
}

}  // namespace syncopate
