#include "algorithms/asynchronous/async_sgd.hpp"

#include <fmt/format.h>

#include <limits>

namespace syncopate {
namespace {

// Without this a limit below every worker's time would let a run counted in steps go on for ever.
constexpr std::int64_t discarded_in_a_row_per_worker = 1000;

}  // namespace

void AsyncSgd::run(Worker& worker) const {
  while (worker.receive_model()) worker.send_gradient(worker.compute_step_gradient(Samples::in_turn));
}

void AsyncSgd::serve(Server& server) const {
  server.set_gradients_per_step(1);
  const double rate_factor = options_.rate.of_update(1, server.size());
  std::int64_t discarded_in_a_row = 0;
  server.send_model(Receivers::all);
  while (const auto message = server.receive_until_all_left()) {
    const double weight = options_.rate.of_gradient(server.step() - message->step, server.size());
    if (server.accept(*message,
                      {.maximum_staleness = options_.maximum_staleness, .maximum_age = options_.maximum_age})) {
      server.descend(message->gradient / server.micro_batches(), {.rate_factor = rate_factor, .weight = weight});
      server.publish();
      discarded_in_a_row = 0;
    } else if (++discarded_in_a_row > discarded_in_a_row_per_worker * server.size()) {
      server.fail(fmt::format("the last {} gradients were all too old; raise maximum_age_s ({:g} s)",
                              discarded_in_a_row, to_seconds(options_.maximum_age)));
    }
    if (!server.budget_left()) return;
    server.send_model(message->from);
  }
}

Forecast AsyncSgd::forecast(const PredictionInput& input) const {
  return drops() ? Forecast::none("which gradients are too old depends on the pace of all")
                 : predict_own_pace(1, input);
}

std::unique_ptr<Algorithm> make_async_sgd(Settings& settings, const AlgorithmContext&) {
  AsyncSgd::Options options;
  options.maximum_staleness =
      settings.optional_integer({"maximum_staleness", "A gradient is dropped if the model has had more updates since.",
                                 "updates", "none is dropped"},
                                0, std::numeric_limits<std::int64_t>::max());
  const double maximum_age_s =
      settings.number({"maximum_age_s", "Gradients whose model was sent longer ago are dropped.", "s"},
                      Range::positive(), std::numeric_limits<double>::infinity());
  options.maximum_age = from_seconds(maximum_age_s);
  options.rate = read_update_rate(settings);
  return std::make_unique<AsyncSgd>(options);
}

}  // namespace syncopate
