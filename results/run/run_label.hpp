// What a run is called in tables and lines.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace syncopate {

// "DropCompute, threshold_s = 0.07": the method and the swept values, each by the last part of its key.
std::string run_label(const std::string& method, const std::vector<std::pair<std::string, std::string>>& sweep);

}  // namespace syncopate
