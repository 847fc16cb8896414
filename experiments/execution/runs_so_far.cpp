#include "experiments/execution/runs_so_far.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "experiments/execution/checkpointing.hpp"
#include "results/directory/finished_run.hpp"
#include "results/directory/run_directory.hpp"
#include "results/directory/run_files.hpp"

namespace syncopate {

bool is_finished(const std::optional<RunSummary>& summary) { return summary && summary->status == RunStatus::finished; }

RunsSoFar::RunsSoFar(const Experiment& experiment, const RunOptions& options, bool under_mpi)
    : experiment_(experiment),
      options_(options),
      under_mpi_(under_mpi),
      summaries_(experiment.runs.size()),
      to_do_(experiment.runs.size(), 1) {}

std::filesystem::path RunsSoFar::directory_of(const Run& run) const {
  return run_directory(options_.results_directory, run, under_mpi_);
}

// Removes what a process has left that was killed after it had written the results.
void RunsSoFar::find_finished() {
  std::map<std::filesystem::path, bool> folders;
  for (std::size_t index = 0; index < experiment_.runs.size(); ++index) {
    const Run& run = experiment_.runs[index];
    summaries_[index] = run.is_trial ? tried_before(directory_of(run), run) : finished_before(directory_of(run), run);
    if (!summaries_[index]) continue;
    to_do_[index] = 0;
    const auto checkpoint = checkpoint_of(directory_of(run));
    const auto [folder, is_new] = folders.try_emplace(checkpoint.parent_path());
    if (is_new) folder->second = has_parts(folder->first);
    std::error_code none;
    if (folder->second || std::filesystem::exists(checkpoint, none)) remove_checkpoint(checkpoint);
  }
  count_finished();
}

void RunsSoFar::copy_from(RunsElsewhere& elsewhere) {
  for (std::size_t index = 0; index < experiment_.runs.size(); ++index) {
    const Run& run = experiment_.runs[index];
    if (!to_do_[index]) continue;
    const auto files = elsewhere.files_for(run);
    if (!files) continue;
    write_directory(directory_of(run), *files);
    remove_checkpoint_of(run);
    summaries_[index] = finished_before(directory_of(run), run);
    to_do_[index] = summaries_[index] ? 0 : 1;
    copied_ += to_do_[index] ? 0 : 1;
  }
  count_finished();
}

std::vector<std::string> RunsSoFar::damage() const {
  std::vector<std::string> found;
  for (std::size_t index = 0; index < experiment_.runs.size(); ++index) {
    if (!to_do_[index]) continue;
    std::string damage = damage_of(directory_of(experiment_.runs[index]));
    if (!damage.empty()) found.push_back(std::move(damage));
  }
  return found;
}

std::map<std::size_t, std::string> RunsSoFar::damaged_phases() const {
  std::map<std::size_t, std::string> found;
  std::set<std::string> seen;
  for (std::size_t index = 0; index < experiment_.runs.size() && !options_.rerun; ++index) {
    const Run* const phase = experiment_.runs[index].common_phase.get();
    if (!phase || !seen.insert(phase->hash).second) continue;
    if (std::string damage = damage_of(directory_of(*phase)); !damage.empty()) found[index] = std::move(damage);
  }
  return found;
}

void RunsSoFar::settle(std::size_t index, RunSummary summary) {
  summaries_[index] = std::move(summary);
  if (is_finished(summaries_[index])) ++finished_;
}

void RunsSoFar::remove_checkpoint_of(const Run& run) const { remove_checkpoint(checkpoint_of(directory_of(run))); }

std::size_t RunsSoFar::number_to_do() const { return static_cast<std::size_t>(std::ranges::count(to_do_, 1)); }

void RunsSoFar::count_finished() { finished_ = std::ranges::count_if(summaries_, is_finished); }

}  // namespace syncopate
