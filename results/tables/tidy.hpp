// Runs that are there as tidy tables, for programs that analyse them: every row stands by itself.
#pragma once

#include <span>
#include <string>

#include "results/directory/found_runs.hpp"

namespace syncopate {

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

}  // namespace syncopate
