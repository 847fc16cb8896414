#include "experiments/execution/magnitude_notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include "experiments/execution/simulations.hpp"
#include "results/run/run_label.hpp"
#include "workers/process/shown_number.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {
namespace {

// Of servers and gossip much of what a message takes counts as waiting for it, so that what is left for computing says
// more than the share of communication; which has to be much longer, since workers wait for slow ones too.
constexpr double nearly_all = 0.99;     // share of the time that communication takes
constexpr double hardly_any = 0.01;     // share of the time that is left for computing
constexpr double much_longer = 10;      // communication, in multiples of computing
constexpr double beyond_longest = 1.2;  // in multiples of the longest round
constexpr double beyond_mean = 3;       // of the mean one, where the longest is not known

constexpr double busy_link = 0.5;  // share of the time for which a server's link is busy, on average over both ways

struct Round {
  double time_s = 0;
  double beyond = 0;  // how many times as long is beyond chance
  const char* words = "a round takes";
};

Round longest_round(double time_s) {
  return {.time_s = time_s, .beyond = beyond_longest, .words = "none of the first rounds takes more than"};
}

struct Course {
  double drop_rate = 0;
  double communication_share = 0;
  double computing_share = 0;
  double link_share = 0;    // of the time, for which a server's link carries something each way; 0: none is shared
  double uplink_share = 0;  // the same of a group's uplink
  Round round{};
  std::string steps{};  // "200 simulated steps"
};

// Of servers' links and of uplinks, on average over both ways, where those share them who send `bytes` in this time.
void set_link_shares(Course& course, const Run& run, double bytes, double time_s) {
  const Servers servers = run.algorithm->traits().servers;
  const NetworkModel& network = *run.cluster.network;
  if (servers == 0 || servers.regions > 0 || !network.has_shared_links() || time_s <= 0) return;
  constexpr Bytes sample{1'000'000'000};
  const auto route_from = [&](Rank worker) {
    return network.route(MessageCall{.from = worker, .to = Rank{run.cluster.workers}, .payload = sample});
  };
  const auto share_of = [&](const Hop& hop, int links) {
    return bytes / (2 * links) * to_seconds(hop.occupied) / static_cast<double>(sample.value()) / time_s;
  };
  const Route route = route_from(Rank{run.cluster.workers - 1});  // of the last group
  course.link_share = share_of(route.back(), servers.count);
  for (const Hop& hop : route)
    if (hop.uplinks > 0) course.uplink_share = share_of(hop, hop.uplink / 2 + 1);
}

// threshold_s of the methods that drop by it.
std::optional<double> threshold_of(const Run& run) {
  if (run.resolved_toml.find("threshold_s = ") == std::string::npos) return {};
  const TomlNode configuration = parse_toml(run.resolved_toml, run.experiment);
  const TomlNode& method = configuration.find("methods")->array().front();
  const std::string& algorithm = std::get<std::string>(method.find("algorithm")->value);
  const TomlNode* threshold = method.find("threshold_s");
  if (!algorithm.starts_with("dropcompute") || !threshold) return {};
  if (const auto* whole = std::get_if<std::int64_t>(&threshold->value)) return static_cast<double>(*whole);
  const auto* number = std::get_if<double>(&threshold->value);
  return number && std::isfinite(*number) ? std::optional(*number) : std::nullopt;  // inf is meant to drop nothing
}

std::string threshold_note(const Run& run, const Course& course) {
  if (course.drop_rate > 0) return {};
  const auto threshold_s = threshold_of(run);
  if (!threshold_s || *threshold_s < course.round.beyond * course.round.time_s) return {};
  return fmt::format("threshold_s = {} drops nothing in {}, where {} {} s; it is in seconds",
                     shown_number(*threshold_s), course.steps, course.round.words,
                     shown_number(course.round.time_s, 3));
}

std::string communication_note(const Course& course) {
  constexpr const char* units = "latencies are in seconds, bandwidths in bytes per second";
  if (course.communication_share >= nearly_all)
    return fmt::format("communication takes {} % of the time in {}; {}",
                       with_decimals(100 * course.communication_share, 1), course.steps, units);
  const bool is_network = course.communication_share >= much_longer * course.computing_share;
  if (course.computing_share >= hardly_any || course.communication_share == 0 || !is_network) return {};
  return fmt::format("computing takes {} % of the time in {}, and communication more than {} times as long; {}",
                     shown_number(100 * course.computing_share, 2), course.steps, much_longer, units);
}

std::string link_note(const Course& course) {
  const bool is_uplink = course.uplink_share > course.link_share;
  const double share = std::max(course.link_share, course.uplink_share);
  if (share < busy_link) return {};
  return fmt::format(
      "{} busy for {} % of the time, on average over both ways, in {}, and workers wait for {}",
      is_uplink ? "its groups' uplinks are" : "its server's link is", with_decimals(100 * share, 0), course.steps,
      is_uplink
          ? "them; wider uplinks or fewer bytes shorten that"
          : "it; a wider link of the server, fewer bytes or more servers, where the method has them, shorten that");
}

// One line per method and kind of note: what a sweep shows at several points is said at the first.
class Notes {
 public:
  void add(const Run& run, const Course& course) {
    add(run, 0, threshold_note(run, course));
    const std::string of_link = link_note(course);  // which says why communication takes long
    if (of_link.empty()) add(run, 1, communication_note(course));
    add(run, 2, of_link);
  }
  std::string text() const {
    std::string text;
    for (const Note& note : notes_) {
      const std::size_t others = note.points.size() - 1;
      text += fmt::format("{}{}: {}\n", note.label,
                          others == 0 ? "" : fmt::format(", and at {} other point{}", others, others == 1 ? "" : "s"),
                          note.text);
    }
    return text;
  }

 private:
  struct Note {
    std::size_t method;
    int kind;
    std::string label, text;
    std::set<std::vector<std::pair<std::string, std::string>>> points{};
  };
  void add(const Run& run, int kind, std::string text) {
    if (text.empty()) return;
    const auto same = std::ranges::find_if(
        notes_, [&](const Note& note) { return note.method == run.method_index && note.kind == kind; });
    Note& note =
        same != notes_.end()
            ? *same
            : notes_.emplace_back(Note{run.method_index, kind, run_label(run.method, run.sweep), std::move(text)});
    note.points.insert(run.sweep);
  }
  std::vector<Note> notes_;
};

// How many steps tell, and what they cost in the units of work_of.
constexpr std::int64_t most_steps = 100, fewest_steps = 10, most_work = 4'000'000;

// At most so many, and no more than what is left pays for; 0: too few to tell.
Step steps_within(const Run& run, std::int64_t left) {
  const std::int64_t affordable = std::min(most_steps, left / 4 / work_of(run, 1));
  return affordable < fewest_steps ? Step{0} : std::min(Step{affordable}, run.budget.steps.value_or(Step{affordable}));
}

// Summaries have the mean alone: where no threshold has dropped anything, the run's first steps tell the longest.
Round round_of(const Run& run, const RunSummary& summary, std::int64_t& left) {
  const Round mean{.time_s = summary.end_time_s / static_cast<double>(summary.rounds), .beyond = beyond_mean};
  if (summary.drop_rate() > 0 || threshold_of(run).value_or(0) < beyond_longest * mean.time_s) return mean;
  const Step steps = steps_within(run, left);
  if (steps == 0) return mean;
  left -= work_of(run, steps);
  const auto simulated = simulate_first_steps(run, steps);
  return simulated ? longest_round(std::max(mean.time_s, simulated->longest_round_s)) : mean;
}

}  // namespace

std::string magnitude_notes(std::span<const Run> runs) {
  Notes notes;
  std::set<std::pair<std::size_t, std::vector<std::pair<std::string, std::string>>>> seen;
  std::int64_t left = most_work;
  for (const Run& run : runs) {
    if (run.cluster.to_be_measured || !seen.emplace(run.method_index, run.sweep).second) continue;
    const Step steps = steps_within(run, left);
    if (steps == 0) continue;
    left -= work_of(run, steps);
    const auto simulated = simulate_first_steps(run, steps);
    if (!simulated || simulated->rounds == 0 || !simulated->total_time_s) continue;
    Course course{.drop_rate = simulated->drop_rate,
                  .communication_share = simulated->communication_share,
                  .computing_share = simulated->computing_share,
                  .round = longest_round(simulated->longest_round_s),
                  .steps = fmt::format("{} simulated steps", simulated->steps.value())};
    set_link_shares(course, run, simulated->bytes, *simulated->total_time_s);
    notes.add(run, course);
  }
  return notes.text();
}

std::string magnitude_notes(std::span<const Run> runs, const std::vector<std::optional<RunSummary>>& summaries) {
  Notes notes;
  std::int64_t left = most_work;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& summary = summaries[i];
    if (!summary || summary->status != RunStatus::finished || summary->rounds == 0) continue;
    double communicating_s = 0, computing_s = 0, all_s = 0;
    for (const Account& account : summary->accounts) {
      communicating_s += to_seconds(account[Activity::communicate]);
      computing_s += to_seconds(account[Activity::compute]) + to_seconds(account[Activity::discarded]);
      all_s += to_seconds(account.total());
    }
    Course course{.drop_rate = summary->drop_rate(),
                  .communication_share = all_s > 0 ? communicating_s / all_s : 0,
                  .computing_share = all_s > 0 ? computing_s / all_s : 1,
                  .round = round_of(runs[i], *summary, left),
                  .steps = fmt::format("{} steps", summary->steps)};
    set_link_shares(course, runs[i], static_cast<double>(summary->communicated_bytes), summary->end_time_s);
    notes.add(runs[i], course);
  }
  return notes.text();
}

}  // namespace syncopate
