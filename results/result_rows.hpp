// Rows of tables: a method at one point of a sweep, with its runs over seeds.
#pragma once

#include "results/found_runs.hpp"

namespace syncopate {

struct ResultRow {
  std::string label;  // method and swept values, unique
  std::string method;
  bool on_wall_clock = false;
  std::map<std::string, std::string> point;          // values of varied_keys
  std::vector<RunSummary> runs;                      // finished runs, ascending in seed
  std::vector<std::filesystem::path> directories{};  // directories of these runs
};

// Rows of one experiment's runs, by methods in the order of the file, then by swept values: numbers ascending, others
// in the order of the sweep. A method without a finished run has no row.
std::vector<ResultRow> result_rows(std::span<const FoundRun> runs);

// Times to the target of the row's runs that have one.
std::vector<TimeToReach> times_to_target(const ResultRow& row);

// The row's values of keys that are swept for all methods.
std::vector<std::pair<std::string, std::string>> common_point(const ResultRow& row);

// Keys in which two points differ. A key of [training], models or data sets that only one of them has is left out: it
// does not apply to the other's method.
std::vector<std::string> differing_keys(const ResultRow& a, const ResultRow& b);

// Whether a row without some swept keys is at the point of a row `there` with all of them: the keys do not apply to its
// method, and the configurations agree elsewhere. Otherwise it was made outside the sweep. `rows`: both kinds. Figures
// have the same rule (plots/comparison.py).
bool is_at_point_of(const ResultRow& row, const ResultRow& there, std::span<const ResultRow* const> rows);

// The row of the method `against` (or with this label) at the same point: the keys that vary for it have the same
// values, and the clock is the same. Null if there is none. Throws std::invalid_argument if several match.
const ResultRow* row_to_compare_with(std::span<const ResultRow> rows, const ResultRow& row, const std::string& against);

}  // namespace syncopate
