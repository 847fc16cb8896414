// The command line: what may be said on it, and what was.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/commands/claims.hpp"
#include "experiments/commands/compare.hpp"
#include "experiments/commands/export.hpp"
#include "experiments/commands/side_by_side.hpp"
#include "experiments/commands/tables.hpp"
#include "experiments/commands/thresholds.hpp"
#include "experiments/execution/runner.hpp"
#include "experiments/sections/experiment.hpp"

namespace syncopate {

struct CommandLine {
  std::string command;  // empty where CLI11 has answered by itself: --help and --version
  std::string answer;   // then: what it says
  std::string file;
  std::vector<std::string> overrides;  // key=value, key=a,b,c, ~key
  std::vector<std::string> profiles;
  std::string listed;
  bool writes_pages = false;
  bool ranks = false;
  bool json = false;
  std::string against;  // the label of the method that `predict` compares with; empty: synchronous SGD
  std::vector<std::string> only;
  std::string target_runs;        // of predict --to-target; empty: none
  std::int64_t memory_bytes = 0;  // --memory; 0: no limit
  bool measures = false;          // check --measure
  bool oversubscribes = false;    // --oversubscribe
  std::string accepted;           // a directory with claims.json of experiments; empty: none
  RunOptions options;
  SideBySideOptions side_by_side;
  CompareOptions compare;
  ThresholdsOptions thresholds;
  TablesOptions tables;
  ExportOptions exported;
  ClaimsOptions claims;
  std::int64_t most_runs = LoadOptions().most_runs;
};

// Throws ConfigurationFault, with what is wrong.
CommandLine parse_command_line(int argc, char** argv);

// Where `status` is asked for a directory: what would choose or change the runs of a file. Throws ConfigurationFault.
void refuse_keys_of_file(const CommandLine& line);

}  // namespace syncopate
