// The claims of an experiment file, judged by its runs.
#pragma once

#include <filesystem>
#include <string>

#include "experiments/sections/experiment.hpp"

namespace syncopate {

// Judges the claims by the experiment's runs that are in the results directory, simulated ones, writes claims.json
// beside them, and returns the scoreboard; empty where nothing is claimed. Throws std::runtime_error (a damaged run) or
// std::system_error (claims.json cannot be written).
std::string judge_claims(const Experiment& experiment, const std::filesystem::path& results);

}  // namespace syncopate
