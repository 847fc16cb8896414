// A method: the whole run of one worker, and of one server if it has servers, as plain sequential code.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/method/prediction.hpp"
#include "workers/compression/options.hpp"
#include "workers/config/settings.hpp"
#include "workers/server.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {

// The communication of a method's run, if it follows from the number of steps alone.
// Units:   a round is a row of steps.csv, a synchronisation of all workers; bytes are those of all workers, as the
//          Cluster counts them: 2 (n - 1) P for an all-reduce of P bytes among n workers.
// Checks:  runs (tests/experiments/predict_test.cpp) and closed forms (tests/algorithms/communication_test.cpp).
struct Communicated {
  std::int64_t rounds = 0;
  Bytes bytes{};
  bool operator==(const Communicated&) const = default;
};

// A run of `steps` steps in which no worker leaves or loses its state. `learning_rate` must outlive this struct.
struct CommunicationInput {
  int workers = 1;
  Bytes parameter_bytes{};
  int moments = 0;  // number of the optimizer's moments
  Step steps{};
  const LearningRate& learning_rate;
  std::vector<ExchangesFrom> exchanges{};     // collectives of a compressed sum of gradients; empty: not compressed
  std::vector<Exchange> average_exchanges{};  // collectives of a compressed average of models; empty: not compressed
  std::optional<Bytes> packet{};              // size of a compressed message to a server; none: not compressed

  Bytes of_gradient() const { return all_reduce_bytes(workers, parameter_bytes); }  // for one dense sum of gradients
  // For an all-reduce within each group of `size` workers; the last group may be smaller.
  Bytes within_groups(int size, Bytes payload) const {
    const int groups = (workers + size - 1) / size;
    return Bytes{2 * (workers - groups) * payload.value()};
  }
  // The bytes of all steps together, if each has one sum of gradients, compressed or not.
  Bytes of_gradients() const {
    if (exchanges.empty()) return Bytes{steps.value() * of_gradient().value()};
    Bytes sum{};
    for (const auto& [count, exchanged] : shared_out(exchanges, steps))
      sum += Bytes{count * of_exchanges(*exchanged).value()};
    return sum;
  }
  Bytes of_exchanges(const std::vector<Exchange>& of_one) const {
    Bytes sum{};
    for (const Exchange& exchange : of_one)
      sum +=
          collective_bytes({.operation = exchange.operation, .members = workers, .payload = exchange.payload(workers)});
    return sum;
  }
  Bytes payload_of(const AveragePolicy& policy) const {
    return Bytes{policy.averaged_vectors(moments) * parameter_bytes.value()};
  }
  Bytes of_average(const AveragePolicy& policy) const {
    return average_exchanges.empty() ? all_reduce_bytes(workers, payload_of(policy)) : of_exchanges(average_exchanges);
  }
};

// How many vectors of the model's length a method holds at its peak, in addition to those that every run holds: one
// state (shared by all workers, or the server's), the next state, a sum and a gradient. Gradients take no memory before
// they are evaluated, and workers with equal models share one state. From these numbers experiments/execution/cost.hpp
// predicts a run's memory.
// Checks:  the program's peak memory (tests/experiments/memory_test.cpp).
struct HeldVectors {
  double models = 1;   // per worker: own parameters or a version of the server's, anchors, sums, messages
  double moments = 1;  // per worker and moment of the optimizer
  double states = 0;   // for all workers together: whole states, each with its moments
  Step timed_steps{};  // not vectors: steps whose micro-batch times each worker stores
};

