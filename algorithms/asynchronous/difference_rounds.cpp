#include "algorithms/asynchronous/difference_rounds.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "workers/lost_with_state.hpp"

namespace syncopate {
namespace {

// The look for a message lets everybody come as far as this worker's clock; the server sends none that nobody awaits.
bool server_has_ended(Worker& worker) {
  worker.receive({.from = worker.server(), .until = worker.now()});
  return worker.has_left(worker.server());
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

void run_rounds(Worker& worker, const DifferenceRounds& rounds) {
  std::vector<double> told;
  while (worker.receive_model(told)) {
    const Time begun = worker.now();
    if (rounds.moments == StatePolicy::reset) worker.set_model(worker.model(), StatePolicy::reset);
    const Step steps = told.empty() ? rounds.local_steps : Step{static_cast<Step::Rep>(told.front())};
    Message difference = take_local_steps(worker, steps);
    if (!told.empty()) difference.numbers = {to_seconds(worker.now() - begun)};
    worker.send(worker.server(), std::move(difference));
  }
}

// The card.
Forecast predict_rounds(const DifferenceRounds& rounds, const RoundCosts& costs, const PredictionInput& input) {
  const auto most = static_cast<double>(rounds.local_steps.value());
  const double around_s = costs.difference_s + costs.model_s;
  Forecast forecast = predict_own_pace({around_s / most, costs.model_s / most}, input);
  double fastest_s = input.times.law.mean;  // of a micro-batch
  if (!input.times.alike()) fastest_s = std::numeric_limits<double>::infinity();
  for (const auto& [law, workers] : input.times.laws) fastest_s = std::min(fastest_s, law.mean);
  const auto steps_of = [&](const MicroBatchLaw& law) {
    if (!rounds.steps_by_speed) return most;
    return static_cast<double>(rounds.steps_by_speed->at(fastest_s / law.mean, rounds.local_steps).value());
  };
  const auto cycles_per_s = [&](const MicroBatchLaw& law) {
    return 1 / (steps_of(law) * input.micro_batches * law.mean + around_s);
  };
  for (Prediction& prediction : forecast.predictions) {
    const auto pace = [&](const MicroBatchLaw& law) { return steps_of(law) * cycles_per_s(law); };
    prediction.step_time_s = 1 / mean_over_workers(input.times, pace);
    prediction.communication_s = prediction.step_time_s * costs.model_s * mean_over_workers(input.times, cycles_per_s);
  }
  return forecast;
}

DifferenceRounds read_difference_rounds(Settings& settings, const AlgorithmContext& context) {
  DifferenceRounds rounds;
  rounds.local_steps =
      settings.integer({"local_steps", "Local steps from a model to the difference (H).", "steps"}, 1, 1'000'000'000);
  rounds.local_steps = context.work.of(context.workers).check(settings, "local_steps", rounds.local_steps.value());
  rounds.steps_by_speed = read_dynamic_steps(settings, rounds.local_steps);
  return rounds;
}

StatePolicy read_moments_of_rounds(Settings& settings) {
  return settings.choice({"moments", "What becomes of a worker's optimizer moments when it gets a model."},
                         {{"keep", StatePolicy::keep}, {"reset", StatePolicy::reset}}, StatePolicy::keep);
}

}  // namespace syncopate
