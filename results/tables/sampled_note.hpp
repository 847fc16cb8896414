// The line below tables whose formulas go by a sample of a run's delays.
#pragma once

#include <string>
#include <string_view>

namespace syncopate {

// A line where `formulas`, a text with their names, has "sampled" among them; else empty.
std::string note_of_sampled(std::string_view formulas);

}  // namespace syncopate
