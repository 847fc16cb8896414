#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "experiments/commands/commands.hpp"
#include "results/claims.hpp"
#include "results/found_runs.hpp"
#include "results/result_table.hpp"
#include "results/text_table.hpp"
#include "workers/base/files.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/config/key_path.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_below(const fs::path& directory) {
  std::vector<fs::path> files;
  try {
    if (!fs::is_directory(directory))
      throw ConfigurationFault(
          fmt::format("{}: no such directory; must contain experiments that have been run", directory.string()));
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory))
      if (entry.path().filename() == claims_file) files.push_back(entry.path());
  } catch (const fs::filesystem_error& fault) {
    throw ConfigurationFault(fmt::format("{}: {}", directory.string(), fault.code().message()));
  }
  std::ranges::sort(files);
  return files;
}

// Returns a message if any run by which the claims were judged is missing or damaged. Returns an empty text if there is
// no such run, or if the claims are stored without runs (results/paper).
std::string fault_of_runs(const fs::path& directory, const JudgedClaims& claims) {
  const auto is_directory = [](const fs::directory_entry& entry) { return entry.is_directory(); };
  const bool are_kept = fs::exists(directory / "runs.csv") &&
                        std::none_of(fs::directory_iterator(directory), fs::directory_iterator(), is_directory);
  if (!claims.judged_runs || are_kept) return {};
  std::size_t found = 0;
  try {
    const std::vector<FoundRun> runs = find_runs(directory);
    found = static_cast<std::size_t>(std::ranges::count(runs, false, &FoundRun::on_wall_clock));
  } catch (const ResultsDirectoryFault& fault) {
    return fmt::format("{}; the claims were judged by {} runs", fault.what(), *claims.judged_runs);
  }
  if (found >= *claims.judged_runs) return {};
  return fmt::format("{}: was judged by {} runs, of which only {} exist; run the experiment again to judge it",
                     (directory / claims_file).string(), *claims.judged_runs, found);
}

constexpr std::size_t usual_width = 120;

const Measure* known_measure(const std::string& option, const std::string& name) {
  if (const Measure* measure = measure_named(name)) return measure;
  std::vector<std::string> known;
  for (const Measure& measure : measures()) known.emplace_back(measure.name);
  throw ConfigurationFault(fmt::format("{} {}: {}", option, name, must_be_one_of(name, known)));
}

std::vector<const Measure*> chosen_measures(const std::vector<std::string>& names) {
  std::vector<const Measure*> chosen;
  for (const std::string& name : names) chosen.push_back(known_measure("--measure", name));
  if (!chosen.empty()) return chosen;
  for (const char* const name : {"final_test_accuracy", "final_test_loss", "time_to_target_s", "step_time_s",
                                 "communicated_bytes", "micro_batches_per_s"})
    chosen.push_back(measure_named(name));
  return chosen;
}

// Returns the runs on one of the clocks, each of which has a separate table.
std::vector<RunSummary> runs_on(const std::vector<ResultRow>& rows, bool wall_clock) {
  std::vector<RunSummary> runs;
  for (const ResultRow& row : rows)
    if (row.on_wall_clock == wall_clock)
      for (RunSummary run : row.runs) {
        run.method = row.label;  // rows may differ in other keys than the sweep's, which the label shows too
        run.sweep.clear();
        runs.push_back(std::move(run));
      }
  return runs;
}

std::map<std::string, std::string> methods_of(const std::vector<ResultRow>& rows) {
  std::map<std::string, std::string> methods;
  for (const ResultRow& row : rows) methods.emplace(row.label, row.method);
  return methods;
}

// Returns the table in the format. `width`: terminal width in columns; 0: no terminal.
std::string written(const TextTable& table, TableFormat format, std::size_t width) {
  if (format == TableFormat::markdown) return table.markdown();
  if (format == TableFormat::latex) return table.latex();
  if (table.width() <= (width > 0 ? width : usual_width)) return table.text();
  return width > 0 ? table.squeezed().folded_text(width) : table.squeezed().text(usual_width);
}

// Returns the notes with the marks that Markdown and LaTeX need for text below a table.
std::string written_notes(const std::string& notes, TableFormat format, std::size_t width) {
  if (format == TableFormat::text || notes.empty()) return fold_lines(notes, width);
  const std::vector<std::string> lines = split_lines(notes);
  if (format == TableFormat::latex) return fmt::format("\n% {}\n", fmt::join(lines, "\n% "));
  return fmt::format("\n{}\n", fmt::join(lines, "\\\n"));  // a backslash is a line break in Markdown
}

