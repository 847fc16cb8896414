// A ring: in each round every member passes something on to the next one, over N links at once.
// Source:  Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
// Formula: with latency L, payload P, bandwidth B:
//          all-reduce  2 (N - 1) L + 2 (N - 1) / N x P / B   (a reduce-scatter, then an all-gather of Nths)
//          all-gather    (N - 1) L +   (N - 1) / N x P / B
//          all-to-all    (N - 1) L +   (N - 1) / N x P / B   (round r: to the member r places on; a switch between all)
//          broadcast   ceil(log2 N) (L + P / B)              (a binomial tree of messages)
//          message     L + P / B
#pragma once

#include <memory>

#include "workers/network/link.hpp"
#include "workers/network/network.hpp"

namespace syncopate {

double ring_s(const Link& link, Operation operation, int members, Bytes payload);

// Throws std::invalid_argument for what is no link.
std::unique_ptr<NetworkModel> make_ring_network(double latency_s, double bandwidth_bytes_per_s);

}  // namespace syncopate
