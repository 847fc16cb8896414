// Common parts of rounds of local steps: how workers train alone, what happens to moments and BatchNorm statistics when
// models are averaged, how models are weighted, and fragments of a model that are averaged separately.
// Source:  Gupta et al. 2020, "Stochastic Weight Averaging in Parallel": SWAP's second phase; reference code of Gu et
//          al. 2024 (hmgxr128/QSR): moments and statistics; McMahan et al. 2017, "Communication-Efficient Learning of
//          Deep Networks from Decentralized Data" (FedAvg): weights by samples; Douillard et al. 2025, "Streaming
//          DiLoCo with overlapping communication: Towards a Distributed Free Lunch": fragments.
// Units:   steps are optimizer steps.
// Differs: SWAP's second phase keeps the size of a micro-batch. Its learning rate depends on the steps since the phase
//          began, and also applies to reports of published models and to rules for the length of a round. BatchNorm
//          statistics are by default averaged along with the parameters. The reference code instead estimates them on
//          128 micro-batches before each evaluation. Here (buffers = "recalibrate") the estimate uses the
//          micro-batches of future steps, all at the published model, and takes no time.
// Checks:  a second phase with the first phase's batch, order and rate changes nothing, bit for bit; each worker's pass
//          contains all samples once, in its own order; rates against the formula; fragments cover the vector once, and
//          are H / P steps apart if P divides H, never more than ceil(H / P).
#pragma once

#include <optional>

#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/method/algorithm.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// The mean learning rate of some local steps; 0 without steps.
class MeanRate {
 public:
  void add(double rate) {
    sum_ += rate;
    ++steps_;
  }
  double value() const { return steps_ > 0 ? sum_ / static_cast<double>(steps_.value()) : 0; }

 private:
  double sum_ = 0;
  Step steps_{};
};

// Takes `count` steps on this worker alone. Takes fewer if the budget or the worker's data end.
inline void take_local_steps(Worker& worker, Step count) {
  for (Step taken{}; taken < count && worker.budget_left(BudgetView::local); ++taken)
    worker.descend(worker.compute_step_gradient() / worker.micro_batches());
}

// How workers train alone.
struct LocalPhase {
  enum class Sampling {
    shards,  // its part of each epoch, as in synchronous steps
    own,     // all samples, in each worker's own order, which differs between epochs
  };

  std::optional<int> micro_batches{};  // in a worker's step; none: as in synchronous steps
  Sampling sampling = Sampling::shards;
  Step steps_per_epoch{};                                // synchronous steps in an epoch; for Sampling::own
  Step first_step{};                                     // as in AlgorithmContext; for Sampling::own
  std::optional<LearningRate::Options> learning_rate{};  // without total_steps; none: the run's schedule continues

  // The schedule for a phase of this many steps; none: the run's schedule continues, or the phase has no steps.
  std::optional<LearningRate> learning_rate_over(Step steps) const;
};

// Reads the table `local_phase`; without this table workers train as in synchronous steps.
LocalPhase read_local_phase(Settings& settings, const AlgorithmContext& context);

// Reads the table `period`; never returns null. `phase`: the phase of local steps, if it may have a learning rate of
// its own, which the rule then uses. `may_follow_run`: whether rules of run_periods.hpp are allowed, too.
std::shared_ptr<const SyncPeriod> read_sync_period(Settings& settings, const AlgorithmContext& context,
                                                   const std::optional<LocalPhase>& phase = {},
                                                   bool may_follow_run = false);

// How models are weighted in an average of all: equally, by the local steps that their workers have taken in the round
// (only if workers may stop), or by the number of their workers' training samples (FedAvg).
enum class ModelWeights { equal, steps, samples };

// The treatment of optimizer moments and BatchNorm statistics when models are averaged, and the weights of models.
struct StatePolicies {
  AveragePolicy average{};              // at each synchronisation
  int recalibration_micro_batches = 0;  // how many are used to estimate BatchNorm statistics; 0: no estimate
  ModelWeights weights = ModelWeights::equal;

  bool count_alike() const { return weights == ModelWeights::equal; }
  // Averaging::weight of each worker's model, unless steps are the weights.
  double model_weight() const { return weights == ModelWeights::samples ? by_samples : 1; }
};

