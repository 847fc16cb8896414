// Parts of the lists of methods' keys (keys_test).
#pragma once

#include <string>
#include <vector>

#include "tests/experiments/key_walk.hpp"

namespace syncopate {

inline std::string method(const std::string& keys) { return "methods=[{algorithm=" + keys + "}]"; }

}  // namespace syncopate
