#include "algorithms/asynchronous/softsync.hpp"

#include <utility>

namespace syncopate {

void Softsync::run(Worker& worker) const {
  while (worker.receive_model()) worker.send_gradient(worker.compute_own_step_gradient());
}

void Softsync::serve(Server& server) const {
  const int per_update = server.size() / splitting_;  // c
  server.count_steps_per_file_step(static_cast<double>(server.size()) / per_update);
  server.scale_learning_rate(rate_.of_update(per_update, server.size()));
  Gradient sum;
  int count = 0;
  const auto update = [&] {
    server.descend(std::exchange(sum, {}) / (std::exchange(count, 0) * server.micro_batches()));
    server.publish();
  };
  server.send_model_to_all();
  while (const auto message = server.receive_until_all_left()) {
    server.keep(*message);
    sum += message->gradient * rate_.of_gradient(server.staleness(*message));
    if (++count == per_update) {
      update();
      if (!server.budget_left()) return;
    }
    server.send_model(message->from);  // at once, be it the version that this worker has had already
  }
  if (count > 0) update();
}

std::unique_ptr<Algorithm> make_softsync(Settings& settings, const AlgorithmContext& context) {
  const auto splitting = static_cast<int>(settings.integer("splitting", 1, context.workers));
  return std::make_unique<Softsync>(splitting, read_update_rate(settings));
}

}  // namespace syncopate
