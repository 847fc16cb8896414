// A method: one worker's whole life as plain sequential code, and a server's where it has one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/method/prediction.hpp"
#include "workers/server.hpp"
#include "workers/settings/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void run(Worker& worker) const = 0;
  virtual int servers() const { return 0; }
  virtual void serve(Server& server) const;  // called on each server

  // What formulas say of its time, as many as there are for it; empty where there is none, or none for its
  // settings.
  virtual std::vector<Prediction> predict(const PredictionInput&) const { return {}; }
  // Why there is none, for those who ask.
  virtual std::string why_not_predicted(const PredictionInput&) const { return "none for these settings"; }
  // Steps after which the pace is that of the rest of the run, so that a short simulation can be drawn out.
  virtual Step settles_after() const { return 0; }
  // Whether its course depends on what is computed (losses, norms, distances), so that time alone says nothing.
  virtual bool looks_at_values() const { return false; }
  // Whether what is computed depends on who comes first, or on what is done by when. Where it does not, two runs
  // with equal budgets in steps end with the same model, up to rounding, on any cluster.
  virtual bool depends_on_clock() const { return true; }
  // The step from which on no worker's program decides anything by its own clock, rank or gradients between two
  // collectives, under this budget; none: some always may. One program can then stand for all workers where there are
  // no tensors; see workers/simulated/lockstep_cluster.hpp.
  virtual std::optional<Step> workers_act_alike_from(const Budget& budget) const {
    static_cast<void>(budget);
    return std::nullopt;
  }
};

// What an algorithm may need to know to check its settings.
struct AlgorithmContext {
  int workers = 1;
  int micro_batches = 1;
  bool time_only = false;  // without a model: what a rule would measure does not exist
  bool plain_sgd = true;   // the optimizer has neither moments nor weight decay
  Step learning_rate_warmup{};
  std::optional<Step> steps_per_epoch{};  // none: without a data set
  std::optional<Step> total_steps{};      // none: the budget is not counted in steps
  double shortest_micro_batch_s = 0;      // no worker's micro-batch is shorter
  bool budget_ends_alone = true;          // false: it counts bytes alone, and never ends for who sends nothing
};

// Runs the algorithm on all participants of the context's cluster.
RunTotals run_algorithm(const Algorithm& algorithm, const RunContext& context);

}  // namespace syncopate
