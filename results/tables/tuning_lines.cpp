#include "results/tables/tuning_lines.hpp"

#include <fmt/format.h>

#include "results/directory/run_directory.hpp"
#include "results/run/run_label.hpp"
#include "workers/files/own_file.hpp"
#include "workers/process/shown_number.hpp"

namespace syncopate {
namespace {

using Names = std::vector<std::pair<std::string, std::string>>;

// "peak = 0.1, threshold_s = 0.07"
std::string values_text(const Names& values) {
  const std::string text = run_label("", values);
  return text.starts_with(", ") ? text.substr(2) : text;
}

std::string short_names(const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) {
    const std::string one = values_text({{key, ""}});
    text += (text.empty() ? "" : ", ") + one.substr(0, one.find(" = "));
  }
  return text;
}

// How a mean of trials that missed their target is to be read; empty where none did.
std::string restriction(const TunedMethod& method, const TriedSetting& chosen) {
  if (!method.horizon) return {};
  return fmt::format(", restricted to {}, by which {} of its {} trials reached the target",
                     shown_number(*method.horizon), method.reached(chosen), chosen.trials.size());
}

std::string line_of(const TunedMethod& method, const Tuning& tuning) {
  const std::string who = run_label(method.method, method.point);
  const std::string numbers = fmt::format("{} settings in {} trials", method.settings.size(), method.trials());
  if (!method.chosen) return fmt::format("{}: not tuned: none of {} has a {}\n", who, numbers, tuning.measure);
  const TriedSetting& chosen = method.settings[*method.chosen];
  std::string line = fmt::format("{}: tuned, {} is the best of {} by {} ({}{})", who, values_text(chosen.values),
                                 numbers, tuning.measure, shown_number(*chosen.mean), restriction(method, chosen));
  if (!method.extended.empty()) line += fmt::format("; the grid of {} was extended", short_names(method.extended));
  if (!method.at_edge.empty())
    line += fmt::format("; {} {} at the edge of the grid", short_names(method.at_edge),
                        method.at_edge.size() == 1 ? "is" : "are");
  return line + "\n";
}

}  // namespace

std::string tuning_lines(const Tuning& tuning) {
  std::string text;
  for (const TunedMethod& method : tuning.methods) text += line_of(method, tuning);
  if (!text.empty() && !tuning.where.empty())
    text += fmt::format("Settings were found at \"{}\", and kept elsewhere.\n", values_text(tuning.where));
  return text;
}

std::string tuning_lines(const std::filesystem::path& experiment_directory, bool mpi) {
  const std::filesystem::path file = experiment_directory / tuning_file(mpi);
  const auto text = read_file(file);
  if (!text) return {};
  if (const auto tuning = tuning_from_json(*text)) return tuning_lines(*tuning);
  throw ResultsDirectoryFault(fmt::format(
      "{}: is no list of trials of schema version {}, or is no longer as it was written; the experiment's next start "
      "writes it anew",
      file.string(), tuning_schema_version));
}

}  // namespace syncopate
