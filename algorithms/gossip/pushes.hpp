// What a worker of push-sum sends and gets: in exchange r everybody sends half of what it has along the graph's r-th
// step.
#pragma once

#include <map>
#include <set>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/gossip/graph.hpp"
#include "workers/worker.hpp"

namespace syncopate {

class Pushes {
 public:
  Pushes(Worker& worker, Gossip& gossip) : worker_(worker), gossip_(gossip), graph_(worker.size()) {}

  const ExponentialGraph& graph() const { return graph_; }
  double weight() const { return weight_; }    // w; the model is z = x / w
  Step exchanges() const { return sent_; }     // begun so far
  Step begun_at() const { return begun_at_; }  // the step in which the last one was

  // Fails where less weight is left than `least`: what is missing then is not under way, and does not come back.
  void check_weight(double least) const;
  // Begins the next exchange: half of what is here goes to the one whose turn it is, unless that has stopped.
  void send();
  void take_what_has_come();
  // Waits for the messages of all exchanges before this one.
  void take_before(Step exchange);
  // Whether that of this exchange is here, or will never come.
  bool has(Step exchange) const;
  // Makes the model the weighted mean of itself and what was taken of exchanges before this one.
  void mix_before(Step exchange);
  void mix_all();

 private:
  void take(const Message& message);

  Worker& worker_;
  Gossip& gossip_;
  ExponentialGraph graph_;
  double weight_ = 1;
  Step sent_{};
  Step begun_at_{};
  Step next_{};           // to be waited for
  std::set<Step> taken_;  // from there on: of faster workers, or without waiting
  std::map<Step, WeightedState> received_;
};

}  // namespace syncopate
