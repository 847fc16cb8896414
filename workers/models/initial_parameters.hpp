// Where the training of a network starts.
#pragma once

#include <cstdint>
#include <vector>

#include "workers/models/network.hpp"

namespace syncopate {

// (P,) in the flat layout. Parameter p is drawn from stream p, so that its values do not depend on the others' sizes.
std::vector<float> initial_parameters(const Network& network, std::uint64_t seed);

}  // namespace syncopate