// A method's description of itself, for the code that arranges, predicts and compares its runs. It does not change what
// the method computes. "It" below is the method. The defaults are safe for an unknown method.
struct Traits {
  Servers servers{};                 // the parameter servers that it needs; each runs Algorithm::serve
  bool sends_to_neighbours = false;  // whether its workers send each other messages
  bool is_baseline = false;          // whether other methods' speed-ups are relative to it
  bool has_formulas = false;         // whether Algorithm::forecast has formulas for its time
  // Whether it makes decisions by computed values (losses, norms, distances), which time-only runs do not have.
  bool follows_values = false;
  // Whether its result depends on the order of arrivals, or on deadlines. If not, two runs with equal budgets in steps
  // end with the same model, up to rounding, on any cluster.
  bool follows_clock = true;
  // Number of first steps whose mean time may differ from that of later steps. A simulation of a few more steps than
  // these can be extrapolated to the whole run.
  Step settles_after{};
  // Number of steps after which the pattern of step times repeats, if that is more than a round. A simulation of fewer
  // steps does not show the mean time of a step.
  Step cycle{1};
  // The first step from which on all workers behave alike: between two collectives no worker decides by its own clock,
  // rank or gradients what it does next. A deadline for compute_gradient is no such decision. None: never.
  std::optional<Step> lockstep_from_step{};
  // Whether workers judge the budget on their own (BudgetView::local): a budget of seconds by their own clocks.
  bool judges_budget_locally = false;
  // Whether each published model ends a round of many updates, as an average of models that workers trained alone does.
  bool publishes_rounds = false;
  // Whether each model that it publishes is one that the publisher's optimizer steps, with moments that belong to it.
  // In Local SGD averages must not keep the first moment. Methods with steps_along_fresh_mean or sums_gradients also
  // do (has_stepped_models).
  bool publishes_stepped_models = false;
  // Whether each step is along the mean of gradients of the model that it changes, so that their noise shows what a
  // larger batch would gain (results/statistics.hpp).
  bool steps_along_fresh_mean = false;
  // Whether each worker takes the micro-batches of its data one after the other, whatever its step numbers are. Unless
  // outages erase computed work, its number of micro-batches then shows which samples it was offered.
  bool takes_data_in_turn = false;
  // Whether each step is along one all-reduced sum of all workers' gradients, which may be compressed.
  bool sums_gradients = false;
  // Whether it exchanges nothing but one sum of gradients per step, which can begin during the backward pass of the
  // step's last micro-batch (network.overlap).
  bool can_overlap_backward = false;
  // The gradients that its steps leave out of that sum. A compression may keep them for later steps
  // (SumOptions::dropped).
  Drops drops = Drops::nothing;
  // Whether each synchronisation is one average, with equal weights, of all workers' whole models, or of
  // `averaged_slices` slices of them in turn. The models' differences to a common model may be compressed, unless
  // moments are averaged too.
  bool averages_models = false;
  int averaged_slices = 1;
  bool averages_moments = false;
  bool waits_for_averages = true;  // false: an average runs while workers train
  // Whether, from some step on, it sums first moments instead of gradients; these sums may be compressed.
  bool sums_moments = false;
  // Whether its workers send their server gradients or differences between models, or slices of these in turn
  // (averaged_slices). The server uses or drops each message as a whole, so messages may be compressed.
  bool sends_gradients = false;
  bool rejects_gradients = false;  // whether the server may drop some of these messages as too late or too old
  HeldVectors held{};
  // Why none of its exchanges can be compressed: the end of a sentence after "must not be given: ". Empty: they can.
  std::string_view exchanged_whole{};

  // Whether the model to evaluate may be another one than its optimizer steps (Optimizer::evaluated_factor).
  bool has_stepped_models() const {
    return !servers.hold_slices() && (publishes_stepped_models || steps_along_fresh_mean || sums_gradients);
  }

  // Whether it sends messages between participants, which may wait for other traffic on a link.
  bool sends_messages() const { return servers > 0 || sends_to_neighbours; }
  // Whether its workers receive messages only from servers: the simulated cluster then refuses collectives.
  bool has_servers_alone() const { return servers > 0 && !sends_to_neighbours; }

  Compresses compresses() const {
    if (sums_moments) return Compresses::moments;
    if (sums_gradients) return Compresses::gradients;
    if (sends_gradients) return Compresses::messages;
    if (!averages_models) return Compresses::nothing;
    return waits_for_averages ? Compresses::averages : Compresses::averages_under_way;
  }

  // The number of slices of the model that are compressed separately.
  int compressed_slices() const { return servers.hold_slices() ? servers.count : averaged_slices; }

  // lockstep_from_step, or none if workers would judge this budget by their own clocks.
  std::optional<Step> lockstep_under(const Budget& budget) const {
    return judges_budget_locally && budget.seconds ? std::nullopt : lockstep_from_step;
  }
};

// Checks that one round fits into the whole budget. A run with a longer round would end long after its budget.
struct BudgetCheck {
  // The budget, as the number of gradients of all workers; one step of one worker is one gradient. None: not known in
  // advance, as for a budget in seconds.
  std::optional<std::int64_t> gradients{};
  std::int64_t in_one = 1;  // gradients in one unit of a key; N for a key that counts steps which all workers take

  // A budget of `steps` steps of the experiment file, each of N gradients. The unit is one gradient.
  static BudgetCheck of_steps(std::optional<Step> steps, int workers);

