#include "results/tables/result_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "results/run/run_label.hpp"
#include "results/tables/folded_text.hpp"
#include "results/tables/sampled_note.hpp"
#include "results/tables/short_reason.hpp"
#include "results/tables/text_table.hpp"
#include "workers/process/printable.hpp"
#include "workers/process/shown_number.hpp"

namespace syncopate {
namespace {

constexpr std::size_t preferred_width = 120;

using Seeds = std::vector<RunSummary>;
using Value = std::function<std::optional<double>(const RunSummary&)>;

Statistics over(std::span<const RunSummary> seeds, const Value& value) {
  std::vector<double> values;
  for (const RunSummary& seed : seeds) {
    if (const auto found = value(seed)) values.push_back(*found);
  }
  return statistics(values);
}

// 0.000 .. 999, with a prefix of the International System, so that a column of counts stays narrow.
struct Scaled {
  double factor;
  const char* prefix;
};
Scaled scale_of(double value) {
  constexpr double rounds_to_1 = 0.9995;  // with three digits
  constexpr std::array<Scaled, 7> scales{
      {{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}}};
  const auto found = std::find_if(scales.begin(), scales.end(), [value](const Scaled& scale) {
    return std::abs(value) >= rounds_to_1 * scale.factor;
  });
  return found == scales.end() ? scales.back() : *found;
}

std::string scaled_text(const Statistics& statistics) {
  if (statistics.n == 0) return "-";
  const Scaled scale = scale_of(statistics.mean);
  return fmt::format("{:.3g}{}", statistics.mean / scale.factor, scale.prefix);
}

std::string seconds_text(double seconds) { return SamePlace::of(seconds, 0)(seconds); }

std::string in_percent(const Statistics& statistics) {
  return mean_and_deviation({statistics.n, statistics.mean * 100, statistics.std * 100});
}

std::string plain(const Statistics& statistics) { return mean_and_deviation(statistics); }

struct Column {
  std::string heading;
  std::string (*text)(const Statistics&);
  Value value;
  bool shows_zeros = true;                                         // false: left out where it is 0 in all rows
  std::string (*of_seeds)(std::span<const RunSummary>) = nullptr;  // instead of `text`, where it is no mean
  bool shows_alone = true;                                         // false: left out where no run has a prediction
};

// Simulated, and in brackets what the method's formula says, each as the mean over seeds. Of several formulas it is the
// last, which assumes least.
std::string step_time_text(std::span<const RunSummary> seeds) {
  const auto simulated = over(seeds, [](const RunSummary& run) { return std::optional(run.step_time_s()); });
  const auto predicted = over(seeds, [](const RunSummary& run) {
    return run.predicted.empty() ? std::nullopt : std::optional(run.predicted.back().prediction.step_time_s);
  });
  const std::string text = seconds_text(simulated.mean);
  return predicted.n == 0 ? text + " (-)" : fmt::format("{} ({})", text, seconds_text(predicted.mean));
}

bool has_prediction(const RunSummary& run) { return !run.predicted.empty(); }

std::vector<Column> columns_of_values(const std::string& clock) {
  return {
      {"accuracy\n%", in_percent, [](const RunSummary& run) { return run.final_test_accuracy; }},
      {"test\nloss", plain, [](const RunSummary& run) { return run.final_test_loss; }},
      {"time\ns", plain, [](const RunSummary& run) { return std::optional(run.end_time_s); }},
      {"to target\ns", nullptr, {}, true, time_to_target_text},  // censored, so not a mean over seeds
      {"s/step\n(formula)", nullptr, {}, true, step_time_text, false},
      {"dropped\n%", in_percent, [](const RunSummary& run) { return std::optional(run.drop_rate()); }},
      {"staleness\nsteps", plain, [](const RunSummary& run) { return run.mean_staleness(); }, false},
      {"sent\nbytes", scaled_text,
       [](const RunSummary& run) { return std::optional(static_cast<double>(run.communicated_bytes)); }},
      {"syncs", scaled_text, [](const RunSummary& run) { return std::optional(static_cast<double>(run.rounds)); }},
      {"samples/s\n" + clock, scaled_text,
       [](const RunSummary& run) { return std::optional(run.samples_per_virtual_s()); }},
      {"samples/s\nhost", scaled_text, [](const RunSummary& run) { return std::optional(run.samples_per_host_s()); }},
  };
}

using Methods = std::map<std::string, std::string>;  // by what runs call them
const std::string& method_of(const RunSummary& run, const Methods& named) {
  const auto found = named.find(run.method);
  return found == named.end() ? run.method : found->second;
}

// Which formula each method's time in brackets is by, a line for each formula; of a method with several, each row's.
std::string formulas_text(std::span<const RunSummary> runs, const Methods& named) {
  std::map<std::string, std::set<std::string>> formulas_of;  // by method
  const auto formula_of = [](const RunSummary& run) { return run.predicted.back().prediction.formula; };
  bool is_sampled = false;
  const auto counts = [](const RunSummary& run) { return run.status == RunStatus::finished && has_prediction(run); };
  for (const RunSummary& run : runs)
    if (counts(run)) formulas_of[method_of(run, named)].insert(formula_of(run));
  std::vector<std::pair<std::string, std::vector<std::string>>> methods_of;  // by formula
  for (const RunSummary& run : runs) {
    if (!counts(run)) continue;
    is_sampled |= run.predicted.back().prediction.is_sampled;
    auto found = std::ranges::find(methods_of, formula_of(run), [](const auto& entry) { return entry.first; });
    if (found == methods_of.end()) found = methods_of.insert(methods_of.end(), {formula_of(run), {}});
    const std::string& name = method_of(run, named);
    const std::string label = printable(formulas_of[name].size() == 1 ? name : row_label(run));
    if (std::ranges::find(found->second, label) == found->second.end()) found->second.push_back(label);
  }
  std::string text;
  for (const auto& [formula, methods] : methods_of) {
    std::string line = "(formula) by " + formula + ":";
    const bool holds_comma = std::ranges::any_of(methods, [](const auto& one) { return one.find(',') != one.npos; });
    const char* const between = holds_comma ? ";" : ",";  // labels have commas of their own
    for (const std::string& method : methods) {
      if (line.size() + method.size() + 2 > preferred_width) {
        text += line + "\n";
        line.assign(1, ' ');
      }
      line += " " + method + (&method == &methods.back() ? "" : between);
    }
    text += line + "\n";
  }
  if (text.find("E[T]") != std::string::npos)
    text += "E[T]: the expected time of the slowest worker's step, without drops.\n";
  return is_sampled ? text + note_of_sampled() : text;
}

std::string own_training_of(const RunSummary& run) {
  std::string keys;
  for (const auto& own : run.own_training) {
    const bool is_swept = std::ranges::any_of(run.sweep, [&own](const auto& swept) {
      return swept.first.starts_with("methods.") && swept.first.ends_with(".training." + own.first);
    });
    if (!is_swept) keys += fmt::format("{}{} = {}", keys.empty() ? "" : ", ", own.first, shortened(own.second));
  }
  return keys;
}

// What methods have otherwise in [training], a line for each of their rows; for what three or more of them have alike
// one line. What is swept stands in the table.
std::string own_training_text(const std::vector<std::pair<std::string, Seeds>>& rows, const Methods& named) {
  std::map<std::string, int> number;                             // of a method's rows
  std::map<std::pair<std::string, std::string>, int> with_keys;  // and of those that have the same keys
  for (const auto& [label, seeds] : rows) {
    ++number[method_of(seeds.front(), named)];
    ++with_keys[{method_of(seeds.front(), named), own_training_of(seeds.front())}];
  }
  std::string text;
  for (const auto& [label, seeds] : rows) {
    const std::string keys = own_training_of(seeds.front()), &method = method_of(seeds.front(), named);
    int& alike = with_keys[{method, keys}];
    if (keys.empty() || alike == 0) continue;
    std::string who = label;
    if (alike >= 3) {
      who = alike == number[method] ? method : fmt::format("{} ({} of {} rows)", method, alike, number[method]);
      alike = 0;  // has been told
    }
    text += fmt::format("[training] of {}: {}\n", printable(who), printable(keys));
  }
  return text;
}

std::string note_of_links(std::span<const RunSummary> runs) {
  std::vector<std::string> labels;
  bool are_all = true;
  for (const RunSummary& run : runs) {
    if (run.status != RunStatus::finished) continue;
    const std::string label = printable(row_label(run));
    if (!run.has_unshared_links)
      are_all = false;
    else if (std::ranges::find(labels, label) == labels.end())
      labels.push_back(label);
  }
  return unshared_links_text(labels, are_all);
}

std::vector<std::pair<std::string, Seeds>> rows_of(std::span<const RunSummary> runs) {
  std::vector<std::pair<std::string, Seeds>> rows;
  for (const RunSummary& run : runs) {
    if (run.status != RunStatus::finished) continue;
    const std::string label = row_label(run);
    auto row = std::find_if(rows.begin(), rows.end(), [&label](const auto& other) { return other.first == label; });
    if (row == rows.end()) row = rows.insert(rows.end(), {label, {}});
    row->second.push_back(run);
  }
  return rows;
}

std::string cell(const Column& column, const Seeds& seeds) {
  return column.text ? column.text(over(seeds, column.value)) : column.of_seeds(seeds);
}

}  // namespace

std::string unshared_links_text(const std::vector<std::string>& labels, bool are_all) {
  if (labels.empty()) return {};
  const std::string whose = are_all ? "" : fmt::format(" by {}", fmt::join(labels, "; "));
  return fold_lines(
      fmt::format("Links are not shared{}: no message waits for another one (network.contention = false).\n", whose),
      preferred_width);
}

std::string row_label(const RunSummary& run) { return run_label(run.method, run.sweep); }

std::string squeezed(std::string text) {
  for (std::size_t at = 0; (at = text.find(" +- ")) != std::string::npos;) text.erase(at + 3, 1).erase(at, 1);
  return text;
}

std::string mean_and_deviation(const Statistics& statistics) {
  if (statistics.n == 0) return "-";
  const SamePlace text = SamePlace::of(statistics.mean, statistics.std);
  if (!(statistics.std > 0)) return text(statistics.mean);
  return fmt::format("{} +- {}", text(statistics.mean), text(statistics.std));
}

std::string time_to_target_text(std::span<const RunSummary> seeds) {
  std::vector<double> reached;
  double censored_at = std::numeric_limits<double>::infinity();
  std::size_t with_target = 0;
  for (const RunSummary& seed : seeds) {
    if (!seed.time_to_target) continue;
    ++with_target;
    if (seed.time_to_target->time_s) {
      reached.push_back(*seed.time_to_target->time_s);
    } else {
      censored_at = std::min(censored_at, seed.end_time_s);
    }
  }
  if (with_target == 0) return "-";
  if (reached.size() == with_target) return mean_and_deviation(statistics(reached));
  return fmt::format("> {} ({}/{})", seconds_text(censored_at), reached.size(), with_target);
}

ResultTable result_columns(std::span<const RunSummary> runs, const std::string& clock,
                           const std::map<std::string, std::string>& methods) {
  const auto rows = rows_of(runs);
  ResultTable result;
  if (rows.empty()) return result;
  std::vector<const Column*> shown;
  for (TextTable* table : {&result.wide, &result.narrow}) table->add_column("method", Align::left);
  const std::vector<Column> columns = columns_of_values(clock);
  for (const Column& column : columns) {
    const bool means_nothing = std::all_of(rows.begin(), rows.end(), [&column](const auto& row) {
      return cell(column, row.second) == "-" || (!column.shows_zeros && over(row.second, column.value).mean == 0);
    });
    if (means_nothing || (!column.shows_alone && std::ranges::none_of(runs, has_prediction))) continue;
    shown.push_back(&column);
    for (TextTable* table : {&result.wide, &result.narrow}) table->add_column(column.heading, Align::right);
  }
  for (TextTable* table : {&result.wide, &result.narrow}) table->add_column("n", Align::right);
  bool censored = false, deviates = false;
  for (const auto& [label, seeds] : rows) {
    std::vector<std::string> cells{label};
    for (const Column* column : shown) {
      cells.push_back(cell(*column, seeds));
      censored |= cells.back().front() == '>';
    }
    deviates |=
        std::ranges::any_of(cells, [](const std::string& one) { return one.find(" +- ") != std::string::npos; });
    cells.push_back(std::to_string(seeds.size()));
    result.wide.add_row(cells);
    for (std::size_t index = 1; index < cells.size(); ++index) cells[index] = squeezed(std::move(cells[index]));
    result.narrow.add_row(std::move(cells));
  }
  if (std::ranges::any_of(shown, [](const Column* column) { return column->of_seeds == step_time_text; }))
    result.notes += formulas_text(runs, methods);
  result.notes += own_training_text(rows, methods);
  result.notes += note_of_links(runs);
  if (deviates) result.notes += "+-: standard deviation over n seeds.\n";
  const auto has_target = [](const RunSummary& run) { return run.time_to_target.has_value(); };
  const auto has_reached = [&](const RunSummary& run) { return has_target(run) && run.time_to_target->time_s; };
  if (censored && std::ranges::none_of(runs, has_reached))
    result.notes += "No run reached the target: > T (0/n): none of n seeds had by time T.\n";
  else if (censored)
    result.notes += "> T (k/n): k of n seeds reached the target; the others had not by time T.\n";
  return result;
}

std::string result_table(std::span<const RunSummary> runs, const std::string& clock, std::size_t width) {
  const ResultTable table = result_columns(runs, clock);
  if (table.wide.width() == 0) return {};
  const std::string notes = fold_lines(table.notes, width);
  if (table.wide.width() <= (width > 0 ? width : preferred_width)) return table.wide.text() + notes;
  return (width > 0 ? table.narrow.folded_text(width) : table.narrow.text()) + notes;
}

std::string overrun_warnings(std::span<const RunSummary> runs) {
  std::string text;
  for (const RunSummary& run : runs) {
    const std::string warning = run.status == RunStatus::finished ? run.overrun_warning() : std::string{};
    if (!warning.empty()) text += fmt::format("{}, seed {}: {}\n", printable(row_label(run)), run.seed, warning);
  }
  return text;
}

std::string failure_table(std::span<const RunSummary> runs, std::size_t width) {
  TextTable table;
  table.add_column("method", Align::left);
  table.add_column("seed", Align::right);
  table.add_column("status", Align::left);
  table.add_column("reason", Align::left);
  bool any = false;
  std::string notes;
  for (const RunSummary& run : runs) {
    if (run.status == RunStatus::finished) continue;
    any = true;
    table.add_row({row_label(run), std::to_string(run.seed), to_string(run.status), short_reason(run.reason)});
    notes += note_of_reason(fmt::format("{}, seed {}", row_label(run), run.seed), run.reason);
  }
  if (!any) return {};
  const std::string text = width > 0 ? table.folded_text(width) : table.text();
  return notes.empty() ? text : text + "\n" + fold_lines(notes, width);
}

}  // namespace syncopate
