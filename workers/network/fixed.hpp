// A fixed cost: every collective and every message takes the same time, whatever its size and however many take
// part, one worker alone too.
// Source:  T^c of Giladi et al. 2023 (DropCompute): the serial time per step in which no worker computes.
// Formula: latency.
#pragma once

#include <memory>

#include "workers/network/network.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// Throws std::invalid_argument for a latency below 0. With 0 the network is free.
std::unique_ptr<NetworkModel> make_fixed_network(double latency_s);

// The key `latency_s`.
std::unique_ptr<NetworkModel> read_fixed_network(Settings& settings);

}  // namespace syncopate
