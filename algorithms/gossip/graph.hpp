// Who mixes models with whom, and by which weights, where workers have no centre.
// Source:  Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?"; Assran et al. 2019,
//          "Stochastic Gradient Push for Distributed Deep Learning", appendix A, for the exponential graphs.
// Shapes:  W is N x N: x_i <- sum over j of W_ij x_j. What a worker keeps, W_ii, is what its receivers leave.
// Checks:  |lambda_2| against closed forms, against LibTorch's eigenvalues, and against models that are mixed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "workers/units/units.hpp"

namespace syncopate {

// One other worker, and the share of the sender's model that goes to the receiver.
struct Neighbour {
  Rank worker{};
  double weight = 0;
  bool operator==(const Neighbour&) const = default;
};

class GossipGraph {
 public:
  virtual ~GossipGraph() = default;

  virtual int workers() const = 0;
  // Exchanges after which the graph begins anew; 1: it is always the same.
  virtual int cycle() const { return 1; }
  // In this exchange, counted from 0: none of them the worker itself, each once.
  virtual std::vector<Neighbour> receivers(Rank sender, Step exchange) const = 0;
  virtual std::vector<Neighbour> senders(Rank receiver, Step exchange) const = 0;

  // |lambda_2| of W: by what the models' differences shrink per exchange. Over a cycle the geometric mean.
  virtual double second_eigenvalue() const = 0;
  double spectral_gap() const { return 1 - second_eigenvalue(); }

  // Of push-sum, where nobody has left: the least share of its weight that a worker keeps when it sends, and the least
  // weight that one has after an exchange.
  virtual double least_kept() const = 0;
  virtual double least_weight() const { return 1; }  // W is doubly stochastic
  // All to whom a worker sends in some exchange of a cycle, in the order in which it does first.
  std::vector<Rank> all_receivers(Rank sender) const;
  std::int64_t messages_in(Step exchanges) const;  // of all workers
};
using GossipGraphPtr = std::shared_ptr<const GossipGraph>;

// Those of one worker, looked up once.
class LinksOfWorker {
 public:
  LinksOfWorker(const GossipGraph& graph, Rank self);

  const std::vector<Neighbour>& receivers(Step exchange) const { return receivers_[turn(exchange)]; }
  const std::vector<Neighbour>& senders(Step exchange) const { return senders_[turn(exchange)]; }
  const std::vector<std::vector<Neighbour>>& senders_by_turn() const { return senders_; }  // of a cycle

 private:
  std::size_t turn(Step exchange) const { return static_cast<std::size_t>(exchange.value()) % receivers_.size(); }

  std::vector<std::vector<Neighbour>> receivers_, senders_;  // by turn of a cycle
};

// Graphs on which all workers are alike: they stand on a grid that is closed in each direction, and send to those that
// are some hops further; each keeps as much as each of its receivers gets.
GossipGraphPtr ring(int workers);                  // the one before and the one after
GossipGraphPtr torus(int rows, int columns);       // the four beside one
GossipGraphPtr hypercube(int workers);             // ranks that differ in one bit; a power of two workers
GossipGraphPtr complete_graph(int workers);        // all others
GossipGraphPtr exponential_graph(int workers);     // those 1, 2, 4, ... < N ranks further
GossipGraphPtr one_peer_exponential(int workers);  // of these one per exchange, in turn

}  // namespace syncopate
