// Runs that are there, by what a table has a row for: a method at one point of what varies, over its seeds.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "results/found_runs.hpp"

namespace syncopate {

struct ResultRow {
  std::string label;  // method and swept values, no two alike
  std::string method;
  bool on_wall_clock = false;
  std::map<std::string, std::string> point;          // values of varied_keys
  std::vector<RunSummary> runs;                      // finished ones, ascending in seed
  std::vector<std::filesystem::path> directories{};  // of these
};

// Of one experiment's runs: methods in the order of the file, each in the order of what is swept: numbers ascending,
// other values as the sweep has them. A method of which no run has finished has no row.
std::vector<ResultRow> result_rows(std::span<const FoundRun> runs);

// What is swept for all, as far as the row has it: without what is swept for a method alone.
std::vector<std::pair<std::string, std::string>> common_point(const ResultRow& row);

// In what the two points differ. A key of [training], or of models and data sets, that one of them lacks does not
// concern its method, which has it otherwise.
std::vector<std::string> differing_keys(const ResultRow& a, const ResultRow& b);

// Whether a row that lacks values of swept keys is at the point of a row that has all; `rows`: of both kinds. It is if
// the keys do not concern its method, and the configurations are the same elsewhere. Else it was made beside the
// sweep, and is where its own configuration puts it. Figures have the same rule (plots/comparison.py).
bool is_at_point_of(const ResultRow& row, const ResultRow& there, std::span<const ResultRow* const> rows);

// The row of the method `against` (or of exactly this label) at the same point: what varies for it has the same value
// there, and the clock is the same. Null where there is none. Throws std::invalid_argument where several are meant.
const ResultRow* row_to_compare_with(std::span<const ResultRow> rows, const ResultRow& row, const std::string& against);

}  // namespace syncopate
