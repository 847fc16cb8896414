// `syncopate claims`: the scoreboard over experiments that have been run.
#pragma once

#include <string>

namespace syncopate {

struct ClaimsOptions {
  std::string directory = "results/runs";
  bool markdown = false;
};

// Of all claims.json at or below the directory, by the names of their folders. Throws ConfigurationFault: no such
// directory, no claims in it, a file that is no list of claims of this version.
std::string claims_of(const ClaimsOptions& options);

}  // namespace syncopate
