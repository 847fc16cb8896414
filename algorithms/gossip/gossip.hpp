// Gossip: graphs, which say which workers mix models, and the common part of methods without a server.
// Outages: a worker that loses its state continues with fresh moments from the last model that another worker has sent
//          it, or from the initial model. This is as if the sender repeated its last message from a log, but takes no
//          time. None of the worker's steps count as dropped, because the models that it has sent contain them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "workers/base/linear_algebra.hpp"
#include "workers/config/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// --- Graphs. In an exchange, each worker sends its model to its receivers ---
// Source:  Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?"; Assran et al. 2019,
//          "Stochastic Gradient Push for Distributed Deep Learning", appendix A, for the exponential graphs.
// Shapes:  the weights W are N x N: an exchange replaces x_i by the sum over j of W_ij x_j. A worker's own weight W_ii
//          is 1 minus the shares that its receivers get.
// Checks:  |lambda_2| against closed forms, against LibTorch's eigenvalues, and against models that are mixed.

// The other worker of a link, and the weight W_ij, the share of the sender's model that goes to the receiver.
struct Neighbour {
  Rank worker{};
  double weight = 0;
  bool operator==(const Neighbour&) const = default;
};

class GossipGraph {
 public:
  virtual ~GossipGraph() = default;

  virtual int workers() const = 0;
  // Number of exchanges after which the graph repeats; 1: it does not change.
  virtual int cycle() const { return 1; }
  // The links of a worker in an exchange; exchanges are counted from 0. Each other worker occurs at most once, the
  // worker itself never.
  virtual std::vector<Neighbour> receivers(Rank sender, Step exchange) const = 0;
  virtual std::vector<Neighbour> senders(Rank receiver, Step exchange) const = 0;

  // |lambda_2| of W, by which the models' differences shrink per exchange; over a cycle the geometric mean.
  virtual double second_eigenvalue() const = 0;
  double spectral_gap() const { return 1 - second_eigenvalue(); }
  std::string remark() const;  // for `predict`

  // For push-sum, while no worker has left: the smallest share of its weight that a worker keeps when it sends, and the
  // smallest weight that a worker has after an exchange (1 if W is doubly stochastic).
  virtual double least_kept() const = 0;
  virtual double least_weight() const { return 1; }
  // All receivers of a worker in a cycle, in the order of their first exchange.
  std::vector<Rank> all_receivers(Rank sender) const;
  std::int64_t messages_in(Step exchanges) const;  // messages of all workers in the first `exchanges` exchanges
};
using GossipGraphPtr = std::shared_ptr<const GossipGraph>;

class LinksOfWorker {
 public:
  LinksOfWorker(const GossipGraph& graph, Rank self);

  const std::vector<Neighbour>& receivers(Step exchange) const { return receivers_[turn(exchange)]; }
  const std::vector<Neighbour>& senders(Step exchange) const { return senders_[turn(exchange)]; }
  const std::vector<std::vector<Neighbour>>& senders_by_turn() const { return senders_; }  // [exchange in a cycle]

 private:
  std::size_t turn(Step exchange) const { return static_cast<std::size_t>(exchange.value()) % receivers_.size(); }

  std::vector<std::vector<Neighbour>> receivers_, senders_;  // by exchange in a cycle
};

// Graphs on which all workers are alike. A worker keeps the same share of its model as each of its receivers gets. The
// comments say who the receivers are.
GossipGraphPtr ring(int workers);                  // the previous and the next worker
GossipGraphPtr torus(int rows, int columns);       // the four neighbours on a grid that is closed in each direction
GossipGraphPtr hypercube(int workers);             // ranks that differ in one bit, of a power of two workers
GossipGraphPtr complete_graph(int workers);        // all others
GossipGraphPtr exponential_graph(int workers);     // workers 1, 2, 4, ... < N ranks further
GossipGraphPtr one_peer_exponential(int workers);  // in each exchange one receiver of exponential_graph, in turn

// A method's requirements for W.
enum class Mixing {
  doubly_stochastic,  // preserves the mean of all models (D-PSGD)
  column_stochastic,  // workers may receive more or less than they send; weights sent with models correct this (SGP)
  in_pairs,           // weights are not used, and links go both ways: pairs of workers average their models (AD-PSGD)
};

// Reads the table `graph`, whose description is `sentence`. Returns null after a fault, or if there is no such table;
// then the method has its default graph.
GossipGraphPtr read_graph(Settings& settings, const AlgorithmContext& context, Mixing needed,
                          std::string_view sentence);

struct WeightedLink {
  int from = 0;
  int to = 0;
  double weight = 0;  // the share of the sender's model that goes to the receiver
};

// A graph that is given as a list of links, for example in a file.
class WeightedGraph final : public GossipGraph {
 public:
  // Each pair may occur once, and no worker sends to itself.
  WeightedGraph(int workers, const std::vector<WeightedLink>& links);

  int workers() const override { return receivers_.size(); }
  std::vector<Neighbour> receivers(Rank sender, Step) const override { return receivers_[sender]; }
  std::vector<Neighbour> senders(Rank receiver, Step) const override { return senders_[receiver]; }
  double second_eigenvalue() const override;
  double least_kept() const override { return least_kept_; }
  double least_weight() const override { return least_weight_; }

