// A parameter server's star: everybody has a link to the server, and the server's own link, one incoming and one
// outgoing, is shared by all. Transfers over it are served one after another, in the order in which they come to it.
// Source:  derived here: a queue with one server, first come, first served, at each end of the server's link.
// Formula: with latency L, payload P, bandwidth B of the server's link each way. A transfer that comes to a link at t
//          holds it from max(t, the end of the transfer before) for P / B, and arrives L after that:
//          message     worker to server over its incoming link, server to worker over its outgoing one, worker to
//                      worker over both; over a free link L + P / B each. k of N that set out together: L + k P / B.
//          all-reduce  2 L + 2 N P / B        (N vectors in, N sums out: 2 N transfers over the server's link)
//          all-gather  2 L + (N + 1) P / B    (N parts in, all of P out to each)
//          broadcast   2 L + N P / B          (one vector in, one out to each of the others)
//          Collectives and messages hold the links alike. Several servers have a link each; what workers say to each
//          other, and collectives, goes over the first one's. One member alone needs no server: 0.
//          The workers' own links are no narrower than the server's, so that they never make anything wait.
#pragma once

#include <memory>

#include "workers/network/link.hpp"
#include "workers/network/network.hpp"

namespace syncopate {

// Throws std::invalid_argument for what is no link. Ranks from `workers` on are servers.
std::unique_ptr<NetworkModel> make_parameter_server_network(int workers, const Link& server_link);

}  // namespace syncopate
