#include <fmt/format.h>
#include <mpi.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "experiments/execution/execution.hpp"
#include "results/found_runs.hpp"
#include "results/result_table.hpp"
#include "results/run_directory.hpp"
#include "workers/base/arrays.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

namespace {

// Starts this program again under MPI, and waits for it.
// The command that starts MPI programs, split at blanks: `chosen` if it is not empty, else that of the environment's
// MPIEXEC, else that of the MPI this program was built with. Open MPI's gets what it needs to start more
// processes than there are cores, and as root. Throws std::runtime_error if it cannot be found.
std::vector<std::string> mpi_launcher(const std::string& chosen);

// `launcher -n <ranks> <this program> <arguments>`, without input and with its output on standard error alone.
// Passes an interrupt on once, waits for its end, and throws Interrupted. The exit status; 128 + the signal that ended
// it. Throws std::runtime_error if it cannot be started. From the main thread alone, without a lock on the end.
int run_under_mpi(const std::vector<std::string>& launcher, int ranks, const std::vector<std::string>& arguments);

using Clock = std::chrono::steady_clock;

// It ends its ranks first, which takes Open MPI's two seconds; but it may hang.
constexpr std::chrono::seconds time_for_launcher{10};

#ifdef OPEN_MPI
constexpr bool is_open_mpi = true;
#else
constexpr bool is_open_mpi = false;
#endif

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool is_executable(const std::filesystem::path& path) {
  return std::filesystem::is_regular_file(path) && access(path.c_str(), X_OK) == 0;
}

bool can_be_found(const std::string& program) {
  if (program.find('/') != std::string::npos) return is_executable(program);
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (is_executable(std::filesystem::path(folder) / program)) return true;
  return false;
}

std::vector<std::string> mpi_launcher(const std::string& chosen) {
  const char* from_environment = std::getenv("MPIEXEC");
  std::string text = chosen;
  if (text.empty()) text = from_environment && *from_environment ? from_environment : SYNCOPATE_MPIEXEC;
  std::vector<std::string> launcher = words_of(text);
  if (launcher.empty() || !can_be_found(launcher.front()))
    throw std::runtime_error(
        fmt::format("{}: no such program to start MPI with; name one with --mpiexec or MPIEXEC, or install Open MPI",
                    launcher.empty() ? text : launcher.front()));
  const std::string name = std::filesystem::path(launcher.front()).filename();
  if (!is_open_mpi || (name.find("mpirun") == std::string::npos && name.find("mpiexec") == std::string::npos &&
                       name.find("orterun") == std::string::npos))
    return launcher;
  for (const char* option : {"--bind-to", "none", "--oversubscribe"}) launcher.emplace_back(option);
  // No word about ranks that ended with a status other than 0, which say why themselves. (That of Open MPI 5 stays.)
  setenv("OMPI_MCA_orte_execute_quiet", "1", 1);
  if (geteuid() == 0) {  // Open MPI refuses root, the usual user of a container, unless told twice
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  return launcher;
}

int run_under_mpi(const std::vector<std::string>& launcher, int ranks, const std::vector<std::string>& arguments) {
  using namespace std::chrono_literals;
  std::vector<std::string> command = launcher;
  command.insert(command.end(), {"-n", std::to_string(ranks), own_program()});
  command.insert(command.end(), arguments.begin(), arguments.end());
  const auto held = hold_off_end();  // this process looks at the flag, and does not end before the launcher
  const pid_t child = start_child(std::move(command));
  int status = 0;
  std::optional<Clock::time_point> killed_at;  // once it is interrupted
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

namespace fs = std::filesystem;

class Comparison {
 public:
  Comparison(const Experiment& experiment, const CompareOptions& options);
  int run();

 private:
  int run_under_mpi_and_compare();
  fs::path directory(const Run& run, bool mpi) const { return run_directory(options_.run.results_directory, run, mpi); }
  bool is_to_do(const Run& run) const { return options_.run.rerun || !finished_before(directory(run, true), run); }
  int simulate() const;
  void run_under_mpi_what_is_missing();
  void launch(const std::vector<std::string>& launcher, const Run& run);
  ComparedRun compared(std::size_t index) const;
  void write(const std::vector<ComparedRun>& runs) const;

  Experiment experiment_;  // with the seeds that are wanted alone
  const CompareOptions& options_;
  ComparisonMachine machine_;
  std::vector<std::string> launch_failures_;  // run by run; empty: none
};

Comparison::Comparison(const Experiment& experiment, const CompareOptions& options)
    : experiment_(experiment),
      options_(options),
      machine_{.processor = processor_name(),
               .cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
               .load = load_average()} {
  if (!options.all_seeds) {
    std::erase_if(experiment_.runs, [&](const Run& run) { return run.seed != experiment.seeds.front(); });
    experiment_.seeds.resize(1);
  }
  launch_failures_.resize(experiment_.runs.size());
}

int Comparison::simulate() const {
  RunOptions options = options_.run;
  options.cluster = ClusterChoice::simulated;
  options.mpi = nullptr;
  options.tables = false;
  return run_experiment(experiment_, options);
}

void Comparison::run_under_mpi_what_is_missing() {
  const auto& runs = experiment_.runs;
  const auto to_do = std::ranges::count_if(runs, [this](const Run& run) { return is_to_do(run); });
  if (to_do == 0) return;
  const auto launcher = mpi_launcher(options_.mpiexec);
  std::ptrdiff_t number = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (interrupted()) throw Interrupted();
    if (!is_to_do(runs[i])) continue;
    if (!options_.run.quiet)
      standard_error.write(
          fmt::format("under MPI, {} of {}: {}, seed {}\n", ++number, to_do, printable(runs[i].method), runs[i].seed));
    try {
      launch(launcher, runs[i]);
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& problem) {
      launch_failures_[i] = problem.what();
    }
  }
}

// As TOML.
std::string measured_text(const ClusterPlan& cluster) {
  if (!cluster.content_cost) return fmt::format("{}", *cluster.measured_micro_batch_s);
  const ContentCost& cost = *cluster.content_cost;
  return fmt::format("{{base_s={},per_token_s={},per_padded_token_s={},per_squared_length_s={}}}", cost.base_s,
                     cost.per_token_s, cost.per_padded_token_s, cost.per_squared_length_s);
}

// Another process resolves the same file to the same run, which its hash names.
void Comparison::launch(const std::vector<std::string>& launcher, const Run& run) {
  const int ranks = ranks_needed(run.cluster.workers, run.algorithm->traits().servers);
  std::vector<std::string> arguments{"run", experiment_.file};
  arguments.insert(arguments.end(), {"--limit", std::to_string(std::numeric_limits<std::int64_t>::max())});  // checked
  arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
  if (run.cluster.measured_micro_batch_s) {  // not measured again
    arguments.push_back("cluster.micro_batch_s=" + measured_text(run.cluster));
    arguments.emplace_back("cluster.micro_batch_measured=true");
  }
  arguments.insert(arguments.end(), {compare_override, "--only", run.hash, "--cluster", "mpi", "--quiet", "--results",
                                     options_.run.results_directory});
  if (options_.run.rerun) arguments.emplace_back("--rerun");
  const int status = run_under_mpi(launcher, ranks, arguments);
  if (status == exit_interrupted) throw Interrupted();
  if (status != exit_success)
    throw std::runtime_error(fmt::format("the processes under MPI ended with status {}", status));
}

// ||a - b|| / ||b|| of what both runs have saved.
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

// Without worker 0's factor.
double declared_micro_batch_s(const ComputeTime& compute_time) {
  return to_seconds(compute_time.base(Rank{0})) / compute_time.factor(Rank{0});
}

ComparedRun Comparison::compared(std::size_t index) const {
  const Run& run = experiment_.runs[index];
  ComparedRun result;
  result.simulated.method = run.method;
  result.simulated.sweep = run.sweep;
  result.simulated.seed = run.seed;
  result.simulated.hash = run.hash;
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
      result.failure = fmt::format("{}: {}", cluster, launch_failure.empty() ? "there is no result" : launch_failure);
    }
    if (!result.failure.empty()) return result;
    (mpi ? result.mpi : result.simulated) = *summary;
  }
  const bool computes = result.mpi.final_test_loss.has_value();  // without a model every micro-batch is slept through
  if (run.cluster.pace == Pace::inject && !run.cluster.measured_micro_batch_s && computes)
    result.replaced_micro_batch_s = declared_micro_batch_s(*run.cluster.compute_time);
  result.parameter_error = distance_of_models(directory(run, false), directory(run, true));
  return result;
}

