// How a claim's numbers are shown, and in which words what it asks for.
#pragma once

#include <span>
#include <string>

#include "results/claims/claim.hpp"
#include "results/claims/verdict.hpp"

namespace syncopate {

struct ShownEffect {
  double times = 1;  // 100: a share that is shown in percent
  std::string unit;  // "s", "points"; empty: a plain number, such as a ratio
};

// In the measure's unit, as claims.json has it.
ShownEffect shown_effect(const Claim& claim);

// For readers: in hours where what is wanted or found goes to two hours or more.
ShownEffect readable_effect(const Claim& claim, std::span<const JudgedPoint> points);

// "step_time_s, DropCompute divided by synchronous SGD".
std::string subject_of(const Claim& claim);

// What counts as reproduced: "a difference above 0 points", "a ratio from 0.8 to 0.9"; in the unit of what was found.
std::string wanted_by(const Claim& claim, std::span<const JudgedPoint> points = {});

}  // namespace syncopate
