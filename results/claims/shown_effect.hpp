// How a claim's numbers are shown, and in which words what it asks for.
#pragma once

#include <string>

#include "results/claims/claim.hpp"

namespace syncopate {

struct ShownEffect {
  double times = 1;  // 100: a share that is shown in percent
  std::string unit;  // "s", "points"; empty: a plain number, such as a ratio
};

ShownEffect shown_effect(const Claim& claim);

// "step_time_s, DropCompute divided by synchronous SGD".
std::string subject_of(const Claim& claim);

// What counts as reproduced: "a difference above 0 points", "a ratio from 0.8 to 0.9".
std::string wanted_by(const Claim& claim);

}  // namespace syncopate
