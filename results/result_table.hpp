// The table at the end of an experiment: one row per method and sweep point, over its seeds.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/found_runs.hpp"
#include "results/paired_table.hpp"
#include "results/result_rows.hpp"
#include "results/statistics.hpp"
#include "results/summary.hpp"
#include "results/text_table.hpp"

namespace syncopate {

// Which method is best at each point of what varies, by one measure, and which cannot be told apart from it.
struct RankedRow {
  const ResultRow* row = nullptr;
  double mean = 0;                         // of times to the target: restricted to target_horizon_s of the rows here
  std::optional<std::size_t> reached{};    // of times to the target: how many runs reached it by then
  std::optional<PairedMeasure> to_best{};  // none of the best itself, and without common seeds
  bool is_missed = false;                  // no run reached the target; mean is when the first of them ended
  bool outlasts_best = false;              // then: each run went on for longer than the best's of its seed took

  // Whether the best is significantly better (PairedDifference); without common seeds nobody knows. Where no run
  // reached the target: whether each went on for longer than the best's of its seed took.
  bool is_behind() const;
};

struct Ranking {
  // Values of what is swept for all, "heavy tail, 10 Gbit/s"; empty where nothing is. Of runs that were made beside the
  // sweep in what they differ from the others.
  std::string point;
  std::vector<RankedRow> rows;  // the best first; none where nobody reached the target
};

// Of rows that have the measure, in the order in which points are first met. What is swept for a method alone makes
// further rows at the same point, and a method that something swept does not concern is at all of its values. What was
// made beside the sweep has points of its own (is_at_point_of). Throws
// std::invalid_argument: of the measure neither more nor less is better, or no row has it,
// or no run reached the target.
std::vector<Ranking> rankings(std::span<const ResultRow> rows, const Measure& measure);

TextTable ranking_table(std::span<const Ranking> rankings, const Measure& measure);

// A row for each point: the best, those that are not told apart from it, and those that are behind.
TextTable which_when_table(std::span<const Ranking> rankings);

std::string ranking_notes(const Measure& measure);

// The same table with and without blanks about "+-", and the lines below it; no columns where no run is finished.
struct ResultTable {
  TextTable wide, narrow;
  std::string notes;
};
// `methods`: by names that are rows' labels what their methods are called, as far as that is another name.
ResultTable result_columns(std::span<const RunSummary> runs, const std::string& clock = "virtual",
                           const std::map<std::string, std::string>& methods = {});

// Rows in the order in which their methods first occur; only finished runs count. Empty if there are
// none. A column that has no values is left out. `clock`: the name of the cluster's clock. A line below the
// table names its formulas. `width`: of the terminal, in columns, at which the table is broken into several, and text
// folded; 0: none.
std::string result_table(std::span<const RunSummary> runs, const std::string& clock = "virtual", std::size_t width = 0);

// Runs that are not finished: method, seed, reason. Empty if there are none. `width`: likewise.
std::string failure_table(std::span<const RunSummary> runs, std::size_t width = 0);

// A line for each finished run whose times are not those declared. Empty if there are none.
std::string overrun_warnings(std::span<const RunSummary> runs);

// Below a table: that no message of the methods of these labels waits for another one (network.contention = false),
// which favours methods that send messages before those that have collectives alone. Empty where there are none.
// `are_all`: the table has no others.
std::string unshared_links_text(const std::vector<std::string>& labels, bool are_all);

// What a run's row is called (run_label).
std::string row_label(const RunSummary& run);

// "88.12 +- 0.10", with two digits of the deviation; the mean alone where there is no deviation;
// "-" without values.
std::string mean_and_deviation(const Statistics& statistics);

// "88.12+-0.10", for tables that would be too wide.
std::string squeezed(std::string text);

// Time to target over seeds, in seconds; as soon as one seed did not reach it "> T (k/n)": k of n did,
// and those that did not ended at T or later.
std::string time_to_target_text(std::span<const RunSummary> seeds);

// The line below tables whose formulas go by a sample of a run's delays.
std::string note_of_sampled();

// Runs that are there as tidy tables, for programs that analyse them: every row stands by itself.
// Both begin with the same columns: experiment, method, seed, clock (virtual or wall), hash, and every key in which
// runs of one method differ: those of the file under their names (cluster.workers), a method's own as method.<key>,
// swept ones with the names that the sweep gives its values, and variant; and trial, true or false, where there are
// trials of tuning among them. Empty cells: the run has no such thing.
struct TidyTables {
  std::string runs_csv;         // a row for each run: status, and all measures in their own units (shares, not percent)
  std::string evaluations_csv;  // a row for each row of the runs' metrics.csv, with its columns
};

// Of finished and unfinished runs of one or several experiments. Throws std::runtime_error where a metrics.csv cannot
// be read.
TidyTables tidy_tables(std::span<const FoundRun> runs);

// A field of a CSV file, in quotes where it needs them (RFC 4180).
std::string csv_field(const std::string& text);

// What was chosen for each method, in words: the lines below its results.
// A line for each method: the setting, out of how many settings and trials, if the grid was extended, and if the best
// setting is at its edge all the same.
std::string tuning_lines(const Tuning& tuning);

// Of the file in an experiment's directory; empty where there is none. Throws ResultsDirectoryFault for a damaged one.
std::string tuning_lines(const std::filesystem::path& experiment_directory, bool mpi);

}  // namespace syncopate
