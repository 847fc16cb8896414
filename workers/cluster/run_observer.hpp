// What a run tells while it goes on: rows of steps.csv that have ended, and models that stand for it.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/cluster/step_row.hpp"
#include "workers/training/training.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// "This is the global model now."
struct Publication {
  ModelStatePtr model{};                    // null in time-only runs
  std::vector<ModelStatePtr> ensemble{};    // if not empty: evaluate the mean of their predictions instead
  std::vector<MicroBatch> recalibration{};  // if not empty: estimate BatchNorm statistics on these before evaluating
  Step step{};                              // in steps of the experiment file
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
};

}  // namespace syncopate
