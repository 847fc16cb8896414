// Notes on numbers that are probably a thousand times, or eight times, what was meant: a threshold that never drops
// (milliseconds for seconds), a network that takes nearly all of the time (bits for bytes), and
// a server's link that workers wait for.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/rows/summary.hpp"
#include "results/run/run.hpp"

namespace syncopate {

// A line each, of methods and points of what varies; empty: there is nothing to note. `check` goes by first steps, of
// the first seed, which are simulated as far as a bound on all of them together allows.
std::string magnitude_notes(std::span<const Run> runs);

// The same by how the runs went on the virtual clock; run by run, none where a run was not made.
std::string magnitude_notes(std::span<const Run> runs, const std::vector<std::optional<RunSummary>>& summaries);

}  // namespace syncopate
