// What a worker of push-sum sends and gets: in exchange r everybody sends parts of what it has along the graph's r-th
// links, and keeps the rest. A worker that loses its state begins anew, with another one's model and a weight of 1;
// what it had taken and not mixed is lost with it, and is not waited for again.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/gossip/graph.hpp"
#include "workers/lost_with_state.hpp"
#include "workers/worker.hpp"

namespace syncopate {

class Pushes {
 public:
  Pushes(Worker& worker, Gossip& gossip, const GossipGraph& graph)
      : worker_(worker), gossip_(gossip), links_(graph, worker.rank()), weight_(worker), received_(worker) {}

  double weight() { return (*weight_).value; }  // w; the model is z = x / w
  Step exchanges() const { return sent_; }      // begun so far
  Step begun_at() const { return begun_at_; }   // the step in which the last one was

  // Fails where less weight is left than `least` and all who send have left: what is missing then does not come back.
  // (Of those that are only late it is under way.)
  void check_weight(double least);
  // Begins the next exchange: parts of what is here go to those whose turn it is, unless they have stopped.
  void send();
  void take_what_has_come();
  // Waits for the messages of all exchanges before this one.
  void take_before(Step exchange);
  // Whether those of this exchange are here, or will never come.
  bool has(Step exchange) const;
  // Makes the model the weighted mean of itself and what was taken of exchanges before this one.
  void mix_before(Step exchange);
  void mix_all();

 private:
  using Source = std::pair<Step, Rank>;  // an exchange, and who sent
  struct Weight {
    double value = 1;
  };
  void take(const Message& message);

  Worker& worker_;
  Gossip& gossip_;
  LinksOfWorker links_;
  LostWithState<Weight> weight_;
  Step sent_{};
  Step begun_at_{};
  Step next_{};             // to be waited for
  std::set<Source> taken_;  // from there on: of faster workers, or without waiting
  LostWithState<std::map<Source, WeightedState>> received_;
};

}  // namespace syncopate
