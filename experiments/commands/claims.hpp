// `syncopate claims`: the scoreboard over experiments that have been run.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "experiments/commands/tables.hpp"

namespace syncopate {

struct ClaimsOptions {
  std::vector<std::string> directories{};  // of an experiment in several the first counts; none: results/runs
  TableFormat format = TableFormat::text;
};

// Of all claims.json at or below the directories, by the names of their folders. Throws ConfigurationFault: no such
// directory, no claims in any, a file that is no list of claims of this version. `width`: of the
// terminal, in columns; 0: there is none.
std::string claims_of(const ClaimsOptions& options, std::size_t width);

}  // namespace syncopate