// Reads `moments` = "keep" (default), "average" or "reset"; the same for one moment, `first_moment` (SGD's momentum)
// and `second_moment`; and the keys of read_buffer_policies.
StatePolicies read_state_policies(Settings& settings);
// Reads only `buffers` = "average" (default), "keep", "reset" or "recalibrate", the last with
// recalibration_micro_batches (default: 128), for methods that treat moments in one way.
StatePolicies read_buffer_policies(Settings& settings);
// With the context these functions also read `weights` = "equal" (default) or "samples", which is allowed only if the
// data are divided among the workers and averages are not compressed.
StatePolicies read_state_policies(Settings& settings, const AlgorithmContext& context);
StatePolicies read_buffer_policies(Settings& settings, const AlgorithmContext& context);
// Also allows `weights` = "steps", for steps that may stop.
StatePolicies read_policies_of_stopping(Settings& settings, const AlgorithmContext& context);

// Publishes `model` (null: the participant's), or the ensemble if it has members, with the micro-batches for estimating
// BatchNorm statistics.
void publish(Participant& participant, const StatePolicies& policies, const ModelStatePtr& model = nullptr,
             std::vector<ModelStatePtr> ensemble = {});

// Takes steps of synchronous SGD up to step `until`. All workers then have the same model and optimizer state.
inline void train_together(Worker& worker, Step until, const StatePolicies& policies) {
  while (worker.step() < until && worker.budget_left()) {
    Gradient sum = worker.compute_step_gradient();
    worker.all_reduce_sum(sum);
    worker.descend(sum / (worker.size() * worker.micro_batches()));
    publish(worker, policies);
  }
}

// Fragments: the parts of a model that are synchronised separately, each at its own time in a round.
// Shapes:  fragment p of P has the parameters from floor(p d / P) to floor((p + 1) d / P) of the flat vector of d, at
//          least one. BatchNorm statistics belong to fragment 0.   Units: offsets in local steps, 1 to H.
// Differs: the paper's fragments are whole layers, three transformer blocks each, consecutive or strided over the
//          depth. Here they are equal slices, so that each takes the same time; the flat vector begins with the tensors
//          that have weight decay. With a plain mean the borders decide only when a parameter is synchronised. The
//          results of `rda` and of compression depend on them: `rda` treats each part of a cut tensor as a tensor, and
//          compression treats each fragment separately.
class Fragments {
 public:
  // `written`: where the experiment file has the number, for a fault that is found only once the model is known.
  explicit Fragments(int count, std::string written = {}) : count_(count), written_(std::move(written)) {}

  int count() const { return count_; }
  Slice slice(int fragment) const { return {.index = fragment, .count = count_}; }
  // The step of a round at which the fragment is due: ceil((p + 1) H / P), so the last one is due at the round's end.
  // If there are more fragments than steps, several are due together.
  Step offset(int fragment, Step round) const;
  // Throws RunFailure if the model has fewer parameters than fragments.
  void check(const Participant& participant) const;

 private:
  int count_;
  std::string written_;
};

// Reads `fragments`. `usual`: the default; none: the key is required. `parameters`: the model's number, if known.
Fragments read_fragments(Settings& settings, std::optional<int> usual = {},
                         std::optional<std::int64_t> parameters = {});

// --- Predictions of a whole run in rounds: its time by formulas, and its communication by counting rounds ---
// Source:  expected maxima of normal sums (workers/theory/paper_formulas.hpp).   Units:   seconds, bytes.

// Predicts the time of Local SGD. Each round takes the slowest worker's sum of step times, plus the time of an average.
// By the first prediction these sums are normal. A second one, from sums of drawn steps, follows if the first disagrees
// with it, or if there is no first because step times have no variance. There is no prediction if the rule does not
// know the lengths of rounds in advance. `rate`: the schedule that the rule follows.
Forecast predict_rounds(const SyncPeriod& period, const AveragePolicy& policy, const LearningRate& rate,
                        const PredictionInput& input);

// Averages within groups of `size` consecutive workers (the last group may be smaller) after each `period` local steps
// of a round, but not at its end.
struct GroupsOfRound {
  int size = 1;
  Step period{1};
};
struct CommunicationOfRounds {
  GroupsOfRound groups{};
  const LearningRate* rate = nullptr;  // the schedule that the rule follows; null: the run's
  int rows = 1;                        // rows of steps.csv at the end of a round
  Bytes beside_average{};              // bytes sent at the end of a round, beside those of the average
};
// Counts an all-reduce of gradients in each synchronous step, then one average per round, and those within groups.
Communicated communicated_in_rounds(const SyncPeriod& period, const AveragePolicy& policy,
                                    const CommunicationInput& input, const CommunicationOfRounds& rounds = {});

}  // namespace syncopate
