// The command line. Under mpirun every rank runs the same command, on which they agree first; only rank 0 speaks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/commands/compare.hpp"
#include "experiments/commands/listing.hpp"
#include "experiments/commands/predict.hpp"
#include "experiments/commands/prediction_table.hpp"
#include "experiments/commands/reference.hpp"
#include "experiments/execution/micro_batch_meter.hpp"
#include "experiments/execution/participants.hpp"
#include "experiments/execution/rank_agreement.hpp"
#include "experiments/execution/rank_statement.hpp"
#include "experiments/execution/runner.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/formats/output.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/process/blas_kernel.hpp"
#include "workers/process/exit_status.hpp"
#include "workers/process/interrupt.hpp"
#include "workers/process/printable.hpp"
#include "workers/settings/nearest_name.hpp"

namespace {

using namespace syncopate;  // NOLINT: the program's own namespace, in its main file

constexpr const char* examples = R"(Examples:
  syncopate check experiments/quickstart.toml
  syncopate predict experiments/quickstart.toml
  syncopate run experiments/quickstart.toml
  syncopate run experiments/quickstart.toml training.model=cnn seeds=[1] budget.epochs=2
  syncopate run experiments/quickstart.toml methods.dropcompute.threshold_s=0.05
  mpirun -n 4 syncopate run experiments/quickstart.toml cluster.workers=4
  syncopate compare experiments/examples/reality.toml
  syncopate list algorithms
  syncopate list dropcompute

Exit status:
  0    all right
  1    something failed while running
  2    bad usage or configuration; nothing was run
  130  interrupted (Ctrl-C)
)";

struct CommandLine {
  std::string file;
  std::vector<std::string> overrides;
  std::string listed;
  bool writes_pages = false;
  bool ranks = false;
  bool json = false;
  std::vector<std::string> only;
  RunOptions options;
  CompareOptions compare;
  std::int64_t most_runs = LoadOptions().most_runs;
};

void print(const MpiSession& session, Output& stream, const std::string& text) {
  if (session.rank() == 0) stream.write(printable_lines(text));
}

void add_experiment(CLI::App& command, CommandLine& line) {
  command.add_option("FILE", line.file, "the experiment, a TOML file")->required();
  command.add_option("key=value", line.overrides, "set a key of the file, such as training.learning_rate.peak=0.1");
  command.add_option("--limit", line.most_runs, "refuse an experiment of more runs")
      ->check(CLI::Range(std::int64_t{1}, std::numeric_limits<std::int64_t>::max()))
      ->option_text(fmt::format("N [{}]", line.most_runs));
}

void add_run_options(CLI::App& command, RunOptions& options) {
  command.add_option("--results", options.results_directory, "where the runs' directories go")
      ->check([](const std::string& name) { return name.empty() ? "must not be empty" : ""; })
      ->option_text(fmt::format("DIR [{}]", options.results_directory));
  command.add_option("--threads", options.threads, "threads that compute; 0: one per core")
      ->check(CLI::Range(0, 4096))
      ->option_text("N [0]");
  command.add_flag("--rerun", options.rerun, "repeat runs that are already there");
  command.add_flag("--quiet", options.quiet, "only the final table and errors");
}

void add_choice_of_runs(CLI::App& command, CommandLine& line) {
  const std::map<std::string, ClusterChoice> clusters = {
      {"auto", ClusterChoice::automatic}, {"simulated", ClusterChoice::simulated}, {"mpi", ClusterChoice::mpi}};
  command.add_option("--cluster", line.options.cluster, "auto: mpi when started by mpirun or srun, else simulated")
      ->transform(CLI::CheckedTransformer(clusters))
      ->option_text("auto|simulated|mpi [auto]");
  command.add_option("--only", line.only, "only the runs whose hash begins so; `check` shows them")
      ->allow_extra_args(false)
      ->option_text("HASH ...");
}

void add_compare_options(CLI::App& command, CompareOptions& options) {
  const auto add_tolerance = [&command](const char* name, double& tolerance, const char* text) {
    command
        .add_option_function<double>(
            name, [&tolerance](double percent) { tolerance = percent / 100; }, text)
        ->check(CLI::Range(0.0, 100.0))
        ->option_text(fmt::format("PERCENT [{}]", 100 * tolerance));
  };
  add_tolerance("--step-time-tolerance", options.tolerances.step_time, "how far times per step may differ");
  add_tolerance("--drop-rate-tolerance", options.tolerances.drop_rate, "and drop rates, in percentage points");
  command.add_flag("--check", options.check, "exit status 1 also where something differs by more");
  command.add_flag("--all-seeds", options.all_seeds, "all seeds of the file; default: the first");
  command.add_option("--mpiexec", options.mpiexec, "what starts MPI programs; default: MPIEXEC, or as built")
      ->option_text("COMMAND");
  command.add_option("--json", options.json, "also write the result there; it always stands beside the runs")
      ->option_text("FILE");
  command.add_option("--markdown", options.markdown, "also write it there, as a table for readers")
      ->option_text("FILE");
}

