#include "experiments/execution/ranks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "experiments/execution/tuning.hpp"
#include "results/build_info.hpp"
#include "results/found_runs.hpp"
#include "results/summary.hpp"
#include "results/text_table.hpp"
#include "workers/base/files.hpp"
#include "workers/base/machine.hpp"
#include "workers/cluster/calls.hpp"
#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {

template <typename AnyJson>
void list_members(JsonMembers<AnyJson> members, Listed<RankReport, AnyJson>& report) {
  members("host", report.host);
  members("fault", report.handshake.fault);
  members("identity", report.handshake.identity);
  members("plan", report.handshake.plan);
}

namespace {

constexpr bool cores_suffice = false;  // waiting ranks yield their cores to other ranks

void wait_for(MPI_Request& request) { wait_politely_for(request, cores_suffice); }

using Ranks = std::vector<int>;

constexpr std::size_t most_lines = 10;  // most faults or differing keys in a message

// Returns, for example, "rank 3 (host b)" or "ranks 0-2 (hosts a, b, ... and 7 more)".
std::string name_of(const Ranks& ranks, const std::vector<RankReport>& reports) {
  constexpr std::size_t most_hosts = 4;
  std::set<std::string> hosts;
  for (const int rank : ranks) hosts.insert(reports[static_cast<std::size_t>(rank)].host);
  std::string text =
      fmt::format("rank{} {} (host{} ", ranks.size() > 1 ? "s" : "", rank_ranges(ranks), hosts.size() > 1 ? "s" : "");
  const std::size_t named = std::min(hosts.size(), most_hosts);
  text += fmt::format("{}", fmt::join(hosts.begin(), std::next(hosts.begin(), std::ptrdiff_t(named)), ", "));
  if (hosts.size() > named) text += fmt::format(", ... and {} more", hosts.size() - named);
  return text + ")";
}

// Returns groups of ranks for which `of` returns the same text. Groups are in the order of their first ranks.
template <typename Of>
std::vector<std::pair<std::string, Ranks>> grouped(const std::vector<RankReport>& reports, Of of) {
  const auto text_of = [&](int rank) { return of(reports[static_cast<std::size_t>(rank)].handshake); };
  std::vector<int> ranks(reports.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return grouped_by(text_of, ranks);
}

std::string explain_faults(const std::vector<RankReport>& reports) {
  const auto groups = grouped(reports, [](const RankHandshake& handshake) { return handshake.fault; });
  if (groups.size() == 1) return groups.front().first;  // all ranks have the same fault
  std::string text, rest;
  std::size_t shown = 0;
  for (const auto& [fault, ranks] : groups) {
    if (fault.empty())
      rest = fmt::format("; {} found no fault", name_of(ranks, reports));
    else if (shown++ < most_lines)
      text += fmt::format("{}:\n  {}\n", name_of(ranks, reports), fmt::join(split_lines(fault), "\n  "));
  }
  if (shown > most_lines) text += fmt::format("... and {} other faults of other ranks\n", shown - most_lines);
  return text + "nothing was run" + rest;
}

// Returns "key: this on rank 0 (host a), that on ranks 1-3 (host b)"; empty if the value is equal on all ranks.
template <typename Of>
std::string line_of(const std::string& key, const std::vector<RankReport>& reports, Of of) {
  const auto groups = grouped(reports, of);
  if (groups.size() == 1) return {};
  std::string line;
  for (const auto& [value, ranks] : groups)
    line += fmt::format("{}{} on {}", line.empty() ? key + ": " : ", ", value, name_of(ranks, reports));
  return line;
}

std::string value_in(const RankHandshake& handshake, const std::string& key) {
  const auto found = std::ranges::find(handshake.plan, key, &std::pair<std::string, std::string>::first);
  return found == handshake.plan.end() ? "not set" : found->second;
}

// Returns one line per key whose values differ. Keys that only some ranks have are reported only if no other keys
// differ.
std::vector<std::string> explain_keys(const std::vector<RankReport>& reports) {
  std::vector<std::string> keys, lines_of_all, lines_of_some;
  std::map<std::string, std::size_t> ranks_with;
  for (const RankReport& rank : reports)
    for (const auto& [key, value] : rank.handshake.plan)
      if (ranks_with[key]++ == 0) keys.push_back(key);
  for (const std::string& key : keys) {
    const std::string line =
        line_of(key, reports, [&](const RankHandshake& handshake) { return value_in(handshake, key); });
    if (!line.empty()) (ranks_with[key] == reports.size() ? lines_of_all : lines_of_some).push_back(line);
  }
  return lines_of_all.empty() ? lines_of_some : lines_of_all;
}

std::string explain_difference(const std::vector<RankReport>& reports) {
  std::vector<std::string> lines = explain_keys(reports);
  if (lines.empty()) {
    const auto digest = [](const RankHandshake& handshake) { return content_hash(handshake.identity); };
    lines.push_back(line_of("digest of the runs and of the files that they use", reports, digest));
  }
  std::string text = "the ranks of this launch would run different experiments:";
  for (std::size_t i = 0; i < std::min(lines.size(), most_lines); ++i) text += "\n  " + lines[i];
  if (lines.size() > most_lines) text += fmt::format("\n  ... and {} other keys", lines.size() - most_lines);
  return text + "\nnothing was run";
}

bool all_agree(const MpiSession& session, const RankHandshake& own) {
  std::array<char, 17> short_form{own.fault.empty() ? '-' : 'x'};
  content_hash(own.identity).copy(&short_form[1], 16);
  const auto all = gather_politely(std::vector{short_form}, session.communicator(), cores_suffice);
  return own.fault.empty() && std::ranges::all_of(all, [&](const auto& other) { return other == short_form; });
}

// Returns what must be equal on all ranks. A run's hash determines what the run computes. It leaves out [recording],
// which determines the messages that ranks exchange, so its keys are added.
std::string identity_of(const std::vector<Run>& runs) {
  std::string text;
  for (const Run& run : runs)
    text += fmt::format("{} {} {} {} {} {} {} {} {}\n", run.hash, run.recording.trace,
                        run.recording.trace_seconds.value_or(-1), run.recording.trace_events,
                        run.recording.records_durations(true), run.recording.arrivals, run.recording.samples,
                        run.recording.parameters, run.cluster.to_be_measured);
  return text;
}

// Turns "./results/" into "results". Keeps the path relative, because working directories may have different names on
// different hosts. Only rank 0 writes results, but ranks with different directories were probably not meant to run
// together.
std::string normalised(const std::string& directory) {
  const std::filesystem::path normal = std::filesystem::path(directory).lexically_normal();
  return (normal.has_filename() || !normal.has_relative_path() ? normal : normal.parent_path()).string();
}

}  // namespace

void broadcast(const MpiSession& session, std::string& bytes, const std::function<void()>& meanwhile) {
  constexpr std::size_t most_at_once = 1 << 30;  // because MPI counts with int
  const auto share = [&](void* data, std::size_t size) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(data, mpi_count(size), MPI_BYTE, 0, session.communicator(), &request);
    while (meanwhile && !is_done(request)) meanwhile();
    wait_for(request);
  };
  std::size_t size = bytes.size();
  share(&size, sizeof(size));
  bytes.resize(size);
  for (std::size_t begin = 0; begin < size; begin += most_at_once)
    share(bytes.data() + begin, std::min(most_at_once, size - begin));
}

