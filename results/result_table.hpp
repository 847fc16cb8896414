// The table at the end of an experiment: one row per method and sweep point, over its seeds.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "results/rows/summary.hpp"
#include "results/statistics/statistics.hpp"
#include "results/tables/text_table.hpp"

namespace syncopate {

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

}  // namespace syncopate
