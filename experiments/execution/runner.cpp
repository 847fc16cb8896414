#include "experiments/execution/runner.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <new>
#include <set>
#include <span>
#include <system_error>
#include <thread>

#include "experiments/execution/checkpointing.hpp"
#include "experiments/execution/cost.hpp"
#include "experiments/execution/ranks.hpp"
#include "experiments/execution/time_simulation.hpp"
#include "experiments/execution/tuning.hpp"
#include "results/build_info.hpp"
#include "results/claims.hpp"
#include "results/found_runs.hpp"
#include "results/lease.hpp"
#include "results/result_table.hpp"
#include "results/text_table.hpp"
#include "workers/base/arrays.hpp"
#include "workers/base/files.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/mpi/mpi_process_group.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

std::string why_not_under_mpi(const Experiment& experiment) {
  const auto has_run = [&](auto which) { return std::ranges::any_of(experiment.runs, which); };
  if (has_run([](const Run& run) { return run.cluster.pauses != nullptr; }))
    return "delays with sleep = true, and cluster.trailing_s, work only on the simulated cluster";
  if (has_run([](const Run& run) { return run.cluster.network->overlap().has_value(); }))
    return "network.overlap works only on the simulated cluster: under MPI, gradients are exchanged when complete";
  if (has_run(
          [](const Run& run) { return run.measurements.step_gradient_norm || run.measurements.consensus_distance; }))
    return "measurements.step_gradient_norm and measurements.consensus_distance work only on the simulated cluster";
  return {};
}

