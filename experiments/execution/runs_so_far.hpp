// What is known of an experiment's runs while they are made: which are there, how they ended, and which are to be made.
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/execution/runner.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/directory/runs_elsewhere.hpp"
#include "results/rows/summary.hpp"

namespace syncopate {

bool is_finished(const std::optional<RunSummary>& summary);

// Of several ranks that make runs together only rank 0 looks at directories, and is told how runs end: what the others
// have to know they are told by `to_do`.
class RunsSoFar {
 public:
  // The arguments outlive it. Nothing is looked for yet: all runs are to be made.
  RunsSoFar(const Experiment& experiment, const RunOptions& options, bool under_mpi);

  std::filesystem::path directory_of(const Run& run) const;

  // Takes what is in the runs' directories for made. Removes the checkpoints of such runs.
  void find_finished();
  // Copies what other experiments have made of the runs that are still to be made.
  void copy_from(RunsElsewhere& elsewhere);
  // Of directories of runs that are to be made, why these are damaged: a line each.
  std::vector<std::string> damage() const;
  // Common phases whose directories are damaged, also where all their runs are finished: why, by the first run that
  // starts from each. None where all is to be repeated.
  std::map<std::size_t, std::string> damaged_phases() const;
  // How a run has ended, now.
  void settle(std::size_t index, RunSummary summary);
  void remove_checkpoint_of(const Run& run) const;

  const std::vector<std::optional<RunSummary>>& summaries() const { return summaries_; }  // run by run
  const std::vector<int>& to_do() const { return to_do_; }  // 1: to be made; what has been settled stays
  void set_to_do(std::vector<int> to_do) { to_do_ = std::move(to_do); }
  bool is_to_do(std::size_t index) const { return to_do_[index] != 0; }
  std::size_t number_to_do() const;
  std::ptrdiff_t number_copied() const { return copied_; }             // from other experiments
  std::ptrdiff_t number_finished() const { return finished_.load(); }  // asked for by any thread

 private:
  void count_finished();

  const Experiment& experiment_;
  const RunOptions& options_;
  bool under_mpi_;
  std::vector<std::optional<RunSummary>> summaries_;
  std::vector<int> to_do_;
  std::ptrdiff_t copied_ = 0;
  std::atomic<std::ptrdiff_t> finished_ = 0;  // of the summaries
};

}  // namespace syncopate
