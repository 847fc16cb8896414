#include <fmt/format.h>
#include <mpi.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <system_error>
#include <thread>

#include "experiments/commands/commands.hpp"
#include "results/found_runs.hpp"
#include "workers/base/arrays.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Time after which the launcher is killed. Open MPI's launcher needs two seconds to end its ranks, but may also hang.
constexpr std::chrono::seconds time_for_launcher{10};

#ifdef OPEN_MPI
constexpr bool is_open_mpi = true;
#else
constexpr bool is_open_mpi = false;
#endif

bool can_be_found(const std::string& program) {
  const auto is_executable = [](const fs::path& path) {
    return fs::is_regular_file(path) && access(path.c_str(), X_OK) == 0;
  };
  if (program.find('/') != std::string::npos) return is_executable(program);
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (is_executable(fs::path(folder) / program)) return true;
  return false;
}

// Returns the command that starts MPI programs, split at blanks: `chosen`, or if that is empty $MPIEXEC, or else the
// launcher of the MPI with which this program was built. For Open MPI's launcher, adds options that allow root and more
// processes than cores. Throws std::runtime_error if the launcher cannot be found.
std::vector<std::string> mpi_launcher(const std::string& chosen) {
  const char* from_environment = std::getenv("MPIEXEC");
  std::string text = chosen;
  if (text.empty()) text = from_environment && *from_environment ? from_environment : SYNCOPATE_MPIEXEC;
  std::istringstream words(text);
  std::vector<std::string> launcher;
  for (std::string word; words >> word;) launcher.push_back(word);
  if (launcher.empty() || !can_be_found(launcher.front()))
    throw std::runtime_error(
        fmt::format("{}: no such MPI launcher; set one with --mpiexec or MPIEXEC, or install Open MPI",
                    launcher.empty() ? text : launcher.front()));
  const std::string name = fs::path(launcher.front()).filename();
  if (!is_open_mpi || (name.find("mpirun") == std::string::npos && name.find("mpiexec") == std::string::npos &&
                       name.find("orterun") == std::string::npos))
    return launcher;
  for (const char* option : {"--bind-to", "none", "--oversubscribe"}) launcher.emplace_back(option);
  // Silences Open MPI 4's messages about failed ranks, because ranks explain their failures.
  setenv("OMPI_MCA_orte_execute_quiet", "1", 1);
  if (geteuid() == 0) {  // without these two variables, Open MPI refuses root, the usual user of a container
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  return launcher;
}

// Runs `launcher -n <ranks> <this program> <arguments>`, without input and with its output on standard error. If
// interrupted, sends one interrupt to the launcher, waits for its end, and throws Interrupted. Returns the exit status,
// or 128 + the signal that killed the launcher. Throws std::runtime_error if the launcher cannot be started. Must be
// called from the main thread, which must not hold hold_off_end().
int run_under_mpi(const std::vector<std::string>& launcher, int ranks, const std::vector<std::string>& arguments) {
  using namespace std::chrono_literals;
  std::vector<std::string> command = launcher;
  command.insert(command.end(), {"-n", std::to_string(ranks), own_program()});
  command.insert(command.end(), arguments.begin(), arguments.end());
  const auto held = hold_off_end();  // this process must not end before the launcher
  const pid_t child = start_child(std::move(command));
  int status = 0;
  std::optional<Clock::time_point> killed_at;  // after an interruption: the time at which to kill the launcher
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR)
      throw std::runtime_error(
          fmt::format("cannot wait for {}: {}", launcher.front(), std::generic_category().message(errno)));
    if (interrupted() && !killed_at) {
      kill(child, SIGINT);
      killed_at = Clock::now() + time_for_launcher;
    }
    if (killed_at && Clock::now() > *killed_at) kill(child, SIGKILL);
    std::this_thread::sleep_for(20ms);
  }
  if (killed_at) throw Interrupted();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string measured_text(const ClusterPlan& cluster) {
  if (!cluster.content_cost) return fmt::format("{}", *cluster.measured_micro_batch_s);
  std::string text;
  for (const auto& [key, cost] : content_costs)
    text += fmt::format("{}{}={}", text.empty() ? "{" : ",", key, *cluster.content_cost.*cost);
  return text + "}";
}

// Returns ||a - b|| / ||b|| for the models that both runs have saved.
std::optional<double> distance_of_models(const fs::path& simulated, const fs::path& mpi) {
  const auto a_bytes = read_file(simulated / "parameters.npy", any_size);
  const auto b_bytes = read_file(mpi / "parameters.npy", any_size);
  if (!a_bytes || !b_bytes) return {};
  const auto a = floats_from_npy(*a_bytes);
  const auto b = floats_from_npy(*b_bytes);
  if (a.size() != b.size()) return {};
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return norm == 0 ? relative_error(difference, 0) : std::sqrt(difference / norm);
}

class Comparison {
 public:
  Comparison(const Experiment& experiment, const CommandLine& line)
      : experiment_(experiment),
        line_(line),
        options_(line.compare),
        machine_{.processor = processor_name(),
                 .cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
                 .load = load_average()} {
    if (!options_.all_seeds) {
      std::erase_if(experiment_.runs, [&](const Run& run) { return run.seed != experiment.seeds.front(); });
      experiment_.seeds.resize(1);
    }
    launch_failures_.resize(experiment_.runs.size());
  }

