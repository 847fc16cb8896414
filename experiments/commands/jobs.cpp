#include <fmt/format.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "experiments/execution/cost.hpp"
#include "experiments/execution/memory.hpp"
#include "experiments/execution/tuning.hpp"
#include "results/lease.hpp"
#include "results/run_directory.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

namespace {

// The children of `run --jobs`.
class JobProcesses {
 public:
  struct Options {
    std::vector<std::string> command;  // of this program; --token and --memory-part are added
    int number = 1;
    std::int64_t memory_bytes = 0;               // the most that each may take
    std::filesystem::path experiment_directory;  // where they take runs
  };
  explicit JobProcesses(Options options);
  // Tells those that are there to end, and waits for it, for some seconds at most.
  ~JobProcesses();
  JobProcesses(const JobProcesses&) = delete;
  JobProcesses& operator=(const JobProcesses&) = delete;

  // Once; from the main thread. Throws std::runtime_error where they cannot be started.
  void start();
  // Whether any is; one that was killed, or has crashed, while it made a run, is followed by another one.
  bool are_there();
  // True for the first of this process and its children that asks for it.
  bool take_token() { return token_.take(); }

 private:
  bool was_making_a_run(pid_t job) const;
  pid_t started() const;

  Options options_;
  SharedToken token_{};
  bool has_started_ = false;
  std::vector<pid_t> jobs_;
};

// A process ends by itself within a second (process.hpp).
constexpr std::chrono::seconds time_to_end_by_itself{3};

bool has_crashed(int status) {
  if (WIFSIGNALED(status)) return true;
  const int with = WEXITSTATUS(status);
  return with != exit_success && with != exit_failure && with != exit_usage && with != exit_interrupted;
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                             : fmt::format("ended with status {}", WEXITSTATUS(status));
}

JobProcesses::JobProcesses(Options options) : options_(std::move(options)) {}

pid_t JobProcesses::started() const {
  std::vector<std::string> command = options_.command;
  command.insert(command.begin(), own_program());
  command.insert(command.end(), {"--token", std::to_string(token_.descriptor())});
  // Sanitizers take whole address spaces for themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  command.insert(command.end(), {"--memory-part", std::to_string(options_.memory_bytes)});
#endif
  return start_child(std::move(command));
}

void JobProcesses::start() {
  if (std::exchange(has_started_, true)) return;
  while (std::ssize(jobs_) < options_.number) jobs_.push_back(started());
}

// Its lease is still there, since it could not give it back.
bool JobProcesses::was_making_a_run(pid_t job) const {
  const Leases leases(options_.experiment_directory / share_folder / leases_folder, std::chrono::seconds(1));
  return std::ranges::any_of(leases.held(), [job](const LeaseNote& note) { return note.process.number == job; });
}

bool JobProcesses::are_there() {
  std::vector<pid_t> there;
  for (const pid_t job : jobs_) {
    int status = 0;
    const pid_t ended = waitpid(job, &status, WNOHANG);
    if (ended == 0) there.push_back(job);
    if (ended != job || !has_crashed(status)) continue;
    const bool is_replaced = was_making_a_run(job);
    standard_error.write(fmt::format("process {} {}{}\n", job, how_it_ended(status),
                                     is_replaced ? " while it made a run; another one takes its place" : ""));
    if (is_replaced) there.push_back(started());
  }
  jobs_ = std::move(there);
  return !jobs_.empty();
}

JobProcesses::~JobProcesses() {
  for (const pid_t job : jobs_) kill(job, SIGTERM);
  const auto until = std::chrono::steady_clock::now() + time_to_end_by_itself;
  while (!jobs_.empty()) {
    std::erase_if(jobs_, [](pid_t job) { return waitpid(job, nullptr, WNOHANG) != 0; });
    if (std::chrono::steady_clock::now() > until)
      for (const pid_t job : jobs_) kill(job, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// As it may be put into a job's command.
std::vector<std::string> job_command(const CommandLine& line, const Division& division, const std::string& call) {
  std::vector<std::string> words = {"run", line.file};
  words.insert(words.end(), line.overrides.begin(), line.overrides.end());
  for (const std::string& name : line.profiles) words.insert(words.end(), {"--profile", name});
  for (const std::string& name : line.only) words.insert(words.end(), {"--only", name});
  words.insert(words.end(),
               {"--limit", std::to_string(line.most_runs), "--results", line.options.results_directory, "--threads",
                std::to_string(division.threads), "--retry", std::to_string(line.options.retries), "--lease-timeout",
                fmt::format("{}", line.side_by_side.time_out_s), "--quiet", "--share", "--job-of", call});
  if (line.options.rerun) words.emplace_back("--rerun");
  return words;
}

std::size_t runs_left(const Experiment& experiment, const RunOptions& options) {
  const std::vector<Run> trials = experiment.tuning ? first_trials(experiment) : std::vector<Run>{};
  if (options.rerun) return trials.size() + experiment.runs.size();
  const auto count = [&](std::span<const Run> runs) {
    const std::vector<int> to_do = runs_to_do(runs, options.results_directory, false);
    return static_cast<std::size_t>(std::ranges::count(to_do, 1));
  };
  return std::max(count(trials), experiment.tuning ? experiment.runs.size() : count(experiment.runs));
}

Sharing sharing_of(const SideBySideOptions& options) {
  Sharing sharing{.time_out = std::chrono::milliseconds(std::llround(1000 * options.time_out_s)),
                  .call = options.job_of.empty() ? call_of_this_process() : options.job_of,
                  .waits = options.waits,
                  .speaks = options.job_of.empty() && rank_in_launch() == 0};
  if (options.token >= 0)
    sharing.is_first_to_say = [token = std::make_shared<SharedToken>(options.token)] { return token->take(); };
  return sharing;
}

}  // namespace

void check_side_by_side(const CommandLine& line, bool under_mpi) {
  const SideBySideOptions& options = line.side_by_side;
  const bool divides = options.shares || !options.jobs.empty();
  const char* const name = options.shares ? "--share" : "--jobs";
  if (divides && line.options.cluster == ClusterChoice::mpi)
    throw ConfigurationFault(
        fmt::format("{} divides runs among processes, and --cluster mpi a run's workers: leave one of them out", name));
  if (divides && under_mpi)
    throw ConfigurationFault(
        "--jobs starts processes by itself: leave it out under mpirun, whose processes divide the runs with --share");
  if (options.shares && line.options.rerun && options.job_of.empty())
    throw ConfigurationFault(
        "--rerun with --share: each process would repeat what another has just made; use --jobs, or remove the runs");
  if (!options.waits && !options.shares) throw ConfigurationFault("--no-wait is for --share");
  if (options.time_out_s != SideBySideOptions().time_out_s && !divides)
    throw ConfigurationFault("--lease-timeout is for --share and --jobs");
  if (!options.waits && !options.jobs.empty())
    throw ConfigurationFault("--no-wait with --jobs: leave one of them out; the processes of --jobs are waited for");
  if (!options.waits && launched_by_mpi())
    throw ConfigurationFault("--no-wait: a launcher waits for all its processes, or ends them with the first one");
  if (line.options.retries > 0 && under_mpi && line.options.cluster == ClusterChoice::simulated)
    throw ConfigurationFault("--retry is for processes that make runs of their own: leave it out, or add --share");
  if (line.options.retries > 0 && (under_mpi || line.options.cluster == ClusterChoice::mpi))
    throw ConfigurationFault("--retry is for the simulated cluster: under MPI a run that fails ends all ranks");
}

void check_side_by_side(const CommandLine& line, const Experiment& experiment) {
  const SideBySideOptions& options = line.side_by_side;
  if (!options.shares || !options.job_of.empty()) return;
  const auto is_measured = [](const Run& run) { return run.cluster.to_be_measured; };
  if (std::ranges::any_of(experiment.runs, is_measured))
    throw ConfigurationFault(
        fmt::format("{}: cluster.micro_batch_s = \"measured\"; with --share it must be a number, since each machine "
                    "would measure another one, and make other runs",
                    line.file));
  if (experiment.tuning && !options.waits)
    throw ConfigurationFault(
        fmt::format("{}: tune; --no-wait must be left out: runs begin when all trials have ended", line.file));
}

Division division_of(const Experiment& experiment, std::size_t to_do, const std::string& jobs, int threads,
                     std::int64_t memory_bytes) {
  const int most = static_cast<int>(std::min<std::size_t>(to_do, std::numeric_limits<int>::max()));
  const std::int64_t free = free_memory_bytes();
  const auto memory = static_cast<double>(memory_bytes > 0 ? std::min(memory_bytes, free) : free);
  int number = 1;
  if (jobs == "auto") {
    std::vector<const Run*> runs;
    for (const Run& run : experiment.runs) runs.push_back(&run);
    const double largest = std::max(1.0, largest_need(runs, {.threads = 1}).need.total());
    number = static_cast<int>(std::clamp(memory / largest, 1.0, static_cast<double>(threads)));
  } else {
    number = std::stoi(jobs);
  }
  number = std::clamp(number, 1, std::max(1, most));
  return {.jobs = number,
          .threads = std::max(1, threads / number),
          .memory_bytes = static_cast<std::int64_t>(memory / number)};
}

std::string division_text(const Division& division) {
  return fmt::format("in {} processes of {} thread{} and at most {:.2g} GB each", division.jobs, division.threads,
                     division.threads == 1 ? "" : "s", 1e-9 * static_cast<double>(division.memory_bytes));
}

int run_side_by_side(const Experiment& experiment, const CommandLine& line) {
  const SideBySideOptions& side = line.side_by_side;
  RunOptions options = line.options;
  if (side.shares) options.sharing = sharing_of(side);
  if (side.memory_part_bytes > 0)
    keep_to_memory_part({.bytes = side.memory_part_bytes,
                         .threads = options.threads,
                         .hardly_held = static_cast<std::int64_t>(stack_room(experiment.runs))});
  if (side.jobs.empty()) return run_experiment(experiment, options);

  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int threads = options.threads > 0 ? options.threads : cores;
  const Division division =
      division_of(experiment, runs_left(experiment, options), side.jobs, threads, line.memory_bytes);
  refuse_beyond_memory(experiment, line,
                       {.threads = division.threads, .processes = division.jobs, .limit_bytes = line.memory_bytes});
  if (division.jobs == 1) return run_experiment(experiment, options);
  options.sharing = sharing_of(side);
  options.sharing->takes = false;
  JobProcesses jobs({.command = job_command(line, division, options.sharing->call),
                     .number = division.jobs,
                     .memory_bytes = division.memory_bytes,
                     .experiment_directory = experiment_directory(options.results_directory, experiment.name)});
  options.sharing->start_others = [&jobs] { jobs.start(); };
  options.sharing->others_are_there = [&jobs] { return jobs.are_there(); };
  options.sharing->is_first_to_say = [&jobs] { return jobs.take_token(); };
  options.threads = division.threads;
  options.division = division_text(division);
  options.side_by_side = division.jobs;
  return run_experiment(experiment, options);
}

}  // namespace syncopate
