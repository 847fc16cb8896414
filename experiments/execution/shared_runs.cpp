#include "experiments/execution/shared_runs.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <map>
#include <new>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "experiments/execution/checkpointing.hpp"
#include "results/directory/disk_fault.hpp"
#include "results/directory/finished_run.hpp"
#include "results/directory/run_directory.hpp"
#include "results/directory/shared_plan.hpp"
#include "results/formats/output.hpp"
#include "results/run/run_label.hpp"
#include "workers/process/interrupt.hpp"
#include "workers/process/printable.hpp"

namespace syncopate {
namespace fs = std::filesystem;
namespace {

fs::path created(const fs::path& folder) {
  fs::create_directories(folder / leases_folder);
  fs::create_directories(folder / failed_folder);
  return folder;
}

// A published directory is always a new one.
std::string identity_of(const fs::path& directory) {
  struct stat found {};
  if (stat(directory.c_str(), &found) != 0) return {};
  return fmt::format("{} {} {}", found.st_dev, found.st_ino, found.st_ctim.tv_nsec);
}

RunSummary failed_summary(const Run& run, const std::string& reason) {
  Outcome outcome;
  outcome.failure = reason;
  outcome.start = outcome.end = std::chrono::system_clock::now();
  return summarise(run, outcome);
}

void say(const std::string& text) { standard_error.write(fmt::format("{}\n", printable_lines(text))); }

}  // namespace

SharedRuns::SharedRuns(const Work& work)
    : work_(work),
      sharing_(*work.options.sharing),
      folder_(created(experiment_directory(work.options.results_directory, work.experiment.name) / share_folder)),
      leases_(folder_ / leases_folder, sharing_.time_out),
      attempts_(folder_ / failed_folder, sharing_.call, work.options.retries) {
  if (sharing_.speaks) save_plan(folder_, work.experiment.runs);
}

fs::path SharedRuns::directory_of(const Run& run) const {
  return run_directory(work_.options.results_directory, run, false);
}

std::string SharedRuns::name_of(const Run& run) const {
  return fmt::format("{}, seed {}", run_label(run.method, run.sweep), run.seed);
}

// With --rerun what was there before does not count.
std::optional<RunSummary> SharedRuns::summary_if_done(const fs::path& directory, const Run& run) const {
  if (work_.options.rerun && !was_made_by(directory, sharing_.call)) return {};
  return run.is_trial ? tried_before(directory, run) : finished_before(directory, run);
}

bool SharedRuns::is_done(const fs::path& directory, const Run& run) const {
  return summary_if_done(directory, run).has_value();
}

std::optional<RunSummary> SharedRuns::done(std::size_t index) {
  const Run& run = work_.experiment.runs[index];
  const fs::path directory = directory_of(run);
  std::string identity = identity_of(directory);
  std::string& looked_at = looked_at_[index];
  if (identity.empty() || looked_at == identity) return {};
  auto summary = summary_if_done(directory, run);
  if (!summary) looked_at = std::move(identity);
  return summary;
}

std::size_t SharedRuns::make(std::vector<std::size_t> open, const std::vector<std::size_t>& damaged_phases,
                             Progress& progress) {
  using Clock = std::chrono::steady_clock;
  ended_ = work_.experiment.runs.size() - open.size();
  if (sharing_.start_others) sharing_.start_others();
  bool is_last_look = false;
  try {
    while (!open.empty()) {
      const auto begin = Clock::now();
      bool has_moved = false;
      std::vector<std::size_t> still_open;
      for (const std::size_t index : open) {
        throw_if_interrupted();
        const Turn result = turn(index, progress);
        has_moved |= result != Turn::others;
        if (result != Turn::settled) still_open.push_back(index);
      }
      open = std::move(still_open);
      if (has_moved || open.empty()) continue;
      if (sharing_.takes && !sharing_.waits) break;
      if (is_last_look) break;
      is_last_look = !sharing_.takes && !sharing_.others_are_there();
      if (!is_last_look) wait_for_others(progress, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    for (const std::size_t index : damaged_phases)  // unless another process is at it
      if (sharing_.takes) ready_phase(index, progress);
    remove_finished_leases();
    remove_leftovers(work_.options.results_directory, work_.experiment.runs);
  } catch (const fs::filesystem_error& problem) {
    throw ResultsDirectoryFault(disk_fault(folder_.parent_path(), problem));
  }
  return open.size();
}

// What the look at the others cost is at most a tenth of the time. Heard of an interrupt soon.
void SharedRuns::wait_for_others(Progress& progress, double look_s) {
  const std::vector<LeaseNote> held = leases_.held();
  std::vector<Progress::Elsewhere> under_way = common_phases_elsewhere(held, progress);
  for (const LeaseNote& note : held)
    for (const Run& run : work_.experiment.runs)
      if (run.hash == note.what) under_way.push_back({.run = &run, .share = note.share_done});
  progress.show_elsewhere(ended_, under_way);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::max(0.1, 9 * look_s));
  while (std::chrono::steady_clock::now() < until) {
    throw_if_interrupted();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::vector<Progress::Elsewhere> SharedRuns::common_phases_elsewhere(const std::vector<LeaseNote>& held,
                                                                     Progress& progress) {
  std::vector<Progress::Elsewhere> under_way;
  std::set<std::string> seen;
  for (const Run& run : work_.experiment.runs) {
    const Run* const phase = run.common_phase.get();
    if (!phase || counted_phases_.contains(phase->hash) || !seen.insert(phase->hash).second) continue;
    const auto note = std::ranges::find(held, phase->hash, &LeaseNote::what);
    if (note != held.end()) {
      under_way.push_back({.run = phase, .share = note->share_done, .is_common_phase = true});
    } else if (is_done(directory_of(*phase), *phase)) {
      counted_phases_.insert(phase->hash);
      progress.end_common_phase_elsewhere(*phase);
    }
  }
  return under_way;
}

void SharedRuns::settle(std::size_t index, RunSummary summary) {
  ++ended_;
  work_.settled(index, std::move(summary));
}

// What has been recorded of it, if there is anything.
void SharedRuns::settle_failed(std::size_t index, const std::string& reason, Progress& progress) {
  const Run& run = work_.experiment.runs[index];
  auto recorded = summary_of(directory_of(run), run);
  const bool tells = recorded && recorded->status != RunStatus::finished;
  RunSummary summary = tells ? *std::move(recorded) : failed_summary(run, reason);
  if (!sharing_.takes) progress.end_elsewhere(index + 1, run, summary, true);  // else who has made it says so
  settle(index, std::move(summary));
}

// Nothing where it is still to be made.
std::optional<SharedRuns::Turn> SharedRuns::settle_if_done(std::size_t index, Progress& progress) {
  const Run& run = work_.experiment.runs[index];
  if (auto summary = done(index)) {
    progress.end_elsewhere(index + 1, run, *summary, !sharing_.takes);
    settle(index, *std::move(summary));
    return Turn::settled;
  }
  const auto failed = attempts_.of(run.hash);
  if (!attempts_.are_used_up(failed)) return {};
  settle_failed(index, failed->reason, progress);
  return Turn::settled;
}

SharedRuns::Turn SharedRuns::turn(std::size_t index, Progress& progress) {
  if (const auto settled = settle_if_done(index, progress)) return *settled;
  const Run& run = work_.experiment.runs[index];
  if (!sharing_.takes) {
    if (!run.common_phase) return Turn::others;
    const auto failed = attempts_.of(run.common_phase->hash);
    if (!attempts_.are_used_up(failed)) return Turn::others;
    settle_failed(index, fmt::format("its common phase failed: {}", failed->reason), progress);
    return Turn::settled;
  }
  return take(index, progress);
}

SharedRuns::Turn SharedRuns::take(std::size_t index, Progress& progress) {
  const Run& run = work_.experiment.runs[index];
  const CommonPhases::Phase* phase = nullptr;
  if (run.common_phase) {
    phase = ready_phase(index, progress);
    if (!phase) return Turn::others;
    if (!phase->failure.empty()) {
      settle_failed(index, fmt::format("its common phase failed: {}", phase->failure), progress);
      return Turn::settled;
    }
  }
  const std::unique_ptr<Lease> lease = leases_.take(run.hash);
  if (!lease) return Turn::others;
  if (const auto settled = settle_if_done(index, progress)) return *settled;  // by who had it a moment ago
  if (gives_up_after_loss(run.hash, *lease)) return Turn::tried;
  attempt(index, *lease, phase, progress);
  return settle_if_done(index, progress).value_or(Turn::tried);
}

bool SharedRuns::gives_up_after_loss(const std::string& what, const Lease& lease) const {
  if (!lease.former_is_gone()) return false;
  attempts_.add_lost(what, lease.taken_from()->owner());
  return attempts_.are_used_up(attempts_.of(what));
}

// Whatever comes of it stands in its directory or in the records afterwards.
void SharedRuns::attempt(std::size_t index, Lease& lease, const CommonPhases::Phase* phase, Progress& progress) {
  Run run = work_.experiment.runs[index];
  if (copy_from_elsewhere(run, lease)) return;
  if (phase) start_at(run, *phase);
  if (const LeaseNote* const former = lease.taken_from(); former && !former->host.empty())
    progress.note(fmt::format("{}: taken over from {}, which {}", name_of(run), former->owner(),
                              lease.former_is_gone() ? "is gone" : "was silent for too long"));
  progress.tell([&lease](double share) { lease.tell(share); });  // before it begins: how often it is told depends on it
  progress.begin_run(index + 1, run);
  // Who takes over the run of a lost process goes on from what that has left.
  const CheckpointUse checkpoints{.file = checkpoint_of(directory_of(run)),
                                  .below = folder_,
                                  .is_taken_up = !work_.options.rerun,
                                  .is_mine = [&lease] { return lease.is_mine(); }};
  const Outcome outcome = execute(
      run, work_.machinery, progress, [](const Outcome&) {}, &checkpoints);
  progress.tell({});
  RunSummary summary = summarise(run, outcome);
  try {
    if (!publish(run, files_of(run, outcome, summary, work_.machinery), lease)) {
      if (is_done(directory_of(run), run)) remove_checkpoint(checkpoints.file);
      return;
    }
    if (summary.status != RunStatus::failed) remove_checkpoint(checkpoints.file);
  } catch (const std::bad_alloc&) {
    summary.status = RunStatus::failed;
    summary.reason = "the memory does not suffice to write its results";
  } catch (const fs::filesystem_error&) {  // no later run could be kept either
    throw;
  } catch (const std::exception& problem) {
    summary.status = RunStatus::failed;
    summary.reason = fmt::format("its results cannot be written: {}", problem.what());
  }
  const bool is_well = summary.status == RunStatus::finished || (run.is_trial && summary.status == RunStatus::diverged);
  if (is_well)
    attempts_.remove(run.hash);
  else
    attempts_.add_failure(run.hash, summary.reason.empty() ? to_string(summary.status) : summary.reason,
                          summary.status == RunStatus::diverged);
  progress.end_run(summary);
}

bool SharedRuns::copy_from_elsewhere(const Run& run, Lease& lease) {
  if (work_.options.rerun) return false;
  const auto files = work_.elsewhere.files_for(run);
  if (!files || !publish(run, *files, lease)) return false;
  attempts_.remove(run.hash);
  return true;
}

// False where another process has the run, which this one says.
bool SharedRuns::publish(const Run& run, const FileContents& files, Lease& lease) const {
  const auto is_this_done = [&](const fs::path& place) { return is_done(place, run); };
  require_there(folder_);
  if (!lease.is_mine()) {
    say(fmt::format(
        "{}: another process has taken it over while this one, process {}, was silent for longer than {} s; "
        "what this one has computed is dropped",
        name_of(run), this_process().number, std::chrono::duration<double>(sharing_.time_out).count()));
    return false;
  }
  if (publish_directory(directory_of(run), files, is_this_done)) return true;
  say(fmt::format("{}: another process has published it; what process {} has computed is dropped", name_of(run),
                  this_process().number));
  return false;
}

const CommonPhases::Phase* SharedRuns::ready_phase(std::size_t index, Progress& progress) {
  const Run& phase = *work_.experiment.runs[index].common_phase;
  const auto may_be_found = [&] {
    const fs::path directory = directory_of(phase);
    return !work_.options.rerun || was_made_by(directory, sharing_.call);
  };
  if (const CommonPhases::Phase* known = work_.phases.find(phase, may_be_found())) return known;
  if (const auto failed = attempts_.of(phase.hash); attempts_.are_used_up(failed))
    return &work_.phases.fail(phase, failed->reason);
  const std::unique_ptr<Lease> lease = leases_.take(phase.hash);
  if (!lease) return nullptr;
  if (const CommonPhases::Phase* known = work_.phases.find(phase, may_be_found())) return known;
  if (gives_up_after_loss(phase.hash, *lease)) return nullptr;
  progress.tell([&lease](double share) { lease->tell(share); });
  const CommonPhases::Phase made = work_.phases.make(
      phase, index + 1, progress, [&](const FileContents& files) { return publish(phase, files, *lease); });
  progress.tell({});
  if (made.end) {
    counted_phases_.insert(phase.hash);
    attempts_.remove(phase.hash);
    return work_.phases.find(phase, may_be_found());
  }
  if (!made.failure.empty()) attempts_.add_failure(phase.hash, made.failure, false);
  return nullptr;
}

// Of processes that were killed after they had published, and of those that were silent; and of those that are gone, with
// runs that this call does not have.
void SharedRuns::remove_finished_leases() const {
  std::map<std::string, const Run*> own;
  for (const Run& run : work_.experiment.runs) {
    own.emplace(run.hash, &run);
    if (run.common_phase) own.emplace(run.common_phase->hash, run.common_phase.get());
  }
  for (const LeaseNote& note : leases_.held()) {
    const auto found = own.find(note.what);
    const bool is_over = found == own.end() ? state_of(note.process) == ProcessState::gone
                                            : is_done(directory_of(*found->second), *found->second);
    if (is_over) leases_.remove(note.what);
  }
}

}  // namespace syncopate
