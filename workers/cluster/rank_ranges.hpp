#pragma once

#include <string>
#include <vector>

namespace syncopate {

// "0-3, 7": ranks in ascending order as ranges.
std::string rank_ranges(const std::vector<int>& ranks);

}  // namespace syncopate
