#include "algorithms/asynchronous/async_local_sgd.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace syncopate {
void AsyncLocalSgd::run(Worker& worker) const { run_rounds(worker, rounds()); }

void AsyncLocalSgd::serve(Server& server) const {
  UpdateState state;
  StepsBySpeed steps(options_.steps_by_speed, options_.local_steps, server.size());
  std::vector<Rank> in_window;
  const auto take = [&](const Message& difference) {
    in_window.push_back(difference.from);
    steps.take_in(difference, server.micro_batches());
    if (const auto staleness = server.accept(difference, {.maximum_staleness = options_.maximum_staleness}))
      options_.update->take(server, difference, options_.weight.of(*staleness, server.size()), state);
  };
  for (const Rank worker : Ranks(server.size())) server.send_model(worker, steps.to_tell(worker));
  while (const auto first = server.receive_until_all_left()) {
    const Time end = later(server.now(), options_.grace);
    take(*first);
    while (server.now() < end && server.budget_left() && server.workers_left(in_window) > std::ssize(in_window))
      if (const auto next = server.receive(end)) take(*next);
    if (!server.budget_left()) return;
    for (const Rank worker : in_window) server.send_model(worker, steps.to_tell(worker));
    in_window.clear();
  }
  options_.update->end(server, state);
}

// The card.
AsyncLocalSgd::AsyncLocalSgd(const AsyncLocalOptions& options) : options_(options) {
  if (!options_.update) options_.update = make_nesterov_update(1, 0);
}

// Of the others' N - 1 differences each comes once on average while one is under way, whatever their times, since a
// slower worker misses more and comes more rarely.
Forecast AsyncLocalSgd::forecast(const PredictionInput& input) const {
  if (options_.maximum_staleness) return Forecast::none("which differences are too stale depends on the pace of all");
  if (options_.grace > Duration{}) return Forecast::none("who shares a grace window depends on when all come");
  Forecast forecast =
      predict_rounds(rounds(), {input.gradient_message_s() + input.message_s(), input.on_server_link_s()}, input);
  for (Prediction& prediction : forecast.predictions)
    prediction.mean_staleness = (input.workers - 1.0) / options_.update->differences();
  return forecast;
}

// Whose differences they are is for the clock to say, but not how many: each has H steps. The last one is not answered.
std::optional<Communicated> AsyncLocalSgd::communication(const CommunicationInput& input) const {
  if (options_.steps_by_speed || options_.maximum_staleness || options_.grace > Duration{}) return std::nullopt;
  const std::int64_t of_update = options_.update->differences() * options_.local_steps.value();
  const std::int64_t updates = (input.workers * input.steps.value() + of_update - 1) / of_update;
  const std::int64_t differences = updates * options_.update->differences();
  const std::int64_t models = differences + input.workers - 1;
  const std::int64_t of_difference = input.packet.value_or(input.parameter_bytes).value();
  return Communicated{std::min(updates, input.steps.value()),
                      Bytes{differences * of_difference + models * input.parameter_bytes.value()}};
}

std::unique_ptr<Algorithm> make_async_local_sgd(Settings& settings, const AlgorithmContext& context) {
  AsyncLocalOptions options;
  const DifferenceRounds rounds = read_difference_rounds(settings, context);
  options.local_steps = rounds.local_steps;
  options.steps_by_speed = rounds.steps_by_speed;
  Settings update = settings.section({"update", "What the server makes of the differences."});
  options.update = make_server_update(update, context.work.of(rounds.fewest_steps().value()));
  options.weight.by_workers = settings.choice({"rate_scaling", "What each difference is multiplied by."},
                                              {{"none", false}, {"1/sqrt(N)", true}}, false);
  options.weight.staleness_exponent = settings.number(
      {"staleness_exponent", "A difference is multiplied by (1 + its staleness)^-a."}, Range::at_least(0), 0.0);
  options.weight.average_staleness = settings.number(
      {"average_staleness", "Weights are divided by that of a difference which is so stale.", "updates"},
      Range{.low = 0, .high_open = true}, 0.0);
  if (!settings.has("average_staleness")) settings.leave_out("average_staleness");
  if (options.weight.average_staleness > 0 && options.weight.staleness_exponent == 0)
    settings.fault("average_staleness", "needs a staleness_exponent: without one all weigh alike");
  options.maximum_staleness = settings.optional_integer(
      {"maximum_staleness", "A difference is dropped if the model has had more updates since its start.", "updates",
       "none is dropped"},
      0, std::numeric_limits<std::int64_t>::max());
  const double grace_s = settings.number(
      {"grace_s", "The first difference opens a window: who comes in it goes on from the same model at its end.", "s"},
      Range::between(0, 1e9), 0.0);
  options.grace = from_seconds(grace_s);
  options.moments = read_moments_of_rounds(settings);
  return std::make_unique<AsyncLocalSgd>(options);
}

}  // namespace syncopate
