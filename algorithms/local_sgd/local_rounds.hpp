// Rounds of local steps, as a combination of choices. A round consists of
//
//   steps    what a worker does in each of its H local steps: train, train until a time is over, or be pulled back
//   period   H, by a rule: from the step and the learning rate, by the loss, or one for each moment of the optimizer
//   groups   workers whose models are averaged within the round (optional)
//   late     where the next round begins while the average of all is under way; without it all wait for the average
//   fragments of the model, averaged one after the other while workers take steps (optional)
//   outer    what the average of all becomes: the next model, or the target of an outer step
//
// This file has the program, and the choices that are not elsewhere (sync_period.hpp, run_periods.hpp,
// outer_optimizer.hpp). Named methods are choices made by a paper: local-sgd, outer-local-sgd (SlowMo, DiLoCo),
// hierarchical-sgd, dropcompute-local-sgd, palsgd, co2, cocod-sgd, overlap-local-sgd, overlapped-diloco,
// streaming-diloco, adacomm and des-loc, each with its own card. `algorithm = "rounds"` takes any combination.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.
// Cost:    one all-reduce of P floats per round, more if moments are averaged; with groups one of each group per group
//          period; with an outer optimizer one or two more vectors of P floats per worker.
// Differs: the last average falls on the last step. Moments of the inner optimizer stay with their worker unless
//          chosen. Every worker takes the outer step itself, and all get the same. Groups are workers of consecutive
//          ranks. Their size need not divide N: the last is then smaller. Steps that stop at a time cannot have groups,
//          since others would wait for the group's average.
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
  double mixing = 0;  // alpha: the share of a worker's own fragment that remains
};

struct RoundChoices {
  std::shared_ptr<const StepRule> steps = make_training_steps();
  std::shared_ptr<const SyncPeriod> period{};     // never null
  std::optional<GroupsOfRound> groups{};          // none: models are averaged only at the round's end
  std::shared_ptr<const LateRule> late{};         // null: workers wait for the average
  std::optional<FragmentsOfRound> fragments{};    // none: the whole model is averaged at once
  std::shared_ptr<const OuterOptimizer> outer{};  // null: the average is the next model
  StatePolicies policies{};                       // for all averages
  bool weighs_steps = false;                      // if steps may stop: models are weighted by steps taken
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
  void end_round(Worker& worker, ModelStatePtr& last, MeanRate& rate, ModelStatePtr& momentum) const;

  RoundChoices choices_;
};

// Reads the policies, and how models are weighted; if workers may stop, also by their steps.
void read_weights_of_stopping(Settings& settings, const AlgorithmContext& context, RoundChoices& choices);

// Reads `fragments`, `delay` and `mixing`. The delay must not exceed the shortest round of `period`; null: the period
// has faults.
FragmentsOfRound read_fragments_of_round(Settings& settings, const AlgorithmContext& context, const SyncPeriod* period);

// The registry of late rules: one row per kind.
struct LateRuleRow {
  std::string_view name;      // `late.next = ...` in TOML
  std::string_view sentence;  // where the next round begins
  std::shared_ptr<const LateRule> (*make)(Settings& settings);
};
std::span<const LateRuleRow> late_rules();

std::unique_ptr<Algorithm> make_rounds(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
