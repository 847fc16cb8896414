// A method: one worker's whole life as plain sequential code, and a server's where it has one.
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

namespace syncopate {

// The communication of a method, where it follows from the number of steps alone.
// Units:   rounds are rows of steps.csv, synchronisations of all; bytes are those of all workers, as the Cluster counts
//          them: 2 (n - 1) P for an all-reduce of P bytes among n.
// Checks:  whole runs of the same methods (tests/experiments/predict_test.cpp), whose bytes have closed
//          forms of their own (tests/algorithms/communication_test.cpp).
struct Communicated {
  std::int64_t rounds = 0;
  Bytes bytes{};
  bool operator==(const Communicated&) const = default;
};

// A run of so many steps, in which nobody leaves or loses anything. The rate outlives it.
struct CommunicationInput {
  int workers = 1;
  Bytes parameter_bytes{};
  int moments = 0;  // vectors of the optimizer's state
  Step steps{};
  const LearningRate& learning_rate;
  std::vector<ExchangesFrom> exchanges{};     // of compressed sums of gradients; none: they are dense
  std::vector<Exchange> average_exchanges{};  // of a compressed average of models; none: it is dense
  std::optional<Bytes> packet{};              // of a compressed message to a server; none: it is dense

  static Bytes all_reduce(int members, Bytes payload) { return Bytes{2 * (members - 1) * payload.value()}; }
  Bytes of_gradient() const { return all_reduce(workers, parameter_bytes); }  // of a dense sum
  // One sum, compressed or not, in each of the steps.
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
    return average_exchanges.empty() ? all_reduce(workers, payload_of(policy)) : of_exchanges(average_exchanges);
  }
  CommunicationInput at_rate(const LearningRate& rate) const {
    return {workers, parameter_bytes, moments, steps, rate, exchanges, average_exchanges, packet};
  }
};

// Vectors as long as the model that a method holds at its peak, beside the state that workers share or that a server
// has, the next one, a sum and a gradient. Lazy gradients take nothing before they are evaluated, and workers in
// consensus share one state. For the memory of a run (experiments/execution/cost.hpp).
// Checks:  peaks of the program (tests/experiments/memory_test.cpp).
struct HeldVectors {
  double models = 1;   // by each worker: parameters of its own or of a version of the server's, anchors, sums, messages
  double moments = 1;  // by each worker, of each moment of the optimizer
  double states = 0;   // by all together: whole states, with their moments
  Step timed_steps{};  // beside vectors: steps whose micro-batches' times each worker keeps
};

// A method's description of itself, for the code that arranges its runs, predicts them and compares them. None of it
// changes what the method computes. The defaults are safe for a method about which nothing is known.
struct Traits {
  // The parameter servers that it needs; each runs Algorithm::serve.
  Servers servers{};
  // Whether its workers send each other messages.
  bool sends_to_neighbours = false;
  // Whether speed-ups of other methods are against its pace.
  bool is_baseline = false;
  bool has_formulas = false;  // for its time (Algorithm::forecast)
  // Whether it decides anything by computed values (losses, norms, distances), so that time alone says nothing of it.
  bool follows_values = false;
  // Whether its result depends on who comes first, or on what is done by when. If not, two runs with equal budgets in
  // steps end with the same model, up to rounding, on any cluster.
  bool follows_clock = true;
  // Steps after which its pace is that of the rest of the run, so that a short simulation can be extrapolated.
  Step settles_after{};
  // Steps after which its pace repeats, where that is more than a round: a part of them says nothing of the pace.
  Step cycle{1};
  // From this step on all workers behave alike: between two collectives, none decides by its own clock, rank or
  // gradients what it does next. (A deadline of compute_gradient is the same for all, and no such decision.) None:
  // never.
  std::optional<Step> lockstep_from_step{};
  // Whether workers judge the budget on their own (BudgetView::local): a budget of seconds by their own clocks.
  bool judges_budget_locally = false;
  // Whether its publications end rounds of many updates, as an average of models that have stepped alone does.
  bool publishes_rounds = false;
  // Whether each step is along the mean of gradients of the model that it changes, so that the noise of gradients says
  // what a batch is good for (results/statistics.hpp).
  bool steps_along_fresh_mean = false;
  // Whether each worker takes the micro-batches of its data one after the other, whatever its steps have, so that the
  // account of their number says which samples it was offered. (Not where outages take what was computed.)
  bool takes_data_in_turn = false;
  // Whether each step is along one all-reduced sum of all workers' gradients, which may be compressed.
  bool sums_gradients = false;
  // Whether it exchanges only sums of a step's gradients, each of which can begin during the last micro-batch's
  // backward pass (network.overlap).
  bool can_overlap_backward = false;
  // Parts that its steps leave out of that sum; a compression may keep them for later steps (SumOptions::dropped).
  Drops drops = Drops::nothing;
  // Whether each synchronisation is one average, with equal weights, of all workers' whole models, or of
  // `averaged_slices` slices in turn: their differences to a common model may be compressed, unless moments are
  // averaged too.
  bool averages_models = false;
  int averaged_slices = 1;
  bool averages_moments = false;
  bool waits_for_averages = true;  // at once
  // Whether its sums are, from some step on, the workers' next first moments, which may be compressed.
  bool sums_moments = false;
  // Whether its workers send their server gradients or differences between models, or slices of them in turn
  // (averaged_slices), each of which counts by itself or not at all, and may be compressed; whether some may be
  // rejected as too late or too old.
  bool sends_gradients = false;
  bool rejects_gradients = false;
  HeldVectors held{};
  // Why nothing that it exchanges can be compressed: the end of a sentence after "must not be given: ". Empty: it can
  // be.
  std::string_view exchanged_whole{};

