#include "experiments/commands/status.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <map>
#include <set>
#include <utility>

#include "experiments/execution/tuned_runs.hpp"
#include "results/directory/failed_attempts.hpp"
#include "results/directory/finished_run.hpp"
#include "results/directory/found_runs.hpp"
#include "results/directory/lease.hpp"
#include "results/directory/run_directory.hpp"
#include "results/directory/run_files.hpp"
#include "results/directory/summary_json.hpp"
#include "results/formats/json.hpp"
#include "results/run/run_label.hpp"
#include "results/tables/progress.hpp"
#include "results/tables/short_reason.hpp"

namespace syncopate {
namespace fs = std::filesystem;
namespace {

// What host seconds finished runs took.
class PastCosts {
 public:
  void add(const std::string& label, double host_s) {
    for (Mean* const mean : {&of_label_[label], &of_all_}) {
      mean->sum += host_s;
      ++mean->count;
    }
  }
  // Nothing while none is finished.
  std::optional<double> expected(const std::string& label) const {
    const auto found = of_label_.find(label);
    const Mean& mean = found == of_label_.end() ? of_all_ : found->second;
    return mean.count > 0 ? std::optional(mean.sum / mean.count) : std::nullopt;
  }

 private:
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  std::map<std::string, Mean> of_label_;
  Mean of_all_;
};

std::optional<RunSummary> summary_in(const PlannedRun& run) {
  try {
    const auto text = read_file(run.directory / "summary.json");
    auto summary = text ? summary_from_json(*text) : std::nullopt;
    if (!summary || summary->hash != run.hash) return {};
    return summary;
  } catch (const std::exception&) {
    return {};
  }
}

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

bool is_silent(const RunningRun& run) { return run.is_lost || (run.time_out_s > 0 && run.silent_s > run.time_out_s); }

std::string name_of(const PlannedRun& run) { return fmt::format("{}, seed {}", run.label, run.seed); }

std::string local_time(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts)};
}

std::string heading(const ExperimentStatus& status) {
  if (!status.runs)
    return fmt::format("{}: {} finished, {} failed; how many it has, its file says: syncopate status FILE\n",
                       status.name, status.finished, status.failed.size());
  std::string text = fmt::format("{}: {} run{}: {} finished, {} running, {} failed, {} remaining", status.name,
                                 *status.runs, *status.runs == 1 ? "" : "s", status.finished, status.running.size(),
                                 status.failed.size(), status.remaining.value_or(0));
  const auto at_work = std::ranges::count_if(status.running, [](const RunningRun& run) { return !is_silent(run); });
  if (!status.left_s) return text + "\n";
  if (at_work == 0)
    return text + fmt::format("; nobody is at work, once somebody is about {} are left\n", clock_text(*status.left_s));
  const auto end = std::chrono::system_clock::now() + std::chrono::seconds(std::llround(*status.left_s));
  return text + fmt::format("; about {} left, until {}\n", clock_text(*status.left_s), local_time(end));
}

Json json_of(const ExperimentStatus& status) {
  Json json = {{"experiment", status.name}, {"directory", status.directory.string()}};
  json["runs"] = status.runs ? Json(*status.runs) : Json(nullptr);
  json["finished"] = status.finished;
  json["running"] = Json::array();
  for (const RunningRun& run : status.running)
    json["running"].push_back({{"hash", run.run.hash},
                               {"label", run.run.label},
                               {"seed", run.run.seed},
                               {"host", run.host},
                               {"process", run.process},
                               {"since", run.since},
                               {"share_done", run.share_done},
                               {"lost", run.is_lost},
                               {"silent_s", run.silent_s},
                               {"time_out_s", run.time_out_s}});
  json["failed"] = Json::array();
  for (const FailedRun& run : status.failed)
    json["failed"].push_back(
        {{"hash", run.run.hash}, {"label", run.run.label}, {"seed", run.run.seed}, {"reason", run.reason}});
  json["remaining"] = status.remaining ? Json(*status.remaining) : Json(nullptr);
  json["left_s"] = status.left_s ? Json(*status.left_s) : Json(nullptr);
  return json;
}

// Of runs that no plan names.
ExperimentStatus status_of_found(const fs::path& directory) {
  ExperimentStatus status{.name = directory.filename().string(), .directory = directory};
  for (const FoundRun& run : find_runs(directory)) {
    if (run.summary.status == RunStatus::finished)
      ++status.finished;
    else
      status.failed.push_back(
          {.run = {.hash = run.summary.hash,
                   .label = run_label(run.summary.method, run.summary.sweep),
                   .seed = run.summary.seed,
                   .directory = run.directory},
           .reason = run.summary.reason.empty() ? to_string(run.summary.status) : run.summary.reason});
  }
  return status;
}

}  // namespace