std::string describe(const Run& run) {
  std::string sweep;
  for (const auto& [key, value] : run.sweep) sweep += fmt::format(", {}={}", key, value);
  return fmt::format("{}, seed={}, {}", printable(run.method + sweep), run.seed,  // on one line
                     run.cluster.to_be_measured ? "its micro-batch to be measured" : run.hash);
}

// The resolved experiment as TOML, the runs as comments: the output is an experiment file again.
std::string checked(const Experiment& experiment) {
  std::string result = experiment.resolved_toml;
  result += fmt::format("\n# {} {}:\n", experiment.runs.size(), experiment.runs.size() == 1 ? "run" : "runs");
  int number = 0;
  for (const Run& run : experiment.runs) result += fmt::format("# {:>4}  {}\n", ++number, describe(run));
  return result;
}

// Processes that mpirun must start for it.
int ranks_of(const Experiment& experiment) {
  const auto [workers, servers] = participants(experiment);
  return ranks_needed(workers, servers);
}

int print_predictions(const Experiment& experiment, bool json, const MpiSession& session) {
  LastAct report([&session] { print(session, standard_error, "interrupted\n"); });
  try {
    const auto methods = predict(experiment);
    print(session, standard_output, json ? predictions_json(experiment.name, methods) : prediction_table(methods));
    int status = 0;
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

// `check` measures nothing, and `predict` leaves nothing behind.
Experiment loaded(const CommandLine& line, bool predicts, bool checks, const MpiSession& session) {
  MicroBatchMeter meter({.results_directory = line.options.results_directory,
                         .remeasure = line.options.rerun,
                         .keep = !predicts,
                         .mpi = &session});
  LoadOptions options{.finite_means = predicts, .most_runs = line.most_runs};
  if (!checks) options.measure = [&meter](const MicroBatchWork& work) { return meter.seconds(work); };
  return load_experiment(line.file, line.overrides, options);
}

// Leaves the runs that are named; all, if none is.
void choose(Experiment& experiment, const std::vector<std::string>& only) {
  if (only.empty()) return;
  for (const std::string& hash : only) {
    const auto is_named = [&](const Run& run) { return !hash.empty() && run.hash.starts_with(hash); };
    if (std::ranges::none_of(experiment.runs, is_named))
      throw ConfigurationFault(fmt::format("--only {}: no run has a hash that begins so; `check` shows them", hash));
  }
  std::erase_if(experiment.runs, [&](const Run& run) {
    return std::ranges::none_of(only, [&](const std::string& hash) { return run.hash.starts_with(hash); });
  });
}

// What the command line asks for, read and checked, so that it can be done.
struct Task {
  std::string command;
  std::optional<Experiment> experiment;
  std::string text;  // that list, --help and --version print
};

// Where the first word is no command, it is named; CLI11 would miss one.
void check_command(const CLI::App& app, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.empty() || word.front() == '-') return;
  std::vector<std::string> known;
  std::string list;
  for (const CLI::App* command : app.get_subcommands({})) {
    known.push_back(command->get_name());
    list += (list.empty() ? "" : ", ") + known.back();
  }
  if (std::ranges::find(known, word) == known.end())
    throw ConfigurationFault(
        fmt::format("{}: unknown command; must be one of {}{}", word, list, suggestion(word, known)));
}

void parse(CLI::App& app, int argc, char** argv, Task& task) {
  check_command(app, argc, argv);
  try {
    app.parse(argc, argv);
    task.command = app.get_subcommands().front()->get_name();
  } catch (const CLI::ParseError& outcome) {  // also --help and --version
    std::ostringstream text;
    app.exit(outcome, text, text);
    task.text = text.str();
    if (outcome.get_exit_code() == 0) return;
    throw ConfigurationFault(task.text.substr(0, task.text.find_last_not_of('\n') + 1));
  }
}

Task prepare(CLI::App& app, int argc, char** argv, CommandLine& line, const MpiSession& session) {
  Task task;
  parse(app, argc, argv, task);
  if (task.command.empty()) return task;
  if (task.command == "list") {
    task.text = line.listed.empty() ? listing("") : listing_of(line.listed);
    if (task.text.empty()) throw ConfigurationFault(unlisted(line.listed));
    return task;
  }
  if (task.command == "compare") {
    if (session.active())
      throw ConfigurationFault("compare starts processes under MPI itself: start it without mpirun");
    line.compare.run = line.options;
    line.compare.overrides = line.overrides;
    line.overrides.emplace_back(compare_override);
  }
  task.experiment = loaded(line, task.command == "predict", task.command == "check", session);
  if (task.command == "run") choose(*task.experiment, line.only);
  return task;
}

RankStatement own_statement(const Task& task, const CommandLine& line, const MpiSession& session) {
  return statement_of({.command = task.command.empty() ? "--help or --version" : task.command,
                       .experiment = task.experiment ? &*task.experiment : nullptr,
                       .on_mpi = session.active() && line.options.cluster != ClusterChoice::simulated,
                       .rerun = line.options.rerun,
                       .results_directory = line.options.results_directory});
}

void report_nothing_begun(const MpiSession& session) {
  const std::string nothing_begun = "nothing was begun";
  if (session.active()) session.abort_as_told(nothing_begun);
  standard_error.write(fmt::format("interrupted; {}\n", nothing_begun));
}

// On all ranks alike, or CannotRun is thrown on all. Nothing if it was interrupted, which it has said: a sweep of
// thousands of runs, or large files, take a while to read.
std::optional<Task> prepare_together(CLI::App& app, int argc, char** argv, CommandLine& line,
                                     const MpiSession& session) {
  install_interrupt_handlers();
  session.expect_to_stay();
  LastAct report([&session] { report_nothing_begun(session); });
  try {
    Task task;
    RankStatement own;
    try {
      task = prepare(app, argc, argv, line, session);
      own = own_statement(task, line, session);
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

int execute(const Task& task, CommandLine& line, const MpiSession& session) {
  if (task.command.empty() || task.command == "list") {
    if (!line.writes_pages)
      print(session, standard_output, task.text);
    else if (session.rank() == 0)
      write_pages(std::filesystem::current_path());
    return 0;
  }
  const Experiment& experiment = *task.experiment;
  if (task.command == "predict") return print_predictions(experiment, line.json, session);
  if (task.command == "check") {
    print(session, standard_output, line.ranks ? fmt::format("{}\n", ranks_of(experiment)) : checked(experiment));
    return 0;
  }
  const auto trains_network = [](const Run& planned) { return planned.training.trains_network; };
  if (std::ranges::any_of(experiment.runs, trains_network)) load_torch();
  if (blas_is_reference()) {
    print(session, standard_error,
          "warning: BLAS is the reference library, slower by an order of magnitude; install OpenBLAS\n");
  }
  if (task.command == "compare") return compare(experiment, line.compare);
  line.options.mpi = &session;
  return run_experiment(experiment, line.options);
}

int parse_and_execute(int argc, char** argv, const MpiSession& session) {
  CommandLine line;
  CLI::App app("Syncopate compares methods of data-parallel training under the same stragglers.", "syncopate");
  app.footer(examples);
  app.require_subcommand(1);
  app.set_version_flag(
      "--version", [] { return version_text(); }, "versions, and the BLAS kernel in use");
  CLI::App* run = app.add_subcommand("run", "run an experiment and print its table");
  add_experiment(*run, line);
  add_run_options(*run, line.options);
  add_choice_of_runs(*run, line);
  CLI::App* check = app.add_subcommand("check", "print the resolved experiment and its runs, run nothing");
  add_experiment(*check, line);
  check->add_flag("--ranks", line.ranks, "print only the number of processes that it needs under MPI");
  CLI::App* foretell = app.add_subcommand(
      "predict", "what the methods will take, by formulas and a short simulation of time; nothing is trained");
  add_experiment(*foretell, line);
  foretell->add_flag("--json", line.json, "for programs");
  CLI::App* both = app.add_subcommand(
      "compare", "run an experiment on the simulated cluster and under mpirun, and print the error of the first");
  add_experiment(*both, line);
  add_run_options(*both, line.options);
  add_compare_options(*both, line.compare);
  CLI::App* list = app.add_subcommand("list", "what an experiment file may name, and every key of a name");
  list->add_option("NAME", line.listed,
                   "algorithms, delays, networks, models, datasets, schedules or optimizers; or the name of one of "
                   "them, or a key; all kinds if left out");
  list->add_flag("--write-pages", line.writes_pages,
                 "in a checkout: write experiments/reference.md and the table in algorithms/README.md anew");
  const std::optional<Task> task = prepare_together(app, argc, argv, line, session);
  return task ? execute(*task, line, session) : exit_interrupted;
}

int run_program(int argc, char** argv) {
  try {
    const MpiSession session;  // ends, on all ranks together, after rank 0 has spoken
    try {
      return parse_and_execute(argc, argv, session);
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

}  // namespace

int main(int argc, char** argv) {
  guard_standard_streams();
  use_best_blas_kernel(argv);
  return report_lost_output(run_program(argc, argv));
}