  // These functions return the text of the first fault. There is none if the graph is strongly connected; if W's
  // columns sum to 1 and its diagonal is positive (each worker keeps a part of its model); or if W's rows, too, sum to
  // 1 (each worker receives shares of the same sum as it sends).
  std::optional<std::string> why_not_connected() const;
  std::optional<std::string> why_not_column_stochastic() const;
  std::optional<std::string> why_not_doubly_stochastic() const;

 private:
  double given_by(Rank sender) const;
  double find_least_weight() const;
  Matrix matrix() const;
  ByRank<char> reached(bool backwards) const;

  ByRank<std::vector<Neighbour>> receivers_, senders_;
  double least_kept_ = 1;
  double least_weight_ = 1;
};

// Rules for the weights of links in a file. With `degree` W is doubly stochastic if all workers have equally many
// neighbours; with `metropolis` it is doubly stochastic if links go both ways.
enum class LinkWeights {
  degree,      // 1/(d + 1); d: the sender's number of receivers
  metropolis,  // 1/(d + 1); d: the larger number of receivers of the link's two workers
  given,       // the weights in the file
};
void weigh(std::vector<WeightedLink>& links, int workers, LinkWeights rule);

// The two sides of a bipartite graph, in which no two workers of a side are linked. In each pair the active worker asks
// and the passive one answers. Rank 0 is passive. by_parity() needs no memory; of() stores all links of the graph.
class Bipartition {
 public:
  static Bipartition by_parity(int workers) { return Bipartition(workers); }  // even and odd ranks
  // None if the graph is not bipartite.
  static std::optional<Bipartition> of(const GossipGraph& graph);

  bool is_active(Rank worker) const { return lists_.empty() ? worker.value % 2 == 1 : lists_[worker].is_active; }

  // A worker's partners are the workers of the other side with links to it, in the order of their ranks.
  int partners(Rank worker) const {
    if (!lists_.empty()) return static_cast<int>(lists_[worker].partners.size());
    return worker.value % 2 == 1 ? (workers_ + 1) / 2 : workers_ / 2;
  }

  Rank partner(Rank worker, int number) const {
    if (!lists_.empty()) return lists_[worker].partners[static_cast<std::size_t>(number)];
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

  int workers_;
  ByRank<Listed> lists_;  // empty: the sides are odd and even ranks
};

// --- The common part of the methods ---

// Traits::exchanged_whole of the gossip methods.
inline constexpr std::string_view models_of_neighbours =
    "neighbours would have to keep copies of each other's models (CHOCO-SGD), which is not implemented";

class Gossip {
 public:
  explicit Gossip(Worker& worker, IndividualModels evaluated = IndividualModels::mean)
      : worker_(worker), evaluated_(evaluated) {
    declare_newest(worker.model());
  }

  // Waits for the next message of another worker. Returns null once that worker has stopped.
  ReceivedMessage receive_from(Rank from, Worker::CalledFrom at = Worker::CalledFrom::current());
  // Returns the messages that have arrived since the last call, in order of arrival. Messages of workers that stop are
  // left out.
  std::vector<ReceivedMessage> receive_what_has_come(Worker::CalledFrom at = Worker::CalledFrom::current());
  // Whether this worker knows that the other one has stopped; true for itself, since no worker sends to itself.
  bool has_stopped(Rank worker) const {
    return worker == worker_.rank() || last_.contains(worker) || worker_.has_left(worker);
  }

  // Call after each step; after the last step call `stop`, too. Reports the step, and publishes the worker's model with
  // its weight in the mean of all models.
  void end_step(double weight = 1) {
    const ModelStatePtr others = others_newest_.lock();
    worker_.report_steps();
    if (others) declare_newest(others);  // not this worker's model, which nobody could send back to it
    if (worker_.budget_left()) worker_.publish(WorkerModel{.weight = weight, .evaluated = evaluated_});
  }

  struct Ending {
    double weight = 1;
    bool others_may_wait = false;  // whether others may wait for this worker even after all workers' last steps
  };
  // Ends this worker's training. All workers send their models to worker 0, which publishes their weighted mean. This
  // is for evaluation only, so these messages take no time on the clock (Message::Kind::last_model). Worker 0 leaves
  // only when it has all models, so before that it notifies `listeners`, which may wait for its next message. Workers
  // that leave because their own data are used up are not in the mean. If worker 0 does, no mean is published.
  void stop(std::span<const Rank> listeners, const Ending& how, Worker::CalledFrom at = Worker::CalledFrom::current());

 private:
  ReceivedMessage unless_last(ReceivedMessage message);
  void declare_newest(const ModelStatePtr& others) {
    worker_.declare_newest(others);
    others_newest_ = others;
  }
  void publish_mean(Message own, Worker::CalledFrom at);

  Worker& worker_;
  IndividualModels evaluated_;
  std::weak_ptr<const ModelState> others_newest_;  // kept alive by worker_, if outages can erase its state
  std::map<Rank, Message> last_;                   // by worker that has stopped: its last message
};

// Reads the key `evaluated`: "average" (default) or "own".
IndividualModels read_individual_models(Settings& settings);

}  // namespace syncopate
