// Tables of results: rows per method and sweep point, rankings, tidy exports and tuning.
#pragma once

#include "results/found_runs.hpp"
#include "results/paired_table.hpp"

namespace syncopate {

struct RankedRow {
  const ResultRow* row = nullptr;
  double mean = 0;                         // mean of the measure; times to the target are restricted to
                                           // target_horizon_s of the rows here
  std::optional<std::size_t> reached{};    // for times to the target: number of runs that reached it by the horizon
  std::optional<PairedMeasure> to_best{};  // none for the best row itself, and without common seeds
  bool is_missed = false;                  // no run reached the target; mean is the earliest end
  bool outlasts_best = false;              // if missed: each run took longer than the best row's run of the same seed

  // Whether the best row is significantly better (PairedDifference); false without common seeds. A row that missed the
  // target is behind if it outlasts the best.
  bool is_behind() const;
};

// Methods at one point of the sweep, ranked by a measure.
struct Ranking {
  // Values of keys swept for all methods, "heavy tail, 10 Gbit/s"; empty without a sweep. For runs made outside the
  // sweep: the keys that differ from the others.
  std::string point;
  std::vector<RankedRow> rows;  // the best first; empty if no run reached the target
};

// Rankings of the rows that have the measure, in the order in which points first appear. Keys swept for one method add
// rows at the same point. If a swept key does not apply to a method, the method is ranked at all of the key's values.
// Runs made outside the sweep have their own points (is_at_point_of). Throws std::invalid_argument if the measure has
// no better direction, no row has it, or no run reached the target.
std::vector<Ranking> rankings(std::span<const ResultRow> rows, const Measure& measure);

TextTable ranking_table(std::span<const Ranking> rankings, const Measure& measure);

// A row for each point: the best method, those not significantly behind it, and those behind.
TextTable which_when_table(std::span<const Ranking> rankings);

std::string ranking_notes(const Measure& measure);

// A table with and without blanks around "+-", and the lines below it. Has no columns if no run finished.
struct ResultTable {
  TextTable wide, narrow;
  std::string notes;
};
// `methods`: names of methods by row labels, where the two differ.
ResultTable result_columns(std::span<const RunSummary> runs, const std::string& clock = "virtual",
                           const std::map<std::string, std::string>& methods = {});

// Finished runs by rows, in the order in which their methods first appear; empty without any. Columns without values
// are left out. Lines below the table name its formulas. `clock`: name of the cluster's clock. `width`: terminal
// columns at which the table is split and text folded; 0: none.
std::string result_table(std::span<const RunSummary> runs, const std::string& clock = "virtual", std::size_t width = 0);

// Unfinished runs: method, seed, reason. Empty without any. `width`: as above.
std::string failure_table(std::span<const RunSummary> runs, std::size_t width = 0);

// Returns a line for each finished run whose times are not the declared ones.
std::string overrun_warnings(std::span<const RunSummary> runs);

// Note that these methods' messages do not wait for each other (network.contention = false), which favours them over
// methods that only use collectives. Empty without labels. `are_all`: the table has no other methods.
std::string unshared_links_text(const std::vector<std::string>& labels, bool are_all);

std::string row_label(const RunSummary& run);

// "88.12 +- 0.10", with two digits of the deviation. Without a deviation the mean alone, without values "-".
std::string mean_and_deviation(const Statistics& statistics);

// "88.12+-0.10", for narrow tables.
std::string squeezed(std::string text);

// Time to target over seeds, in seconds. "> T (k/n)" if only k of n seeds reached it: the others ended at T or later.
std::string time_to_target_text(std::span<const RunSummary> seeds);

// Note below tables with formulas that use a sample of a run's delays.
std::string note_of_sampled();

// Runs as tidy tables for analysis programs: every row is complete. Both tables begin with the same columns:
// experiment, method, seed, clock (virtual or wall), hash, and every key in which runs of one method differ. Keys of
// the file keep their names (cluster.workers), a method's own keys are method.<key>, and swept keys have the names that
// the sweep gives their values. With trials of tuning there is also a column trial, true or false. An empty cell: the
// run has no such value.
struct TidyTables {
  std::string runs_csv;         // a row for each run: status, and all measures in their own units (shares, not percent)
  std::string evaluations_csv;  // a row for each row of the runs' metrics.csv, with its columns
};

// Finished and unfinished runs of one or several experiments. Throws std::runtime_error if a metrics.csv is unreadable.
TidyTables tidy_tables(std::span<const FoundRun> runs);

// A field of a CSV file, quoted if necessary (RFC 4180).
std::string csv_field(const std::string& text);

// A line for each method: the chosen setting, how many were tried, whether the grid was extended, and whether the best
// setting is still at its edge.
std::string tuning_lines(const Tuning& tuning);

// The same for the tuning file in an experiment's directory; empty without one. Throws ResultsDirectoryFault if it is
// damaged.
std::string tuning_lines(const std::filesystem::path& experiment_directory, bool mpi);

}  // namespace syncopate