namespace {

namespace fs = std::filesystem;

// Returns the number of threads per process. Processes on one machine divide its cores, unless a launcher has already
// bound each of them to some cores.
int threads_of(const RunOptions& options, int processes_here) {
  if (options.threads > 0) return options.threads;
  const int allowed = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int all = std::max(allowed, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return std::max(1, std::min(allowed, all / processes_here));
}

// Returns why the launch cannot execute the runs on the MPI cluster; empty if it can. `session`: null: no launcher.
std::string why_not_on_mpi(const Experiment& experiment, const MpiSession* session) {
  if (!session) return "the MPI cluster needs a launcher: start the program with mpirun or srun";
  if (std::string why = why_not_under_mpi(experiment); !why.empty()) return why;
  const auto [workers, servers] = participants(experiment);
  return wrong_number_of_ranks(session->size(), workers, servers);
}

// The runs that a command executes, and where their results go. The members must outlive it.
struct Work {
  const Experiment& experiment;
  const RunOptions& options;
  const ExecutionBackend& backend;
  ReusableRuns& reusable;

  fs::path own_directory() const { return experiment_directory(options.results_directory, experiment.name); }
  fs::path directory_of(const Run& run) const {
    return run_directory(options.results_directory, run, backend.mpi != nullptr);
  }
  void remove_checkpoint_of(const Run& run) const { remove_checkpoint(checkpoint_of(directory_of(run))); }
  CheckpointUse checkpoints_of(const Run& run) const {
    return {.file = checkpoint_of(directory_of(run)), .below = own_directory(), .resumes = !options.rerun};
  }

  // Publishes files as the run's directory. Returns false if another process has already published the run.
  using Publish = std::function<bool(const FileContents&)>;
  Publish writes_directory_of(const Run& run) const {
    return [this, &run](const FileContents& files) {
      write_directory(directory_of(run), files);
      return true;
    };
  }

  // Publishes a run's outcome and, unless the run failed, removes its checkpoint. Returns the summary; nullopt if
  // another process has published the run. If the outcome cannot be written, the summary says that the run failed.
  // Throws fs::filesystem_error for a fault of the disk, because later runs could not be written either.
  std::optional<RunSummary> save(const Run& run, const Outcome& outcome, const Publish& publish) const {
    RunSummary summary = summarise(run, outcome);
    try {
      if (!publish(files_of(run, outcome, summary, backend))) return {};
      if (summary.status != RunStatus::failed) remove_checkpoint_of(run);
    } catch (const Interrupted&) {
      throw;
    } catch (const fs::filesystem_error&) {
      throw;
    } catch (const std::bad_alloc&) {
      summary.status = RunStatus::failed;
      summary.reason = "not enough memory to write its results";
    } catch (const std::exception& problem) {
      summary.status = RunStatus::failed;
      summary.reason = fmt::format("its results cannot be written: {}", problem.what());
    }
    return summary;
  }
};

// The result of a common phase ([training.common]).
struct CommonPhase {
  std::shared_ptr<const StartingPoint> end{};  // the last model; null: the phase has not ended yet, or has failed
  std::string failure{};                       // empty: it has not failed

  bool has_ended() const { return end || !failure.empty(); }
};

std::vector<float> one_after_the_other(const std::vector<std::vector<float>>& models) {
  std::vector<float> all;
  for (const std::vector<float>& model : models) all.insert(all.end(), model.begin(), model.end());
  return all;
}

// Returns the result of a phase that ended with these parameters. The parameters of several models (an ensemble) are a
// failure.
CommonPhase end_of(const Run& run, StartingPoint end) {
  const auto one = static_cast<std::size_t>(run.training.parameter_bytes.value()) / sizeof(float);
  if (end.parameters.size() == one) return {.end = std::make_shared<const StartingPoint>(std::move(end))};
  return {.failure = fmt::format("it ends with an ensemble of {} models; must end with one model",
                                 end.parameters.size() / one)};
}

void start_at(Run& run, const CommonPhase& phase) {
  run.training.options.start = phase.end;
  if (!phase.end || run.taken.empty()) return;
  StartingPoint start = *phase.end;
  start.taken = run.taken;
  run.training.options.start = std::make_shared<const StartingPoint>(std::move(start));
}

// The common phases from which runs start. Each phase is executed once, as a separate run in the results directory,
// where later commands find it.
class CommonPhases {
 public:
  explicit CommonPhases(const Work& work) : work_(work) {}  // must outlive this object

  // Returns the phase's result. Executes the phase unless this experiment or another one has already done so; with
  // --rerun, executes it in any case. `before_run`: number of the run that needs the phase, for the progress.
  // Collective under MPI. Throws Interrupted.
  const CommonPhase& phase(const Run& run, std::size_t before_run, Progress& progress) {
    if (const auto known = known_.find(run.hash); known != known_.end()) return known->second;
    return known_[run.hash] = make(run, before_run, progress, work_.writes_directory_of(run));
  }

  // Processes that share runs call find, make and fail instead of phase(). This one returns the known result and, if
  // `may_be_there`, also looks in the phase's directory. Null: the phase must be executed.
  const CommonPhase* find(const Run& run, bool may_be_there) {
    if (const auto known = known_.find(run.hash); known != known_.end()) return &known->second;
    CommonPhase phase = may_be_there ? found(run) : CommonPhase{};
    return phase.has_ended() ? &(known_[run.hash] = std::move(phase)) : nullptr;
  }

  // Like phase(), but always looks for the phase or executes it. `publish` returns false if another process has already
  // published it. In that case, and after a failure, the result has no `end`.
  CommonPhase make(const Run& run, std::size_t before_run, Progress& progress, const Work::Publish& publish) const {
    CommonPhase phase;
    if (work_.backend.is_rank_0() && !work_.options.rerun) {
      phase = found(run);
      if (!work_.backend.mpi && !phase.has_ended()) phase = found_reusable(run, publish);
    }
    const MpiSession* const all = work_.backend.together();
    if (!from_rank_0(all, phase.has_ended())) phase = made(run, before_run, progress, publish);
    return all ? shared(phase) : phase;
  }

  const CommonPhase& fail(const Run& run, const std::string& reason) { return known_[run.hash] = {.failure = reason}; }

 private:
  // Only on rank 0.
  CommonPhase found(const Run& run) const {
    try {
      const fs::path directory = work_.directory_of(run);
      if (!finished_before(directory, run)) return {};
      work_.remove_checkpoint_of(run);  // left by a process that was killed after it wrote the results
      const auto parameters = read_file(directory / "parameters.npy", any_size);
      const auto buffers = read_file(directory / "buffers.npy", any_size);
      if (!parameters) return {};
      return end_of(run, {.parameters = floats_from_npy(*parameters),
                          .buffers = buffers ? floats_from_npy(*buffers) : std::vector<float>{}});
    } catch (const std::exception&) {  // unreadable, so the phase is executed again
      return {};
    }
  }

  CommonPhase found_reusable(const Run& run, const Work::Publish& publish) const {
    const auto files = work_.reusable.files_for(run);
    return files && publish(*files) ? found(run) : CommonPhase{};
  }

  // Collective; the result is complete on rank 0.
  CommonPhase made(const Run& run, std::size_t before_run, Progress& progress, const Work::Publish& publish) const {
    const auto save = [&](const Outcome& outcome) {
      return work_.backend.is_rank_0() ? work_.save(run, outcome, publish) : std::nullopt;
    };
    progress.begin_common_phase(before_run, run);
    const CheckpointUse checkpoints = work_.checkpoints_of(run);
    const Outcome outcome = execute(run, work_.backend, progress, save, &checkpoints);
    progress.end_common_phase();
    const std::optional<RunSummary> summary = save(outcome);
    if (!summary) return {};
    if (summary->status != RunStatus::finished) return {.failure = summary->reason};
    return end_of(run, {.parameters = one_after_the_other(outcome.recording.parameters),
                        .buffers = one_after_the_other(outcome.recording.buffers)});
  }

  // Returns rank 0's result on all ranks.
  CommonPhase shared(const CommonPhase& phase) const {
    const MpiSession& session = *work_.backend.together();
    if (std::string failure = from_rank_0(session, phase.failure); !failure.empty()) return {.failure = failure};
    const StartingPoint own = phase.end ? *phase.end : StartingPoint{};
    return {.end = std::make_shared<const StartingPoint>(StartingPoint{
                .parameters = from_rank_0(session, own.parameters), .buffers = from_rank_0(session, own.buffers)})};
  }

  const Work& work_;
  std::map<std::string, CommonPhase> known_;  // by the phase's hash
};

bool is_finished(const std::optional<RunSummary>& summary) { return summary && summary->status == RunStatus::finished; }

// The state of an experiment's runs: which exist, how they ended, and which must be executed. If ranks execute runs
// together, only rank 0 reads directories and knows how runs end; the other ranks get `to_do` from it.
class RunsSoFar {
 public:
  // `work` must outlive this object. Reads nothing: at first all runs count as runs to execute.
  explicit RunsSoFar(const Work& work)
      : work_(work), summaries_(work.experiment.runs.size()), to_do_(work.experiment.runs.size(), 1) {}

  // Finds finished runs in their directories. Removes checkpoints left by a process that was killed after writing
  // results.
  void find_finished() {
    std::map<fs::path, bool> folders;
    for (std::size_t index = 0; index < summaries_.size(); ++index) {
      const Run& run = work_.experiment.runs[index];
      summaries_[index] = finished_before(work_.directory_of(run), run);
      if (!summaries_[index]) continue;
      to_do_[index] = 0;
      const auto checkpoint = checkpoint_of(work_.directory_of(run));
      const auto [folder, is_new] = folders.try_emplace(checkpoint.parent_path());
      if (is_new) folder->second = has_parts(folder->first);
      std::error_code none;
      if (folder->second || fs::exists(checkpoint, none)) remove_checkpoint(checkpoint);
    }
    count_finished();
  }

  // Copies runs from other experiments.
  void copy_reusable() {
    for (std::size_t index = 0; index < summaries_.size(); ++index) {
      const Run& run = work_.experiment.runs[index];
      if (!to_do_[index]) continue;
      const auto files = work_.reusable.files_for(run);
      if (!files) continue;
      write_directory(work_.directory_of(run), *files);
      work_.remove_checkpoint_of(run);
      summaries_[index] = finished_before(work_.directory_of(run), run);
      to_do_[index] = summaries_[index] ? 0 : 1;
      copied_ += to_do_[index] ? 0 : 1;
    }
    count_finished();
  }

  // Returns the damage of common phases' directories, even of phases whose runs are all finished. The key of a damaged
  // phase is the index of the first run that starts from it. Empty with --rerun.
  std::map<std::size_t, std::string> damaged_phases() const {
    std::map<std::size_t, std::string> found;
    std::set<std::string> seen;
    for (std::size_t index = 0; index < summaries_.size() && !work_.options.rerun; ++index) {
      const Run* const phase = work_.experiment.runs[index].common_phase.get();
      if (!phase || !seen.insert(phase->hash).second) continue;
      if (std::string damage = damage_of(work_.directory_of(*phase)); !damage.empty()) found[index] = std::move(damage);
    }
    return found;
  }

  void settle(std::size_t index, RunSummary summary) {
    summaries_[index] = std::move(summary);
    if (is_finished(summaries_[index])) ++finished_;
  }

  const std::vector<std::optional<RunSummary>>& summaries() const { return summaries_; }  // by run
  std::vector<int>& to_do() { return to_do_; }  // by run; 1: this command must execute it, or has done so
  bool is_to_do(std::size_t index) const { return to_do_[index] != 0; }
  std::size_t number_to_do() const { return static_cast<std::size_t>(std::ranges::count(to_do_, 1)); }
  std::ptrdiff_t number_copied() const { return copied_; }             // runs copied from other experiments
  std::ptrdiff_t number_finished() const { return finished_.load(); }  // any thread may call this function

 private:
  void count_finished() { finished_ = std::ranges::count_if(summaries_, is_finished); }

  const Work& work_;
  std::vector<std::optional<RunSummary>> summaries_;
  std::vector<int> to_do_;
  std::ptrdiff_t copied_ = 0;
  std::atomic<std::ptrdiff_t> finished_ = 0;  // number of finished summaries
};

// Whether the file has these contents. False for links and unreadable files, which save_tables replaces.
bool holds(const fs::path& file, const std::string& contents) {
  try {
    return !fs::is_symlink(file) && read_file(file, contents.size()) == contents;
  } catch (const std::exception&) {
    return false;
  }
}

// Writes table.txt (the table as `run` prints it, followed by `notes`) and table.md; under MPI, table-mpi.txt and
// table-mpi.md. Writes nothing if no run has finished or the files are up to date. Returns why the files cannot be
// written, or an empty text.
std::string save_tables(const fs::path& directory, std::span<const RunSummary> runs, bool under_mpi,
                        const std::string& notes) {
  const std::string clock = under_mpi ? "wall" : "virtual";
  const std::string table_text = result_table(runs, clock);
  if (table_text.empty()) return {};
  const std::string text = table_text + notes;
  const ResultTable table = result_columns(runs, clock);
  const std::string markdown =
      fmt::format("{}{}{}", table.table.markdown(), (table.notes + notes).empty() ? "" : "\n", table.notes + notes);
  const std::string name = under_mpi ? "table-mpi" : "table";
  try {
    require_no_link(directory);
    for (const auto& [suffix, contents] : {std::pair(".txt", &text), std::pair(".md", &markdown)}) {
      const fs::path file = directory / (name + suffix);
      if (!holds(file, *contents)) replace_file(file, *contents);
    }
  } catch (const std::exception& fault) {
    return fault.what();
  }
  return {};
}

// Judges the claims by the experiment's simulated runs in the results directory. Returns the scoreboard, folded at
// `width` unless that is 0; empty without claims. Writes claims.json into the experiment's directory, unless the
// command line changes the experiment, because the file's own verdicts must not be replaced. Throws std::runtime_error
// (a damaged run) or std::system_error (claims.json cannot be written).
std::string judge_claims(const Experiment& experiment, const std::filesystem::path& results, std::size_t width) {
  if (experiment.claims.empty()) return {};
  const std::filesystem::path directory = experiment_directory(results, experiment.name);
  const std::vector<FoundRun> runs =
      find_runs_of(directory, std::set<std::string>(experiment.hashes.begin(), experiment.hashes.end()));
  const std::vector<ResultRow> rows = result_rows(runs);
  JudgedClaims judged{.experiment = experiment.name,
                      .description = experiment.description,
                      .runs = experiment.digest,
                      .commit = build_info().commit + (build_info().dirty.value_or(false) ? ", changed" : ""),
                      .processor = processor_name(),
                      .cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
                      .time = iso_time(std::chrono::system_clock::now()),
                      .judged_runs = runs.size(),
                      .results = {}};
  for (const Claim& claim : experiment.claims) judged.results.push_back(judge(claim, rows));
  std::string text =
      scoreboard_text(std::span(&judged, 1), width) + fold_lines(scoreboard_notes(std::span(&judged, 1)), width);
  if (experiment.differs.empty()) {
    require_no_link(directory);
    replace_file(directory / claims_file, to_json(judged));
    return text;
  }
  return text +
         fold_lines(fmt::format("These verdicts are not saved, because the experiment was changed: it was run {}.\n",
                                experiment.differs),
                    width);
}

// Prints the table of results, the runs that did not finish and, for simulated runs, the judged claims. Saves the
// tables in the experiment's directory. Without RunOptions::tables it does neither. Returns the exit status: 1 if a run
// did not finish.
int print_final_tables(const Work& work, const RunsSoFar& made) {
  const Experiment& experiment = work.experiment;
  const RunOptions& options = work.options;
  const bool under_mpi = work.backend.mpi != nullptr;
  std::vector<RunSummary> runs;
  for (const auto& summary : made.summaries())
    if (summary) runs.push_back(*summary);
  const std::string failures = failure_table(runs, options.table_width);
  if (options.tables) {
    const std::string results = result_table(runs, under_mpi ? "wall" : "virtual", options.table_width);
    const std::string magnitudes = under_mpi ? "" : magnitude_notes(experiment.runs, made.summaries());
    if (!results.empty())
      standard_output.write(
          "\n" + results +
          fold_lines(overrun_warnings(runs) + printable_lines(magnitudes + experiment.notes), options.table_width));
    const std::string fault = save_tables(work.own_directory(), runs, under_mpi, experiment.notes);
    // If this command executed no run, there is no warning, because an old experiment may be in a read-only directory.
    if (!fault.empty() && made.number_to_do() > 0)
      standard_error.write(fmt::format("warning: the table cannot be saved: {}\n", printable_lines(fault)));
    if (!failures.empty())
      standard_output.write(fmt::format("\nRuns that did not finish; the next `run` repeats them:\n\n{}", failures));
    if (!under_mpi)
      if (const std::string claims = judge_claims(experiment, options.results_directory, options.table_width);
          !claims.empty())
        standard_output.write("\n" + printable_lines(claims));
  }
  return failures.empty() ? exit_success : exit_failure;
}

// Returns the identity of a directory on the disk, which changes when the directory is replaced by published results.
std::string identity_of(const fs::path& directory) {
  struct stat found {};
  if (stat(directory.c_str(), &found) != 0) return {};
  return fmt::format("{} {} {}", found.st_dev, found.st_ino, found.st_ctim.tv_nsec);
}

Outcome failed_outcome(std::string reason) {
  Outcome outcome;
  outcome.failure = std::move(reason);
  outcome.start = outcome.end = std::chrono::system_clock::now();
  return outcome;
}

void print_line(const std::string& text) { standard_error.write(fmt::format("{}\n", printable_lines(text))); }

// Shares an experiment's runs among several processes, on one machine or on many. Each process takes the next run that
// no other process has taken. It finds the results of other processes in the results directory.
//   repeat until all runs are done, for each run in order:
//     its directory is complete                      -> done
//     it has failed as often as --retry allows       -> done, with the reason
//     its lease is free, or its owner has been lost  -> take the lease, check once more whether it is done, execute it,
//                                                       and publish it if this process still has the lease
//     another process has the lease                  -> look again later
// Two processes never publish the same run, because only one of them can take over a lease (results/lease.hpp). Before
// a process publishes, it checks that it still has the lease. publish_directory fails if the finished run exists.
class SharedRuns {
 public:
  // Creates the folders through which processes find each other. Throws fs::filesystem_error. The arguments must
  // outlive this object. `runs` gets the summary of each run that is done, whether or not it failed.
  SharedRuns(const Work& work, CommonPhases& phases, RunsSoFar& runs)
      : work_(work),
        phases_(phases),
        runs_(runs),
        sharing_(*work.options.sharing),
        folder_(work.own_directory() / share_folder),
        leases_(folder_ / leases_folder, sharing_.time_out),
        attempts_(folder_ / failed_folder, sharing_.call, work.options.retries) {
    for (const char* const folder : {leases_folder, failed_folder}) fs::create_directories(folder_ / folder);
    if (sharing_.speaks) save_plan(folder_, work.experiment.runs);
  }

  // Executes the runs to do, or waits until other processes have done so. Returns the number of runs that are not done.
  // It is above 0 only if this process must not wait, or if all processes that execute runs have ended.
  // `damaged_phases`: by their first runs; these phases are repeated even if no run needs them. Throws Interrupted.
  // Throws fs::filesystem_error if the folders have been deleted or cannot be written.
  std::size_t make(const std::map<std::size_t, std::string>& damaged_phases, Progress& progress) {
    using Clock = std::chrono::steady_clock;
    std::vector<std::size_t> open;
    for (std::size_t index = 0; index < work_.experiment.runs.size(); ++index)
      if (runs_.is_to_do(index)) open.push_back(index);
    if (sharing_.start_others) sharing_.start_others();
    bool is_last_look = false;
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
      const std::chrono::duration<double> look = Clock::now() - begin;
      if (!is_last_look) wait_for_others(progress, work_.experiment.runs.size() - open.size(), look.count());
    }
    for (const auto& [index, damage] : damaged_phases)  // does nothing if another process is repeating the phase
      if (sharing_.takes) ready_phase(index, progress);
    remove_finished_leases();
    remove_leftovers(work_.options.results_directory, work_.experiment.runs);
    return open.size();
  }

 private:
  enum class Turn { settled, tried, others };

  Turn turn(std::size_t index, Progress& progress) {
    if (settle_if_done(index, progress)) return Turn::settled;
    const Run& run = work_.experiment.runs[index];
    if (sharing_.takes) return take(index, progress);
    if (!run.common_phase) return Turn::others;
    const auto failed = attempts_.of(run.common_phase->hash);
    return attempts_.are_used_up(failed) ? settle_failed_phase(index, failed->reason, progress) : Turn::others;
  }

  Turn take(std::size_t index, Progress& progress) {
    const Run& run = work_.experiment.runs[index];
    const CommonPhase* phase = nullptr;
    if (run.common_phase) {
      phase = ready_phase(index, progress);
      if (!phase) return Turn::others;
      if (!phase->failure.empty()) return settle_failed_phase(index, phase->failure, progress);
    }
    const std::unique_ptr<Lease> lease = leases_.take(run.hash);
    if (!lease) return Turn::others;
    if (settle_if_done(index, progress)) return Turn::settled;  // the lease's last owner may have finished it
    if (gives_up_after_loss(run.hash, *lease)) return Turn::tried;
    attempt(index, *lease, phase, progress);
    return settle_if_done(index, progress) ? Turn::settled : Turn::tried;
  }

  // Executes the run. Publishes its results, or adds its failure to the records of attempts.
  void attempt(std::size_t index, Lease& lease, const CommonPhase* phase, Progress& progress) {
    Run run = work_.experiment.runs[index];
    if (copy_reusable(run, lease)) return;
    if (phase) start_at(run, *phase);
    if (const LeaseNote* const former = lease.taken_from(); former && !former->host.empty())
      progress.note(fmt::format("{}: taken over from {}, which {}", label_with_seed(run), former->owner(),
                                lease.former_is_gone() ? "has ended" : "was silent for too long"));
    // This comes before begin_run, because the listener determines how often the lease is renewed.
    progress.set_listener([&lease](double share) { lease.report_progress(share); });
    progress.begin_run(index + 1, run);
    // A run that was taken over from a lost process resumes from that process's checkpoint.
    CheckpointUse checkpoints = work_.checkpoints_of(run);
    checkpoints.is_mine = [&lease] { return lease.is_mine(); };
    const Outcome outcome = execute(
        run, work_.backend, progress, [](const Outcome&) {}, &checkpoints);
    progress.set_listener({});
    const auto summary =
        work_.save(run, outcome, [&](const FileContents& files) { return publish(run, files, lease); });
    if (!summary) {
      if (is_done(work_.directory_of(run), run)) work_.remove_checkpoint_of(run);
      return;
    }
    const bool is_well =
        summary->status == RunStatus::finished || (run.is_trial && summary->status == RunStatus::diverged);
    if (is_well)
      attempts_.remove(run.hash);
    else
      attempts_.add_failure(run.hash, summary->reason, summary->status == RunStatus::diverged);
    progress.end_run(*summary);
  }

  bool copy_reusable(const Run& run, Lease& lease) {
    if (work_.options.rerun) return false;
    const auto files = work_.reusable.files_for(run);
    if (!files || !publish(run, *files, lease)) return false;
    attempts_.remove(run.hash);
    return true;
  }

  // Publishes the run. Prints a line and returns false if another process has it.
  bool publish(const Run& run, const FileContents& files, Lease& lease) const {
    const auto is_this_done = [&](const fs::path& place) { return is_done(place, run); };
    require_there(folder_);
    if (!lease.is_mine()) {
      print_line(fmt::format(
          "{}: another process has taken it over, because this process ({}) was silent for longer than {} s; the "
          "results of this process are discarded",
          label_with_seed(run), this_process().number, std::chrono::duration<double>(sharing_.time_out).count()));
      return false;
    }
    if (publish_directory(work_.directory_of(run), files, is_this_done)) return true;
    print_line(fmt::format("{}: another process has published it; the results of process {} are discarded",
                           label_with_seed(run), this_process().number));
    return false;
  }

  void settle_failed(std::size_t index, const std::string& reason, Progress& progress) {
    const Run& run = work_.experiment.runs[index];
    auto recorded = summary_of(work_.directory_of(run), run);
    const bool has_record = recorded && recorded->status != RunStatus::finished;
    RunSummary summary = has_record ? *std::move(recorded) : summarise(run, failed_outcome(reason));
    if (!sharing_.takes)
      progress.end_elsewhere(index + 1, run, summary, true);  // otherwise the process that executed the run reports it
    runs_.settle(index, std::move(summary));
  }

  Turn settle_failed_phase(std::size_t index, const std::string& reason, Progress& progress) {
    settle_failed(index, fmt::format("its common phase failed: {}", reason), progress);
    return Turn::settled;
  }

  // Returns false if the run must still be executed.
  bool settle_if_done(std::size_t index, Progress& progress) {
    const Run& run = work_.experiment.runs[index];
    if (auto summary = done(index)) {
      progress.end_elsewhere(index + 1, run, *summary, !sharing_.takes);
      runs_.settle(index, *std::move(summary));
      return true;
    }
    const auto failed = attempts_.of(run.hash);
    if (!attempts_.are_used_up(failed)) return false;
    settle_failed(index, failed->reason, progress);
    return true;
  }

  // Returns the result of the common phase from which a run starts; null: another process is executing the phase.
  const CommonPhase* ready_phase(std::size_t index, Progress& progress) {
    const Run& phase = *work_.experiment.runs[index].common_phase;
    const auto may_be_found = [&] {
      return !work_.options.rerun || was_made_by(work_.directory_of(phase), sharing_.call);
    };
    if (const CommonPhase* known = phases_.find(phase, may_be_found())) return known;
    if (const auto failed = attempts_.of(phase.hash); attempts_.are_used_up(failed))
      return &phases_.fail(phase, failed->reason);
    const std::unique_ptr<Lease> lease = leases_.take(phase.hash);
    if (!lease) return nullptr;
    if (const CommonPhase* known = phases_.find(phase, may_be_found())) return known;
    if (gives_up_after_loss(phase.hash, *lease)) return nullptr;
    progress.set_listener([&lease](double share) { lease->report_progress(share); });
    const CommonPhase made = phases_.make(phase, index + 1, progress,
                                          [&](const FileContents& files) { return publish(phase, files, *lease); });
    progress.set_listener({});
    if (made.end) {
      counted_phases_.insert(phase.hash);
      attempts_.remove(phase.hash);
      return phases_.find(phase, may_be_found());
    }
    if (!made.failure.empty()) attempts_.add_failure(phase.hash, made.failure, false);
    return nullptr;
  }

  // If the former owner of the lease has ended, counts that as a failed attempt. Returns true if the run has no
  // attempts left. An owner that has become silent does not count: it was stopped, or its machine is unreachable, and
  // the run did not cause that.
  bool gives_up_after_loss(const std::string& what, const Lease& lease) const {
    if (!lease.former_is_gone()) return false;
    attempts_.add_lost(what, lease.taken_from()->owner());
    return attempts_.are_used_up(attempts_.of(what));
  }

  // With --rerun, only results of this launch count.
  std::optional<RunSummary> summary_if_done(const fs::path& directory, const Run& run) const {
    if (work_.options.rerun && !was_made_by(directory, sharing_.call)) return {};
    return finished_before(directory, run);
  }

  bool is_done(const fs::path& directory, const Run& run) const { return summary_if_done(directory, run).has_value(); }

  std::optional<RunSummary> done(std::size_t index) {
    const Run& run = work_.experiment.runs[index];
    const fs::path directory = work_.directory_of(run);
    std::string identity = identity_of(directory);
    std::string& looked_at = looked_at_[index];
    if (identity.empty() || looked_at == identity) return {};
    auto summary = summary_if_done(directory, run);
    if (!summary) looked_at = std::move(identity);
    return summary;
  }

  // Waits for nine times `look_s`, which is the time that the last check of all runs took. So checks take at most a
  // tenth of the time. `ended`: number of runs that are done.
  void wait_for_others(Progress& progress, std::size_t ended, double look_s) {
    const std::vector<LeaseNote> held = leases_.held();
    std::vector<Progress::Elsewhere> under_way = common_phases_elsewhere(held, progress);
    for (const LeaseNote& note : held)
      for (const Run& run : work_.experiment.runs)
        if (run.hash == note.what) under_way.push_back({.run = &run, .share = note.share_done});
    progress.show_elsewhere(ended, under_way);
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::max(0.1, 9 * look_s));
    while (std::chrono::steady_clock::now() < until) {
      throw_if_interrupted();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  // Returns the common phases that other processes are executing. Counts each phase that ended in another process once.
  std::vector<Progress::Elsewhere> common_phases_elsewhere(const std::vector<LeaseNote>& held, Progress& progress) {
    std::vector<Progress::Elsewhere> under_way;
    std::set<std::string> seen;
    for (const Run& run : work_.experiment.runs) {
      const Run* const phase = run.common_phase.get();
      if (!phase || counted_phases_.contains(phase->hash) || !seen.insert(phase->hash).second) continue;
      const auto note = std::ranges::find(held, phase->hash, &LeaseNote::what);
      if (note != held.end()) {
        under_way.push_back({.run = phase, .share = note->share_done, .is_common_phase = true});
      } else if (is_done(work_.directory_of(*phase), *phase)) {
        counted_phases_.insert(phase->hash);
        progress.end_common_phase_elsewhere(*phase);
      }
    }
    return under_way;
  }

  // Removes leases that remain although their runs are finished, because their owners were killed or silent. Also
  // removes leases of ended processes on runs that this experiment does not contain.
  void remove_finished_leases() const {
    std::map<std::string, const Run*> own;
    for (const Run& run : work_.experiment.runs) {
      own.emplace(run.hash, &run);
      if (run.common_phase) own.emplace(run.common_phase->hash, run.common_phase.get());
    }
    for (const LeaseNote& note : leases_.held()) {
      const auto found = own.find(note.what);
      const bool is_over = found == own.end() ? state_of(note.process) == ProcessState::gone
                                              : is_done(work_.directory_of(*found->second), *found->second);
      if (is_over) leases_.remove(note.what);
    }
  }

  const Work& work_;
  CommonPhases& phases_;
  RunsSoFar& runs_;
  const Sharing& sharing_;
  fs::path folder_;
  Leases leases_;
  AttemptRecords attempts_;
  std::map<std::size_t, std::string> looked_at_{};  // by run: identity of a directory without the finished run
  std::set<std::string> counted_phases_{};          // common phases whose end the progress has counted
};

void report_error(const RunOptions& options, const std::string& text) {
  const auto is_first = options.sharing ? options.sharing->is_first_to_report : nullptr;
  if (!is_first || is_first()) standard_error.write(fmt::format("{}\n", printable_lines(text)));
}

class ExperimentRunner {
 public:
  // `later`: runs that will follow these; the plan mentions them.
  ExperimentRunner(const Experiment& experiment, const RunOptions& options, const ExecutionBackend& backend,
                   std::span<const Run> later)
      : experiment_(experiment), options_(options), later_(later), backend_(backend) {}

  int run() {
    LastAct report([this] { report_interruption(); });
    try {
      return run_all();
    } catch (const CannotRun& reason) {
      if (is_rank_0()) standard_error.write(fmt::format("{}\n", printable_lines(reason.what())));
      return exit_usage;
    } catch (const Interrupted&) {
      report.do_now();
      return exit_interrupted;
    }
  }

  const std::vector<std::optional<RunSummary>>& summaries() const { return runs_.summaries(); }

 private:
  int run_all() {
    look_for_finished_runs();
    std::map<std::string, double> expected_s;
    if (runs_.number_to_do() > 0 || !damaged_phases_.empty()) {  // otherwise no data are read and nothing is written
      agree_on(fault_of_data());
      const int status = from_rank_0(backend_.together(), is_rank_0() ? prepare() : exit_success);
      if (status != exit_success) return status;
      report_plan();
      expected_s = print_plan();
    }

    const auto style = is_rank_0() ? Progress::style_of_stderr(options_.quiet) : Progress::Style::silent;
    Progress progress(style, experiment_.runs.size(), runs_.number_to_do(), clock());
    progress.expect(std::move(expected_s));
    report_skipped(progress);
    if (backend_.processes && runs_.number_to_do() > 0)
      progress.note(fmt::format("{} processes divide each run, by {} each", backend_.processes->size(),
                                counted(backend_.threads, "thread")));
    if (options_.sharing) return make_shared(progress);
    for (std::size_t index = 0; index < experiment_.runs.size(); ++index) {
      if (interrupted()) throw Interrupted();
      if (runs_.is_to_do(index)) run_one(index, progress);
    }
    const bool are_phases_well = repeat_damaged_phases(progress);
    const int result = is_rank_0() ? print_tables() : exit_success;
    return from_rank_0(backend_.together(), are_phases_well ? result : exit_failure);
  }

  bool is_rank_0() const { return backend_.is_rank_0(); }
  bool speaks() const { return is_rank_0() && (!options_.sharing || options_.sharing->speaks); }
  const char* noun() const { return !experiment_.runs.empty() && experiment_.runs.front().is_trial ? "trial" : "run"; }
  const char* clock() const { return backend_.mpi ? "wall" : "virtual"; }

  // Only rank 0 reads the results directory.
  void look_for_finished_runs() {
    std::string fault;
    try {
      if (is_rank_0() && !options_.rerun) {
        runs_.find_finished();
        damaged_phases_ = runs_.damaged_phases();
      }
    } catch (const std::exception& problem) {
      fault = problem.what();
    }
    agree_on(fault);
    report_plan();
  }

  void report_plan() {
    runs_.to_do() = from_rank_0(backend_.together(), runs_.to_do());
    damaged_phases_ = from_rank_0(backend_.together(), damaged_phases_);
  }

  // Throws CannotRun on all ranks if `fault` is not empty on any rank.
  void agree_on(const std::string& fault) const {
    if (const auto* all = backend_.together()) return agree(*all, {.fault = fault, .identity = {}, .plan = {}});
    if (!fault.empty()) throw CannotRun(fault);
  }

  // Called on rank 0 before anything runs or is written.
  int prepare() {
    try {
      require_usable(options_.results_directory, experiment_.runs);
      const int restored = remove_leftovers(options_.results_directory, experiment_.runs);
      if (restored > 0 && !options_.rerun) runs_.find_finished();
      if (speaks()) report_damaged();
      // Copies only simulated runs: wall-clock times belong to the run that measured them.
      if (!options_.rerun && !backend_.mpi && !options_.sharing) runs_.copy_reusable();
      return exit_success;
    } catch (const std::exception& problem) {
      const auto* const disk = dynamic_cast<const fs::filesystem_error*>(&problem);
      report_error(options_, disk ? disk_fault(work_.own_directory(), *disk) : problem.what());
      return exit_usage;
    }
  }

  // Loads the data on every rank before the first run, because a data fault ends the whole experiment on all ranks. The
  // data remain in memory for the runs. Other problems, such as lack of memory, may affect only one run. Only that run
  // fails then.
  std::string fault_of_data() const {
    for (std::size_t index = 0; index < experiment_.runs.size(); ++index) {
      if (!runs_.is_to_do(index) || !experiment_.runs[index].training.make_objective) continue;
      try {
        experiment_.runs[index].training.make_objective();
      } catch (const DataFault& fault) {
        return fault.what();
      } catch (const std::exception&) {
      }
    }
    return {};
  }

  // Reports damage even with --quiet, because users must learn that results have changed on the disk.
  void report_damaged() const {
    if (options_.rerun) return;
    for (std::size_t index = 0; index < experiment_.runs.size(); ++index)
      if (runs_.is_to_do(index))
        if (const std::string damage = damage_of(work_.directory_of(experiment_.runs[index])); !damage.empty())
          standard_error.write(fmt::format("{}; the run is repeated\n", damage));
    for (const auto& [index, damage] : damaged_phases_)
      standard_error.write(fmt::format("{}; the common phase is repeated\n", damage));
  }

  // Prints the plan. Returns the expected times for Progress::expect.
  std::map<std::string, double> print_plan() {
    if (!options_.plan || options_.quiet || !speaks()) return {};
    RunPlan plan = plan_of(experiment_.runs, runs_.to_do(), later_,
                           {.results = options_.results_directory,
                            .mpi = backend_.mpi != nullptr,
                            .threads = backend_.together() ? 0 : backend_.threads});
    plan.side_by_side = options_.side_by_side;
    plan.division = options_.division;
    standard_error.write(plan_text(plan, noun()) + "\n");
    return std::move(plan.host_s);
  }

  void report_skipped(Progress& progress) const {
    const std::size_t skipped = experiment_.runs.size() - runs_.number_to_do();
    if (skipped == 0) return;
    const std::string copied =
        runs_.number_copied() > 0 ? fmt::format(" ({} copied from other experiments)", runs_.number_copied()) : "";
    progress.note(fmt::format("{} of {} {}s already exist in {}{}; --rerun repeats them", skipped,
                              experiment_.runs.size(), noun(), options_.results_directory, copied));
    const auto is_older = [](const auto& summary) { return summary && summary->commit != build_info().commit; };
    const auto older = std::ranges::count_if(runs_.summaries(), is_older);
    if (older == 0) return;
    progress.note(
        fmt::format("warning: {} of them {} made by another commit of Syncopate; --rerun repeats them with this commit",
                    older, older == 1 ? "was" : "were"));
  }

  // Executes and saves a run. If its common phase has failed, saves the run as failed.
  void run_one(std::size_t index, Progress& progress) {
    Run run = experiment_.runs[index];
    std::string fault_of_phase;
    if (run.common_phase) {
      const CommonPhase& phase = common_phases_.phase(*run.common_phase, index + 1, progress);
      start_at(run, phase);
      if (!phase.failure.empty()) fault_of_phase = fmt::format("its common phase failed: {}", phase.failure);
    }
    const auto save_what_is_there = [&](const Outcome& outcome) {
      if (is_rank_0()) save(index, outcome);
    };
    const CheckpointUse checkpoints = work_.checkpoints_of(run);
    for (int retries = fault_of_phase.empty() ? options_.retries : 0;; --retries) {
      progress.begin_run(index + 1, run);
      const Outcome outcome = fault_of_phase.empty()
                                  ? execute(run, backend_, progress, save_what_is_there, &checkpoints)
                                  : failed_outcome(fault_of_phase);
      if (!is_rank_0()) return;
      save(index, outcome);
      progress.end_run(*runs_.summaries()[index]);
      if (runs_.summaries()[index]->status != RunStatus::failed || retries <= 0) return;
    }
  }

  // Repeats damaged phases that no run has needed so far. Prints a message and returns false if one fails.
  bool repeat_damaged_phases(Progress& progress) {
    bool are_well = true;
    for (const auto& [index, damage] : damaged_phases_) {
      if (interrupted()) throw Interrupted();
      const CommonPhase& phase = common_phases_.phase(*experiment_.runs[index].common_phase, index + 1, progress);
      if (phase.failure.empty()) continue;
      if (is_rank_0())
        standard_error.write(printable_lines(fmt::format("the common phase failed: {}\n", phase.failure)));
      are_well = false;
    }
    return are_well;
  }

  // Executes the runs together with other processes. Once all runs are done, prints tables if Sharing::speaks.
  int make_shared(Progress& progress) {
    std::size_t left = 0;
    if (runs_.number_to_do() > 0 || !damaged_phases_.empty())
      left = SharedRuns(work_, common_phases_, runs_).make(damaged_phases_, progress);
    if (left == 0 && speaks()) return print_tables();
    if (left > 0 && options_.sharing->takes)
      progress.note(fmt::format("no {} is left to start; {} {}{} still running in other processes", noun(), left,
                                noun(), left == 1 ? " is" : "s are"));
    if (left > 0 && !options_.sharing->takes)
      report_error(options_, fmt::format("{} of {} {}s were not executed, because all processes for them have ended",
                                         left, experiment_.runs.size(), noun()));
    const bool all_well =
        std::ranges::all_of(runs_.summaries(), [](const auto& one) { return !one || is_finished(one); });
    return all_well && (left == 0 || options_.sharing->takes) ? exit_success : exit_failure;
  }

  // Saves a run. If it cannot be written, the next command repeats it.
  void save(std::size_t index, const Outcome& outcome) {
    const Run& run = experiment_.runs[index];
    require_there(work_.own_directory());
    runs_.settle(index, *work_.save(run, outcome, work_.writes_directory_of(run)));
  }

  void report_interruption() const {
    if (const auto* all = backend_.together()) all->abort_as_asked(what_stays);
    if (!speaks()) return;
    standard_error.write(fmt::format("interrupted; {} ({} of {} {}s are finished)\n", what_stays,
                                     runs_.number_finished(), experiment_.runs.size(), noun()));
  }

  // Throws if a finished run's directory was deleted while other runs were executed: its results exist only in memory.
  void require_finished_there() const {
    std::size_t gone = 0;
    for (std::size_t index = 0; index < experiment_.runs.size(); ++index) {
      const auto& summary = runs_.summaries()[index];
      const auto directory = work_.directory_of(experiment_.runs[index]);
      if (summary && is_finished(*summary) && !fs::exists(directory)) ++gone;
    }
    if (gone > 0)
      throw ResultsDirectoryFault(fmt::format(
          "{}: {} of {} {}s {} removed while others were running; the next `run` repeats what is missing",
          work_.own_directory().string(), gone, experiment_.runs.size(), noun(), gone == 1 ? "was" : "were"));
  }

  int print_tables() const {
    require_finished_there();
    return print_final_tables(work_, runs_);
  }

  const Experiment& experiment_;
  const RunOptions& options_;
  std::span<const Run> later_;
  const ExecutionBackend& backend_;
  ReusableRuns reusable_{options_.results_directory};
  const Work work_{experiment_, options_, backend_, reusable_};
  CommonPhases common_phases_{work_};
  RunsSoFar runs_{work_};                                // to_do() is equal on every rank
  std::map<std::size_t, std::string> damaged_phases_{};  // damage by the phase's first run
};

// Executes the experiment; tunes first if the file contains [tune].
int start(const Experiment& experiment, const RunOptions& options, const ExecutionBackend& backend) {
  std::string fault;
  try {
    return experiment.tuning ? run_tuned(experiment, options, backend) : make_runs(experiment, options, backend).status;
  } catch (const ResultsDirectoryFault& problem) {
    fault = problem.what();
  } catch (const fs::filesystem_error& problem) {  // results cannot be written into the experiment's directory
    fault = disk_fault(experiment_directory(options.results_directory, experiment.name), problem);
  }
  if (const auto* all = backend.together())
    all->abort(fault, exit_failure);  // the other ranks do not know about the fault
  report_error(options, fault);
  return exit_failure;
}

// Judges an experiment's claims again after they alone have changed in its file. Uses the rows in runs.csv beside
// `file`, and replaces the verdicts in `file`. Returns the scoreboard; empty if rows of some runs are missing.
std::string judged_again_by_rows(const Experiment& experiment, JudgedClaims judged, const fs::path& file,
                                 std::size_t width) {
  const fs::path table = file.parent_path() / "runs.csv";
  if (!fs::exists(table)) return {};
  const std::vector<FoundRun> runs = runs_of_table(table, experiment.runs);
  if (runs.size() != judged.judged_runs.value_or(experiment.runs.size())) return {};
  const std::vector<ResultRow> rows = result_rows(runs);
  judged.results.clear();
  try {
    for (const Claim& claim : experiment.claims) judged.results.push_back(judge(claim, rows));
  } catch (const ResultsDirectoryFault&) {  // a claim about curves, which are not kept
    return {};
  }
  replace_file(file, to_json(judged));
  return scoreboard_text(std::span(&judged, 1), width) +
         fold_lines(
             fmt::format("\n{}: judged again by the rows in {}, which commit {} computed ({}); nothing was run\n",
                         file.string(), table.string(), judged.commit, judged.time),
             width);
}

}  // namespace

RunsMade make_runs(const Experiment& experiment, const RunOptions& options, const ExecutionBackend& backend,
                   std::span<const Run> later) {
  ExperimentRunner runner(experiment, options, backend, later);
  const int status = runner.run();
  return {status, runner.summaries()};
}

std::string accepted_claims(const Experiment& experiment, const std::filesystem::path& directory, std::size_t width) {
  const std::filesystem::path file = experiment_directory(directory, experiment.name) / claims_file;
  const std::optional<std::string> text = read_file(file);
  if (!text) return {};
  std::optional<JudgedClaims> judged = claims_from_json(*text);
  const bool is_by_this_rule = judged.has_value();
  if (!judged) judged = claims_from_json(*text, claims_schema_version - 1);
  if (!judged || judged->runs != experiment.digest) return {};
  if (is_by_this_rule && std::ranges::equal(judged->results, experiment.claims, {}, &ClaimResult::claim))
    return scoreboard_text(std::span(&*judged, 1), width) +
           fold_lines(fmt::format("\n{}: judged {} from the same runs (commit {}, {}, {} cores); nothing was run\n",
                                  file.string(), judged->time, judged->commit, judged->processor, judged->cores),
                      width);
  return judged_again_by_rows(experiment, *judged, file, width);
}

int run_experiment(const Experiment& experiment, const RunOptions& options) {
  install_interrupt_handlers();
  const MpiSession* const session = options.mpi && options.mpi->active() ? options.mpi : nullptr;
  const bool on_mpi = options.cluster == ClusterChoice::mpi || (options.cluster == ClusterChoice::automatic && session);
  const bool divides = !on_mpi && session && session->size() > 1 && !options.sharing;
  const std::string wrong = on_mpi ? why_not_on_mpi(experiment, session) : divides ? why_not_divided(*session) : "";
  if (!wrong.empty()) {
    if (!session || session->rank() == 0) standard_error.write(wrong + "\n");
    return exit_usage;
  }
  if (on_mpi || divides) session->expect_to_stay();
  const auto processes = divides ? make_mpi_process_group(*session) : nullptr;
  return start(experiment, options,
               {.threads = threads_of(options, divides ? session->ranks_on_node() : 1),
                .mpi = on_mpi ? session : nullptr,
                .call = options.sharing ? options.sharing->call : "",
                .processes = processes.get(),
                .divided_by = divides ? session : nullptr});
}

}  // namespace syncopate
