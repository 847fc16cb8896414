#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <exception>
#include <iterator>
#include <numeric>
#include <system_error>

#include "experiments/commands/commands.hpp"
#include "experiments/execution/tuning.hpp"
#include "results/found_runs.hpp"

namespace syncopate {

namespace fs = std::filesystem;
namespace {

// Host times of finished runs by label; the key nullopt has those of all runs.
using PastCosts = std::map<std::optional<std::string>, std::vector<double>>;

double seconds_since_written(const fs::path& file) {
  struct stat found {};
  if (stat(file.c_str(), &found) != 0) return 0;
  return std::max(0.0, std::difftime(std::time(nullptr), found.st_mtim.tv_sec));
}

RunningRun running(const PlannedRun& run, const LeaseNote& note, const fs::path& leases) {
  return {.run = run,
          .host = note.host,
          .process = note.process.number,
          .since = note.since,
          .share_done = std::clamp(note.share_done, 0.0, 1.0),
          .is_lost = state_of(note.process) == ProcessState::gone,
          .silent_s = seconds_since_written(leases / note.file_name),
          .time_out_s = note.time_out_s};
}

// Returns the directory of the same run on the simulated cluster.
fs::path without_mpi(fs::path directory) {
  const std::string name = directory.filename().string();
  return name.ends_with("-mpi") ? directory.replace_filename(name.substr(0, name.size() - 4)) : directory;
}

bool is_finished_under_mpi(PlannedRun run) {
  run.directory += "-mpi";
  const auto summary = summary_of(run.directory, run.hash);
  return summary && summary->status == RunStatus::finished && damage_of(run.directory).empty();
}

// Returns the data of a run that is in no plan, from the names of its folders.
PlannedRun by_folders(const fs::path& directory) {
  PlannedRun run{.label = directory.parent_path().filename().string(), .directory = directory};
  const std::string name = directory.filename().string();  // "seed=<number>-<hash>"
  std::from_chars(name.data() + name.find('=') + 1, name.data() + name.size(), run.seed);
  run.hash = name.substr(name.find('-') + 1);
  return run;
}

std::vector<LeaseNote> held_in(const fs::path& directory) {
  return Leases(directory / share_folder / leases_folder, std::chrono::seconds(1)).held();
}

// Returns the unfinished runs for which `belongs` is true, except those that have ended meanwhile or have a lease.
template <class Belongs>
std::vector<UnfinishedRun> unfinished_in(const ExperimentFolder& folder, std::span<const PlannedRun> known,
                                         const Belongs& belongs) {
  const std::vector<LeaseNote> held = held_in(folder.directory);
  std::vector<UnfinishedRun> unfinished;
  for (const auto& [directory, files] : folder.unfinished) {
    std::error_code error;
    const auto ended = fs::last_write_time(directory / "summary.json", error);
    if (!error && ended >= files.written) continue;
    const auto of_plan = std::ranges::find(known, without_mpi(directory), &PlannedRun::directory);
    if (!belongs(directory, of_plan != known.end())) continue;
    PlannedRun run = of_plan != known.end() ? *of_plan : by_folders(directory);
    const bool is_shared = std::ranges::any_of(
        held, [&](const LeaseNote& note) { return note.what.substr(0, 8) == run.hash.substr(0, 8); });
    const bool is_under_mpi = without_mpi(directory) != directory;
    if (is_shared && !is_under_mpi) continue;
    if (is_under_mpi) run.label += ", under MPI";
    const std::chrono::duration<double> age = fs::file_time_type::clock::now() - files.written;
    unfinished.push_back(
        {.run = std::move(run), .has_checkpoint = files.has_checkpoint, .written_s_ago = std::max(0.0, age.count())});
  }
  return unfinished;
}

std::ptrdiff_t number_at_work(const ExperimentStatus& status) {
  return std::ranges::count_if(status.running, [](const RunningRun& run) { return !run.is_silent(); });
}

void add_found(ExperimentStatus& status, const FoundRun& run) {
  if (run.summary.status == RunStatus::finished) {
    ++status.finished;
    return;
  }
  status.failed.push_back({.run = {.hash = run.summary.hash,
                                   .label = run_label(run.summary),
                                   .seed = run.summary.seed,
                                   .directory = run.directory},
                           .reason = run.summary.reason.empty() ? to_string(run.summary.status) : run.summary.reason});
}

// Returns the status of these runs in one experiment's directory.
ExperimentStatus status_of(const std::string& name, const fs::path& directory, const std::vector<PlannedRun>& runs) {
  const fs::path shared = directory / share_folder;
  std::map<std::string, LeaseNote> held;
  for (LeaseNote& note : held_in(directory)) held[note.what] = std::move(note);
  const AttemptRecords attempts(shared / failed_folder, "", 0);
  ExperimentStatus status{.name = name, .directory = directory, .runs = runs.size()};
  PastCosts costs;
  std::vector<std::pair<const PlannedRun*, double>> left;  // runs that have not ended, and the share left of each
  for (const PlannedRun& run : runs) {
    const auto summary = summary_of(run.directory, run.hash);
    const bool is_whole = summary && damage_of(run.directory).empty();
    if (is_whole && summary->status == RunStatus::finished) {
      ++status.finished;
      costs[run.label].push_back(summary->host_s);
      costs[std::nullopt].push_back(summary->host_s);
      continue;
    }
    const auto lease = held.find(run.hash);
    const auto failed = attempts.last(run.hash);
    if (lease != held.end()) {
      status.running.push_back(running(run, lease->second, shared / leases_folder));
      left.emplace_back(&run, 1 - status.running.back().share_done);
    } else if (failed && attempts.are_used_up(failed)) {
      status.failed.push_back({.run = run, .reason = failed->reason});
    } else if (is_whole) {
      status.failed.push_back(
          {.run = run, .reason = summary->reason.empty() ? to_string(summary->status) : summary->reason});
    } else {
      left.emplace_back(&run, 1);
    }
  }
  status.remaining = runs.size() - status.finished - status.running.size() - status.failed.size();
  double sum_s = 0;
  for (const auto& [run, share] : left) {
    if (costs.empty()) return status;
    const std::vector<double>& known = costs.contains(run->label) ? costs[run->label] : costs[std::nullopt];
    sum_s += share * (std::accumulate(known.begin(), known.end(), 0.0) / static_cast<double>(known.size()));
  }
  if (!left.empty()) status.left_s = sum_s / static_cast<double>(std::max<std::ptrdiff_t>(1, number_at_work(status)));
  return status;
}

// Returns the leases on common phases and on runs of other launches. Only the hashes of these are known.
std::vector<RunningRun> running_elsewhere(const fs::path& directory, std::span<const PlannedRun> plan,
                                          std::span<const FoundRun> found) {
  std::vector<RunningRun> others;
  for (const LeaseNote& note : held_in(directory)) {
    const bool is_known = std::ranges::find(plan, note.what, &PlannedRun::hash) != plan.end() ||
                          std::ranges::any_of(found, [&](const FoundRun& run) {
                            return run.summary.hash == note.what && run.summary.status == RunStatus::finished;
                          });
    if (!is_known) others.push_back(running({.hash = note.what}, note, directory / share_folder / leases_folder));
  }
  return others;
}

bool says_something(const ExperimentStatus& status) {
  return status.runs || status.finished > 0 || !status.failed.empty() || !status.unfinished.empty() ||
         !status.running_elsewhere.empty() || !status.faults.empty();
}

// Returns the status of a folder's trials and of its runs. `above`: the directory that the user named.
std::vector<ExperimentStatus> status_of_folder(const ExperimentFolder& folder, const fs::path& above) {
  const fs::path& directory = folder.directory;
  const std::string name = directory == above ? fs::canonical(directory).filename().string()
                                              : directory.lexically_relative(above).generic_string();
  std::vector<std::string> faults = folder.faults;
  const auto plan = saved_plan(directory, &faults).value_or(std::vector<PlannedRun>{});
  RunsAndFaults found = read_runs(folder.runs, directory);
  std::ranges::move(found.faults, std::back_inserter(faults));
  std::ranges::move(found.faults_of_common_phases, std::back_inserter(faults));
  std::vector<ExperimentStatus> parts;
  for (const bool of_trials : {true, false}) {
    const auto belongs = [&](const fs::path& run) {
      return (*run.lexically_relative(directory).begin() == trials_folder) == of_trials;
    };
    const std::string part_name = of_trials ? name + ", trials" : name;
    std::vector<PlannedRun> planned = plan;
    std::erase_if(planned, [&](const PlannedRun& run) { return !belongs(run.directory); });
    ExperimentStatus status{.name = part_name, .directory = directory};
    if (!planned.empty()) status = status_of(part_name, directory, planned);
    for (const FoundRun& run : found.runs) {
      if (!belongs(run.directory) || std::ranges::find(planned, run.directory, &PlannedRun::directory) != planned.end())
        continue;
      add_found(status, run);
      if (!status.runs) continue;
      ++*status.runs;
      ++status.of_other_launches;
    }
    status.unfinished = unfinished_in(folder, planned, [&](const fs::path& run, bool) { return belongs(run); });
    if (!of_trials) {
      status.running_elsewhere = running_elsewhere(directory, plan, found.runs);
      status.faults = faults;
    }
    if (says_something(status) || (!of_trials && parts.empty())) parts.push_back(std::move(status));
  }
  return parts;
}

// Returns the status of a file's runs. Unfinished files may also be of their common phases.
ExperimentStatus status_of(const std::string& name, const fs::path& directory, const fs::path& results,
                           std::span<const Run> runs) {
  std::vector<PlannedRun> planned = planned_runs(results, runs);
  ExperimentStatus status = status_of(name, directory, planned);
  status.finished_under_mpi = static_cast<std::size_t>(std::ranges::count_if(planned, is_finished_under_mpi));
  std::vector<Run> phases;
  for (const Run& run : runs)
    if (run.common_phase && std::ranges::find(phases, run.common_phase->hash, &Run::hash) == phases.end())
      phases.push_back(*run.common_phase);
  std::ranges::move(planned_runs(results, phases), std::back_inserter(planned));
  for (const ExperimentFolder& folder : experiment_folders(directory))
    std::ranges::move(unfinished_in(folder, planned, [](const fs::path&, bool is_known) { return is_known; }),
                      std::back_inserter(status.unfinished));
  return status;
}

std::string name_of(const PlannedRun& run) { return fmt::format("{}, seed {}", run.label, run.seed); }

std::string heading(const ExperimentStatus& status) {
  if (!status.runs)
    return fmt::format("{}: {} finished, {} failed; for the total number, use the file: syncopate status FILE\n",
                       status.name, status.finished, status.failed.size());
  const std::string of_others =
      status.of_other_launches > 0 ? fmt::format(" ({} of earlier launches)", status.of_other_launches) : "";
  std::string text = fmt::format("{}: {}{}: {} finished, {} running, {} failed, {} remaining", status.name,
                                 counted(*status.runs, "run"), of_others, status.finished, status.running.size(),
                                 status.failed.size(), status.remaining.value_or(0));
  if (!status.left_s) return text + "\n";
  if (number_at_work(status) == 0)
    return text + fmt::format("; no process is running; one process would need about {}\n", clock_text(*status.left_s));
  const std::time_t end = std::time(nullptr) + std::llround(*status.left_s);
  return text +
         fmt::format("; about {} left, until {:%Y-%m-%d %H:%M}\n", clock_text(*status.left_s), fmt::localtime(end));
}

Json json_of(const RunningRun& run) {
  return {
      {"hash", run.run.hash},     {"label", run.run.label},      {"seed", run.run.seed},         {"host", run.host},
      {"process", run.process},   {"since", run.since},          {"share_done", run.share_done}, {"lost", run.is_lost},
      {"silent_s", run.silent_s}, {"time_out_s", run.time_out_s}};
}

std::string line_of(const RunningRun& run, const std::string& name) {
  const std::string who = run.host.empty() ? "an unknown process"
                                           : fmt::format("{}, process {}, since {}", run.host, run.process, run.since);
  const std::string lost = run.is_lost       ? "; it has ended, and the next process takes over the run"
                           : run.is_silent() ? fmt::format("; silent for {}", clock_text(run.silent_s))
                                             : "";
  return fmt::format("  running  {:>3.0f} %  {}: {}{}\n", std::floor(100 * run.share_done), name, who, lost);
}

Json json_of(const ExperimentStatus& status) {
  Json json = {{"experiment", status.name}, {"directory", status.directory.string()}};
  json["runs"] = status.runs;
  json["of_other_launches"] = status.of_other_launches;
  json["finished"] = status.finished;
  json["finished_under_mpi"] = status.finished_under_mpi;
  json["running"] = Json::array();
  for (const RunningRun& run : status.running) json["running"].push_back(json_of(run));
  json["running_elsewhere"] = Json::array();
  for (const RunningRun& run : status.running_elsewhere)
    json["running_elsewhere"].push_back(
        {{"hash", run.run.hash}, {"host", run.host}, {"process", run.process}, {"share_done", run.share_done}});
  json["failed"] = Json::array();
  for (const auto& [run, reason] : status.failed)
    json["failed"].push_back({{"hash", run.hash}, {"label", run.label}, {"seed", run.seed}, {"reason", reason}});
  json["unfinished"] = Json::array();
  for (const auto& [run, has_checkpoint, written_s_ago] : status.unfinished)
    json["unfinished"].push_back({{"hash", run.hash},
                                  {"label", run.label},
                                  {"seed", run.seed},
                                  {"checkpoint", has_checkpoint},
                                  {"written_s_ago", written_s_ago}});
  json["faults"] = status.faults;
  json["remaining"] = status.remaining;
  json["left_s"] = status.left_s;
  return json;
}

}  // namespace

std::vector<ExperimentStatus> status_of(const Experiment& experiment, const fs::path& results) {
  const fs::path directory = experiment_directory(results, experiment.name);
  std::vector<ExperimentStatus> parts;
  if (experiment.tuning) {
    const TuningSoFar so_far = tuning_so_far(experiment, results.string());
    parts.push_back(status_of(experiment.name + ", trials", directory, results, so_far.trials));
    // The runs are known once all trials have ended. Before that, only their number is known.
    parts.push_back(so_far.runs ? status_of(experiment.name, directory, results, *so_far.runs)
                                : ExperimentStatus{.name = experiment.name,
                                                   .directory = directory,
                                                   .runs = experiment.runs.size(),
                                                   .remaining = experiment.runs.size()});
  } else {
    parts.push_back(status_of(experiment.name, directory, results, experiment.runs));
  }
  for (ExperimentFolder& folder : experiment_folders(directory))  // runs of unreadable folders count as missing
    std::ranges::move(folder.faults, std::back_inserter(parts.back().faults));
  return parts;
}

std::vector<ExperimentStatus> status_of_directory(const fs::path& directory) {
  const std::string expected = "must be an experiment's file, or a directory such as results/runs/<experiment>";
  std::error_code error;
  if (!fs::is_directory(directory, error))
    throw ConfigurationFault(fmt::format("{}: no such directory; {}", directory.string(), expected));
  const fs::path above = directory.has_filename() ? directory : directory.parent_path();  // "runs/" becomes "runs"
  std::vector<ExperimentStatus> all;
  for (const ExperimentFolder& folder : experiment_folders(above))
    std::ranges::move(status_of_folder(folder, above), std::back_inserter(all));
  if (all.empty()) {
    const bool is_kept = fs::is_regular_file(directory / "claims.json", error);
    throw ConfigurationFault(
        fmt::format("{}: contains neither runs (directories named seed=<number>-<hash>) nor their checkpoints{}; {}",
                    directory.string(),
                    is_kept ? "; these are kept summaries of finished runs, which ./dev report shows" : "", expected));
  }
  return all;
}

std::string status_text(const std::vector<ExperimentStatus>& experiments) {
  std::string text;
  for (const ExperimentStatus& status : experiments) {
    text += heading(status);
    if (status.finished_under_mpi > 0)
      text += fmt::format("  under MPI       {} of {} finished\n", status.finished_under_mpi, status.runs.value_or(0));
    for (const RunningRun& run : status.running) text += line_of(run, name_of(run.run));
    for (const RunningRun& run : status.running_elsewhere)
      text += line_of(run, fmt::format("{:.8}, a run of another launch or a common phase", run.run.hash));
    for (const UnfinishedRun& run : status.unfinished)
      text += fmt::format("  unfinished      {}: running or interrupted; {} written {} ago\n", name_of(run.run),
                          run.has_checkpoint ? "its checkpoint was" : "it has no complete checkpoint; other files were",
                          clock_text(run.written_s_ago));
    for (const FailedRun& run : status.failed)
      text += fmt::format("  failed          {}: {}\n", name_of(run.run), run.reason);
    for (const std::string& fault : status.faults) text += fmt::format("  problem         {}\n", fault);
  }
  return text;
}

std::string status_json(const std::vector<ExperimentStatus>& experiments) {
  Json json = Json::array();
  for (const ExperimentStatus& status : experiments) json.push_back(json_of(status));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace syncopate
