// Which measures a run can have at all, by what its experiment file asks for.
#pragma once

#include <string>

#include "experiments/sections/definition.hpp"

namespace syncopate {

// Why runs of this definition never have the measure, as "needs a validation split: ..."; empty: they may. Measures are
// those of results/rows/measures.hpp and times to equal loss.
std::string why_not_measured(const std::string& measure, const Definition& definition);

}  // namespace syncopate
