// metadata.json: the machine, the program and the time of a run. It alone of a run's files has times of the host.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "workers/theory/length_fit.hpp"

namespace syncopate {

struct RunMetadata {
  std::string cluster;  // "simulated" or "mpi"
  int threads = 1;      // of the executor, per process
  int processes = 1;
  std::string blas_kernel;
  std::string libtorch_version;
  std::string torch_kernels{};  // that LibTorch has chosen for the processor
  std::chrono::system_clock::time_point start;
  std::chrono::system_clock::time_point end;
  std::string exit;                                // status of the run: finished, diverged, failed
  std::string hash;                                // of the resolved configuration
  std::string course{};                            // of what it computes (Run)
  std::string call{};                              // of processes that shared it; empty: one alone made it
  std::optional<double> measured_micro_batch_s{};  // cluster.micro_batch_s, where it was measured
  std::optional<LengthFit> measured_fit{};         // by lengths: how well they explain the times
};

// Adds what the build and the machine say about themselves.
std::string to_json(const RunMetadata& metadata);

}  // namespace syncopate
