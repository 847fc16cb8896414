#include "results/tables/tidy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "results/rows/measures.hpp"
#include "workers/files/own_file.hpp"
#include "workers/settings/key_path.hpp"

namespace syncopate {
namespace {

using Columns = std::map<std::string, std::string>;

// A text without TOML's quotes; other values as they are written.
std::string plain(const std::string& value) {
  const bool is_text = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return is_text ? value.substr(1, value.size() - 2) : value;
}

// "method.threshold_s" of methods.DropCompute.threshold_s: the method has a column of its own.
std::string column_of(const std::string& swept_key) {
  std::vector<std::string> path;
  try {
    path = split_key(swept_key);
  } catch (const KeyPathFault&) {  // none that the program has written: it stays as it is
  }
  if (path.size() < 3 || path.front() != "methods") return swept_key;
  std::string column = "method";
  for (std::size_t i = 2; i < path.size(); ++i) column += "." + path[i];
  return column;
}

// Columns with the run's settings: of its file, its method, and what is swept.
Columns settings_of(const FoundRun& run) {
  Columns columns;
  for (const auto& [key, value] : run.configuration) columns[key] = plain(value);
  for (const auto& [key, value] : run.of_method)
    if (key != "label") columns["method." + key] = plain(value);
  for (const auto& [key, value] : run.summary.sweep) columns[column_of(key)] = value;
  return columns;
}

// Those that differ among the runs of one method, and what is swept.
std::vector<std::string> varied_columns(std::span<const FoundRun> runs, const std::vector<Columns>& settings) {
  std::map<std::string, std::map<std::string, std::set<std::string>>> values;  // by column, then experiment and method
  std::set<std::string> columns;
  for (const Columns& of_run : settings)
    for (const auto& [column, value] : of_run) columns.insert(column);
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const std::string& column : columns) {
      const auto found = settings[i].find(column);
      values[column][runs[i].summary.experiment + "\n" + runs[i].summary.method].insert(
          found == settings[i].end() ? "" : found->second);
    }
  std::vector<std::string> varied;
  for (const auto& [column, of_methods] : values) {
    bool differs = false;
    for (const auto& [method, of_method] : of_methods) differs |= of_method.size() > 1;
    if (differs) varied.push_back(column);
  }
  return varied;
}

std::string number_field(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; }

}  // namespace

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char character : text) quoted += character == '"' ? std::string("\"\"") : std::string(1, character);
  return quoted + '"';
}

TidyTables tidy_tables(std::span<const FoundRun> runs) {
  std::vector<Columns> settings;
  for (const FoundRun& run : runs) settings.push_back(settings_of(run));
  const std::vector<std::string> varied = varied_columns(runs, settings);
  const bool has_trials = std::ranges::any_of(runs, &FoundRun::is_trial);
  std::string heading = "experiment,method,seed,clock,hash";
  if (has_trials) heading += ",trial";
  for (const std::string& column : varied) heading += "," + csv_field(column);

  TidyTables tables{.runs_csv = heading + ",status", .evaluations_csv = {}};
  for (const Measure& measure : measures()) tables.runs_csv += fmt::format(",{}", measure.name);
  tables.runs_csv += "\n";
  std::string rows_heading;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunSummary& summary = runs[i].summary;
    std::string identity = fmt::format("{},{},{},{},{}", csv_field(summary.experiment), csv_field(summary.method),
                                       summary.seed, runs[i].on_wall_clock ? "wall" : "virtual", summary.hash);
    if (has_trials) identity += runs[i].is_trial ? ",true" : ",false";
    for (const std::string& column : varied) {
      const auto found = settings[i].find(column);
      identity += "," + (found == settings[i].end() ? "" : csv_field(found->second));
    }
    tables.runs_csv += identity + "," + to_string(summary.status);
    for (const Measure& measure : measures()) tables.runs_csv += "," + number_field(measure.value(summary));
    tables.runs_csv += "\n";

    const std::filesystem::path file = runs[i].directory / "metrics.csv";
    const auto text = read_file(file, any_size);
    if (!text) throw std::runtime_error(file.string() + ": not there; expected the run's evaluations");
    std::istringstream lines(*text);
    bool is_heading = true;
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line.front() == '#') continue;
      if (is_heading) {
        if (!rows_heading.empty() && rows_heading != line)
          throw std::runtime_error(
              fmt::format("{}: has the columns {}; expected {}", file.string(), line, rows_heading));
        rows_heading = line;
        is_heading = false;
        continue;
      }
      tables.evaluations_csv += fmt::format("{},{}\n", identity, line);
    }
  }
  tables.evaluations_csv = heading + "," + rows_heading + "\n" + tables.evaluations_csv;
  return tables;
}

}  // namespace syncopate
