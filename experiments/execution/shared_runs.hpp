// An experiment's runs made by several processes, on one machine or on many: each takes the next one that nobody has
// taken, and reads from the results directory what the others have made.
//
//   for each run that is not done, in their order, again and again until all are:
//     its directory is there and whole        -> done
//     it has failed as often as may be        -> done, with the reason
//     nobody has its lease, or a lost process -> take the lease, look once more, make it, publish it if still the owner
//     somebody has it                         -> later
//
// Two processes never publish the same run: a lease is taken over by one alone (results/directory/lease.hpp), who has
// lost its own finds that out before it publishes, and publishing fails where a finished run stands
// (publish_directory).
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/execution/common_phases.hpp"
#include "experiments/execution/execution.hpp"
#include "experiments/execution/runner.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/directory/failed_attempts.hpp"
#include "results/directory/lease.hpp"
#include "results/directory/runs_elsewhere.hpp"
#include "results/rows/summary.hpp"
#include "results/tables/progress.hpp"

namespace syncopate {

class SharedRuns {
 public:
  // What it works with; all outlive it. `settled` hears of each run that is done, however it ended.
  struct Work {
    const Experiment& experiment;
    const RunOptions& options;
    const Machinery& machinery;
    RunsElsewhere& elsewhere;
    CommonPhases& phases;
    std::function<void(std::size_t index, RunSummary summary)> settled;
  };

  // Creates the folders beside the runs by which processes know of each other. Throws
  // std::filesystem::filesystem_error.
  explicit SharedRuns(const Work& work);

  // Makes these of the experiment's runs, or waits until others have. Returns how many are left to others: none, unless
  // the process is not to wait, or all who were to make them have ended. Throws Interrupted; ResultsDirectoryFault
  // where the folders are gone or cannot be written.
  // `damaged_phases`: the first runs of common phases that are to be made once more, also where no run needs them.
  std::size_t make(std::vector<std::size_t> open, const std::vector<std::size_t>& damaged_phases, Progress& progress);

 private:
  enum class Turn { settled, tried, others };

  Turn turn(std::size_t index, Progress& progress);
  Turn take(std::size_t index, Progress& progress);
  void attempt(std::size_t index, Lease& lease, const CommonPhases::Phase* phase, Progress& progress);
  bool copy_from_elsewhere(const Run& run, Lease& lease);
  bool publish(const Run& run, const FileContents& files, Lease& lease) const;
  void settle(std::size_t index, RunSummary summary);
  void settle_failed(std::size_t index, const std::string& reason, Progress& progress);
  std::optional<Turn> settle_if_done(std::size_t index, Progress& progress);

  // The common phase that a run starts from, with its end or why it has none; null: somebody else makes it.
  const CommonPhases::Phase* ready_phase(std::size_t index, Progress& progress);
  // Counts the owner that the lease was taken over from, if its process has ended; true if the run is to be left alone
  // after that. Who is silent was stopped, or its machine is away: that is no fault of the run's.
  bool gives_up_after_loss(const std::string& what, const Lease& lease) const;

  std::optional<RunSummary> summary_if_done(const std::filesystem::path& directory, const Run& run) const;
  bool is_done(const std::filesystem::path& directory, const Run& run) const;
  std::optional<RunSummary> done(std::size_t index);
  std::filesystem::path directory_of(const Run& run) const;
  std::string name_of(const Run& run) const;
  void wait_for_others(Progress& progress, double look_s);
  // Of common phases: those under way in other processes; those that have ended there are counted, once each.
  std::vector<Progress::Elsewhere> common_phases_elsewhere(const std::vector<LeaseNote>& held, Progress& progress);
  void remove_finished_leases() const;

  const Work work_;
  const Sharing& sharing_;
  std::filesystem::path folder_;
  Leases leases_;
  AttemptRecords attempts_;
  std::map<std::size_t, std::string> looked_at_{};  // directories that are not done, by their identity on the disk
  std::size_t ended_ = 0;
  std::set<std::string> counted_phases_{};  // common phases of which the progress has heard that they are done
};

}  // namespace syncopate
