// The server of WAGMA-SGD: it holds everybody's newest model, and forms the means of a round's groups once somebody has
// arrived at it.
#pragma once

#include <map>
#include <vector>

#include "algorithms/gossip/rotating_groups.hpp"
#include "algorithms/gossip/wagma_sgd.hpp"
#include "workers/server.hpp"
#include "workers/units/by_rank.hpp"

namespace syncopate {

class GroupAverages {
 public:
  GroupAverages(Server& server, const WagmaOptions& options);

  // A model that a worker brings to a round (who is late is answered at once), or its last one, or its farewell.
  void take(const Message& message);
  // Begins the next round if somebody has arrived at it, a global one once all have, and answers these.
  void begin_if_due();
  void publish_last();

 private:
  struct OfWorker {
    ModelStatePtr newest{};
    Step round{};                                  // that it has arrived at last
    Message::Kind brought = Message::Kind::model;  // with last_model and farewell it has ended
  };
  struct Mean {
    ModelStatePtr model{};
    int members = 0;
  };
  bool is_global(Step round) const;
  Rank group_of(Rank worker, Step round) const { return is_global(round) ? Rank{0} : groups_.group_of(worker, round); }
  void form_means(Step round);
  void reply(Rank to, bool in_time) const;
  ModelStatePtr mean_of(std::vector<WeightedState>& models) const;

  Server& server_;
  const WagmaOptions& options_;
  RotatingGroups groups_;
  ByRank<OfWorker> workers_;
  int here_;                                    // workers that have not ended
  Step begun_{};                                // the newest round that has
  std::vector<Rank> waiting_;                   // at the next one
  std::map<Step, std::map<Rank, Mean>> means_;  // by round and group, as far back as somebody has still to come
};

}  // namespace syncopate