double reduced(const MpiSession& session, double number, MPI_Op operation) {
  std::vector<double> numbers = {number};
  reduced(session, numbers, operation);
  return numbers.front();
}

void reduced(const MpiSession& session, std::vector<double>& numbers, MPI_Op operation) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, numbers.data(), mpi_count(numbers.size()), MPI_DOUBLE, operation, session.communicator(),
                 &request);
  wait_for(request);
}

std::vector<std::string> texts_on_rank_0(const MpiSession& session, const std::string& own) {
  const auto ranks = static_cast<std::size_t>(session.size());
  const int own_size = mpi_count(own.size());
  std::vector<int> sizes(ranks), begin(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Igather(&own_size, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, session.communicator(), &request);
  wait_for(request);
  std::string all(static_cast<std::size_t>(mpi_count(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}))),
                  ' ');
  std::exclusive_scan(sizes.begin(), sizes.end(), begin.begin(), 0);
  MPI_Igatherv(own.data(), own_size, MPI_CHAR, all.data(), sizes.data(), begin.data(), MPI_CHAR, 0,
               session.communicator(), &request);
  wait_for(request);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; session.rank() == 0 && rank < ranks; ++rank)
    texts.push_back(all.substr(static_cast<std::size_t>(begin[rank]), static_cast<std::size_t>(sizes[rank])));
  return texts;
}

std::string explain_disagreement(const std::vector<RankReport>& ranks) {
  const auto has_fault = [](const RankReport& report) { return !report.handshake.fault.empty(); };
  const auto differs = [&](const RankReport& report) {
    return report.handshake.identity != ranks.front().handshake.identity;
  };
  if (std::ranges::any_of(ranks, has_fault)) return explain_faults(ranks);
  return std::ranges::any_of(ranks, differs) ? explain_difference(ranks) : "";
}

void agree(const MpiSession& session, const RankHandshake& own) {
  if (!session.active()) {
    if (!own.fault.empty()) throw CannotRun(own.fault);
    return;
  }
  if (all_agree(session, own)) return;
  const std::string report = Json(RankReport{host_name(), own}).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::vector<RankReport> reports;
  for (const std::string& text : texts_on_rank_0(session, report)) reports.push_back(Json::parse(text));
  throw CannotRun(reports.empty() ? "the ranks of this launch do not agree; rank 0 prints the reason"
                                  : explain_disagreement(reports));
}

RankHandshake handshake_of(const Intention& intention) {
  const bool together = intention.on_mpi || intention.together;
  RankHandshake handshake;
  KeyValues& plan = handshake.plan;
  plan = {{"command", intention.command}, {"commit of Syncopate", build_info().commit}};
  if (intention.experiment) {
    plan.emplace_back("--cluster", intention.on_mpi ? "mpi" : "simulated");
    plan.emplace_back("--rerun", intention.rerun ? "yes" : "no");
    if (together) plan.emplace_back("--results", normalised(intention.results_directory));
  }
  for (const auto& [key, value] : plan) handshake.identity += fmt::format("{}: {}\n", key, value);
  if (!intention.experiment) return handshake;

  const Experiment& experiment = *intention.experiment;
  if (together) handshake.identity += identity_of(experiment.runs);
  if (together && experiment.tuning)
    handshake.identity += fmt::format("{}{} {} {}\n", identity_of(first_trials(experiment)), experiment.tuning->measure,
                                      experiment.tuning->extensions, fmt::join(experiment.tuning->seeds, " "));
  const KeyValues keys = leaves_of(parse_toml(experiment.resolved_toml, experiment.file), true);
  plan.insert(plan.end(), keys.begin(), keys.end());
  plan.emplace_back("number of runs", std::to_string(experiment.runs.size()));
  return handshake;
}

}  // namespace syncopate
