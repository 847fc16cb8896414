#include "experiments/commands/claims.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
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
  if (files.empty())
    throw ConfigurationFault(
        fmt::format("{}: holds no claims; `syncopate run` judges those that an experiment file has in [[claim]]",
                    directory.string()));
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string claims_of(const ClaimsOptions& options) {
  std::vector<JudgedClaims> experiments;
  std::string faults;
  for (const fs::path& file : files_below(options.directory)) {
    std::optional<JudgedClaims> claims = claims_from_json(read_file(file).value_or(""));
    if (claims)
      experiments.push_back(std::move(*claims));
    else
      faults +=
          fmt::format("{}{}: is no list of claims of schema version {}; the experiment's next start judges them anew",
                      faults.empty() ? "" : "\n", file.string(), claims_schema_version);
  }
  if (!faults.empty()) throw ConfigurationFault(faults);
  const std::string notes = scoreboard_notes(experiments);
  return options.markdown ? scoreboard_table(experiments).markdown() + "\n" + notes
                          : scoreboard_text(experiments) + "\n" + notes;
}

}  // namespace syncopate