  int run() {
    for (const std::string& file : {options_.json, options_.markdown}) {
      const std::string why = file.empty() ? "" : why_not_replaceable(file);
      if (why.empty()) continue;
      standard_error.write(printable_lines(fmt::format("{}: cannot be written: {}; nothing was run\n", file, why)));
      return exit_usage;
    }
    if (const int status = simulate(); status == exit_usage || status == exit_interrupted) return status;
    LastAct report([] { standard_error.write("interrupted; finished runs are kept\n"); });
    try {
      run_under_mpi_what_is_missing();
    } catch (const Interrupted&) {
      report.do_now();
      return exit_interrupted;
    } catch (const std::exception& problem) {  // for example, there is no launcher
      standard_error.write(fmt::format("{}\n", printable_lines(problem.what())));
      return exit_usage;
    }
    std::vector<ComparedRun> runs;
    for (std::size_t i = 0; i < experiment_.runs.size(); ++i) runs.push_back(compared(i));
    standard_output.write(comparison_table(runs, options_.tolerances));
    write(runs);
    const bool all_ran = std::ranges::all_of(runs, [](const ComparedRun& run) { return run.failure.empty(); });
    return all_ran && (!options_.check || all_within(runs, options_.tolerances)) ? exit_success : exit_failure;
  }

 private:
  fs::path directory(const Run& run, bool mpi) const {
    return run_directory(line_.options.results_directory, run, mpi);
  }
  bool is_to_do(const Run& run) const { return line_.options.rerun || !finished_before(directory(run, true), run); }

  int simulate() const {
    RunOptions options = line_.options;
    options.cluster = ClusterChoice::simulated;
    options.tables = false;
    return run_experiment(experiment_, options);
  }

  void run_under_mpi_what_is_missing() {
    const auto& runs = experiment_.runs;
    const auto to_do = std::ranges::count_if(runs, [this](const Run& run) { return is_to_do(run); });
    if (to_do == 0) return;
    const auto launcher = mpi_launcher(options_.mpiexec);
    std::ptrdiff_t number = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      throw_if_interrupted();
      if (!is_to_do(runs[i])) continue;
      if (!line_.options.quiet)
        standard_error.write(fmt::format("under MPI, {} of {}: {}, seed {}\n", ++number, to_do,
                                         printable(runs[i].method), runs[i].seed));
      try {
        launch(launcher, runs[i]);
      } catch (const Interrupted&) {
        throw;
      } catch (const std::exception& problem) {
        launch_failures_[i] = problem.what();
      }
    }
  }

  // Starts a run under MPI. Its processes read the same file, and --only selects the run by its hash.
  void launch(const std::vector<std::string>& launcher, const Run& run) {
    const int ranks = ranks_needed(run.cluster.workers, run.algorithm->traits().servers);
    std::vector<std::string> arguments = arguments_of_run(line_);
    arguments.insert(arguments.end(), {"--only", run.hash, "--cluster", "mpi"});
    if (line_.oversubscribes) arguments.emplace_back("--oversubscribe");
    if (run.cluster.measured_micro_batch_s)  // so that it is not measured again
      arguments.insert(arguments.end(),
                       {"cluster.micro_batch_s=" + measured_text(run.cluster), "cluster.micro_batch_measured=true"});
    const int status = run_under_mpi(launcher, ranks, arguments);
    if (status == exit_interrupted) throw Interrupted();
    if (status != exit_success)
      throw std::runtime_error(fmt::format("the processes under MPI ended with status {}", status));
  }

  ComparedRun compared(std::size_t index) const {
    const Run& run = experiment_.runs[index];
    ComparedRun result;
    static_cast<RunName&>(result.simulated) = static_cast<const RunName&>(run);
    result.depends_on_clock = run.algorithm->traits().follows_clock || run.budget.seconds;
    for (const bool mpi : {false, true}) {
      const char* const cluster = mpi ? "under MPI" : "simulated";
      const auto summary = summary_of(directory(run, mpi), run);
      const std::string launch_failure = mpi ? launch_failures_[index] : "";
      if (const std::string damage = damage_of(directory(run, mpi)); !damage.empty()) {
        result.failure = fmt::format("{}: {}", cluster, damage);
      } else if (summary && summary->status != RunStatus::finished) {
        result.failure = fmt::format("{}: {}", cluster, summary->reason);
      } else if (!launch_failure.empty() || !summary) {
        result.failure = fmt::format("{}: {}", cluster, launch_failure.empty() ? "no result" : launch_failure);
      }
      if (!result.failure.empty()) return result;
      (mpi ? result.mpi : result.simulated) = *summary;
    }
    const bool computes =
        result.mpi.final_test_loss.has_value();  // without a model, workers sleep instead of computing
    const ComputeTime& declared = *run.cluster.compute_time;
    if (run.cluster.pace == Pace::inject && !run.cluster.measured_micro_batch_s && computes)
      result.replaced_micro_batch_s = to_seconds(declared.base(Rank{0})) / declared.factor(Rank{0});
    result.parameter_error = distance_of_models(directory(run, false), directory(run, true));
    return result;
  }

  void write(const std::vector<ComparedRun>& runs) const {
    const std::string json = comparison_json(experiment_.name, runs, options_.tolerances, machine_);
    replace_file(experiment_directory(line_.options.results_directory, experiment_.name) / "compare.json", json);
    if (!options_.json.empty()) replace_named_file(options_.json, json);
    if (!options_.markdown.empty())
      replace_named_file(options_.markdown,
                         comparison_markdown(experiment_.name, experiment_.file, runs, options_.tolerances, machine_));
  }

  Experiment experiment_;  // contains only the requested seeds
  const CommandLine& line_;
  const CompareOptions& options_;
  ComparisonMachine machine_;
  std::vector<std::string> launch_failures_;  // by run; empty: no failure
};

}  // namespace

int compare(const Experiment& experiment, const CommandLine& line) {
  install_interrupt_handlers();
  return Comparison(experiment, line).run();
}

}  // namespace syncopate
