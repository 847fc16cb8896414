// The same runs on the simulated cluster and under MPI, side by side: what the simulation promises, what the wall
// clock shows, and the error of the first measured by the second.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/rows/summary.hpp"

namespace syncopate {

struct ComparedRun {
  RunSummary simulated;  // also names the run
  RunSummary mpi;
  std::string failure{};  // why there is nothing to compare: which cluster, and its reason; empty if there is
  // ||a - b|| / ||b|| of the last models' parameters, b being MPI's; none without a model.
  std::optional<double> parameter_error{};
  // What is computed depends on who comes first, so that the models differ although both clusters are right.
  bool depends_on_clock = false;
  // What cluster.micro_batch_s declares, where pace = "inject" puts real arithmetic in its place under MPI; none where
  // that was measured, or micro-batches are stretched to what was drawn.
  std::optional<double> replaced_micro_batch_s{};
};

struct Tolerances {
  double step_time = 0.03;  // relative
  double drop_rate = 0.01;  // absolute
};

// (simulated - MPI) / MPI; 0 where both are 0, infinite where only MPI's is.
double relative_error(double simulated, double mpi);
double step_time_error(const ComparedRun& run);
double drop_rate_error(const ComparedRun& run);  // simulated - MPI

// Which errors are beyond their tolerances.
struct Verdict {
  bool failed = false;
  bool step_time_is_off = false;
  bool drop_rate_is_off = false;

  bool is_within() const { return !failed && !step_time_is_off && !drop_rate_is_off; }
  std::string text() const;  // "within", "failed", or what is off: "step time, drop rate"
};
Verdict verdict(const ComparedRun& run, const Tolerances& tolerances);
bool all_within(std::span<const ComparedRun> runs, const Tolerances& tolerances);  // rows of several seeds by means

// Where, and how busy the machine was when it began.
struct ComparisonMachine {
  std::string processor;
  int cores = 1;
  double load = 0;  // mean number of processes that were ready to run, over the minute before
};

// A note where runs differ because micro-batches take different times on the two clusters, with the keys to set. Empty
// where there is no such run.
std::string pace_note(std::span<const ComparedRun> runs, const Tolerances& tolerances);

// A note where runs differ because the declared [network] does not cost what communication costs MPI's ranks: both
// costs of the run that differs most, and what to set. Empty where there is no such run.
std::string network_note(std::span<const ComparedRun> runs, const Tolerances& tolerances);

// Three rows per run (simulated, MPI, error); below them the runs that failed, and notes.
std::string comparison_table(std::span<const ComparedRun> runs, const Tolerances& tolerances);

// compare.json.
std::string comparison_json(const std::string& experiment, std::span<const ComparedRun> runs,
                            const Tolerances& tolerances, const ComparisonMachine& machine);

// The same for readers: one row per run.
std::string comparison_markdown(const std::string& experiment, const std::string& file,
                                std::span<const ComparedRun> runs, const Tolerances& tolerances,
                                const ComparisonMachine& machine);

}  // namespace syncopate
