#include "experiments/commands/claims.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/claims/claims_json.hpp"
#include "results/claims/scoreboard.hpp"
#include "results/directory/finished_run.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_below(const fs::path& directory) {
  std::vector<fs::path> files;
  try {
    if (!fs::is_directory(directory))
      throw ConfigurationFault(
          fmt::format("{}: no such directory; expected one above experiments that have been run", directory.string()));
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory))
      if (entry.path().filename() == claims_file) files.push_back(entry.path());
  } catch (const fs::filesystem_error& fault) {
    throw ConfigurationFault(fmt::format("{}: {}", directory.string(), fault.code().message()));
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string claims_of(const ClaimsOptions& options) {
  std::vector<JudgedClaims> experiments;
  std::string faults;
  std::set<std::string> names;
  std::vector<std::string> directories = options.directories;
  if (directories.empty()) {
    if (!fs::is_directory("results/runs") && fs::is_directory("results/paper"))
      throw ConfigurationFault(
          "results/runs: no such directory, since nothing has been run here; results/paper has verdicts that are kept: "
          "`syncopate claims results/paper`");
    directories.emplace_back("results/runs");
  }
  for (const std::string& directory : directories)
    for (const fs::path& file : files_below(directory)) {
      std::optional<JudgedClaims> claims = claims_from_json(read_file(file).value_or(""));
      if (!claims)
        faults +=
            fmt::format("{}{}: is no list of claims of schema version {}; the experiment's next start judges them anew",
                        faults.empty() ? "" : "\n", file.string(), claims_schema_version);
      else if (names.insert(claims->experiment).second)
        experiments.push_back(std::move(*claims));
    }
  if (!faults.empty()) throw ConfigurationFault(faults);
  if (experiments.empty())
    throw ConfigurationFault(
        fmt::format("{}: holds no claims; `syncopate run` judges those that an experiment file has in [[claim]]",
                    fmt::join(directories, ", ")));
  std::ranges::sort(experiments, {}, &JudgedClaims::experiment);
  const std::string notes = scoreboard_notes(experiments);
  return options.markdown ? scoreboard_table(experiments).markdown() + "\n" + notes
                          : scoreboard_text(experiments) + "\n" + notes;
}

}  // namespace syncopate
