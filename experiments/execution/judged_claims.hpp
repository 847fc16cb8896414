// The claims of an experiment file, judged by its runs.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "experiments/sections/experiment.hpp"

namespace syncopate {

// Judges the claims by the experiment's runs that are in the results directory, simulated ones, and returns the
// scoreboard, folded at `width` unless that is 0; empty where nothing is claimed. Writes claims.json beside the runs,
// unless the experiment differs from its file: overrides must not replace the file's verdicts. Throws
// std::runtime_error (a damaged run) or std::system_error (claims.json cannot be written).
std::string judge_claims(const Experiment& experiment, const std::filesystem::path& results, std::size_t width);

// The scoreboard of the same claims, judged by the same runs, whose claims.json is in the experiment's folder of that
// directory, with a line that says by what program, folded likewise; empty if there is none. Throws std::system_error.
std::string accepted_claims(const Experiment& experiment, const std::filesystem::path& directory, std::size_t width);

}  // namespace syncopate
