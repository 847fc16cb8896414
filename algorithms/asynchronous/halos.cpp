#include "algorithms/asynchronous/halos.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace syncopate {
void Halos::run(Worker& worker) const { run_rounds(worker, options_.rounds); }

void Halos::serve(Server& server) const {
  const bool is_global = server.server() == server.rank();
  is_global ? serve_regions(server) : serve_workers(server);
}

void Halos::serve_workers(Server& server) const {
  UpdateState state;
  StepsBySpeed steps(options_.rounds.steps_by_speed, options_.rounds.local_steps, server.size());
  ModelStatePtr merged = server.model();  // after the last merge
  int differences = 0;                    // since then
  std::int64_t micro_batches = 0;         // that the global server has not been told of
  bool is_answer_due = false;
  const auto send_update = [&] {
    const ModelStatePtr model = server.model();
    const ModelStatePtr update = model ? server.combine({{1, merged}, {-1, model}}, model) : nullptr;  // U
    const Work work{.micro_batches = std::exchange(micro_batches, 0)};
    server.send(server.server(), Message::of_difference(server.step(), update, work));
    is_answer_due = true;
  };
  const auto merge = [&](const Message& global) {
    server.accept(global);
    const double alpha = options_.mixing;
    if (global.model && alpha > 0)
      server.set_model(server.combine({{1 - alpha, server.model()}, {alpha, global.model}}));
    merged = server.model();
    differences = 0;
    is_answer_due = false;
  };
  server.send_model(Receivers::all, steps.to_tell(Rank{0}));  // nobody is measured yet
  while (const auto message = server.receive_until_all_left()) {
    if (message->from == server.server()) {
      merge(*message);
      continue;
    }
    steps.take_in(*message, server.micro_batches());
    server.accept(*message);
    options_.local_update->take(server, *message, 1, state);
    micro_batches += message->work().micro_batches;
    if (++differences == options_.merge_every) send_update();
    if (!server.budget_left(Judged::by_server)) return;
    server.send_model(message->from, steps.to_tell(message->from));
  }
  options_.local_update->end(server, state);
  const auto has_global_server = [&] { return !server.has_left(server.server()); };
  while (is_answer_due && has_global_server())
    if (const auto answer = server.receive()) merge(*answer);
  if (differences > 0 && has_global_server()) send_update();
}

void Halos::serve_regions(Server& server) const {
  UpdateState state;
  while (const auto update = server.receive_until_all_left()) {
    options_.global_update->take(server, *update, 1, state);
    if (!server.budget_left()) return;
    server.send_model(update->from);
  }
  options_.global_update->end(server, state);
}

// The card.
Halos::Halos(const HalosOptions& options) : options_(options) {
  if (!options_.local_update) options_.local_update = make_nesterov_update(1, 0);
  if (!options_.global_update) options_.global_update = make_nesterov_update(1, 0);
}

// A worker's cycle is its region's affair, as is its staleness: as in asynchronous Local SGD of the region alone. Of workers
// whose links are unlike, the fastest's.
Forecast Halos::forecast(const PredictionInput& input) const {
  const Servers servers = traits().servers;
  RoundCosts costs{.around_s = std::numeric_limits<double>::infinity(), .regions = options_.regions};
  Duration on_link = longest_duration;
  for (const Rank worker : Ranks(input.workers)) {
    MessageCall call{.from = worker,
                     .to = servers.server_of(worker, input.workers),
                     .payload = input.parameter_bytes,
                     .regions = servers.regions};
    const Route route = input.network.route(call);
    on_link = std::min(on_link, route.empty() ? Duration{} : route.back().occupied);
    const Duration model = input.network.message(call);
    call.payload = input.packet.value_or(input.parameter_bytes);
    costs.around_s = std::min(costs.around_s, to_seconds(model) + to_seconds(input.network.message(call)));
  }
  costs.on_link_s = to_seconds(on_link);
  Forecast forecast = predict_rounds(options_.rounds, costs, input);
  const int in_region = input.workers / options_.regions;
  for (Prediction& prediction : forecast.predictions)
    prediction.mean_staleness = (in_region - 1.0) / options_.local_update->differences();
  return forecast;
}

std::unique_ptr<Algorithm> make_halos(Settings& settings, const AlgorithmContext& context) {
  HalosOptions options;
  options.regions = static_cast<int>(settings.integer(
      {"regions", "How many regions the workers form, of consecutive ranks, each with a local server."}, 1,
      Stated(context.workers, "workers")));
  if (!context.are_divided_by(options.regions)) {
    settings.fault("regions",
                   fmt::format("must divide the number of workers, {}: all regions have as many", context.workers));
    options.regions = 1;
  }
  options.rounds = read_difference_rounds(settings, context);
  options.rounds.moments = read_moments_of_rounds(settings);
  Settings local = settings.section({"local_update", "What a local server makes of its workers' differences."});
  // One region may be much faster than the others.
  const WorkInBudget differences = context.work.of(options.rounds.fewest_steps().value());
  options.local_update = make_server_update(local, differences);
  Settings global = settings.section({"global_update", "What the global server makes of what the local ones send."});
  options.merge_every = static_cast<int>(settings.integer(
      {"merge_every", "A local server sends what so many differences since it last merged have come to (K).",
       "differences"},
      1, 1'000'000'000));
  options.merge_every = static_cast<int>(differences.check(settings, "merge_every", options.merge_every));
  options.global_update = make_server_update(global, differences.of(options.merge_every));
  options.mixing = settings.number({"mixing", "Share of the global model in a local server's, when it comes (alpha)."},
                                   Range::between(0, 1));
  return std::make_unique<Halos>(options);
}

}  // namespace syncopate
