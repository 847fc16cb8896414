// Claims, what papers say, what our runs say, and the verdicts.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/claims.hpp"
#include "results/text_table.hpp"

namespace syncopate {

// claims.json beside an experiment's runs: its claims, and what the runs said of them when it was last run.
inline constexpr const char* claims_file = "claims.json";
inline constexpr int claims_schema_version = 2;

// Where and when claims were judged.
struct JudgedAt {
  std::string commit;  // of the program
  std::string processor;
  int cores = 1;
  std::string time;  // ISO 8601, UTC
};

struct JudgedClaims {
  std::string experiment;
  std::string description;
  std::string runs{};  // a digest of their hashes: whether an experiment file means the same ones
  JudgedAt at{};
  std::optional<std::size_t> judged_runs{};  // how many of them were there; none: not known
  std::vector<ClaimResult> results;
};

std::string to_json(const JudgedClaims& claims);

// Nothing if the text is not a list of claims of this schema version, or is no longer as it was written.
std::optional<JudgedClaims> claims_from_json(const std::string& text);

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
