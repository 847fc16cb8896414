#include "algorithms/backup_workers.hpp"

namespace syncopate {

void BackupWorkers::run(Worker& worker) const {
  while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient());
}

void BackupWorkers::serve(Server& server) const {
  while (server.budget_left()) {
    Gradient sum;
    for (int n = 0; n < quorum_;) {
      server.send_model_to_waiting();  // late workers too: they get the newest model at once
      const auto message = server.receive();
      if (!message) return;
      if (message->step == server.step()) {
        server.keep(*message);
        sum += message->gradient;
        ++n;
      } else {
        server.discard(*message);
      }
    }
    server.descend(sum / (quorum_ * server.micro_batches()));
    server.publish();
  }
}

std::unique_ptr<Algorithm> make_backup_workers(Settings& settings, const AlgorithmContext& context) {
  // At least one gradient makes a step.
  const auto backups = settings.integer("backups", 0, context.workers - 1);
  return std::make_unique<BackupWorkers>(context.workers - static_cast<int>(backups));
}

}  // namespace syncopate
