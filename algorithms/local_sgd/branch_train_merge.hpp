// Branch, train, merge: after some steps of synchronous SGD (seed steps) all workers train alone; their models are
// merged once, at the end.
// Source:  Li et al. 2022, "Branch-Train-Merge"; without seed steps Wortsman et al. 2022, "LoFi".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per seed step; at the end one more, or N - 1 models to worker 0.
// Differs: workers draw from shards of the same data, not from separate domains. An ensemble predicts the mean of its
//          members' probabilities, and each member keeps its BatchNorm statistics. A moving average (`average`)
//          includes the merged model; ensembles have no moving average.
// Checks:  with seed steps only it equals synchronous SGD; LoFi equals Local SGD with one round; an ensemble of equal
//          models predicts the same as one of them; bytes of both ways to merge.
#pragma once

#include <limits>

#include "algorithms/local_sgd/rounds.hpp"

namespace syncopate {

enum class Merge { average, ensemble };

class BranchTrainMerge : public Algorithm {
 public:
  BranchTrainMerge(Step seed_steps, Merge merge, const StatePolicies& policies)
      : seed_steps_(seed_steps), merge_(merge), policies_(policies) {}

  void run(Worker& worker) const override {
    train_together(worker, seed_steps_, {});
    if (!worker.budget_left()) return;
    take_local_steps(worker, worker.steps_left());
    if (merge_ == Merge::ensemble) return publish_ensemble(worker);
    worker.average_model({.policy = policies_.average, .weight = policies_.model_weight()});
    publish(worker, policies_);
  }

  Traits traits() const override {
    return {.follows_clock = false,
            .settles_after = seed_steps_,
            .publishes_rounds = true,
            .exchanged_whole = "models are averaged once, at the end, so the part that is not sent would be lost"};
  }

  std::optional<Communicated> communication(const CommunicationInput& input) const override {
    Communicated sum = communicated_in_rounds(*make_swap_period(seed_steps_), policies_.average, input);
    if (merge_ == Merge::ensemble && input.steps > seed_steps_)
      sum.bytes = Bytes{seed_steps_.value() * input.of_gradient().value() +
                        (input.workers - 1) * input.parameter_bytes.value()};
    return sum;
  }

 private:
  // Worker 0 receives all models, in the order of the ranks.
  void publish_ensemble(Worker& worker) const {
    std::vector<ModelStatePtr> members = {worker.model()};
    if (worker.rank() != Rank{0}) worker.send(Rank{0}, Message::of_model(worker.step(), worker.model()));
    for (int other = 1; worker.rank() == Rank{0} && other < worker.size(); ++other) {
      auto message = worker.receive({.from = Rank{other}});
      if (message) members.push_back(std::move(message->model));
    }
    worker.barrier();  // all workers now have the same counts of work done and bytes sent
    publish(worker, policies_, nullptr, std::move(members));
  }

  Step seed_steps_;
  Merge merge_;
  StatePolicies policies_;
};

inline std::unique_ptr<Algorithm> make_branch_train_merge(Settings& settings, const AlgorithmContext& context) {
  const Step seed_steps = settings.integer({"seed_steps", "Synchronous steps before workers train alone.", "steps"}, 0,
                                           std::numeric_limits<Step::Rep>::max(), 0);
  if (!context.budget_ends_alone)
    settings.fault(
        "algorithm",
        "needs a budget in steps, epochs, seconds or samples: workers that train alone send nothing, so a budget in "
        "bytes would never end");
  const Merge merge = settings.choice(
      {"merge", "How models are merged at the end: their average, or an ensemble that averages their predictions."},
      {{"average", Merge::average}, {"ensemble", Merge::ensemble}}, Merge::average);
  if (merge == Merge::ensemble && settings.has("average"))
    settings.fault("average", "must be left out with merge = \"ensemble\": an ensemble has no moving average");
  const StatePolicies policies = merge == Merge::average ? read_buffer_policies(settings, context) : StatePolicies{};
  return std::make_unique<BranchTrainMerge>(seed_steps, merge, policies);
}

}  // namespace syncopate
