// Runs that are there, by what a table has a row for: a method at one point of what varies, over its seeds.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "results/directory/found_runs.hpp"

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

// The row of the method `against` (or of exactly this label) at the same point: what varies for it has the same value
// there, and the clock is the same. Null where there is none. Throws std::invalid_argument where several are meant.
const ResultRow* row_to_compare_with(std::span<const ResultRow> rows, const ResultRow& row, const std::string& against);

}  // namespace syncopate