ExperimentStatus status_of(const std::string& name, const fs::path& directory, const std::vector<PlannedRun>& runs) {
  const fs::path shared = directory / share_folder;
  std::map<std::string, LeaseNote> held;
  for (LeaseNote& note : Leases(shared / leases_folder, std::chrono::seconds(1)).held())
    held[note.what] = std::move(note);
  const AttemptRecords attempts(shared / failed_folder, "", 0);
  ExperimentStatus status{.name = name, .directory = directory, .runs = runs.size()};
  PastCosts costs;
  std::vector<std::pair<const PlannedRun*, double>> left;  // with the share that is
  for (const PlannedRun& run : runs) {
    const auto summary = summary_in(run);
    const bool is_whole = summary && damage_of(run.directory).empty();
    if (is_whole && summary->status == RunStatus::finished) {
      ++status.finished;
      costs.add(run.label, summary->host_s);
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
    const auto cost = costs.expected(run->label);
    if (!cost) return status;
    sum_s += share * *cost;
  }
  const auto at_work = std::ranges::count_if(status.running, [](const RunningRun& run) { return !is_silent(run); });
  if (!left.empty()) status.left_s = sum_s / static_cast<double>(std::max<std::ptrdiff_t>(1, at_work));
  return status;
}

std::vector<ExperimentStatus> status_of(const Experiment& experiment, const fs::path& results) {
  const fs::path directory = experiment_directory(results, experiment.name);
  if (!experiment.tuning) return {status_of(experiment.name, directory, planned_runs(results, experiment.runs))};
  std::vector<ExperimentStatus> both = {
      status_of(experiment.name + ", trials", directory, planned_runs(results, first_trials(experiment)))};
  // Runs are known once all trials have ended, to who has begun with them.
  std::vector<PlannedRun> known = saved_plan(directory).value_or(std::vector<PlannedRun>{});
  std::erase_if(known, [&](const PlannedRun& run) {
    const fs::path within = run.directory.lexically_relative(directory);
    return within.empty() || *within.begin() == trials_folder;
  });
  if (!known.empty()) both.push_back(status_of(experiment.name, directory, known));
  return both;
}

std::vector<ExperimentStatus> status_of_directory(const fs::path& directory) {
  std::error_code error;
  const std::string expected = "expected an experiment's file, or a directory such as results/runs/<experiment>";
  if (!fs::is_directory(directory, error))
    throw ConfigurationFault(fmt::format("{}: no such directory; {}", directory.string(), expected));
  const fs::path here = fs::canonical(directory);
  if (const auto plan = saved_plan(here)) return {status_of(here.filename().string(), directory, *plan)};
  std::set<fs::path> folders;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_directory(error) && saved_plan(entry->path())) folders.insert(entry->path());
  std::vector<ExperimentStatus> all;
  for (const fs::path& folder : folders)
    all.push_back(status_of(folder.filename().string(), folder, *saved_plan(folder)));
  if (!all.empty()) return all;
  try {
    return {status_of_found(here)};
  } catch (const ResultsDirectoryFault& fault) {
    throw ConfigurationFault(fault.what());
  }
}

std::string status_text(const std::vector<ExperimentStatus>& experiments) {
  std::string text;
  for (const ExperimentStatus& status : experiments) {
    text += heading(status);
    for (const RunningRun& run : status.running) {
      const std::string who = run.host.empty()
                                  ? "a process that left no name"
                                  : fmt::format("{}, process {}, since {}", run.host, run.process, run.since);
      const std::string lost = run.is_lost      ? "; it is gone, and who looks next takes the run over"
                               : is_silent(run) ? fmt::format("; silent for {}", clock_text(run.silent_s))
                                                : "";
      text += fmt::format("  running  {:>3.0f} %  {}: {}{}\n", std::floor(100 * run.share_done), name_of(run.run), who,
                          lost);
    }
    for (const FailedRun& run : status.failed)
      text += fmt::format("  failed          {}: {}\n", name_of(run.run), run.reason);
  }
  return text;
}

std::string status_json(const std::vector<ExperimentStatus>& experiments) {
  Json json = Json::array();
  for (const ExperimentStatus& status : experiments) json.push_back(json_of(status));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace syncopate
