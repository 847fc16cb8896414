// A serial latency: every collective takes a fixed time more, in which no worker computes, whatever its size and the
// number of its members. Messages do not.
// Source:  T^c of Giladi et al. 2023 (DropCompute), where it comes on top of what the network model says.
#pragma once

#include <memory>

#include "workers/network/network.hpp"

namespace syncopate {

// On shared links it passes once the collective is through. Throws std::invalid_argument for a latency below 0.
std::unique_ptr<NetworkModel> with_serial_latency(std::unique_ptr<NetworkModel> network, double serial_s);

}  // namespace syncopate