  // Whether its messages may wait for other traffic on a link.
  bool sends_messages() const { return servers > 0 || sends_to_neighbours; }
  // Whether its workers receive messages of servers alone: the simulated cluster then refuses collectives.
  bool has_servers_alone() const { return servers > 0 && !sends_to_neighbours; }

  Compresses compresses() const {
    if (sums_moments) return Compresses::moments;
    if (sums_gradients) return Compresses::gradients;
    if (sends_gradients) return Compresses::messages;
    if (!averages_models) return Compresses::nothing;
    return waits_for_averages ? Compresses::averages : Compresses::averages_under_way;
  }

  // The number of slices of the model that are compressed by themselves.
  int compressed_slices() const { return servers.hold_slices() ? servers.count : averaged_slices; }

  // lockstep_from_step under this budget.
  std::optional<Step> lockstep_under(const Budget& budget) const {
    return judges_budget_locally && budget.seconds ? std::nullopt : lockstep_from_step;
  }
};

// Checks that the whole budget has as much work as one round needs: else the run would end long after its budget.
struct BudgetCheck {
  // All workers together; a step of one worker is a gradient. None: not known beforehand, as in seconds.
  std::optional<std::int64_t> gradients{};
  std::int64_t in_one = 1;  // in one of what is counted; rounds of all workers: if they are alike

  // N in each step of the experiment file.
  static BudgetCheck of_steps(std::optional<Step> steps, int workers);

  // The same for units that take `count` of these.
  BudgetCheck of(std::int64_t count) const;
  // Reports a fault of the key if the budget has fewer than the `count` that it asks for; one is always allowed.
  // `together` of what is counted are one. Returns the count, or after a fault the most that would have been right.
  std::int64_t check(Settings& settings, std::string_view key, std::int64_t count, std::int64_t together = 1) const;
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void run(Worker& worker) const = 0;
  virtual void serve(Server& server) const;  // on each server that the traits ask for

  // The description of the method, beside name and paper in the registry.
  virtual Traits traits() const { return {}; }
  // Its time by its paper's formulas, where the traits say that there are any; others are simulated.
  virtual Forecast forecast(const PredictionInput&) const { return {}; }
  // What `predict` says of it besides; empty: nothing.
  virtual std::string remark(int /*workers*/) const { return {}; }
  // Its exact communication; none where that does not follow from its steps.
  virtual std::optional<Communicated> communication(const CommunicationInput&) const { return std::nullopt; }

  // The moving average of its publications that is evaluated (table `average`), for any method.
  void average_publications(const std::optional<MovingAverageOptions>& average) { average_ = average; }
  const std::optional<MovingAverageOptions>& average() const { return average_; }

  // The compression of its sums of gradients, averages of models, or workers' messages, as its traits allow (table
  // `compression`).
  void compress(const std::optional<CompressionOptions>& compression) { compression_ = compression; }
  const std::optional<CompressionOptions>& compression() const { return compression_; }

 private:
  std::optional<MovingAverageOptions> average_;
  std::optional<CompressionOptions> compression_;
};

// The facts that an algorithm may need to check its settings.
struct AlgorithmContext {
  int workers = 1;
  bool workers_known = true;  // false: `workers` is the most there can be, to be neither named nor made room for
  int micro_batches = 1;
  bool time_only = false;                    // without a model: what a rule would measure does not exist
  bool plain_sgd = true;                     // the optimizer has neither moments nor weight decay
  std::vector<double> moment_decays{};       // what it keeps of each moment per step
  std::optional<double> frozen_beta1 = 0.9;  // of the optimizer (Optimizer::beta1_of_frozen)
  bool clips_gradients = false;
  Step learning_rate_warmup{};
  std::optional<Step> steps_per_epoch{};  // none: without a data set, or not known for its faults
  bool has_epochs = steps_per_epoch.has_value();
  Step first_step{};                  // of the data: so many steps lie before the run's first
  bool divides_data = false;          // once for the run: each worker has samples of its own
  std::optional<Step> total_steps{};  // none: the budget is not counted in steps, or not known for its faults
  bool counts_steps = total_steps.has_value();
  double shortest_micro_batch_s = 0;            // no worker's micro-batch is shorter
  bool budget_ends_alone = true;                // false: it counts bytes alone, and never ends for who sends nothing
  const LearningRate* learning_rate = nullptr;  // the run's, which outlives the reading; null: none is known
  std::optional<int> tensors{};                 // of the model; none: without one, or not known before it is loaded
  std::optional<std::int64_t> parameters{};     // of the model, or that a run without one sends; none: not known
  BudgetCheck work{};                           // by the steps or samples of the budget

  // Whether the workers form so many equally large groups; true where their number is not known.
  bool are_divided_by(int groups) const { return !workers_known || workers % groups == 0; }
};

// Gives the context the compressors of the method (Algorithm::compress); run_algorithm calls it.
void compress(RunContext& context, const Algorithm& algorithm);
// Runs the algorithm on all participants of the context's cluster.
RunTotals run_algorithm(const Algorithm& algorithm, const RunContext& context);

}  // namespace syncopate
