// Jitter: each collective and each message takes its cost x (1 + jitter x E), with E exponential of mean 1, so that
// the cost of the model below is the least, and (1 + jitter) times it the mean. On shared links a transfer holds each
// link, and each hop takes its latency, so many times as long.
// Source:  this project's choice: delays in queues add up and have no upper bound, but nothing is faster than a free
//          network. E is drawn once per collective, addressed by its first member, its size and its number among
//          those of these members, and once per message, addressed by its sender and its number among the sender's:
//          all methods of an experiment meet the same draws.
#pragma once

#include <cstdint>
#include <memory>

#include "workers/network/network.hpp"

namespace syncopate {

// Throws std::invalid_argument where the jitter is below 0 or infinite.
std::unique_ptr<NetworkModel> with_jitter(std::unique_ptr<NetworkModel> network, double jitter, std::uint64_t seed);

}  // namespace syncopate
