#include "experiments/commands/export.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>

#include "experiments/sections/experiment.hpp"
#include "results/directory/found_runs.hpp"
#include "results/directory/replaced_file.hpp"
#include "results/directory/run_directory.hpp"
#include "results/tables/tidy.hpp"

namespace syncopate {

Export prepare_export(const ExportOptions& options) {
  const std::filesystem::path folder = options.to.empty() ? options.directory : options.to;
  Export result{.runs_file = (folder / "runs.csv").string(),
                .runs_csv = {},
                .evaluations_file = (folder / "evaluations.csv").string(),
                .evaluations_csv = {}};
  try {
    TidyTables tables = tidy_tables(find_runs(options.directory, options.with_trials));
    result.runs_csv = std::move(tables.runs_csv);
    result.evaluations_csv = std::move(tables.evaluations_csv);
  } catch (const std::runtime_error& fault) {
    throw ConfigurationFault(fault.what());
  }
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) throw ConfigurationFault(fmt::format("{}: cannot be made: {}", folder.string(), problem.message()));
  for (const std::string& file : {result.runs_file, result.evaluations_file})
    if (const std::string why = why_not_replaceable(file); !why.empty())
      throw ConfigurationFault(fmt::format("{}: cannot be written: {}", file, why));
  return result;
}

void write_export(const Export& tables) {
  replace_file(tables.runs_file, tables.runs_csv);
  replace_file(tables.evaluations_file, tables.evaluations_csv);
}

}  // namespace syncopate
