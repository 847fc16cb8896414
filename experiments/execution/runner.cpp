#include "experiments/execution/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/execution/checkpointing.hpp"
#include "experiments/execution/chosen_machinery.hpp"
#include "experiments/execution/common_phases.hpp"
#include "experiments/execution/execution.hpp"
#include "experiments/execution/final_tables.hpp"
#include "experiments/execution/measured_cost.hpp"
#include "experiments/execution/mpi_exchange.hpp"
#include "experiments/execution/planned_work.hpp"
#include "experiments/execution/rank_agreement.hpp"
#include "experiments/execution/runs_so_far.hpp"
#include "experiments/execution/shared_runs.hpp"
#include "experiments/execution/tuned_runs.hpp"
#include "results/directory/disk_fault.hpp"
#include "results/directory/finished_run.hpp"
#include "results/directory/run_directory.hpp"
#include "results/directory/run_files.hpp"
#include "results/directory/runs_elsewhere.hpp"
#include "results/formats/build_info.hpp"
#include "results/formats/output.hpp"
#include "results/tables/progress.hpp"
#include "workers/files/data_fault.hpp"
#include "workers/process/exit_status.hpp"
#include "workers/process/interrupt.hpp"
#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

// Runs are not made.
void say_why(const RunOptions& options, const std::string& text) {
  if (!options.sharing || options.sharing->says_why()) standard_error.write(fmt::format("{}\n", printable_lines(text)));
}

class ExperimentRunner {
 public:
  // `later`: runs that will follow these, for the plan.
  ExperimentRunner(const Experiment& experiment, const RunOptions& options, const Machinery& machinery,
                   std::span<const Run> later = {})
      : experiment_(experiment), options_(options), later_(later), machinery_(machinery) {}

  int run();
  const std::vector<std::optional<RunSummary>>& summaries() const { return runs_.summaries(); }

 private:
  int run_all();
  bool is_rank_0() const { return !machinery_.together() || machinery_.together()->rank() == 0; }
  bool speaks() const { return is_rank_0() && (!options_.sharing || options_.sharing->speaks); }
  std::filesystem::path own_directory() const {
    return experiment_directory(options_.results_directory, experiment_.name);
  }
  const char* noun() const { return !experiment_.runs.empty() && experiment_.runs.front().is_trial ? "trial" : "run"; }
  const char* clock() const { return machinery_.mpi ? "wall" : "virtual"; }
  void look_for_finished_runs();
  void tell_what_is_to_do();
  void agree_on(const std::string& fault) const;
  int prepare();
  std::string fault_of_data() const;
  void report_damaged() const;
  std::map<std::string, double> print_plan() const;  // returns what all is expected to take (Progress::expect)
  void report_skipped(Progress& progress) const;
  void report_division(Progress& progress) const;
  void run_one(std::size_t index, Progress& progress);
  bool repeat_damaged_phases(Progress& progress);
  int make_shared(Progress& progress);
  std::string save(std::size_t index, const Outcome& outcome);
  bool starts(Run& run, std::size_t index, Progress& progress);
  void report_interruption() const;
  void require_finished_there() const;
  int print_tables() const {
    require_finished_there();
    return print_final_tables(experiment_, options_, runs_, machinery_.mpi != nullptr);
  }

  const Experiment& experiment_;
  const RunOptions& options_;
  std::span<const Run> later_;
  Machinery machinery_;
  RunsElsewhere elsewhere_{options_.results_directory};
  CommonPhases common_phases_{options_, machinery_, elsewhere_};
  RunsSoFar runs_{experiment_, options_, machinery_.mpi != nullptr};  // what is to do is the same on every rank
  std::map<std::size_t, std::string> damaged_phases_{};               // by the first run of each; why, on rank 0
};

