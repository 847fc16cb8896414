#include "algorithms/asynchronous/difference_rounds.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
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

// Of each worker, where all were drawn.
std::vector<double> mean_steps(const PredictionInput& input) {
  std::vector<double> means(static_cast<std::size_t>(input.workers), input.micro_batches * input.times.law.mean);
  if (input.times.alike()) return means;
  std::ranges::transform(input.times.laws, means.begin(),
                         [&](const auto& of_one) { return input.micro_batches * of_one.law.mean; });
  return means;
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
  Forecast forecast = predict_own_pace({costs.around_s / most, costs.on_link_s / most}, input);
  if (forecast.predictions.empty()) return forecast;
  const auto steps_of = [&](double step_s, double fastest_s) {
    if (!rounds.steps_by_speed) return most;
    return static_cast<double>(rounds.steps_by_speed->at(fastest_s / step_s, rounds.local_steps).value());
  };
  const std::vector<double> step_times = mean_steps(input);
  const auto in_region = step_times.size() / static_cast<std::size_t>(costs.regions);
  double steps_per_s = 0, computing = 0;  // of all workers; how many of them compute
  for (std::size_t first = 0; first < step_times.size(); first += in_region) {
    const auto region = std::span(step_times).subspan(first, in_region);
    const double fastest_s = std::ranges::min(region);
    double steps_in_region = 0, cycles_in_region = 0, computing_in_region = 0;
    for (const double step_s : region) {
      const double steps = steps_of(step_s, fastest_s), cycle_s = steps * step_s + costs.around_s;
      steps_in_region += steps / cycle_s;
      cycles_in_region += 1 / cycle_s;
      computing_in_region += steps * step_s / cycle_s;
    }
    const double through_link = std::min(1.0, 1 / (costs.on_link_s * cycles_in_region));
    steps_per_s += through_link * steps_in_region;
    computing += through_link * computing_in_region;
  }
  for (Prediction& prediction : forecast.predictions) {
    prediction.step_time_s = input.workers / steps_per_s;
    prediction.communication_s = (input.workers - computing) / steps_per_s;
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
