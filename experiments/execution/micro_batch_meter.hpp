// cluster.micro_batch_s = "measured": how long a micro-batch of the experiment's model takes on this machine. It is
// measured once and kept in the experiment's directory of results, so that a second run has the same configuration.
#pragma once

#include <map>
#include <string>

#include "experiments/sections/experiment.hpp"

namespace syncopate {

class MpiSession;

class MicroBatchMeter {
 public:
  struct Options {
    std::string results_directory;
    bool remeasure = false;           // what is kept is measured again
    bool keep = true;                 // in <results>/<experiment>/measured.json
    const MpiSession* mpi = nullptr;  // rank 0 measures; all ranks ask for the same in the same order
  };
  explicit MicroBatchMeter(Options options) : options_(std::move(options)) {}

  // Seconds, a whole number of nanoseconds. Throws ConfigurationFault where it cannot be measured or kept, CannotRun
  // where other ranks do not come to measure the same.
  double seconds(const MicroBatchWork& work);

 private:
  double kept_or_measured(const MicroBatchWork& work) const;

  Options options_;
  std::map<std::string, double> known_;  // by what decides the time
};

// The median over some dozens of gradients on this thread, after a warm-up. Under ten seconds where a micro-batch
// takes less than one.
double measure_micro_batch_s(const Objective& objective, std::uint64_t seed);

}  // namespace syncopate
