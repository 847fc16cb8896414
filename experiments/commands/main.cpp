// The program. Under mpirun all ranks first agree that they execute the same command; only rank 0 prints.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <set>

#include "experiments/commands/commands.hpp"
#include "experiments/execution/ranks.hpp"
#include "experiments/execution/tuning.hpp"
#include "results/result_table.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/models/torch_library.hpp"

namespace {

using namespace syncopate;  // NOLINT: the program's own namespace, in its main file

void print(const MpiSession& session, Output& stream, const std::string& text) {
  if (session.rank() == 0) stream.write(printable_lines(text));
}

std::string describe(const Run& run, bool is_tuned) {
  std::string sweep;
  for (const auto& [key, value] : run.sweep) sweep += fmt::format(", {}={}", key, value);
  return fmt::format("{}, seed={}, {}", printable(run.method + sweep), run.seed,  // `printable` keeps it on one line
                     is_tuned                     ? "to be tuned"
                     : run.cluster.to_be_measured ? "micro-batch to be measured"
                                                  : run.hash);
}

// Returns the plan of the next `run`. `noun`: "run" or "trial"; `later`: the runs that follow trials.
std::string plan_line(std::span<const Run> runs, const std::string& noun, std::span<const Run> later,
                      const CommandLine& line) {
  const std::string& results = line.options.results_directory;
  PlanOptions options{.results = results, .threads = memory_use(line, 0).threads};
  if (line.measures)
    options.measure = [](const Run& run) -> std::optional<double> {
      if (!why_no_arithmetic(run.training.arithmetic).empty()) return std::nullopt;
      MicroBatchWork work;
      work.seed = run.seed;
      return measure_micro_batch_s(*run.training.make_objective(), work);
    };
  const RunPlan plan = plan_of(runs, runs_to_do(runs, results, false), later, options);
  const bool may_measure = plan.may_measure && !line.measures;
  return fmt::format("# {}{}\n", plan_text(plan, noun),
                     may_measure ? "; --measure times a micro-batch for some seconds to improve this" : "");
}

// Returns lines on the trials: their seeds, measure and number, and the settings to try for each method.
std::string checked_tuning(const Experiment& experiment, const CommandLine& line) {
  const TuningPlan& plan = *experiment.tuning;
  std::string text = fmt::format("# Trials before the runs, with the seeds {}, judged by {}:\n",
                                 fmt::join(plan.seeds, ", "), plan.measure);
  for (const TuningGroup& group : plan.groups) {
    std::string axes;
    for (const VariedKey& axis : group.axes)
      axes += fmt::format("{} {} = {}", axes.empty() ? "" : ",", axis.key, fmt::join(axis.labels, ", "));
    text += fmt::format("#       {}:{}\n", printable(run_label(group.method, group.point)), printable(axes));
  }
  return text + plan_line(first_trials(experiment), "trial", experiment.runs, line);
}

std::string note_of_links(std::span<const Run> runs) {
  std::vector<std::pair<std::string, bool>> rows;
  for (const Run& run : runs) rows.emplace_back(run_label(run), run.cluster.network->has_unshared_links());
  return unshared_links_text(rows);
}

// Returns the resolved experiment as TOML, with the runs as comments. The output is a valid experiment file.
std::string checked(const Experiment& experiment, const CommandLine& line, const MemoryUse& use) {
  std::string result = experiment.resolved_toml;
  result += fmt::format("\n# {}:\n", counted(experiment.runs.size(), "run"));
  int number = 0;
  for (const Run& run : experiment.runs)
    result += fmt::format("# {:>4}  {}\n", ++number, describe(run, experiment.tuning != nullptr));
  std::string last;  // the last line, because equal lines of several seeds are printed only once
  for (const Run& run : experiment.runs) {
    if (run.solved.empty()) continue;
    std::string solved = fmt::format("# {}: {}\n", printable(run_label(run)), run.solved);
    if (solved != last) result += solved;
    last = std::move(solved);
  }
  for (const std::string& note :
       split_lines(note_of_links(experiment.runs) + (experiment.tuning ? "" : magnitude_notes(experiment.runs))))
    result += fmt::format("# {}\n", printable(note));
  result += experiment.tuning ? checked_tuning(experiment, line) : plan_line(experiment.runs, "run", {}, line);
  for (const std::string& need : need_lines(experiment, use)) result += fmt::format("# {}\n", need);
  for (const std::string& fault : split_lines(missing_devices(experiment).report()))
    result += fmt::format("# cannot start here: {}\n", printable(fault));
  return result;
}

// Returns a line for each finished run or common phase whose files have changed.
std::string damaged(const Experiment& experiment, const std::string& results) {
  std::string text;
  const auto add = [&](const Run& run, const char* what) {
    if (const std::string damage = damage_of(run_directory(results, run, false)); !damage.empty())
      text += fmt::format("{}; the next `run` repeats the {}\n", damage, what);
  };
  for (const Run& run : experiment.runs) add(run, "run");
  std::set<std::string> seen;
  for (const Run& run : experiment.runs)
    if (run.common_phase && seen.insert(run.common_phase->hash).second) add(*run.common_phase, "common phase");
  return text;
}

int print_predictions(const Experiment& experiment, const CommandLine& line, const std::optional<TargetRuns>& target,
                      const MpiSession& session) {
  LastAct report([&session] { print(session, standard_error, "interrupted\n"); });
  try {
    auto methods = predict(experiment, line.against);
    if (target) predict_target(methods, experiment, *target);
    const std::size_t width = terminal_columns(STDOUT_FILENO);
    print(session, standard_output,
          line.json ? predictions_json(experiment.name, methods)
                    : prediction_table(methods, width) + (target ? "\n" + target_table(methods, *target, width) : ""));
    int status = exit_success;
    for (const PredictedMethod& method : methods) {
      if (!method.failed) continue;
      print(session, standard_error, fmt::format("{}: {}\n", method.method, method.not_simulated));
      status = exit_failure;
    }
    return status;
  } catch (const Interrupted&) {
    report.do_now();
    return exit_interrupted;
  }
}

// Loads the experiment. For `check` nothing is measured, and for `predict` no files are written.
Experiment loaded(const CommandLine& line, const MpiSession& session) {
  const bool predicts = line.command == "predict";
  LoadOptions options{.finite_means = predicts, .most_runs = line.most_runs, .profiles = line.profiles};
  const bool looks = line.command == "check" || line.command == "status";
  const bool measures = !looks && (!line.side_by_side.shares || !line.side_by_side.job_of.empty());
  if (measures)
    options.measure = micro_batch_timer({.results_directory = line.options.results_directory,
                                         .remeasure = line.options.rerun && line.side_by_side.job_of.empty(),
                                         .keep = !predicts},
                                        session);
  if (line.command != "check") return load_experiment(line.file, line.overrides, options);
  std::optional<Experiment> experiment;
  std::string faults;
  try {
    experiment = load_experiment(line.file, line.overrides, options);
  } catch (const ConfigurationFault& fault) {
    faults = fault.what();
  }
  check_profiles(line.file, options, faults);
  return *std::move(experiment);
}

// A command and its input after reading and checking it.
struct Task {
  CommandLine line;
  std::optional<Experiment> experiment{};
  Action action{};  // of a command without an experiment
  std::optional<TargetRuns> target{};
};

Action printing(std::string text) {
  return [text = std::move(text)] { standard_output.write(printable_lines(text)); };
}

// Checks the number of ranks before any file is read, because with many ranks reading takes minutes.
void check_ranks(const CommandLine& line, const MpiSession& session) {
  if (!session.active()) return;
  if (const std::string why = why_alone(session); !why.empty()) throw ConfigurationFault(why);
  if (line.oversubscribes) return;
  const std::string fault = too_many_ranks(session.ranks_on_node(), session.cores_on_node());
  if (!fault.empty()) throw ConfigurationFault(fault);
}

void prepare_experiment(Task& task, const MpiSession& session) {
  CommandLine& line = task.line;
  if (line.command == "compare") {
    if (session.active()) throw ConfigurationFault("compare starts MPI processes itself: start it without mpirun");
    line.overrides.emplace_back("recording.parameters=true");  // so that models can be compared
  }
  if (!line.accepted.empty() && !std::filesystem::is_directory(line.accepted))
    throw ConfigurationFault(fmt::format(
        "--accept: {}: no such directory; must contain directories of experiments with claims.json", line.accepted));
  check_side_by_side(line, session.active());
  if (line.command == "run") check_ranks(line, session);
  task.experiment = loaded(line, session);
  check_side_by_side(line, *task.experiment);
  if (line.command == "run" && !task.experiment->claims.empty())
    task.experiment->differs = difference_from_file(*task.experiment, line.overrides,
                                                    {.most_runs = line.most_runs, .profiles = line.profiles});
  if (line.command == "compare") {  // checked before the simulation, which may take a long time
    std::string why = why_not_under_mpi(*task.experiment);
    if (task.experiment->tuning)
      why =
          "tune; must be left out, because compare does not tune: add ~tune to the command, and set the tuned keys to "
          "the values that tuning has found";
    if (!why.empty()) throw ConfigurationFault(fmt::format("{}: {}", line.file, why));
  }
  choose_runs(*task.experiment, line.only);
  if (line.command == "status") {
    const auto experiments = status_of(*task.experiment, line.options.results_directory);
    task.action = printing(line.json ? status_json(experiments) : status_text(experiments));
    task.experiment.reset();
    return;
  }
  const MemoryUse use = memory_use(line, session.active() ? session.size() : 0);
  if (line.command == "run" || line.command == "compare")
    refuse_missing_devices(*task.experiment, line, use.is_mpi_rank);
  if (line.command == "check" || line.command == "run") refuse_beyond_memory(*task.experiment, line, use);
  if (line.command == "predict") check_against(*task.experiment, line.against);
  if (!line.target_runs.empty()) task.target = read_target_runs(line.target_runs, *task.experiment);
}

Task prepare(int argc, char** argv, const MpiSession& session) {
  Task task{.line = parse_command_line(argc, argv)};
  CommandLine& line = task.line;
  if (line.command.empty()) {
    task.action = printing(line.answer);
  } else if (line.command == "list") {
    const std::string text = listing_of(line.listed);
    task.action = line.writes_pages ? Action([] { write_pages(std::filesystem::current_path()); }) : printing(text);
  } else if (line.command == "table") {
    task.action = printing(tables_of(line.tables, terminal_columns(STDOUT_FILENO)));
  } else if (line.command == "claims") {
    task.action = printing(claims_of(line.claims, terminal_columns(STDOUT_FILENO)));
  } else if (line.command == "export") {
    task.action = prepare_export(line.exported);
  } else if (line.command == "thresholds") {
    task.action = prepare_thresholds(line.thresholds);
  } else if (line.command == "trace") {
    task.action = prepare_trace_import(line.trace_import);
  } else if (line.command == "data") {
    task.action = prepare_token_files(line.token_files);
  } else if (line.command == "status" && std::filesystem::is_directory(line.file)) {
    refuse_keys_of_file(line);
    const auto experiments = status_of_directory(line.file);
    task.action = printing(line.json ? status_json(experiments) : status_text(experiments));
  } else {
    prepare_experiment(task, session);
  }
  return task;
}

RankHandshake own_handshake(const Task& task, const MpiSession& session) {
  const CommandLine& line = task.line;
  const bool on_mpi = session.active() && line.options.cluster != ClusterChoice::simulated;
  return handshake_of({.command = line.command.empty() ? "--help or --version" : line.command,
                       .experiment = task.experiment ? &*task.experiment : nullptr,
                       .on_mpi = on_mpi,
                       .together = session.size() > 1 && line.command == "run",
                       .rerun = line.options.rerun,
                       .results_directory = line.options.results_directory});
}

// Reads and checks the input. Returns the same task on all ranks, or throws CannotRun on all ranks. Large files and
// sweeps take a while to read. If interrupted meanwhile, prints a message and returns nullopt.
std::optional<Task> prepare_together(int argc, char** argv, const MpiSession& session) {
  install_interrupt_handlers();
  session.expect_to_stay();
  LastAct report([&session] {
    const std::string nothing_begun = "nothing was run";
    if (session.active()) session.abort_as_asked(nothing_begun);
    standard_error.write(fmt::format("interrupted; {}\n", nothing_begun));
  });
  try {
    Task task;
    RankHandshake own;
    try {
      task = prepare(argc, argv, session);
      own = own_handshake(task, session);
    } catch (const ConfigurationFault& fault) {
      own.fault = fault.what();
    }
    throw_if_interrupted();
    agree(session, own);
    return task;
  } catch (const Interrupted&) {
    report.do_now();
    return {};
  }
}

int execute(Task& task, const MpiSession& session) {
  CommandLine& line = task.line;
  if (!task.experiment) {
    if (session.rank() == 0) task.action();
    return exit_success;
  }
  const Experiment& experiment = *task.experiment;
  // A child of --jobs prints no notes, because its parent has printed them.
  if (!line.ranks && !line.options.quiet && line.side_by_side.job_of.empty())
    for (const std::string& note : experiment.file_notes)
      print(session, standard_error, fmt::format("note: {}\n", printable(note)));
  if (line.command == "predict" && experiment.tuning)
    print(session, standard_error,
          "predicted with the file's own values of the tuned keys, not with those of [tune]\n");
  if (line.command == "predict") return print_predictions(experiment, line, task.target, session);
  if (line.command == "check") {
    const auto [workers, servers] = participants(experiment);
    print(session, standard_output,
          line.ranks ? fmt::format("{}\n", ranks_needed(workers, servers))
                     : checked(experiment, line, memory_use(line, session.active() ? session.size() : 0)));
    if (!line.ranks) print(session, standard_error, damaged(experiment, line.options.results_directory));
    return exit_success;
  }
  if (!line.accepted.empty())
    if (const std::string accepted = accepted_claims(experiment, line.accepted, terminal_columns(STDOUT_FILENO));
        !accepted.empty()) {
      print(session, standard_output, printable_lines(accepted));
      return exit_success;
    }
  const auto trains_network = [](const Run& planned) { return planned.training.trains_network; };
  if (std::ranges::any_of(experiment.runs, trains_network)) {
    load_torch();
    const MemoryUse use = memory_use(line, session.active() ? session.size() : 0);
    // One thread more, because the main thread may compute too. Children of --jobs reserve their own memory.
    if (line.side_by_side.jobs.empty()) reserve_blas_memory(use.is_mpi_rank ? 1 : use.threads + 1);
  }
  if (blas_is_reference())
    print(session, standard_error,
          "warning: BLAS is the reference library, which is about ten times slower than OpenBLAS; install OpenBLAS\n");
  if (line.command == "compare") return compare(experiment, line);
  line.options.mpi = &session;
  line.options.plan = true;
  line.options.table_width = terminal_columns(STDOUT_FILENO);
  try {
    return run_side_by_side(experiment, line);
  } catch (const ConfigurationFault& fault) {  // for example, too little memory for --jobs
    throw CannotRun(fault.what());
  }
}

int run_program(int argc, char** argv) {
  try {
    // Processes that share whole runs need no MPI.
    const bool shares =
        std::any_of(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--share"; });
    const MpiSession session(!shares);  // its end waits for all ranks, so no rank ends before rank 0 has printed
    try {
      std::optional<Task> task = prepare_together(argc, argv, session);
      return task ? execute(*task, session) : exit_interrupted;
    } catch (const CannotRun& reason) {
      print(session, standard_error, fmt::format("{}\n", reason.what()));
      return exit_usage;
    } catch (const std::exception& failure) {
      session.abort(failure.what(), exit_failure);
    }
  } catch (const std::exception& failure) {
    standard_error.write(fmt::format("{}\n", printable_lines(failure.what())));
    return exit_failure;
  }
}

std::terminate_handler end_with_reason = nullptr;  // the standard library's handler

// Reports lack of memory where exceptions cannot be caught: while a library is loaded, or in another thread.
[[noreturn]] void end_without_memory() {
  try {
    if (const auto problem = std::current_exception()) std::rethrow_exception(problem);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view said = "syncopate: not enough memory\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, said.data(), said.size());
    _exit(exit_failure);
  } catch (...) {
  }
  if (end_with_reason) end_with_reason();
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  end_with_reason = std::set_terminate(end_without_memory);
  guard_standard_streams();
  silence_torch_warnings();
  use_best_blas_kernel(argv);
  return report_lost_output(run_program(argc, argv));
}