int ExperimentRunner::run() {
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

int ExperimentRunner::run_all() {
  look_for_finished_runs();
  std::map<std::string, double> expected_s;
  if (runs_.number_to_do() > 0 || !damaged_phases_.empty()) {  // else nothing is read or written
    agree_on(fault_of_data());
    int status = is_rank_0() ? prepare() : exit_success;
    if (const auto* all = machinery_.together()) status = from_rank_0(*all, std::vector{status}).front();
    if (status != exit_success) return status;
    tell_what_is_to_do();
    expected_s = print_plan();
  }

  const auto style = is_rank_0() ? Progress::style_of_stderr(options_.quiet) : Progress::Style::silent;
  Progress progress(style, experiment_.runs.size(), runs_.number_to_do(), clock());
  progress.expect(std::move(expected_s));
  report_skipped(progress);
  report_division(progress);
  if (options_.sharing) return make_shared(progress);
  for (std::size_t index = 0; index < experiment_.runs.size(); ++index) {
    if (interrupted()) throw Interrupted();
    if (runs_.is_to_do(index)) run_one(index, progress);
  }
  const bool are_phases_well = repeat_damaged_phases(progress);
  int result = is_rank_0() ? print_tables() : exit_success;
  if (!are_phases_well) result = exit_failure;
  return machinery_.together() ? from_rank_0(*machinery_.together(), std::vector<int>{result}).front() : result;
}

// Tables where all is done, by who speaks.
int ExperimentRunner::make_shared(Progress& progress) {
  std::vector<std::size_t> open;
  for (std::size_t index = 0; index < experiment_.runs.size(); ++index)
    if (runs_.is_to_do(index)) open.push_back(index);
  std::vector<std::size_t> phases;
  for (const auto& [index, damage] : damaged_phases_) phases.push_back(index);
  std::size_t left = 0;
  if (!open.empty() || !phases.empty()) {
    const auto settled = [this](std::size_t index, RunSummary summary) { runs_.settle(index, std::move(summary)); };
    SharedRuns shared({experiment_, options_, machinery_, elsewhere_, common_phases_, settled});
    left = shared.make(std::move(open), phases, progress);
  }
  if (left == 0 && speaks()) return print_tables();
  if (left > 0 && options_.sharing->takes)
    progress.note(fmt::format("nothing is left to take; {} {}{} under way in other processes", left, noun(),
                              left == 1 ? " is" : "s are"));
  if (left > 0 && !options_.sharing->takes)
    say_why(options_, fmt::format("{} of {} {}s were not made: the processes that were to make them have ended", left,
                                  experiment_.runs.size(), noun()));
  const bool all_well =
      std::ranges::all_of(runs_.summaries(), [](const auto& one) { return !one || is_finished(one); });
  return all_well && (left == 0 || options_.sharing->takes) ? exit_success : exit_failure;
}

// Rank 0 alone reads the directories of results, and tells the others what is left to do.
void ExperimentRunner::look_for_finished_runs() {
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
  tell_what_is_to_do();
}

void ExperimentRunner::tell_what_is_to_do() {
  const auto* const all = machinery_.together();
  if (!all) return;
  runs_.set_to_do(from_rank_0(*all, runs_.to_do()));
  std::vector<int> is_damaged(experiment_.runs.size());
  for (const auto& [index, damage] : damaged_phases_) is_damaged[index] = 1;
  is_damaged = from_rank_0(*all, std::move(is_damaged));
  for (std::size_t index = 0; index < is_damaged.size(); ++index)
    if (is_damaged[index]) damaged_phases_.try_emplace(index);
}

// Returns if no rank has a fault.
void ExperimentRunner::agree_on(const std::string& fault) const {
  if (const auto* all = machinery_.together()) return agree(*all, {.fault = fault, .identity = {}, .plan = {}});
  if (!fault.empty()) throw CannotRun(fault);
}

// On rank 0, before anything runs or is written.
int ExperimentRunner::prepare() {
  try {
    require_usable(options_.results_directory, experiment_.runs);
    const int restored = remove_leftovers(options_.results_directory, experiment_.runs);
    if (restored > 0 && !options_.rerun) runs_.find_finished();
    if (speaks()) report_damaged();
    // On virtual time alone: what a clock on the wall has shown belongs to that run.
    if (!options_.rerun && !machinery_.mpi && !options_.sharing) runs_.copy_from(elsewhere_);
    return exit_success;
  } catch (const std::exception& problem) {
    const auto* const disk = dynamic_cast<const std::filesystem::filesystem_error*>(&problem);
    const std::string what = disk ? disk_fault(own_directory(), *disk) : problem.what();
    say_why(options_, what);
    return exit_usage;
  }
}

// Data that are faulty concern the whole experiment, and all ranks need them: so every rank looks before the first
// run, and all hear of what one has found. What is read stays in memory for the runs.
// Other problems (memory that is not there) may concern one run alone: it meets them again, and fails.
std::string ExperimentRunner::fault_of_data() const {
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

// Said with --quiet too: results that have changed on the disk concern whoever owns them.
void ExperimentRunner::report_damaged() const {
  if (options_.rerun) return;
  for (const std::string& damage : runs_.damage())
    standard_error.write(fmt::format("{}; the run is repeated\n", damage));
  for (const auto& [index, damage] : damaged_phases_)
    standard_error.write(fmt::format("{}; the common phase is repeated\n", damage));
}

std::map<std::string, double> ExperimentRunner::print_plan() const {
  if (!options_.plan || options_.quiet || !speaks()) return {};
  MeasureCost measure;  // with others, who have begun, first steps would take as long as these let them
  if (!machinery_.together() && (!options_.sharing || !options_.sharing->takes))
    measure = [this](const Run& run) { return measured_cost(run, machinery_); };
  PlannedWork work =
      plan_of(experiment_.runs, runs_.to_do(), later_, options_.results_directory, machinery_.mpi != nullptr, measure);
  work.side_by_side = options_.side_by_side;
  work.division = options_.division;
  standard_error.write(plan_text(work, noun()) + "\n");
  return std::move(work.host_s);
}

void ExperimentRunner::report_skipped(Progress& progress) const {
  const std::size_t skipped = experiment_.runs.size() - runs_.number_to_do();
  if (skipped == 0) return;
  const std::string copied =
      runs_.number_copied() > 0 ? fmt::format(" ({} copied from other experiments)", runs_.number_copied()) : "";
  progress.note(fmt::format("{} of {} {}s are there already, in {}{}; --rerun repeats them", skipped,
                            experiment_.runs.size(), noun(), options_.results_directory, copied));
  const auto is_older = [](const auto& summary) { return summary && summary->commit != build_info().commit; };
  const auto older = std::ranges::count_if(runs_.summaries(), is_older);
  if (older == 0) return;
  progress.note(
      fmt::format("warning: {} of them {} made by another commit of Syncopate; --rerun repeats them with this one",
                  older, older == 1 ? "was" : "were"));
}

void ExperimentRunner::report_division(Progress& progress) const {
  if (!machinery_.processes || runs_.number_to_do() == 0) return;
  progress.note(fmt::format("{} processes divide each run, by {} thread{} each", machinery_.processes->size(),
                            machinery_.threads, machinery_.threads == 1 ? "" : "s"));
}

void ExperimentRunner::run_one(std::size_t index, Progress& progress) {
  Run run = experiment_.runs[index];
  if (run.common_phase && !starts(run, index, progress)) return;
  progress.begin_run(index + 1, run);
  const auto save_what_is_there = [&](const Outcome& outcome) {
    if (is_rank_0()) save(index, outcome);
  };
  const CheckpointUse checkpoints{
      .file = checkpoint_of(runs_.directory_of(run)), .below = own_directory(), .is_taken_up = !options_.rerun};
  for (int retries = 0;; ++retries) {
    const Outcome outcome = execute(run, machinery_, progress, save_what_is_there, &checkpoints);
    if (!is_rank_0()) return;
    // No later run could be kept either.
    if (const std::string fault = save(index, outcome); !fault.empty()) throw ResultsDirectoryFault(fault);
    progress.end_run(*runs_.summaries()[index]);
    if (runs_.summaries()[index]->status != RunStatus::failed || retries >= options_.retries) return;
    progress.begin_run(index + 1, run);
  }
}

// Gives the run the end of its common phase to start at; false, with the run's failure, if that phase has failed.
bool ExperimentRunner::starts(Run& run, std::size_t index, Progress& progress) {
  const CommonPhases::Phase& phase = common_phases_.phase(*run.common_phase, index + 1, progress);
  start_at(run, phase);
  if (phase.failure.empty()) return true;
  if (!is_rank_0()) return false;
  Outcome outcome;
  outcome.failure = fmt::format("its common phase failed: {}", phase.failure);
  outcome.start = outcome.end = std::chrono::system_clock::now();
  progress.begin_run(index + 1, run);
  save(index, outcome);
  progress.end_run(*runs_.summaries()[index]);
  return false;
}

// Those that a run of this start has needed are made already. False, having said why, where one has failed.
bool ExperimentRunner::repeat_damaged_phases(Progress& progress) {
  bool are_well = true;
  for (const auto& [index, damage] : damaged_phases_) {
    if (interrupted()) throw Interrupted();
    const CommonPhases::Phase& phase = common_phases_.phase(*experiment_.runs[index].common_phase, index + 1, progress);
    if (phase.failure.empty()) continue;
    if (is_rank_0()) standard_error.write(printable_lines(fmt::format("the common phase failed: {}\n", phase.failure)));
    are_well = false;
  }
  return are_well;
}

// What cannot be written has not been run, as far as the next start is concerned. Returns what is wrong with the disk,
// if that was why.
std::string ExperimentRunner::save(std::size_t index, const Outcome& outcome) {
  const Run& run = experiment_.runs[index];
  RunSummary summary = summarise(run, outcome);
  std::string fault;
  try {
    require_there(own_directory());
    write_directory(runs_.directory_of(run), files_of(run, outcome, summary, machinery_));
    if (summary.status != RunStatus::failed) runs_.remove_checkpoint_of(run);
  } catch (const std::bad_alloc&) {
    summary.status = RunStatus::failed;
    summary.reason = "the memory does not suffice to write its results";
  } catch (const std::filesystem::filesystem_error& problem) {
    fault = disk_fault(own_directory(), problem);
    summary.status = RunStatus::failed;
    summary.reason = fault;
  } catch (const std::exception& problem) {
    summary.status = RunStatus::failed;
    summary.reason = fmt::format("its results cannot be written: {}", problem.what());
  }
  runs_.settle(index, std::move(summary));
  return fault;
}

// The numbers of one that somebody has removed meanwhile are known here, and nowhere else.
void ExperimentRunner::require_finished_there() const {
  std::size_t gone = 0;
  for (std::size_t index = 0; index < experiment_.runs.size(); ++index) {
    const auto& summary = runs_.summaries()[index];
    const auto directory = runs_.directory_of(experiment_.runs[index]);
    if (summary && is_finished(*summary) && !std::filesystem::exists(directory)) ++gone;
  }
  if (gone > 0)
    throw ResultsDirectoryFault(
        fmt::format("{}: {} of {} {}s {} removed while others were made; the next start makes what is missing",
                    own_directory().string(), gone, experiment_.runs.size(), noun(), gone == 1 ? "was" : "were"));
}

void ExperimentRunner::report_interruption() const {
  if (const auto* all = machinery_.together()) all->abort_as_told(what_stays);
  if (!speaks()) return;
  standard_error.write(fmt::format("interrupted; {} ({} of {} {}s are finished)\n", what_stays, runs_.number_finished(),
                                   experiment_.runs.size(), noun()));
}

// Its trials first, if it is to be tuned.
int start(const Experiment& experiment, const RunOptions& options, const Machinery& machinery) {
  std::string fault;
  try {
    if (!experiment.tuning) return ExperimentRunner(experiment, options, machinery).run();
    return run_tuned(experiment, options, machinery,
                     [&machinery](const Experiment& part, const RunOptions& how, std::span<const Run> later) {
                       ExperimentRunner runner(part, how, machinery, later);
                       const int status = runner.run();
                       return RunsMade{status, runner.summaries()};
                     });
  } catch (const ResultsDirectoryFault& problem) {  // while runs were made
    fault = problem.what();
  } catch (const std::filesystem::filesystem_error& problem) {  // what stands beside them
    fault = disk_fault(experiment_directory(options.results_directory, experiment.name), problem);
  }
  if (const auto* all = machinery.together()) all->abort(fault, exit_failure);  // the others do not know of it
  say_why(options, fault);
  return exit_failure;
}

}  // namespace

int run_experiment(const Experiment& experiment, const RunOptions& options) {
  install_interrupt_handlers();
  return on_chosen_machinery(experiment, options,
                             [&](const Machinery& machinery) { return start(experiment, options, machinery); });
}

}  // namespace syncopate
