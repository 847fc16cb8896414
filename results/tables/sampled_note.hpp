// The line below tables whose formulas go by a sample of a run's delays.
#pragma once

#include <string>

namespace syncopate {

std::string note_of_sampled();

}  // namespace syncopate
