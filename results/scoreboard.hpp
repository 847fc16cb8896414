// Claims, what papers say, what our runs say, and the verdicts.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "results/claims/claims_json.hpp"
#include "results/tables/text_table.hpp"

namespace syncopate {

// Our number with its unit, its interval and the seeds: "1.8 points [1.7, 1.9], n = 3"; of several points the lowest
// and the highest mean, and how many there are.
std::string our_figure(const ClaimResult& result);

// For a terminal, experiment by experiment: verdict and claim, and below it what the paper says, what counts as
// reproduced, and what we measured. `width`: at which lines are folded; 0: nowhere.
std::string scoreboard_text(std::span<const JudgedClaims> experiments, std::size_t width = 0);

// The same as a table, for pages: experiment, claim, wanted, paper, ours, verdict.
TextTable scoreboard_table(std::span<const JudgedClaims> experiments);

// "12 reproduced, 1 not reproduced, 3 inconclusive", and what brackets mean.
std::string scoreboard_notes(std::span<const JudgedClaims> experiments);

}  // namespace syncopate
