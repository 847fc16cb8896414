// What a run tells while it goes on: rows of steps.csv that have ended, and models that stand for it.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/cluster/step_row.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// What is evaluated where each worker has a model of its own and nobody that of all.
enum class OwnModels {
  mean,  // their mean
  each,  // every one; what is reported is the mean of the results
};

// "These are the models of all workers now."
struct ModelsOfWorkers {
  std::vector<WeightedState> models{};  // in the order of the ranks
  OwnModels evaluated = OwnModels::mean;
};

// "This is my model now." A worker's, after a step.
struct OwnModel {
  Rank worker{};
  ModelStatePtr model{};  // null in time-only runs
  double weight = 1;      // among all
  OwnModels evaluated = OwnModels::mean;
  Step step{};
  Time time{};
  std::int64_t samples = 0;
  Bytes bytes{};
  double learning_rate = 0;
};

// "This is the global model now."
struct Publication {
  ModelStatePtr model{};                    // null in time-only runs
  std::vector<ModelStatePtr> ensemble{};    // if not empty: evaluate the mean of their predictions instead
  ModelsOfWorkers own{};                    // if not empty: whose mean `model` is
  std::vector<MicroBatch> recalibration{};  // if not empty: estimate BatchNorm statistics on these before evaluating
  Step step{};                              // in steps of the experiment file
  double surplus_steps = 0;                 // what its steps were planned with beyond M micro-batches each, in steps
  Time time{};
  std::int64_t samples = 0;  // that went into the model
  Bytes bytes{};
  double learning_rate = 0;
};

// Listens to a run. On the simulated cluster all calls come from the simulating thread; under MPI
// only rank 0 (rows of collectives) and the publishing rank call.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on_row(const StepRow& row) = 0;
  // Costs no time on either clock.
  virtual void on_publish(const Publication& publication) = 0;
  // Of the row of step 0: the learning rate of the first step, where that is not the file's schedule's.
  virtual void on_first_rate(double) {}

  // After this step, of each worker or a server: on the simulated cluster alone.
  virtual bool wants_step_gradient(Step) const { return false; }
  virtual void on_step_gradient(Step, Time, const Gradient&) {}
  virtual bool wants_worker_models(Step) const { return false; }
  virtual void on_worker_model(OwnModel&&) {}

  // Where workers have models of their own. Under MPI the observer of each worker's process is told of its own alone.
  virtual bool wants_own_models(Step) const { return false; }  // after this step, of each worker
  virtual void on_own_model(OwnModel&&) {}
  virtual void on_own_models_end(Rank) {}  // this worker has no further ones
};

}  // namespace syncopate
