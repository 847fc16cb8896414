#include "algorithms/local_sgd/dynamic_averaging.hpp"

#include <limits>

#include "algorithms/local_sgd/gathered_averaging.hpp"
#include "algorithms/local_sgd/model_coordinator.hpp"

namespace syncopate {

void DynamicAveraging::run(Worker& worker) const {
  if (is_gathered()) return average_by_gathered_distances(worker, options_);
  ModelStatePtr reference = worker.model();
  while (worker.budget_left()) {
    worker.descend(worker.compute_step_gradient() / worker.micro_batches());
    if (worker.step().value() % options_.check_every.value() == 0) check(worker, reference);
    worker.report_steps();
    if (worker.budget_left()) worker.publish(OwnModel());
  }
  worker.send(Rank{worker.size()}, Message::of_last_model(worker.step(), worker.publish(OwnModel())));
}

void DynamicAveraging::serve(Server& server) const { ModelCoordinator(server, options_.threshold).run(); }

// Where this model is too far from the reference, or the coordinator has asked for it, it goes there, and the mean that
// comes back takes its place. A question that has crossed the model on its way is answered by it.
void DynamicAveraging::check(Worker& worker, ModelStatePtr& reference) const {
  const Rank coordinator{worker.size()};
  const bool is_asked = worker.receive({.from = coordinator, .until = worker.now()}) != nullptr;
  const double distance = worker.distance(worker.model(), reference);
  const bool violates = !(distance * distance <= options_.threshold);  // not a number: averaged, so that it shows
  if (!is_asked && !violates) return;
  const auto news = violates ? CoordinatorNews::violation : CoordinatorNews::answer;
  worker.send(coordinator, Message::of_model(worker.step(), worker.model(), {as_number(news)}));
  ReceivedMessage mean = worker.receive({.from = coordinator});
  while (mean && !mean->has_model()) mean = worker.receive({.from = coordinator});
  if (!mean) return;
  worker.set_model(mean->model);
  if (mean->numbers.front() == as_number(CoordinatorNews::reference)) reference = mean->model;
}

std::unique_ptr<Algorithm> make_dynamic_averaging(Settings& settings, const AlgorithmContext& context) {
  if (context.time_only)
    settings.fault("algorithm", "needs a model: it measures how far the workers' parameters are apart");
  if (!context.budget_ends_alone)
    settings.fault("algorithm",
                   "needs a budget in steps, epochs, seconds or samples: models that stay near each other are never "
                   "sent, so that a budget of bytes never ends");
  DynamicOptions options;
  options.threshold = settings.number(
      {"threshold", "Squared distance from the last average beyond which models are averaged."}, Range::at_least(0));
  options.check_every = settings.integer({"check_every", "Steps from one look at the distances to the next.", "steps"},
                                         1, std::numeric_limits<Step::Rep>::max());
  using Checks = DynamicOptions::Checks;
  options.checks = settings.choice(
      {"checks",
       "By what models are averaged: own: each worker's own distance; gathered: the mean of all, known to all."},
      {{"own", Checks::own}, {"gathered", Checks::gathered}}, options.checks);
  options.policies = read_state_policies(settings);
  const bool is_usual =
      options.policies.average == AveragePolicy{} && options.policies.recalibration_micro_batches == 0;
  if (options.checks == Checks::own && !is_usual)
    settings.fault(
        "checks",
        "must be \"gathered\" where moments are not kept, or BatchNorm statistics not averaged: workers send "
        "their models alone");
  return std::make_unique<DynamicAveraging>(options);
}

}  // namespace syncopate
