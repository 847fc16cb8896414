// Who mixes models with whom, and by which weights, where workers have no centre.
// Source:  Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?"; Assran et al. 2019,
//          "Stochastic Gradient Push for Distributed Deep Learning", appendix A, for the exponential graphs.
// Shapes:  W is N x N: x_i <- sum over j of W_ij x_j. What a worker keeps, W_ii, is what its receivers leave.
// Checks:  |lambda_2| against closed forms, against LibTorch's eigenvalues, and against models that are mixed.
#pragma once

#include <cstddef>

#include "algorithms/method/algorithm.hpp"
#include "workers/base/linear_algebra.hpp"

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
  // Exchanges after which the graph repeats; 1: it is always the same.
  virtual int cycle() const { return 1; }
  // In this exchange, counted from 0: none of them the worker itself, each once.
  virtual std::vector<Neighbour> receivers(Rank sender, Step exchange) const = 0;
  virtual std::vector<Neighbour> senders(Rank receiver, Step exchange) const = 0;

  // |lambda_2| of W: by what the models' differences shrink per exchange. Over a cycle the geometric mean.
  virtual double second_eigenvalue() const = 0;
  double spectral_gap() const { return 1 - second_eigenvalue(); }
  std::string remark() const;  // for `predict`

  // For push-sum, where nobody has left: the least share of its weight that a worker keeps when it sends, and the least
  // weight that one has after an exchange.
  virtual double least_kept() const = 0;
  virtual double least_weight() const { return 1; }  // W is doubly stochastic
  // All receivers of a worker in a cycle, in the order of their first exchange.
  std::vector<Rank> all_receivers(Rank sender) const;
  std::int64_t messages_in(Step exchanges) const;  // of all workers
};
using GossipGraphPtr = std::shared_ptr<const GossipGraph>;

// The links of one worker, looked up once.
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

// The demands of a method on W.
enum class Mixing {
  doubly_stochastic,  // the mean of all models is preserved by itself (D-PSGD)
  column_stochastic,  // weights that are mixed along correct for who has got more (push-sum)
  in_pairs,           // its links alone, which go both ways: two workers at a time mix their halves (AD-PSGD)
};

// Reads the table `graph`, described by the sentence. Null if it is not written (the method's own graph), and after a
// fault.
GossipGraphPtr read_graph(Settings& settings, const AlgorithmContext& context, Mixing needed,
                          std::string_view sentence);

// A link from one worker to another, with the share of the first one's model that it carries.
struct WeightedLink {
  int from = 0;
  int to = 0;
  double weight = 0;
};

// A graph that is given link by link, each with its weight, as a file lists them.
class WeightedGraph final : public GossipGraph {
 public:
  // Each pair stands once, and nobody sends to itself.
  WeightedGraph(int workers, const std::vector<WeightedLink>& links);

  int workers() const override { return static_cast<int>(receivers_.size()); }
  std::vector<Neighbour> receivers(Rank sender, Step) const override { return receivers_[at(sender)]; }
  std::vector<Neighbour> senders(Rank receiver, Step) const override { return senders_[at(receiver)]; }
  double second_eigenvalue() const override;
  double least_kept() const override { return least_kept_; }
  double least_weight() const override { return least_weight_; }

  // The first fault of the graph, or nothing.
  std::optional<std::string> why_not_connected() const;
  // W's columns must sum to 1 and its diagonal be positive: all keep a part of what they have.
  std::optional<std::string> why_not_column_stochastic() const;
  // Its rows must sum to 1 too: a worker takes from others as much as it gives.
  std::optional<std::string> why_not_doubly_stochastic() const;

 private:
  static std::size_t at(Rank rank) { return static_cast<std::size_t>(rank.value); }
  double given_by(Rank sender) const;
  double find_least_weight() const;
  Matrix matrix() const;
  std::vector<char> reached(bool backwards) const;

  std::vector<std::vector<Neighbour>> receivers_, senders_;
  double least_kept_ = 1;
  double least_weight_ = 1;
};

// Weights for links without. Both are doubly stochastic where all have as many neighbours, Metropolis' wherever links
// go both ways.
enum class LinkWeights {
  degree,      // 1/(d + 1), d being how many the sender has
  metropolis,  // 1/(d + 1), d being the larger of the two workers' numbers
};
void weigh(std::vector<WeightedLink>& links, int workers, LinkWeights rule);

// The two sides of a graph (bipartite), of which no two of a side are linked: of two workers who meet, an active one
// asks and a passive one answers. Rank 0 is passive. By parity it costs nothing; of a graph a list of all links.
class Bipartition {
 public:
  static Bipartition by_parity(int workers) {
    return Bipartition(workers);
  }  // all pairs of an even rank and an odd one
  // None where the graph has no two such sides.
  static std::optional<Bipartition> of(const GossipGraph& graph);

  bool is_active(Rank worker) const { return lists_.empty() ? worker.value % 2 == 1 : lists_[at(worker)].is_active; }

  // Linked workers of the other side, in the order of the ranks.
  int partners(Rank worker) const {
    if (!lists_.empty()) return static_cast<int>(lists_[at(worker)].partners.size());
    return worker.value % 2 == 1 ? (workers_ + 1) / 2 : workers_ / 2;
  }

  Rank partner(Rank worker, int number) const {
    if (!lists_.empty()) return lists_[at(worker)].partners[static_cast<std::size_t>(number)];
    return Rank{2 * number + 1 - worker.value % 2};
  }

  std::vector<Rank> all_partners(Rank worker) const {
    std::vector<Rank> all;
    for (int number = 0; number < partners(worker); ++number) all.push_back(partner(worker, number));
    return all;
  }

 private:
  struct Listed {
    bool is_active = false;
    std::vector<Rank> partners{};
  };
  explicit Bipartition(int workers) : workers_(workers) {}
  static std::size_t at(Rank worker) { return static_cast<std::size_t>(worker.value); }

  int workers_;
  std::vector<Listed> lists_;  // by rank; none: by parity
};

}  // namespace syncopate
