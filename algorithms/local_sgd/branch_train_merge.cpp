#include "algorithms/local_sgd/branch_train_merge.hpp"

#include <limits>
#include <utility>

#include "algorithms/local_sgd/local_sgd.hpp"

namespace syncopate {

void BranchTrainMerge::run(Worker& worker) const {
  train_together(worker, seed_steps_, {});
  if (!worker.budget_left()) return;
  take_local_steps(worker, worker.steps_left());
  if (merge_ == Merge::ensemble) return publish_ensemble(worker);
  worker.average_model({.policy = policies_.average, .weight = policies_.model_weight()});
  publish(worker, policies_);
}

// All models end up with worker 0, in the order of the ranks.
void BranchTrainMerge::publish_ensemble(Worker& worker) const {
  std::vector<ModelStatePtr> members = {worker.model()};
  if (worker.rank() != Rank{0}) worker.send(Rank{0}, Message::of_model(worker.step(), worker.model()));
  for (int other = 1; worker.rank() == Rank{0} && other < worker.size(); ++other) {
    auto message = worker.receive({.from = Rank{other}});
    if (message) members.push_back(std::move(message->model));
  }
  worker.barrier();  // agrees on what was done and sent
  publish(worker, policies_, std::move(members));
}

// Steps together are rounds of one step, then all that is left is one.
Forecast BranchTrainMerge::forecast(const PredictionInput& input) const {
  if (merge_ == Merge::ensemble) return Forecast::none();
  return predict_rounds(*make_swap_period(seed_steps_), policies_.average, input);
}

std::optional<Communicated> BranchTrainMerge::communication(const CommunicationInput& input) const {
  Communicated sum = communicated_in_rounds(*make_swap_period(seed_steps_), policies_.average, input);
  if (merge_ == Merge::ensemble && input.steps > seed_steps_)
    sum.bytes =
        Bytes{seed_steps_.value() * input.of_gradient().value() + (input.workers - 1) * input.parameter_bytes.value()};
  return sum;
}

std::unique_ptr<Algorithm> make_branch_train_merge(Settings& settings, const AlgorithmContext& context) {
  const Step seed_steps = settings.integer({"seed_steps", "Synchronous steps before workers train alone.", "steps"}, 0,
                                           std::numeric_limits<Step::Rep>::max(), 0);
  if (!context.budget_ends_alone)
    settings.fault(
        "algorithm",
        "needs a budget in steps, epochs, seconds or samples: workers that train alone send nothing, so that "
        "a budget of bytes never ends");
  const Merge merge = settings.choice(
      {"merge", "How models are merged at the end: their average, or an ensemble that averages their predictions."},
      {{"average", Merge::average}, {"ensemble", Merge::ensemble}}, Merge::average);
  if (merge == Merge::ensemble && settings.has("average"))
    settings.fault("average", "must be left out where merge = \"ensemble\": what is evaluated is no model");
  StatePolicies policies;
  if (merge == Merge::average) {
    read_buffer_policy(settings, policies);
    read_model_weights(settings, context.divides_data, policies);
  }
  return std::make_unique<BranchTrainMerge>(seed_steps, merge, policies);
}

}  // namespace syncopate
