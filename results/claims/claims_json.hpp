// claims.json beside an experiment's runs: its claims, and what the runs said of them when it was last run.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/claims/verdict.hpp"

namespace syncopate {

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

}  // namespace syncopate
