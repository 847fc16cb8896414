// `syncopate table`: the table of runs that are there, and how methods differ from one of them.
#pragma once

#include <string>
#include <vector>

namespace syncopate {

enum class TableFormat { text, markdown, csv, latex };

struct TablesOptions {
  std::string directory;
  std::string against;                // the method (or row) that the others are compared with; empty: none
  std::string rank;                   // a measure by which methods are ranked at each point; empty: none
  std::vector<std::string> measures;  // by their names; empty: the usual ones
  TableFormat format = TableFormat::text;
};

// Of each experiment below the directory: its table, and with `against` the differences paired by seed, and with `rank`
// which method is best when; as CSV a row for each row of both, with all measures. `width`: of the terminal, in
// columns; 0: there is none. Throws ConfigurationFault: the directory, a method or a measure is not there.
std::string tables_of(const TablesOptions& options, std::size_t width);

}  // namespace syncopate
