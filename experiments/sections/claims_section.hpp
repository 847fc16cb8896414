// [[claim]]: what somebody says that the experiment shows, and what counts as having shown it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "results/claims/claim.hpp"
#include "results/run/run.hpp"
#include "workers/settings/fault_list.hpp"
#include "workers/settings/settings.hpp"
#include "workers/settings/toml_tree.hpp"

namespace syncopate {

// Why no run of the method will ever have the measure, as "needs evaluation.target_accuracy"; empty: some will.
using WhyNot = std::function<std::string(const std::string& measure, const std::string& method)>;

// Checked against the experiment's runs: methods, swept keys and their values, measures, which some run of the method
// must have, and that a claim without `everywhere` or `over` means one point. Faults are added.
std::vector<Claim> read_claims(const TomlNode& root, std::span<const std::string> methods, std::span<const Run> runs,
                               const WhyNot& why_not, FaultList& faults);

// What is wrong with the claims themselves, whatever the runs are. Faults are added.
void check_claims_alone(const TomlNode& root, FaultList& faults);

// For the lists of keys.
void describe_claims(Settings& root);

}  // namespace syncopate
