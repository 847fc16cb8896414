// A binomial tree: in round r of R = ceil(log2 N) every member whose rank is an odd multiple of 2^r passes what it
// has to the one 2^r below it; on the way back the rounds run in reverse.
// Source:  Thakur, Rabenseifner, Gropp 2005, "Optimization of collective communication operations in MPICH".
// Formula: with latency L, payload P, bandwidth B:
//          all-reduce  2 R (L + P / B)                               (the sum to the root, then a broadcast)
//          all-gather  R L + (N - 1) / N x P / B + R (L + P / B)     (to the root, then a broadcast of all)
//          broadcast   R (L + P / B)
//          all-to-all  R L + (b(0) + ... + b(N - 1)) / N x P / B     (b(i): ones among i's binary digits)
//          message     L + P / B
//          Derivation of the gathering: the one longest transfer of round r is that of rank 2^r, with the parts of
//          min(2^r, N - 2^r) members; over all rounds these are N - 1 parts of P / N.
//          The all-to-all has no root: in round r every member passes on, 2^r places, all parts whose way has that
//          digit (Bruck et al. 1997); with N a power of two that is P / 2 in each round.
#pragma once

#include <memory>

#include "workers/network/link.hpp"
#include "workers/network/network.hpp"

namespace syncopate {

double tree_s(const Link& link, Operation operation, int members, Bytes payload);

// Throws std::invalid_argument for what is no link.
std::unique_ptr<NetworkModel> make_tree_network(double latency_s, double bandwidth_bytes_per_s);

}  // namespace syncopate
