// Tables of results: one row per method and sweep point, rankings, exports as tidy CSV, and lines about tuning.
#pragma once

#include "results/found_runs.hpp"
#include "results/paired_table.hpp"

namespace syncopate {

struct RankedRow {
  const ResultRow* row = nullptr;
  double mean = 0;  // mean of the measure; for times to the target, up to the rows' target_horizon_s
  std::optional<std::size_t> reached{};    // for times to the target: number of runs that reached it by the horizon
  std::optional<PairedMeasure> to_best{};  // none for the best row itself, and without common seeds
  bool is_missed = false;                  // no run reached the target; `mean` is then the earliest end
  bool outlasts_best = false;              // if is_missed: each run lasted until the best row's run reached the target

  // Whether the best row is significantly better; false without common seeds. If is_missed, the value of outlasts_best.
  bool is_behind() const;
};

// Methods at one point of the sweep, ranked by a measure.
struct Ranking {
  // Values of the keys that are swept for all methods, such as "heavy tail, 10 Gbit/s"; empty without a sweep. For runs
  // made outside the sweep: the keys in which they differ from the other runs.
  std::string point;
  std::vector<RankedRow> rows;  // the best first; empty if no run reached the target
};

// Rankings of the rows that have the measure, one per point, in the order in which points first appear. Throws
// std::invalid_argument if neither direction of the measure is better, no row has it, or no run reached the target.
// - Keys that are swept for one method add rows at the same point.
// - A method to which a swept key does not apply is ranked at every value of the key.
// - Runs made outside the sweep have their own points (is_at_point_of).
std::vector<Ranking> rankings(std::span<const ResultRow> rows, const Measure& measure);

TextTable ranking_table(std::span<const Ranking> rankings, const Measure& measure);

// A table with one row per point: the best method, methods that are not significantly worse, and those that are.
TextTable which_when_table(std::span<const Ranking> rankings);

std::string ranking_notes(const Measure& measure);

// A table, and the lines below it. No columns if no run finished.
struct ResultTable {
  TextTable table;
  std::string notes;
};
// `methods`: names to show for some methods, by the names in the runs.
ResultTable result_columns(std::span<const RunSummary> runs, const std::string& clock = "virtual",
                           const std::map<std::string, std::string>& methods = {});

// The table of finished runs, with methods in the order of their first appearance; empty if no run finished. Columns
// without values are left out. Lines below the table name its formulas. `clock`: name of the cluster's clock. `width`:
// terminal columns at which the table is split and text is folded; 0: neither is done.
std::string result_table(std::span<const RunSummary> runs, const std::string& clock = "virtual", std::size_t width = 0);

// The table of failed and diverged runs: method, seed, status, reason. Empty without such runs. `width`: as above.
std::string failure_table(std::span<const RunSummary> runs, std::size_t width = 0);

// One line for each finished run that has an overrun_warning.
std::string overrun_warnings(std::span<const RunSummary> runs);

// A note on the rows of a table whose messages do not wait for each other (network.contention = false). This favours
// their methods over methods that only use collectives. Empty without such rows. `rows`: each row's label, and whether
// it is one of these.
std::string unshared_links_text(std::span<const std::pair<std::string, bool>> rows);

// "88.12 +- 0.10", with two digits of the deviation. Without a deviation only the mean; without values "-".
std::string mean_and_deviation(const Statistics& statistics);

// Time to the target over seeds, in seconds. "> T (k/n)" if only k of n seeds reached it: the others ended at T or
// later.
std::string time_to_target_text(std::span<const RunSummary> seeds);

// A note below tables with a formula that uses a sample of the run's delays.
std::string note_of_sampled();

// Runs as tidy tables for analysis programs. Both tables begin with the same columns: experiment, method, seed, clock
// (virtual or wall), hash, and every key in which runs of one method differ. Keys of the file keep their names
// (cluster.workers); a method's own keys are method.<key>. Cells of swept keys contain the sweep's names of its values.
// With trials of tuning there is also a column trial, true or false. A cell is empty if the run has no such value.
struct TidyTables {
  std::string runs_csv;         // a row per run: status, and all measures in their own units (shares, not percent)
  std::string evaluations_csv;  // a row per row of the runs' metrics.csv, with its columns
};

// Finished and unfinished runs of one or several experiments. Throws std::runtime_error if a metrics.csv is unreadable.
TidyTables tidy_tables(std::span<const FoundRun> runs);

// A field of a CSV file, quoted if necessary (RFC 4180).
std::string csv_field(const std::string& text);

// A line per method: the chosen setting, the number of settings tried, whether the grid was extended, and whether the
// chosen setting is still at the grid's edge.
std::string tuning_lines(const Tuning& tuning);

// The tuning_lines of the tuning file in an experiment's directory; empty if there is no such file. Throws
// ResultsDirectoryFault if the file is damaged.
std::string tuning_lines(const std::filesystem::path& experiment_directory, bool mpi);

}  // namespace syncopate
