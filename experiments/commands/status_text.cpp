#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "experiments/commands/status.hpp"
#include "results/formats/json.hpp"
#include "results/tables/progress.hpp"

namespace syncopate {
namespace {

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
  const std::string of_others =
      status.of_other_launches > 0 ? fmt::format(" ({} not of the last launch)", status.of_other_launches) : "";
  std::string text = fmt::format("{}: {} run{}{}: {} finished, {} running, {} failed, {} remaining", status.name,
                                 *status.runs, *status.runs == 1 ? "" : "s", of_others, status.finished,
                                 status.running.size(), status.failed.size(), status.remaining.value_or(0));
  const auto at_work = std::ranges::count_if(status.running, [](const RunningRun& run) { return !run.is_silent(); });
  if (!status.left_s) return text + "\n";
  if (at_work == 0)
    return text + fmt::format("; nobody shares them now, one process takes about {}\n", clock_text(*status.left_s));
  const auto end = std::chrono::system_clock::now() + std::chrono::seconds(std::llround(*status.left_s));
  return text + fmt::format("; about {} left, until {}\n", clock_text(*status.left_s), local_time(end));
}

Json json_of(const RunningRun& run) {
  return {
      {"hash", run.run.hash},     {"label", run.run.label},      {"seed", run.run.seed},         {"host", run.host},
      {"process", run.process},   {"since", run.since},          {"share_done", run.share_done}, {"lost", run.is_lost},
      {"silent_s", run.silent_s}, {"time_out_s", run.time_out_s}};
}

std::string line_of(const RunningRun& run, const std::string& name) {
  const std::string who = run.host.empty() ? "a process that left no name"
                                           : fmt::format("{}, process {}, since {}", run.host, run.process, run.since);
  const std::string lost = run.is_lost       ? "; it is gone, and who looks next takes the run over"
                           : run.is_silent() ? fmt::format("; silent for {}", clock_text(run.silent_s))
                                             : "";
  return fmt::format("  running  {:>3.0f} %  {}: {}{}\n", std::floor(100 * run.share_done), name, who, lost);
}

Json json_of(const ExperimentStatus& status) {
  Json json = {{"experiment", status.name}, {"directory", status.directory.string()}};
  json["runs"] = status.runs ? Json(*status.runs) : Json(nullptr);
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
  for (const FailedRun& run : status.failed)
    json["failed"].push_back(
        {{"hash", run.run.hash}, {"label", run.run.label}, {"seed", run.run.seed}, {"reason", run.reason}});
  json["unfinished"] = Json::array();
  for (const UnfinishedRun& run : status.unfinished)
    json["unfinished"].push_back({{"hash", run.run.hash},
                                  {"label", run.run.label},
                                  {"seed", run.run.seed},
                                  {"checkpoint", run.has_checkpoint},
                                  {"written_s_ago", run.written_s_ago}});
  json["faults"] = status.faults;
  json["remaining"] = status.remaining ? Json(*status.remaining) : Json(nullptr);
  json["left_s"] = status.left_s ? Json(*status.left_s) : Json(nullptr);
  return json;
}

}  // namespace

std::string status_text(const std::vector<ExperimentStatus>& experiments) {
  std::string text;
  for (const ExperimentStatus& status : experiments) {
    text += heading(status);
    if (status.finished_under_mpi > 0)
      text += fmt::format("  under MPI       {} of {} finished\n", status.finished_under_mpi, status.runs.value_or(0));
    for (const RunningRun& run : status.running) text += line_of(run, name_of(run.run));
    for (const RunningRun& run : status.running_elsewhere)
      text += line_of(run, fmt::format("{:.8}, of another launch or a common phase", run.run.hash));
    for (const UnfinishedRun& run : status.unfinished)
      text += fmt::format("  unfinished      {}: under way or left unfinished; {} written {} ago\n", name_of(run.run),
                          run.has_checkpoint ? "its checkpoint was" : "it has no whole checkpoint, other files were",
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
