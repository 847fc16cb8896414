// A method: one worker's whole life as plain sequential code, and a server's where it has one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/method/communication.hpp"
#include "algorithms/method/prediction.hpp"
#include "algorithms/method/traits.hpp"
#include "algorithms/method/work_in_budget.hpp"
#include "workers/compression/options.hpp"
#include "workers/server.hpp"
#include "workers/settings/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // The program.
  virtual void run(Worker& worker) const = 0;
  virtual void serve(Server& server) const;  // on each server that the traits ask for

  // The card, beside name and paper in the registry.
  virtual Traits traits() const { return {}; }
  // What formulas say of its time, as many as there are for it.
  virtual Forecast forecast(const PredictionInput&) const { return Forecast::none(); }
  // What it communicates, exactly; none where that does not follow from its steps.
  virtual std::optional<Communicated> communication(const CommunicationInput&) const { return std::nullopt; }

  // Whether the moving average of what it publishes is evaluated, which any method may be told (table `average`).
  void average_publications(const std::optional<MovingAverageOptions>& average) { average_ = average; }
  const std::optional<MovingAverageOptions>& average() const { return average_; }

  // How its sums of gradients, its averages of models, or its workers' messages are compressed, where its traits say
  // that it has such (table `compression`).
  void compress(const std::optional<CompressionOptions>& compression) { compression_ = compression; }
  const std::optional<CompressionOptions>& compression() const { return compression_; }

 private:
  std::optional<MovingAverageOptions> average_;
  std::optional<CompressionOptions> compression_;
};

// What an algorithm may need to know to check its settings.
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
  WorkInBudget work{};                          // by the steps or samples of the budget

  // Whether so many form groups that are equally large; true where their number is not known.
  bool are_divided_by(int groups) const { return !workers_known || workers % groups == 0; }
};

// Gives the context what compresses as the method says (Algorithm::compress); run_algorithm does.
void compress(RunContext& context, const Algorithm& algorithm);
// Runs the algorithm on all participants of the context's cluster.
RunTotals run_algorithm(const Algorithm& algorithm, const RunContext& context);

}  // namespace syncopate