// Returns a line for each requested measure that no row has.
std::string missing_of(const std::vector<PairedRow>& rows, const std::vector<std::string>& asked) {
  std::string text;
  for (const std::string& name : asked) {
    const auto has = [&name](const PairedRow& row) {
      return std::ranges::any_of(row.measures, [&](const PairedMeasure& one) { return name == one.measure->name; });
    };
    const bool is_told = name == "time_to_target_s" && std::ranges::any_of(rows, &PairedRow::nobody_reached);
    if (!is_told && std::ranges::none_of(rows, has))
      text += fmt::format("{}: {}\n", name,
                          name.find("_to_target") != std::string::npos ? "no run has a target and reached it"
                                                                       : "no two runs of the same seed have it");
  }
  return text;
}

std::vector<PairedRow> paired(const std::vector<ResultRow>& rows, const TablesOptions& options,
                              const std::vector<const Measure*>& measures) {
  return configured<std::invalid_argument>("--against: ", [&] { return paired_rows(rows, options.against, measures); });
}

std::string ranked(const std::vector<ResultRow>& rows, const Measure& measure, TableFormat format, std::size_t width) {
  return configured<std::invalid_argument>("--rank: ", [&] {
    const std::vector<Ranking> found = rankings(rows, measure);
    const TextTable places = ranking_table(found, measure), when = which_when_table(found);
    return "\n" + written(places, format, width) + "\n" + written(when, format, width) +
           written_notes(ranking_notes(measure), format, width);
  });
}

// Returns a row with the number of runs that missed their target, and the first one's end. Empty if none missed it.
std::string missed_target_of_csv(const std::string& experiment, const ResultRow& row, bool is_compared) {
  std::vector<TimeToReach> missed = times_to_target(row.runs);
  std::erase_if(missed, [](const TimeToReach& time) { return time.is_reached; });
  if (missed.empty()) return {};
  return fmt::format("{},{},{},target_missed_until_s,{},{},0{}\n", csv_field(experiment), csv_field(row.label),
                     csv_field(row.method), missed.size(), std::ranges::min(missed, {}, &TimeToReach::time_s).time_s,
                     is_compared ? ",,,,,,," : "");
}

// Returns the columns against,pairs,difference,low,high,t_p,sign_flip_p, each preceded by a comma.
std::string difference_of_csv(const std::vector<PairedRow>& compared, const ResultRow& row, const Measure& measure) {
  const std::string none = ",,,,,,,";
  const auto paired = std::ranges::find(compared, &row, &PairedRow::row);
  if (paired == compared.end()) return none;
  const auto found = std::ranges::find(paired->measures, &measure, &PairedMeasure::measure);
  if (found == paired->measures.end() || found->is_bound) return none;
  const auto& difference = found->difference;
  const auto field = [](const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; };
  const auto& interval = difference.interval;
  return fmt::format(",{},{},{},{},{},{}", csv_field(paired->other->label), difference.n, difference.mean,
                     interval ? fmt::format("{},{}", interval->low, interval->high) : ",", field(difference.t_p),
                     field(difference.sign_flip_p));
}

void add_rows_of_csv(std::string& text, const std::string& experiment, const std::vector<ResultRow>& rows,
                     const TablesOptions& options) {
  std::vector<const Measure*> all;
  for (const Measure& measure : measures()) all.push_back(&measure);
  const std::vector<PairedRow> compared =
      options.against.empty() ? std::vector<PairedRow>() : paired(rows, options, all);
  for (const ResultRow& row : rows) {
    text += missed_target_of_csv(experiment, row, !options.against.empty());
    for (const Measure* measure : all) {
      std::vector<double> values;
      for (const RunSummary& run : row.runs)
        if (const auto value = measure->value(run)) values.push_back(*value);
      if (values.empty()) continue;
      const Statistics found = statistics(values);
      text += fmt::format("{},{},{},{},{},{},{}", csv_field(experiment), csv_field(row.label), csv_field(row.method),
                          measure->name, found.n, found.mean, found.std);
      if (!options.against.empty()) text += difference_of_csv(compared, row, *measure);
      text += "\n";
    }
  }
}

}  // namespace

