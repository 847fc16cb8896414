// cluster.micro_batch_s = "measured": how long a micro-batch of the experiment's model takes on this machine, while its
// other cores compute such ones too: as many at once as there are workers, or cores. It is measured once and kept in
// the experiment's directory of results, so that a second run has the same configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "experiments/sections/experiment.hpp"

namespace syncopate {

class MpiSession;

class MicroBatchMeter {
 public:
  struct Options {
    std::string results_directory;
    bool remeasure = false;  // what is kept is measured again
    bool keep = true;        // in <results>/<experiment>/measured.json
    const MpiSession* mpi =
        nullptr;  // rank 0 measures, the other workers compute; all ranks ask for the same in the same order
  };
  explicit MicroBatchMeter(Options options) : options_(std::move(options)) {}

  // Throws ConfigurationFault where it cannot be measured or kept, CannotRun where other ranks do not come to measure
  // the same.
  MeasuredMicroBatch time(const MicroBatchWork& work);

 private:
  const MpiSession* session() const;  // null: this process is alone
  // `on_measure` is called before anything is measured.
  MeasuredMicroBatch kept_or_measured(const MicroBatchWork& work, const std::function<void()>& on_measure) const;

  Options options_;
  std::map<std::string, MeasuredMicroBatch> known_;  // by what decides the time
};

double wall_clock_s();

// The median over some dozens of gradients on this thread, after a warm-up. Under ten seconds where a micro-batch
// takes less than one. `at_once`: as many threads compute gradients meanwhile, this one among them; throws
// std::runtime_error where they cannot be started. Each holds as many gradients as a step has, as a worker does, but no
// more than 256 MiB of them beyond one. Releasing them is not timed. `now_s`: the clock, in seconds since anything.
double measure_micro_batch_s(const Objective& objective, const MicroBatchWork& work, int at_once = 1,
                             const std::function<double()>& now_s = wall_clock_s);

// The same for micro-batches of sequences: of 24 whose numbers of tokens go from the smallest to the largest among some
// hundreds, each is timed several times in turn with the others, and the medians are fitted. They are of the epoch
// `calibration_epoch`, which no run comes to.
LengthFit measure_by_lengths(const Objective& objective, const MicroBatchWork& work, int at_once = 1,
                             const std::function<double()>& now_s = wall_clock_s);
inline constexpr std::int64_t calibration_epoch = 1'000'000;

}  // namespace syncopate
