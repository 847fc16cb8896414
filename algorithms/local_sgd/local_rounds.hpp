// Rounds of local steps, as a combination of choices. A round consists of
//
//   steps      what a worker does in each of its H local steps: train, train until a time is over, or be pulled back
//   period     how H follows from the step and the learning rate, or from the loss; or a period for each moment
//   groups     workers whose models are averaged within the round (optional)
//   late       at which model the next round begins while the average is under way; if left out, workers wait for it
//   fragments  parts of the model that are averaged one after the other while workers take steps (optional)
//   outer      the optimizer of an outer step towards the average; if left out, the average is the next model
//
// Named methods are the choices of a paper: local-sgd, outer-local-sgd (SlowMo, DiLoCo), hierarchical-sgd,
// dropcompute-local-sgd, palsgd, co2, cocod-sgd, overlap-local-sgd, overlapped-diloco, streaming-diloco, adacomm and
// des-loc, each with its own card. `algorithm = "rounds"` takes any combination.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per round, more if moments are averaged; with groups also one in each group per
//          group period; with an outer optimizer one or two more vectors of P floats per worker.
// Differs: the last average is taken after the last step. Moments of the inner optimizer stay with their worker unless
//          `moments` says otherwise. Every worker takes the outer step itself, and all get the same result. Groups are
//          workers of consecutive ranks. Their size need not divide N; the last group is then smaller. Groups cannot be
//          combined with steps that stop at a time, since the other workers of a group would wait for its average.
// Checks:  each choice against the method with its name, bit for bit; combinations against their recursions.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "algorithms/local_sgd/local_steps.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"

namespace syncopate {

// --- Averages that are one round late: each worker starts an average at the end of a round, trains in the next round
// while this average is under way, and finishes it at the end of that round. The table "Rounds of local steps" in
// algorithms/README.md says for each such method what it averages, and where its next round begins. ---
// Units:   the delay is one round; the period's rule determines the steps of a round.
// Cost:    an all-reduce of P floats per round, as with Local SGD. If workers are alike and steps have no spread, a
//          round takes max(H c, A) s, with H steps of c s each and an all-reduce of A s.
// First:   no average is finished at the end of the first round; each method's header says what it does then.
// Last:    workers wait for the last average, so that the last round's work is in the evaluated model. Before the first
//          average is finished, workers agree only on numbers of steps, so only a budget in steps can end before that.
// Differs: a worker that loses its state goes back to its copy from the last round's end, with the method's variables.

// A worker's average in progress, at most one at a time, and the worker's rounds.
class AverageUnderWay {
 public:
  AverageUnderWay(Worker& worker, const StatePolicies& policies)
      : worker_(worker), policy_(policies.average), weight_(policies.model_weight()), steps_(worker) {}

  bool is_under_way() const { return started_.has_value(); }
  // Whether another round begins. Call this at a round's end; all workers then get the same result.
  bool rounds_left() const;
  // Takes the steps of the next round, by the period's rule, on this worker alone; takes fewer if the budget or the
  // worker's data end. Returns the steps' mean learning rate; 0 without steps.
  double take_round(const SyncPeriod& period, LocalSteps& steps);
  // Starts an average of `mine`. A compressed average sends differences to `from`, a model that all workers share;
  // null: `mine` is already a difference.
  void start(const ModelStatePtr& mine, const ModelStatePtr& from,
             Participant::CalledFrom at = Participant::CalledFrom::current());
  // Waits for the started average. Returns the mean over the workers; null in time-only runs.
  ModelStatePtr finish(Participant::CalledFrom at = Participant::CalledFrom::current());

 private:
  Worker& worker_;  // must outlive this object
  AveragePolicy policy_;
  double weight_;
  PlannedSteps steps_;
  std::optional<StartedCollective> started_{};
  bool has_come_ = false;  // whether an average has been finished
};

// A rule for averages that are one round late: what is averaged, and at which model the next round begins.
struct LateRule {
  class OfWorker {
   public:
    // All arguments must outlive this object. `outer`: empty unless the rule takes outer steps.
    OfWorker(Worker& worker, const OuterOptimizer& outer, const StatePolicies& policies)
        : worker_(worker), outer_(outer), policies_(policies) {}
    virtual ~OfWorker() = default;
    // Ends a round that led from the model `begin` to the worker's current model, with the mean learning rate `rate`.
    // Finishes the pending average, if any, sets the model at which the next round begins, starts this round's average,
    // and publishes.
    virtual void end_round(AverageUnderWay& average, const ModelStatePtr& begin, double rate) = 0;
    // Called if there is no further round: adopts the pending average, if any, and publishes the last model.
    virtual void end(AverageUnderWay& average) {
      if (average.is_under_way()) worker_.set_model(average.finish());
      publish(worker_, policies_);
    }

   protected:
    Worker& worker_;
    const OuterOptimizer& outer_;
    const StatePolicies& policies_;
  };

  // Takes the arguments of OfWorker.
  std::function<std::unique_ptr<OfWorker>(Worker&, const OuterOptimizer&, const StatePolicies&)> begin{};
  double held_vectors = 0;  // how many vectors of the model's length each worker holds beside its own model
  bool takes_outer_steps = false;
  bool counts_alike = false;  // whether all models must have equal weights
};

// LateRule::begin for this class, whose constructor has `options` as its last arguments.
template <typename OfWorker, typename... Options>
auto begin_late(Options... options) {
  return [=](Worker& worker, const OuterOptimizer& outer, const StatePolicies& policies) {
    return std::make_unique<OfWorker>(worker, outer, policies, options...);
  };
}

// Fragments of the model (rounds.hpp). Each is averaged at its own time in a round, and adopted `delay` steps later.
struct FragmentsOfRound {
  Fragments fragments{1};
  Step delay{};       // tau
  double mixing = 0;  // alpha: the share of its own fragment that a worker keeps
};

struct RoundChoices {
  StepRule steps = make_training_steps();
  std::shared_ptr<const SyncPeriod> period{};   // never null
  std::optional<GroupsOfRound> groups{};        // none: models are averaged only at the round's end
  std::optional<LateRule> late{};               // none: workers wait for each average
  std::optional<FragmentsOfRound> fragments{};  // none: the whole model is averaged at once
  OuterOptimizer outer{};                       // empty: the average is the next model
  StatePolicies policies{};                     // for all averages
};

class LocalRounds : public Algorithm {
 public:
  explicit LocalRounds(RoundChoices choices) : choices_(std::move(choices)) {}

  void run(Worker& worker) const override;
  Traits traits() const override;
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  void run_rounds(Worker& worker, LocalSteps& steps) const;
  void run_late_rounds(Worker& worker, LocalSteps& steps) const;
  void run_in_fragments(Worker& worker, LocalSteps& steps) const;
  void take_round(Worker& worker, LocalSteps& steps, Step left, MeanRate& rate) const;
  void end_round(Worker& worker, ModelStatePtr& last, MeanRate& rate, OuterState& outer) const;

  RoundChoices choices_;
};

// Reads `size` and `period`, with `prefix` before their names.
GroupsOfRound read_groups(Settings& settings, const AlgorithmContext& context, const std::string& prefix);

// Reads `fragments`, `delay` and `mixing`. The delay must not exceed the shortest round of `period`; it is not checked
// if `period` is null, which stands for a period with faults.
FragmentsOfRound read_fragments_of_round(Settings& settings, const AlgorithmContext& context, const SyncPeriod* period);

std::unique_ptr<Algorithm> make_rounds(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
