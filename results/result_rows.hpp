// Rows of tables: a method at one point of a sweep, with its runs over seeds.
#pragma once

#include "results/found_runs.hpp"

namespace syncopate {

struct ResultRow {
  std::string label;  // method and swept values; unique among rows
  std::string method;
  bool on_wall_clock = false;
  std::map<std::string, std::string> point;          // keys of varied_keys() and their values
  std::vector<RunSummary> runs;                      // finished runs, ascending in seed
  std::vector<std::filesystem::path> directories{};  // directories of these runs
};

// The rows of one experiment's runs. They are sorted by methods in the order of the file, then by swept values: numbers
// ascending, texts in the order of the sweep. A method without a finished run has no row.
std::vector<ResultRow> result_rows(std::span<const FoundRun> runs);

// Times to the target of those runs of the row that have a target.
std::vector<TimeToReach> times_to_target(const ResultRow& row);

// The row's values of the keys that are swept for all methods.
std::vector<std::pair<std::string, std::string>> common_point(const ResultRow& row);

// Keys in which the points of two rows differ. Leaves out a key of [training], models or data sets that only one of the
// rows has, because it does not apply to the other row's method.
std::vector<std::string> differing_keys(const ResultRow& a, const ResultRow& b);

// Whether `row`, which lacks some swept keys, is at the point of the row `there`, which has all of them. This is the
// case if the missing keys do not apply to the method of `row`, and all other keys have the same values. Otherwise
// `row` was made outside the sweep. `rows`: all rows of both kinds. Figures use the same rule (plots/comparison.py).
bool is_at_point_of(const ResultRow& row, const ResultRow& there, std::span<const ResultRow* const> rows);

// The row with the method or label `against` at the point of `row`: it has the same clock and, for the keys that vary
// for `against`, the same values. Null if there is none. Throws std::invalid_argument if several rows match.
const ResultRow* row_to_compare_with(std::span<const ResultRow> rows, const ResultRow& row, const std::string& against);

}  // namespace syncopate
