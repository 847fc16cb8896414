#include "algorithms/asynchronous/softsync.hpp"

#include <utility>

namespace syncopate {

void Softsync::run(Worker& worker) const {
  while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient(Samples::in_turn));
}

void Softsync::serve(Server& server) const {
  const int per_update = server.size() / splitting_;  // c
  server.set_gradients_per_step(per_update);
  const double rate_factor = rate_.of_update(per_update, server.size());
  Gradient sum;
  int count = 0;
  const auto update = [&] {
    server.descend(std::exchange(sum, {}) / (std::exchange(count, 0) * server.micro_batches()),
                   {.rate_factor = rate_factor});
    server.publish();
  };
  server.send_model(Receivers::all);
  while (const auto message = server.receive_until_all_left()) {
    server.accept(*message);
    sum += message->gradient * rate_.of_gradient(server.step() - message->step);
    if (++count == per_update) {
      update();
      if (!server.budget_left()) return;
    }
    server.send_model(message->from);  // at once, be it the version that this worker has had already
  }
  if (count > 0) update();
}

std::unique_ptr<Algorithm> make_softsync(Settings& settings, const AlgorithmContext& context) {
  const auto splitting =
      static_cast<int>(settings.integer({"splitting", "An update takes floor(workers / splitting) gradients (n)."}, 1,
                                        Stated(context.workers, "workers")));
  return std::make_unique<Softsync>(splitting, read_update_rate(settings));
}

}  // namespace syncopate
