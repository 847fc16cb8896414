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

constexpr double nearly_all = 0.99;      // share of the time that communication takes
constexpr double far_beyond_rounds = 3;  // in multiples of a round's time

struct Course {
  double drop_rate = 0;
  double communication_share = 0;
  double round_s = 0;
  std::string steps{};  // "200 simulated steps"
};

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
  if (!threshold_s || *threshold_s < far_beyond_rounds * course.round_s) return {};
  return fmt::format("threshold_s = {} drops nothing in {}, where a round takes {} s; it is in seconds",
                     shown_number(*threshold_s), course.steps, shown_number(course.round_s, 3));
}

std::string communication_note(const Course& course) {
  if (course.communication_share < nearly_all) return {};
  return fmt::format(
      "communication takes {} % of the time in {}; latencies are in seconds, bandwidths in bytes per "
      "second",
      with_decimals(100 * course.communication_share, 1), course.steps);
}

// One line per method and kind of note: what a sweep shows at several points is said at the first.
class Notes {
 public:
  void add(const Run& run, const Course& course) {
    add(run, 0, threshold_note(run, course));
    add(run, 1, communication_note(course));
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

}  // namespace

std::string magnitude_notes(std::span<const Run> runs) {
  Notes notes;
  std::set<std::pair<std::size_t, std::vector<std::pair<std::string, std::string>>>> seen;
  std::int64_t left = most_work;
  for (const Run& run : runs) {
    if (run.cluster.to_be_measured || !seen.emplace(run.method_index, run.sweep).second) continue;
    const std::int64_t affordable = std::min(most_steps, left / 4 / work_of(run, 1));
    if (affordable < fewest_steps) continue;
    const Step steps = std::min(Step{affordable}, run.budget.steps.value_or(Step{affordable}));
    left -= work_of(run, steps);
    const auto simulated = simulate_first_steps(run, steps);
    if (!simulated || simulated->rounds == 0 || !simulated->total_time_s) continue;
    notes.add(run, {.drop_rate = simulated->drop_rate,
                    .communication_share = simulated->communication_share,
                    .round_s = *simulated->total_time_s / simulated->rounds,
                    .steps = fmt::format("{} simulated steps", simulated->steps.value())});
  }
  return notes.text();
}

std::string magnitude_notes(std::span<const Run> runs, const std::vector<std::optional<RunSummary>>& summaries) {
  Notes notes;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& summary = summaries[i];
    if (!summary || summary->status != RunStatus::finished || summary->rounds == 0) continue;
    double communicating_s = 0, all_s = 0;
    for (const Account& account : summary->accounts) {
      communicating_s += to_seconds(account[Activity::communicate]);
      all_s += to_seconds(account.total());
    }
    notes.add(runs[i], {.drop_rate = summary->drop_rate(),
                        .communication_share = all_s > 0 ? communicating_s / all_s : 0,
                        .round_s = summary->end_time_s / static_cast<double>(summary->rounds),
                        .steps = fmt::format("{} steps", summary->steps)});
  }
  return notes.text();
}

}  // namespace syncopate
