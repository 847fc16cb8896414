// `syncopate status`: how far an experiment's runs are, also while other processes make them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/directory/shared_plan.hpp"

namespace syncopate {

struct RunningRun {
  PlannedRun run{};
  std::string host{};
  long process = 0;
  std::string since{};    // ISO 8601, by that host's clock
  double share_done = 0;  // of the budget
  bool is_lost = false;   // a process of this machine that is gone: the next one that looks takes it over
  double silent_s = 0;    // since its lease was written last, by the clocks of the file system and of this machine
  double time_out_s = 0;

  bool is_silent() const { return is_lost || (time_out_s > 0 && silent_s > time_out_s); }
};

// Under way in processes that do not share it, or left so: it has a checkpoint, or files without their names.
struct UnfinishedRun {
  PlannedRun run{};
  bool has_checkpoint = false;
  double written_s_ago = 0;
};

struct FailedRun {
  PlannedRun run{};
  std::string reason{};
};

struct ExperimentStatus {
  std::string name{};
  std::filesystem::path directory{};
  std::optional<std::size_t> runs{};  // nothing where it is not known: there is no file, and no process has shared it
  std::size_t of_other_launches = 0;  // of these: on the disk, and not among those that were shared last
  std::size_t finished = 0;
  std::size_t finished_under_mpi = 0;  // of a file's runs, besides
  std::vector<RunningRun> running{};
  std::vector<RunningRun> running_elsewhere{};  // shared by another launch, or common phases: not among the runs
  std::vector<FailedRun> failed{};
  std::optional<std::size_t> remaining{};   // neither of these
  std::vector<UnfinishedRun> unfinished{};  // of those that remain, and common phases
  std::optional<double> left_s{};           // by finished runs of the same method or else of any, and by those at work
  std::vector<std::string> faults{};        // what is damaged, or cannot be read, a line each
};

// Of the file's runs; with [tune] of the trials and what has come of them so far.
std::vector<ExperimentStatus> status_of(const Experiment& experiment, const std::filesystem::path& results);
// Of the experiment in the directory, or of each one below it: the runs that were shared last, and all others that are
// on the disk. Throws ConfigurationFault where there is none.
std::vector<ExperimentStatus> status_of_directory(const std::filesystem::path& directory);

std::string status_text(const std::vector<ExperimentStatus>& experiments);
std::string status_json(const std::vector<ExperimentStatus>& experiments);

}  // namespace syncopate