std::string claims_of(const ClaimsOptions& options, std::size_t width) {
  std::vector<JudgedClaims> experiments;
  std::string faults;
  const auto add_fault = [&](const std::string& fault) { faults += (faults.empty() ? "" : "\n") + fault; };
  std::set<std::string> names;
  std::vector<std::string> directories = options.directories;
  if (directories.empty()) {
    if (!fs::is_directory("results/runs") && fs::is_directory("results/paper"))
      throw ConfigurationFault(
          "results/runs: no such directory, since nothing has been run here; results/paper contains stored verdicts: "
          "use `syncopate claims results/paper`");
    directories.emplace_back("results/runs");
  }
  for (const std::string& directory : directories)
    for (const fs::path& file : files_below(directory)) {
      std::optional<JudgedClaims> claims;
      try {
        claims = claims_from_json(read_file(file).value_or(""));
      } catch (const std::runtime_error& fault) {  // a file that Syncopate did not write
        add_fault(fault.what());
        continue;
      }
      if (!claims)
        add_fault(fmt::format(
            "{}: is not a list of claims of schema version {}, or was modified; run the experiment again to "
            "judge its claims",
            file.string(), claims_schema_version));
      else if (const std::string fault = fault_of_runs(file.parent_path(), *claims); !fault.empty())
        add_fault(fault);
      else if (names.insert(claims->experiment).second)
        experiments.push_back(std::move(*claims));
    }
  if (!faults.empty()) throw ConfigurationFault(faults);
  if (experiments.empty())
    throw ConfigurationFault(
        fmt::format("{}: contains no claims; `syncopate run` judges the claims in [[claim]] of an experiment file",
                    fmt::join(directories, ", ")));
  std::ranges::sort(experiments, {}, &JudgedClaims::experiment);
  const std::string notes = scoreboard_notes(experiments);
  if (options.format == TableFormat::text) return scoreboard_text(experiments, width) + "\n" + fold_lines(notes, width);
  const TextTable table = scoreboard_table(experiments);
  if (options.format == TableFormat::csv) return table.csv();
  if (options.format == TableFormat::markdown) return table.markdown() + "\n" + notes;
  return table.latex() + written_notes(notes, options.format, width);
}

Action prepare_export(const ExportOptions& options) {
  const fs::path folder = options.to.empty() ? options.directory : options.to;
  TidyTables tables = configured<std::runtime_error>(
      "", [&] { return tidy_tables(find_runs(options.directory, options.with_trials)); });
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) throw ConfigurationFault(fmt::format("{}: cannot be created: {}", folder.string(), problem.message()));
  const std::string runs = (folder / "runs.csv").string(), evaluations = (folder / "evaluations.csv").string();
  for (const std::string& file : {runs, evaluations})
    if (const std::string why = why_not_replaceable(file); !why.empty())
      throw ConfigurationFault(fmt::format("{}: cannot be written: {}", file, why));
  return [tables = std::move(tables), runs, evaluations] {
    replace_file(runs, tables.runs_csv);
    replace_file(evaluations, tables.evaluations_csv);
    standard_output.write(printable_lines(fmt::format("{}\n{}\n", runs, evaluations)));
  };
}

std::string tables_of(const TablesOptions& options, std::size_t width) {
  const std::vector<const Measure*> measures = chosen_measures(options.measures);
  if (!options.measures.empty() && options.against.empty())
    throw ConfigurationFault(
        "--measure: selects the measures for --against, and needs that option; --rank NAME has its own measure");
  const Measure* const rank = options.rank.empty() ? nullptr : known_measure("--rank", options.rank);
  if (rank && options.format == TableFormat::csv)
    throw ConfigurationFault(
        "--rank: cannot be combined with --format csv, which prints all measures without a ranking");
  const auto runs = configured<ResultsDirectoryFault>("", [&] { return find_runs(options.directory); });
  const auto experiments = grouped_by([](const FoundRun& run) { return run.summary.experiment; }, runs);
  std::string text;
  if (options.format == TableFormat::csv) {
    text = "experiment,row,method,measure,n,mean,std";
    text += options.against.empty() ? "\n" : ",against,pairs,difference,low,high,t_p,sign_flip_p\n";
  }
  for (const auto& [name, members] : experiments) {
    const std::vector<ResultRow> rows = result_rows(members);
    if (options.format == TableFormat::csv) {
      add_rows_of_csv(text, name, rows, options);
      continue;
    }
    if (experiments.size() > 1) text += fmt::format("{}{}\n\n", text.empty() ? "" : "\n", name);
    for (const bool wall_clock : {false, true}) {
      const ResultTable table =
          result_columns(runs_on(rows, wall_clock), wall_clock ? "wall" : "virtual", methods_of(rows));
      if (table.table.width() == 0) continue;
      // <results>/<experiment>/<method>/<run>
      const fs::path run = fs::absolute(members.front().directory).lexically_normal();
      const std::string tuned = configured<ResultsDirectoryFault>(
          "", [&] { return tuning_lines(run.parent_path().parent_path(), wall_clock); });
      text += written(table.table, options.format, width) + written_notes(table.notes + tuned, options.format, width);
    }
    if (rank) text += ranked(rows, *rank, options.format, width);
    if (options.against.empty()) continue;
    const std::vector<PairedRow> compared = paired(rows, options, measures);
    const TextTable table = paired_table(compared);
    text += "\n" + written(table, options.format, width) +
            written_notes(paired_notes(compared, options.against) + missing_of(compared, options.measures),
                          options.format, width);
  }
  return text;
}

}  // namespace syncopate
