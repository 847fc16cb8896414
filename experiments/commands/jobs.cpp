#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <span>
#include <thread>

#include "experiments/commands/commands.hpp"
#include "experiments/execution/tuning.hpp"
#include "experiments/sections/definition.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {

namespace {

// Interrupted children are killed after this time, although they usually end within a second (process.hpp).
constexpr std::chrono::seconds time_to_end_by_itself{3};

bool has_crashed(int status) {
  constexpr std::array regular = {exit_success, exit_failure, exit_usage, exit_interrupted};
  return WIFSIGNALED(status) || std::ranges::find(regular, WEXITSTATUS(status)) == regular.end();
}

std::string how_it_ended(int status) {
  return WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                             : fmt::format("ended with status {}", WEXITSTATUS(status));
}

// The children of `run --jobs`.
class JobProcesses {
 public:
  // `arguments`: those of each child, without --token.
  JobProcesses(std::vector<std::string> arguments, int number, std::filesystem::path experiment_directory)
      : arguments_(std::move(arguments)), number_(number), experiment_directory_(std::move(experiment_directory)) {}

  // Ends children that are still running, and waits for them for at most a few seconds.
  ~JobProcesses() {
    for (const pid_t job : jobs_) kill(job, SIGTERM);
    const auto until = std::chrono::steady_clock::now() + time_to_end_by_itself;
    while (!jobs_.empty()) {
      std::erase_if(jobs_, [](pid_t job) { return waitpid(job, nullptr, WNOHANG) != 0; });
      if (std::chrono::steady_clock::now() > until)
        for (const pid_t job : jobs_) kill(job, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  JobProcesses(const JobProcesses&) = delete;
  JobProcesses& operator=(const JobProcesses&) = delete;

  // Starts the children at the first call, which the main thread must make. Throws std::runtime_error.
  void start() {
    if (std::exchange(has_started_, true)) return;
    while (std::ssize(jobs_) < number_) jobs_.push_back(started());
  }

  // Whether any child is running. Replaces a child that was killed or crashed while it executed a run.
  bool are_there() {
    std::vector<pid_t> there;
    for (const pid_t job : jobs_) {
      int status = 0;
      const pid_t ended = waitpid(job, &status, WNOHANG);
      if (ended == 0) there.push_back(job);
      if (ended != job || !has_crashed(status)) continue;
      const bool is_replaced = was_making_a_run(job);
      standard_error.write(fmt::format("process {} {}{}\n", job, how_it_ended(status),
                                       is_replaced ? " during a run; a new process replaces it" : ""));
      if (is_replaced) there.push_back(started());
    }
    jobs_ = std::move(there);
    return !jobs_.empty();
  }

  // Returns true for the first caller among this process and its children.
  bool take_token() { return token_.take(); }

 private:
  // Whether the process was executing a run when it crashed. In that case its lease still exists.
  bool was_making_a_run(pid_t job) const {
    const Leases leases(experiment_directory_ / share_folder / leases_folder, std::chrono::seconds(1));
    return std::ranges::any_of(leases.held(), [job](const LeaseNote& note) { return note.process.number == job; });
  }

  pid_t started() const {
    std::vector<std::string> command = {own_program()};
    command.insert(command.end(), arguments_.begin(), arguments_.end());
    command.insert(command.end(), {"--token", std::to_string(token_.descriptor())});
    return start_child(std::move(command));
  }

  std::vector<std::string> arguments_;
  int number_;
  std::filesystem::path experiment_directory_;
  SharedToken token_{};
  bool has_started_ = false;
  std::vector<pid_t> jobs_;
};

struct Division {
  int jobs = 1;
  int threads = 1;                // per process
  std::int64_t memory_bytes = 0;  // memory limit per process
};

std::vector<std::string> job_arguments(const CommandLine& line, const Division& division, const std::string& call) {
  std::vector<std::string> words = arguments_of_run(line);
  for (const std::string& name : line.only) words.insert(words.end(), {"--only", name});
  words.insert(words.end(),
               {"--threads", std::to_string(division.threads), "--retry", std::to_string(line.options.retries),
                "--lease-timeout", fmt::format("{}", line.side_by_side.time_out_s), "--share", "--job-of", call});
  // Sanitizers reserve whole address spaces, so they get no memory limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  words.insert(words.end(), {"--memory-part", std::to_string(division.memory_bytes)});
#endif
  return words;
}

std::ptrdiff_t runs_left(const Experiment& experiment, const RunOptions& options) {
  const std::vector<Run> trials = first_trials(experiment);
  if (options.rerun) return std::ssize(trials) + std::ssize(experiment.runs);
  const auto count = [&](std::span<const Run> runs) {
    return std::ranges::count(runs_to_do(runs, options.results_directory, false), 1);
  };
  return std::max(count(trials), experiment.tuning ? std::ssize(experiment.runs) : count(experiment.runs));
}

// The run that needs the most memory; null without runs.
struct LargestNeed {
  const Run* run = nullptr;
  MemoryNeed need{};
};

LargestNeed largest_need(std::span<const Run* const> runs, const MemoryUse& use) {
  LargestNeed largest;
  for (const Run* run : runs)
    if (const MemoryNeed need = memory_need(*run, use); !largest.run || need.total() > largest.need.total())
      largest = {run, need};
  return largest;
}

// Returns, for example, "0.51 GiB".
std::string memory_text(double bytes, int digits = 2) { return fmt::format("{:.{}g} GiB", bytes / (1 << 30), digits); }

// Returns the parts of at least 1 %, such as "data 0.24 GiB, program 0.17 GiB".
std::string parts_text(const Run& run, const MemoryNeed& need, int threads) {
  std::string parts;
  const auto add = [&](const std::string& what, double bytes) {
    if (bytes >= 0.01 * need.total())
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", what, memory_text(bytes));
  };
  const auto parameters = static_cast<double>(run.training.parameter_bytes.value()) / sizeof(float);
  add(fmt::format("models, optimizer states and gradients ({:.0f} times {:.3g} parameters)", need.vectors, parameters),
      need.models);
  add(fmt::format("gradient computation on {}", counted(threads, "thread")), need.passes);
  add("data", need.data);
  add(fmt::format("{} simulated workers", run.cluster.workers), need.workers);
  add("rows", need.records);
  add("program", need.program);
  return parts + (need.is_complete ? "" : "; without the module's activations, which are not known");
}

// Returns the number of processes, and the threads and memory of each. With --jobs auto, the number is limited by the
// number of threads, the runs to do and the free memory (execution/cost.hpp).
Division division_of(const Experiment& experiment, const CommandLine& line) {
  const int threads = memory_use(line, 0).threads;
  const std::int64_t free = free_memory_bytes();
  const auto memory = static_cast<double>(line.memory_bytes > 0 ? std::min(line.memory_bytes, free) : free);
  int number = 1;
  if (line.side_by_side.jobs == "auto") {
    std::vector<const Run*> runs;
    for (const Run& run : experiment.runs) runs.push_back(&run);
    const double largest = std::max(1.0, largest_need(runs, {.threads = 1}).need.total());
    number = static_cast<int>(std::clamp(memory / largest, 1.0, static_cast<double>(threads)));
  } else {
    number = std::stoi(line.side_by_side.jobs);
  }
  const auto most = std::max<std::ptrdiff_t>(1, runs_left(experiment, line.options));
  number = static_cast<int>(std::clamp<std::ptrdiff_t>(number, 1, most));
  return {.jobs = number,
          .threads = std::max(1, threads / number),
          .memory_bytes = static_cast<std::int64_t>(memory / number)};
}

// Returns text for users: "in 4 processes of 1 thread and at most 5.2 GB each".
std::string division_text(const Division& division) {
  return fmt::format("in {} processes of {} and at most {:.2g} GB each", division.jobs,
                     counted(division.threads, "thread"), 1e-9 * static_cast<double>(division.memory_bytes));
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// Returns the common name of all processes of an mpirun launch, Slurm job or job array; without these, a unique name.
std::string call_of_this_process() {
  if (const std::string array = environment("SLURM_ARRAY_JOB_ID"); !array.empty()) return "slurm-array-" + array;
  for (const char* const job : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"})
    if (const std::string name = environment(job); !name.empty())
      return fmt::format("launch-{}-{}", name, environment("OMPI_MCA_orte_hnp_uri").substr(0, 60));
  if (const std::string step = environment("SLURM_STEP_ID"); !step.empty())  // started by srun
    return fmt::format("slurm-{}-{}", environment("SLURM_JOB_ID"), step);
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// Returns this process's rank in its launch; 0 without a launch. It determines which process of a launch prints.
int rank_in_launch() {
  for (const char* const rank : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const std::string number = environment(rank); !number.empty()) return std::atoi(number.c_str());
  return 0;
}

Sharing sharing_of(const SideBySideOptions& options) {
  Sharing sharing{.time_out = std::chrono::milliseconds(std::llround(1000 * options.time_out_s)),
                  .call = options.job_of.empty() ? call_of_this_process() : options.job_of,
                  .waits = options.waits,
                  .speaks = options.job_of.empty() && rank_in_launch() == 0};
  if (options.token >= 0)
    sharing.is_first_to_report = [token = std::make_shared<SharedToken>(options.token)] { return token->take(); };
  return sharing;
}

// Adds the runs whose entry in `to_do` is not 0, or all runs if `to_do` is empty, and their common phases.
void add(std::span<const Run> runs, std::span<const int> to_do, std::vector<const Run*>& all) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!to_do.empty() && !to_do[i]) continue;
    all.push_back(&runs[i]);
    if (runs[i].common_phase) all.push_back(runs[i].common_phase.get());
  }
}

// Returns advice on how to reduce the largest part of the memory.
std::string advice(const MemoryNeed& need, const MemoryUse& use) {
  std::string text = need.models >= need.passes ? "fewer workers, a smaller model or an optimizer with fewer moments"
                                                : "smaller micro-batches or a smaller model";
  if (need.workers + need.records > need.models + need.passes) text = "fewer workers, steps or records";
  if (use.threads > 1 && need.passes > 0.1 * need.total())
    text += fmt::format(", fewer --threads than {}", use.threads);
  if (use.processes > 1) text += fmt::format(", fewer --jobs than {}", use.processes);
  if (use.processes == 1 && !use.is_mpi_rank && need.models >= need.passes)
    text += use.dividing > 1 ? fmt::format(", or more than {} processes that divide a run", use.dividing)
                             : ", or several processes that divide a run (mpirun, --cluster simulated)";
  return text;
}

// Returns why LibTorch lacks the device or precision on this machine; empty if it has both. Tries each pair once.
const std::string& why_missing(const Arithmetic& arithmetic) {
  static std::map<std::pair<std::string, bool>, std::string> known = {{{"cpu", false}, ""}, {{"cpu:copy", false}, ""}};
  const auto [found, is_new] = known.try_emplace({arithmetic.device, arithmetic.bfloat16});
  if (is_new) found->second = why_no_arithmetic(arithmetic);
  return found->second;
}

// Adds a fault at the key because of which LibTorch cannot compute the run here. `table`: the key's table in the file.
void add_missing_device(const Run& run, const std::string& table, FaultList& faults) {
  const Arithmetic& arithmetic = run.training.arithmetic;
  const std::string& why = why_missing(arithmetic);
  if (why.empty()) return;
  const bool has_device = why_missing({.device = arithmetic.device}).empty();
  const char* const key = has_device ? "precision" : "device";
  const bool is_own = std::ranges::any_of(run.own_training, [&](const auto& own) { return own.first == key; });
  const std::string name =
      fmt::format("{}{}.{}", is_own ? fmt::format("methods.{}.", run.method_index) : "", table, key);
  if (has_device)
    faults.add(run.training.arithmetic_places.precision,
               fmt::format("{} = \"bfloat16\"; must be \"float32\" here: {}", name, why));
  else
    faults.add(run.training.arithmetic_places.device,
               fmt::format("{} = \"{}\"; must be a device of this machine: {}", name, arithmetic.device, why));
}

// Returns the faults of the runs and common phases for which `is_to_do` is true.
FaultList missing_devices(std::span<const Run> runs, const std::function<bool(const Run&)>& is_to_do) {
  FaultList faults;
  for (const Run& run : runs) {
    if (!is_to_do(run)) continue;
    add_missing_device(run, "training", faults);
    if (!run.common_phase || !is_to_do(*run.common_phase)) continue;
    const Run& phase = *run.common_phase;
    const bool is_own = std::ranges::any_of(run.own_training, [](const auto& own) { return own.first == "device"; });
    const bool differs = phase.training.arithmetic != run.training.arithmetic;
    add_missing_device(phase, differs && !is_own ? "training.common" : "training", faults);
  }
  return faults;
}

// Returns the bytes that all workers of a run send: "bytes sent in a run: 4.3 TB (DiLoCo) to 69 TB (AdamW)". Names the
// methods whose schedules do not determine them.
std::string bytes_line(const Experiment& experiment) {
  constexpr double most_rounds = 1e6, most_of_all = 1e8;  // counting these takes about 0.1 s, and a few seconds
  struct Sent {
    double bytes;
    std::string label;
  };
  std::vector<Sent> sent;
  std::vector<std::string> unknown;  // labels of methods, in quotes
  std::set<std::pair<std::size_t, decltype(Run::sweep)>> seen;
  double counted = 0;
  for (const Run& run : experiment.runs) {
    if (!seen.emplace(run.method_index, run.sweep).second) continue;  // another seed sends equally many bytes
    const auto known = counted < most_of_all ? scheduled_communication(run, most_rounds) : std::nullopt;
    if (known) {
      counted += static_cast<double>(known->rounds);
      sent.push_back({static_cast<double>(known->bytes.value()), run_label(run)});
    } else if (std::string name = fmt::format("\"{}\"", printable(run.method)); !std::ranges::count(unknown, name)) {
      unknown.push_back(std::move(name));
    }
  }
  if (sent.empty() && unknown.empty()) return {};
  std::string text = experiment.tuning ? "bytes sent in a run with the file's own values of the tuned keys: "
                                       : "bytes sent in a run: ";
  if (sent.empty()) return text + "not known in advance; see `predict`";
  const auto least = std::ranges::min_element(sent, {}, &Sent::bytes);
  const auto most = std::ranges::max_element(sent, {}, &Sent::bytes);
  const std::string low = size_text(least->bytes), high = size_text(most->bytes);
  text +=
      low == high ? low : fmt::format("{} ({}) to {} ({})", low, printable(least->label), high, printable(most->label));
  if (unknown.empty()) return text;
  const std::size_t shown = std::min<std::size_t>(3, unknown.size());
  text += fmt::format("; for {}", fmt::join(std::span(unknown).first(shown), ", "));
  if (unknown.size() > shown) text += fmt::format(" and {} more", unknown.size() - shown);
  return text + " see `predict`";
}

// Returns the bytes of a unit, such as "b", "k", "kb", "ki" or "kib". Returns 0 if there is no such unit.
double unit_bytes(std::string unit) {
  if (unit.ends_with('b')) unit.pop_back();
  if (unit.empty()) return 1;
  const std::size_t power = std::string_view("kmgtpe").find(unit.front());
  if (power == std::string_view::npos || (unit.size() > 1 && unit.substr(1) != "i")) return 0;
  return std::pow(unit.size() > 1 ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

}  // namespace

void check_side_by_side(const CommandLine& line, bool under_mpi) {
  const SideBySideOptions& options = line.side_by_side;
  const bool divides = options.shares || !options.jobs.empty(), retries = line.options.retries > 0;
  const bool is_on_mpi = line.options.cluster == ClusterChoice::mpi;
  const bool is_simulated = line.options.cluster == ClusterChoice::simulated;
  const std::string name = options.shares ? "--share" : "--jobs";
  const std::pair<bool, std::string> faults[] = {
      {divides && is_on_mpi,
       name + " cannot be combined with --cluster mpi: the first assigns whole runs to processes, the second the "
              "workers of each run"},
      {divides && under_mpi,
       "--jobs cannot be used under mpirun, because it starts processes itself; use --share to assign runs to "
       "mpirun's processes"},
      {options.shares && line.options.rerun && options.job_of.empty(),
       "--rerun cannot be combined with --share: each process would repeat the results of the others; use --jobs, or "
       "remove the runs' directories first"},
      {!options.waits && !options.shares, "--no-wait needs --share"},
      {options.time_out_s != SideBySideOptions().time_out_s && !divides, "--lease-timeout needs --share or --jobs"},
      {!options.waits && !options.jobs.empty(),
       "--no-wait cannot be combined with --jobs, which waits for its processes"},
      {!options.waits && launched_by_mpi(),
       "--no-wait cannot be used with a launcher, which waits for all processes, or ends them with the first one"},
      {retries && under_mpi && is_simulated,
       "--retry cannot be used if processes divide each run: leave it out, or add --share"},
      {retries && (under_mpi || is_on_mpi),
       "--retry needs the simulated cluster: under MPI, a failed run ends all ranks"},
  };
  for (const auto& [is_wrong, message] : faults)
    if (is_wrong) throw ConfigurationFault(message);
}

void check_side_by_side(const CommandLine& line, const Experiment& experiment) {
  const SideBySideOptions& options = line.side_by_side;
  if (!options.shares || !options.job_of.empty()) return;
  const auto is_measured = [](const Run& run) { return run.cluster.to_be_measured; };
  if (std::ranges::any_of(experiment.runs, is_measured))
    throw ConfigurationFault(
        fmt::format("{}: cluster.micro_batch_s = \"measured\"; must be a number with --share, because each machine "
                    "would measure a different time and execute different runs",
                    line.file));
  if (experiment.tuning && !options.waits)
    throw ConfigurationFault(
        fmt::format("{}: tune; --no-wait must be left out, because runs begin only after all trials", line.file));
}

MemoryUse memory_use(const CommandLine& line, int ranks) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const bool is_rank =
      line.options.cluster == ClusterChoice::mpi || (line.options.cluster == ClusterChoice::automatic && ranks > 0);
  const int dividing = is_rank ? 1 : std::max(1, ranks);
  return {.threads = line.options.threads > 0 ? line.options.threads : std::max(1, cores / dividing),
          .dividing = dividing,
          .is_mpi_rank = is_rank,
          .limit_bytes = line.memory_bytes};
}

std::vector<std::string> need_lines(const Experiment& experiment, const MemoryUse& use) {
  std::vector<std::string> lines;
  if (std::string bytes = bytes_line(experiment); !bytes.empty()) lines.push_back(std::move(bytes));
  const std::vector<Run> trials = first_trials(experiment);
  std::vector<const Run*> all;
  add(trials, {}, all);
  add(experiment.runs, {}, all);
  if (const auto [run, need] = largest_need(all, use); run) {
    const std::string whose =
        use.dividing > 1 ? fmt::format("each of {} processes that divide a run", use.dividing) : "a process";
    lines.push_back(fmt::format("memory of {}: about {} for \"{}\", which needs the most: {}", whose,
                                memory_text(need.total()), printable(run_label(*run)),
                                parts_text(*run, need, use.threads)));
  }
  std::map<std::string, const Run*> largest;  // by device
  for (const Run& run : experiment.tuning ? trials : experiment.runs) {
    if (run.training.arithmetic.is_processor()) continue;
    const Run*& known = largest[run.training.arithmetic.device];
    if (!known || known->training.memory.device_bytes < run.training.memory.device_bytes) known = &run;
  }
  for (const auto& [device, run] : largest) {
    const ObjectiveMemory& memory = run->training.memory;
    // The device keeps one state more than threads compute with.
    const double bytes = static_cast<double>(memory.device_bytes) * use.threads +
                         static_cast<double>(run->training.parameter_bytes.value());
    lines.push_back(fmt::format("memory of the device \"{}\": about {} for {} of {}", device, memory_text(bytes),
                                memory.is_known ? "parameters, gradients and activations"
                                                : "parameters and gradients, without the module's activations,",
                                counted(use.threads, "thread")));
  }
  return lines;
}

FaultList missing_devices(const Experiment& experiment) {
  // With [tune] the trials have all values that the runs may get.
  const std::vector<Run> trials = first_trials(experiment);
  return missing_devices(experiment.tuning ? trials : experiment.runs, [](const Run&) { return true; });
}

void refuse_missing_devices(const Experiment& experiment, const CommandLine& line, bool is_mpi_rank) {
  if (missing_devices(experiment).empty()) return;
  const std::string& results = line.options.results_directory;
  const bool compares = line.command == "compare";
  const auto is_to_do = [&](const Run& run) {
    if (compares && !line.compare.all_seeds && run.seed != experiment.seeds.front()) return false;
    const auto is_missing = [&](bool mpi) { return runs_to_do(std::span(&run, 1), results, mpi).front() != 0; };
    return line.options.rerun || is_missing(is_mpi_rank) || (compares && is_missing(true));
  };
  std::vector<Run> tuned;  // the trials and, once they have ended, the runs with the best settings
  if (experiment.tuning && is_mpi_rank) tuned = first_trials(experiment);
  if (experiment.tuning && !is_mpi_rank) {
    TuningSoFar so_far = tuning_so_far(experiment, results);
    tuned = std::move(so_far.trials);
    if (so_far.runs) tuned.insert(tuned.end(), so_far.runs->begin(), so_far.runs->end());
  }
  throw_if_any(missing_devices(experiment.tuning ? tuned : experiment.runs, is_to_do));
}

void refuse_beyond_memory(const Experiment& experiment, const CommandLine& line, const MemoryUse& use) {
  if (use.limit_bytes == 0) return;
  const auto to_do = [&](std::span<const Run> runs) {
    return line.options.rerun ? std::vector<int>(runs.size(), 1)
                              : runs_to_do(runs, line.options.results_directory, use.is_mpi_rank);
  };
  const std::vector<Run> trials = first_trials(experiment);
  std::vector<const Run*> all;
  add(trials, to_do(trials), all);
  // If the experiment tunes, its finished runs are not known yet, so all runs count.
  add(experiment.runs, experiment.tuning ? std::vector<int>{} : to_do(experiment.runs), all);
  const LargestNeed largest = largest_need(all, use);
  const double limit = static_cast<double>(use.limit_bytes) / use.processes;
  if (!largest.run || largest.need.total() <= limit) return;
  int digits = 2;  // increased until the texts of the need and the limit differ
  while (digits < 9 && memory_text(largest.need.total(), digits) == memory_text(limit, digits)) ++digits;
  const std::string divided = use.processes > 1
                                  ? fmt::format(" of {} that {} processes divide",
                                                memory_text(static_cast<double>(use.limit_bytes)), use.processes)
                                  : "";
  throw ConfigurationFault(fmt::format(
      "{}: \"{}\" needs about {}: {}; --memory allows a process only {}{}; increase it, or reduce the need: "
      "{}",
      line.file, printable(run_label(*largest.run)), memory_text(largest.need.total(), digits),
      parts_text(*largest.run, largest.need, use.threads), memory_text(limit, digits), divided,
      advice(largest.need, use)));
}

std::optional<std::int64_t> memory_size(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc{}) return {};
  std::string unit;
  for (const char letter : std::string_view(after, end))
    if (letter != ' ' || !unit.empty()) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  const double bytes = number * unit_bytes(unit);
  if (!(bytes >= 1 && bytes < 0x1p63)) return {};
  return static_cast<std::int64_t>(bytes);
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

  const Division division = division_of(experiment, line);
  refuse_beyond_memory(experiment, line,
                       {.threads = division.threads, .processes = division.jobs, .limit_bytes = line.memory_bytes});
  if (division.jobs == 1) return run_experiment(experiment, options);
  options.sharing = sharing_of(side);
  options.sharing->takes = false;
  JobProcesses jobs(job_arguments(line, division, options.sharing->call), division.jobs,
                    experiment_directory(options.results_directory, experiment.name));
  options.sharing->start_others = [&jobs] { jobs.start(); };
  options.sharing->others_are_there = [&jobs] { return jobs.are_there(); };
  options.sharing->is_first_to_report = [&jobs] { return jobs.take_token(); };
  options.threads = division.threads;
  options.division = division_text(division);
  options.side_by_side = division.jobs;
  return run_experiment(experiment, options);
}

}  // namespace syncopate