  // The same budget, in units that are `count` times as large.
  BudgetCheck of(std::int64_t count) const;
  // Reports a fault of the key if its value, `count` units, exceeds the budget; one unit is always allowed. If the key
  // has smaller units than this check, `together` of them make one unit of the check. Returns `count`, or after a fault
  // the largest allowed value.
  std::int64_t check(Settings& settings, std::string_view key, std::int64_t count, std::int64_t together = 1) const;
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void run(Worker& worker) const = 0;
  virtual void serve(Server& server) const;  // on each server that the traits request

  virtual Traits traits() const { return {}; }
  // Predicts the method's time by its paper's formulas (Traits::has_formulas). Methods without formulas are simulated.
  virtual Forecast forecast(const PredictionInput&) const { return {}; }
  // An additional sentence that `predict` prints; empty: none.
  virtual std::string remark(int /*workers*/) const { return {}; }
  // The method's exact communication; none if the number of steps does not determine it.
  virtual std::optional<Communicated> communication(const CommunicationInput&) const { return std::nullopt; }

  // The moving average of the published models (table `average`, for any method), which is evaluated in their place.
  void average_publications(const std::optional<MovingAverageOptions>& average) { average_ = average; }
  const std::optional<MovingAverageOptions>& average() const { return average_; }

  // The compression (table `compression`) of sums of gradients, averages of models, or workers' messages, whichever the
  // method's traits allow.
  void compress(const std::optional<CompressionOptions>& compression) { compression_ = compression; }
  const std::optional<CompressionOptions>& compression() const { return compression_; }

  // The restarts from checkpoints (table `restart`) of a method whose workers communicate by collectives alone.
  void restart_jobs(const std::optional<JobRestart>& restart) { job_restart_ = restart; }
  const std::optional<JobRestart>& job_restart() const { return job_restart_; }

 private:
  std::optional<JobRestart> job_restart_;
  std::optional<MovingAverageOptions> average_;
  std::optional<CompressionOptions> compression_;
};

struct AlgorithmContext {
  int workers = 1;
  std::optional<int> node_size{};  // workers that share an uplink of the network; none: the network has no groups
  bool workers_known = true;  // false: `workers` is only the maximum; do not name it in messages or allocate for it
  int micro_batches = 1;
  bool time_only = false;                    // the run has no model, so a rule cannot measure losses or norms
  bool plain_sgd = true;                     // the optimizer has neither moments nor weight decay
  std::vector<double> moment_decays{};       // [moment]: the share of it that the optimizer keeps in a step
  std::optional<double> frozen_beta1 = 0.9;  // the optimizer's beta1_of_frozen()
  bool clips_gradients = false;
  Step learning_rate_warmup{};
  std::optional<Step> steps_per_epoch{};  // none: no data set, or unknown because the file has faults
  bool has_epochs = steps_per_epoch.has_value();
  Step first_step{};                  // number of the run's first step, which determines where its data begin
  bool divides_data = false;          // the data are divided once for the run: each worker has its own samples
  std::optional<Step> total_steps{};  // none: the budget does not count steps, or unknown because the file has faults
  bool counts_steps = total_steps.has_value();
  double shortest_micro_batch_s = 0;  // lower bound for the micro-batches of all workers
  // False: the budget counts only bytes, so a method that sends nothing would never end.
  bool budget_ends_alone = true;
  const LearningRate* learning_rate = nullptr;  // the run's; must outlive the reading of the settings; null: unknown
  std::optional<int> tensors{};                 // number of the model's tensors; none: no model, or not loaded yet
  std::optional<std::int64_t> parameters{};     // the model's, or those that a run without a model sends; none: unknown
  BudgetCheck work{};                           // the budget's steps or samples, in gradients

  // Whether the workers form this many equally large groups; true if their number is unknown.
  bool are_divided_by(int groups) const { return !workers_known || workers % groups == 0; }
};

// Returns the weighted mean of the terms, null in time-only runs, and the sum of their weights.
WeightedState weighted_mean(const Participant& by, std::vector<WeightedState> terms);

// A row of a table of rules, from which a word in a method's table of an experiment file chooses.
template <typename Make>
struct RuleRow {
  std::string_view name;
  std::string_view sentence;
  Make* make;
};

// Adds the method's compressors (Algorithm::compression) to the context. run_algorithm calls this function.
void compress(RunContext& context, const Algorithm& algorithm);
// Runs the algorithm on all participants of the context's cluster.
RunTotals run_algorithm(const Algorithm& algorithm, const RunContext& context);

}  // namespace syncopate
