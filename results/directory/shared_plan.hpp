// Which runs processes share, beside what they tell each other, for who looks at it without the experiment's file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/run/run.hpp"

namespace syncopate {

struct PlannedRun {
  std::string hash{};
  std::string label{};  // method and what varies
  std::uint64_t seed = 0;
  std::filesystem::path directory{};  // of the run
};

std::vector<PlannedRun> planned_runs(const std::filesystem::path& results, std::span<const Run> runs);

// <folder>/runs.json or trials.json, whichever they are. Throws std::system_error.
void save_plan(const std::filesystem::path& folder, std::span<const Run> runs);
// Trials and runs, of an experiment's directory; nothing where it was never shared, or what stands there is no plan,
// which is added to the faults, a line for each file.
std::optional<std::vector<PlannedRun>> saved_plan(const std::filesystem::path& experiment_directory,
                                                  std::vector<std::string>* faults = nullptr);

}  // namespace syncopate
