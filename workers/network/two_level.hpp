// Two levels: groups of `group_size` consecutive ranks are the workers of one server; inside a server there is one
// kind of link, between servers another. One worker of each server leads it.
// Source:  the scheme of hierarchical all-reduces, e.g. Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 4
//          (reduce inside, all-reduce between, broadcast inside); trees inside are this model's choice.
// Formula: N members on S servers, at most g of them on one; l, b inside, L, B between; r = ceil(log2 g):
//          all-reduce  2 r (l + P / b) + all-reduce of P by the leaders
//          all-gather  r l + (g - 1) / N x P / b + all-gather of S g / N x P by the leaders + r (l + P / b)
//          broadcast   r (l + P / b) + ceil(log2 S) (L + P / B)
//          all-to-all  2 (r l + (g - 1) P / b) + all-to-all of g P by the leaders   (vectors to the leader, parts back)
//          message     l + P / b inside a server, else L + P / B
//          The leaders' part is that of a ring or of a binomial tree of S members (ring.hpp, tree.hpp); servers with
//          fewer members than the fullest one wait for it. A parameter server stands on a server of its own, but a
//          region's (Servers::of_regions) on that of the region's first worker.
#pragma once

#include <memory>

#include "workers/network/link.hpp"
#include "workers/network/network.hpp"

namespace syncopate {

struct TwoLevelOptions {
  enum class Between { ring, tree };
  int group_size = 2;  // workers per server, the last may have fewer
  Link inside{};
  Link between{};
  Between leaders = Between::ring;
};

// Throws std::invalid_argument for a group_size below 1 and for what is no link. Ranks from `workers` on are servers
// of parameters.
std::unique_ptr<NetworkModel> make_two_level_network(int workers, const TwoLevelOptions& options);

}  // namespace syncopate
