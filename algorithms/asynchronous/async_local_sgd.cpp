#include "algorithms/asynchronous/async_local_sgd.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "workers/lost_with_state.hpp"

namespace syncopate {
namespace {

// The look for a message lets everybody come as far as this worker's clock; the server sends none that nobody awaits.
bool server_has_ended(Worker& worker) {
  const Rank server{worker.size()};
  worker.receive({.from = server, .until = worker.now()});
  return worker.has_left(server);
}

Message take_local_steps(Worker& worker, Step steps) {
  ModelStatePtr start = worker.model();
  Work work;
  Step taken{};
  do {
    LostWithState<bool> has_state(worker, true);
    const Gradient gradient = worker.compute_step_gradient(Samples::in_turn);
    if (!*has_state) {  // it is the first from the server's newest model
      worker.discard(Gradient(nullptr, work.micro_batches, work.time));
      worker.set_model(worker.model(), StatePolicy::reset);
      start = worker.model();
      work = {};
      taken = 0;
    }
    worker.descend(gradient / worker.micro_batches());
    work.micro_batches += gradient.micro_batches();
    work.time += gradient.compute_time();
  } while (++taken < steps && worker.budget_left(Judged::by_server) && !server_has_ended(worker));
  const ModelStatePtr end = worker.model();
  const ModelStatePtr difference = end ? worker.combine({{1, start}, {-1, end}}, end) : nullptr;
  return Message::of_difference(worker.step(), difference, work);
}

}  // namespace

void AsyncLocalSgd::run(Worker& worker) const {
  std::vector<double> told;
  while (worker.receive_model(told)) {
    const Time begun = worker.now();
    if (options_.moments == StatePolicy::reset) worker.set_model(worker.model(), StatePolicy::reset);
    const Step steps = told.empty() ? options_.local_steps : Step{static_cast<Step::Rep>(told.front())};
    Message difference = take_local_steps(worker, steps);
    if (!told.empty()) difference.numbers = {to_seconds(worker.now() - begun)};
    worker.send(Rank{worker.size()}, std::move(difference));
  }
}

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

// A worker's cycle is H local steps, its difference and the next model. Of the others' N - 1 differences each comes
// once on average while one is under way, whatever their times, since a slower worker misses more and comes more
// rarely.
Forecast AsyncLocalSgd::forecast(const PredictionInput& input) const {
  if (options_.maximum_staleness) return Forecast::none("which differences are too stale depends on the pace of all");
  if (options_.grace > Duration{}) return Forecast::none("who shares a grace window depends on when all come");
  const auto most = static_cast<double>(options_.local_steps.value());
  Forecast forecast = predict_own_pace({2 * input.message_s() / most, input.message_s() / most}, input);
  double fastest_s = input.times.law.mean;  // of a micro-batch
  if (!input.times.alike()) fastest_s = std::numeric_limits<double>::infinity();
  for (const auto& [law, workers] : input.times.laws) fastest_s = std::min(fastest_s, law.mean);
  const auto steps_of = [&](const MicroBatchLaw& law) {
    if (!options_.steps_by_speed) return most;
    return static_cast<double>(options_.steps_by_speed->at(fastest_s / law.mean, options_.local_steps).value());
  };
  const auto cycles_per_s = [&](const MicroBatchLaw& law) {
    return 1 / (steps_of(law) * input.micro_batches * law.mean + 2 * input.message_s());
  };
  for (Prediction& prediction : forecast.predictions) {
    const auto pace = [&](const MicroBatchLaw& law) { return steps_of(law) * cycles_per_s(law); };
    prediction.step_time_s = 1 / mean_over_workers(input.times, pace);
    prediction.communication_s =
        prediction.step_time_s * input.message_s() * mean_over_workers(input.times, cycles_per_s);
    prediction.mean_staleness = (input.workers - 1.0) / options_.update->differences();
  }
  return forecast;
}

// Whose differences they are is for the clock to say, but not how many: each has H steps. The last one is not answered.
std::optional<Communicated> AsyncLocalSgd::communication(const CommunicationInput& input) const {
  if (options_.steps_by_speed || options_.maximum_staleness || options_.grace > Duration{}) return std::nullopt;
  const std::int64_t of_update = options_.update->differences() * options_.local_steps.value();
  const std::int64_t updates = (input.workers * input.steps.value() + of_update - 1) / of_update;
  const std::int64_t messages = 2 * updates * options_.update->differences() + input.workers - 1;
  return Communicated{std::min(updates, input.steps.value()), Bytes{messages * input.parameter_bytes.value()}};
}

std::unique_ptr<Algorithm> make_async_local_sgd(Settings& settings, const AlgorithmContext&) {
  AsyncLocalOptions options;
  options.local_steps =
      settings.integer({"local_steps", "Local steps from a model to the difference (H).", "steps"}, 1, 1'000'000'000);
  options.steps_by_speed = read_dynamic_steps(settings, options.local_steps);
  Settings update = settings.section({"update", "What the server makes of the differences."});
  options.update = make_server_update(update);
  options.weight.by_workers = settings.choice({"rate_scaling", "What each difference is multiplied by."},
                                              {{"none", false}, {"1/sqrt(N)", true}}, false);
  options.weight.staleness_exponent = settings.number(
      {"staleness_exponent", "A difference is multiplied by (1 + its staleness)^-a."}, Range::at_least(0), 0.0);
  options.maximum_staleness = settings.optional_integer(
      {"maximum_staleness", "A difference is dropped if the model has had more updates since its start.", "updates",
       "none is dropped"},
      0, std::numeric_limits<std::int64_t>::max());
  const double grace_s = settings.number(
      {"grace_s", "The first difference opens a window: who comes in it goes on from the same model at its end.", "s"},
      Range::between(0, 1e9), 0.0);
  options.grace = from_seconds(grace_s);
  options.moments = settings.choice({"moments", "What becomes of a worker's optimizer moments when it gets a model."},
                                    {{"keep", StatePolicy::keep}, {"reset", StatePolicy::reset}}, options.moments);
  return std::make_unique<AsyncLocalSgd>(options);
}

}  // namespace syncopate
