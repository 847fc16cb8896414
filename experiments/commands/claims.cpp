#include "experiments/commands/claims.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "results/claims/claims_json.hpp"
#include "results/claims/scoreboard.hpp"
#include "results/directory/found_runs.hpp"
#include "results/directory/run_directory.hpp"
#include "results/tables/folded_text.hpp"
#include "workers/files/own_file.hpp"

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

// What is wrong with the runs beside claims that were judged by them; empty where nothing is, or where the claims are
// kept without them (results/paper).
std::string fault_of_runs(const fs::path& directory, const JudgedClaims& claims) {
  const auto is_directory = [](const fs::directory_entry& entry) { return entry.is_directory(); };
  const bool are_kept = fs::exists(directory / "runs.csv") &&
                        std::none_of(fs::directory_iterator(directory), fs::directory_iterator(), is_directory);
  if (!claims.judged_runs || are_kept) return {};
  std::size_t found = 0;
  try {
    const std::vector<FoundRun> runs = find_runs(directory);
    found = static_cast<std::size_t>(std::ranges::count(runs, false, &FoundRun::on_wall_clock));
  } catch (const ResultsDirectoryFault& fault) {
    return fmt::format("{}; it was judged by {} runs", fault.what(), *claims.judged_runs);
  }
  if (found >= *claims.judged_runs) return {};
  return fmt::format("{}: was judged by {} runs, of which {} are there; the experiment's next start judges it anew",
                     (directory / claims_file).string(), *claims.judged_runs, found);
}

std::string as_comment(const std::string& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i == 0 || lines[i - 1] == '\n') text += "% ";
    text += lines[i];
  }
  return text;
}

}  // namespace

std::string claims_of(const ClaimsOptions& options, std::size_t width) {
  std::vector<JudgedClaims> experiments;
  std::string faults;
  const auto add_fault = [&](const std::string& fault) { faults += (faults.empty() ? "" : "\n") + fault; };
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
      std::optional<JudgedClaims> claims;
      try {
        claims = claims_from_json(read_file(file).value_or(""));
      } catch (const std::runtime_error& fault) {  // no file of ours
        add_fault(fault.what());
        continue;
      }
      if (!claims)
        add_fault(
            fmt::format("{}: is no list of claims of schema version {}, or is no longer as it was written; the "
                        "experiment's next start judges them anew",
                        file.string(), claims_schema_version));
      else if (const std::string fault = fault_of_runs(file.parent_path(), *claims); !fault.empty())
        add_fault(fault);
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
  switch (options.format) {
    case TableFormat::markdown:
      return scoreboard_table(experiments).markdown() + "\n" + notes;
    case TableFormat::csv:
      return scoreboard_table(experiments).csv();
    case TableFormat::latex:
      return scoreboard_table(experiments).latex() + "\n" + as_comment(notes);
    case TableFormat::text:
      break;
  }
  return scoreboard_text(experiments, width) + "\n" + fold_lines(notes, width);
}

}  // namespace syncopate
