// RunSummary as summary.json, and back.
#pragma once

#include <optional>
#include <string>

#include "results/rows/summary.hpp"

namespace syncopate {

// What "links" is for runs with has_unshared_links; others have none.
inline constexpr const char* unshared_links = "not shared";

std::string to_json(const RunSummary& summary);

// Nothing if the text is not a summary of this schema version: such a run is repeated, not guessed at.
// The accounts of single workers are not read back.
std::optional<RunSummary> summary_from_json(const std::string& text);

}  // namespace syncopate
