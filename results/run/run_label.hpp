// What a run is called in tables and lines.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace syncopate {

// "DropCompute, threshold_s = 0.07": the method and the swept values, each by the last part of its key; a
// variant, and a rate with its unit, by itself: "DropCompute, 10 Gbit/s".
std::string run_label(const std::string& method, const std::vector<std::pair<std::string, std::string>>& sweep);

}  // namespace syncopate