void Comparison::write(const std::vector<ComparedRun>& runs) const {
  const std::string json = comparison_json(experiment_.name, runs, options_.tolerances, machine_);
  replace_file(experiment_directory(options_.run.results_directory, experiment_.name) / "compare.json", json);
  if (!options_.json.empty()) replace_named_file(options_.json, json);
  if (!options_.markdown.empty())
    replace_named_file(options_.markdown,
                       comparison_markdown(experiment_.name, experiment_.file, runs, options_.tolerances, machine_));
}

int Comparison::run() {
  for (const std::string& file : {options_.json, options_.markdown}) {
    const std::string why = file.empty() ? "" : why_not_replaceable(file);
    if (why.empty()) continue;
    standard_error.write(printable_lines(fmt::format("{}: cannot be written: {}; nothing was run\n", file, why)));
    return exit_usage;
  }
  if (const int status = simulate(); status == exit_usage || status == exit_interrupted) return status;
  LastAct report([] { standard_error.write("interrupted; what is finished is kept\n"); });
  try {
    return run_under_mpi_and_compare();
  } catch (const Interrupted&) {
    report.do_now();
    return exit_interrupted;
  }
}

int Comparison::run_under_mpi_and_compare() {
  try {
    run_under_mpi_what_is_missing();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {  // no launcher
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

}  // namespace

int compare(const Experiment& experiment, const CompareOptions& options) {
  install_interrupt_handlers();
  return Comparison(experiment, options).run();
}

}  // namespace syncopate
