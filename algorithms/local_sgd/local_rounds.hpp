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

#include <memory>
#include <optional>
#include <string_view>

#include "algorithms/local_sgd/local_steps.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/local_sgd/overlapped_rounds.hpp"

namespace syncopate {

// Averages within groups of `size` consecutive workers after each `period` local steps of a round.
struct GroupsOfRound {
  int size = 1;
  Step period{1};
};

// Fragments of the model (rounds.hpp). Each is averaged at its own time in a round, and adopted `delay` steps later.
struct FragmentsOfRound {
  Fragments fragments{1};
  Step delay{};       // tau
  double mixing = 0;  // alpha: the share of its own fragment that a worker keeps
};

struct RoundChoices {
  std::shared_ptr<const StepRule> steps = make_training_steps();
  std::shared_ptr<const SyncPeriod> period{};     // never null
  std::optional<GroupsOfRound> groups{};          // none: models are averaged only at the round's end
  std::shared_ptr<const LateRule> late{};         // null: workers wait for each average
  std::optional<FragmentsOfRound> fragments{};    // none: the whole model is averaged at once
  std::shared_ptr<const OuterOptimizer> outer{};  // null: the average is the next model
  StatePolicies policies{};                       // for all averages
  bool weighs_steps = false;                      // whether steps taken weigh models; only if steps may stop
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

// Reads the policies and the weights of models for steps that may stop, which allow weights by the steps taken.
void read_weights_of_stopping(Settings& settings, const AlgorithmContext& context, RoundChoices& choices);

// Reads `fragments`, `delay` and `mixing`. The delay must not exceed the shortest round of `period`; it is not checked
// if `period` is null, which stands for a period with faults.
FragmentsOfRound read_fragments_of_round(Settings& settings, const AlgorithmContext& context, const SyncPeriod* period);

struct LateRuleRow {
  std::string_view name;      // `late.next = ...` in TOML
  std::string_view sentence;  // where the next round begins
  std::shared_ptr<const LateRule> (*make)(Settings& settings);
};
std::span<const LateRuleRow> late_rules();

std::unique_ptr<Algorithm> make_rounds(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
