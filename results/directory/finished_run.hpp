// The results of a finished run, read from its directory, so that it need not be repeated.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "results/rows/summary.hpp"
#include "results/run/run.hpp"
#include "workers/files/own_file.hpp"

namespace syncopate {

// The summary in the directory, if it is one of this configuration, however the run ended.
std::optional<RunSummary> summary_of(const std::filesystem::path& directory, const Run& run);

// The same, if the run is finished, has all files that are asked for, and these are as they were written.
std::optional<RunSummary> finished_before(const std::filesystem::path& directory, const Run& run);

// The same of a trial: one that has diverged has told all that it can.
std::optional<RunSummary> tried_before(const std::filesystem::path& directory, const Run& run);

// Whether the run in the directory was made by the processes of this call (FailedAttempts).
bool was_made_by(const std::filesystem::path& directory, const std::string& call);

}  // namespace syncopate
