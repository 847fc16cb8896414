// What workers of AD-PSGD do with each other: an active one asks a random passive neighbour for its model, and both end
// up with half of each, one exchange at a time.
#pragma once

#include <optional>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/gossip/two_sides.hpp"
#include "workers/lost_with_state.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// With s and m the models of an active and a passive worker when each sends its own, the one adds (m - s) / 2 to what
// it has by then, the other (s - m) / 2: the mean of all models stays, whatever else the two do meanwhile. One that has
// lost its state, and s with it, ends up with half of m and of the model that it has taken up.
class PairExchanges {
 public:
  PairExchanges(Worker& worker, Gossip& gossip, const TwoSides& sides)
      : worker_(worker),
        gossip_(gossip),
        sides_(sides),
        is_active_(sides.is_active(worker.rank())),
        sent_(worker),
        mixed_(worker) {}

  // Begins a step: the model that gradients are taken at stays the worker's, what is mixed meanwhile goes beside it. An
  // active worker that waits for no answer asks somebody.
  void begin_step();
  // Answers those who have asked, and takes in the answer if it has come.
  void take_what_has_come();
  // Waits for an answer that was asked for this many steps ago or more: none is left before the step under way ends.
  void wait_for_older_than(Step steps);
  // The mixed model becomes the worker's.
  void end_step() { worker_.set_model(mixed()); }
  // Waits for the answer under way, if there is one, after the last step.
  void end();

 private:
  struct Asked {
    Rank partner{};
    Step step{};
  };
  void ask();
  std::optional<Rank> draw_partner() const;
  void await_answer();
  void meet(const Message& message);
  ModelStatePtr& mixed();

  Worker& worker_;
  Gossip& gossip_;
  const TwoSides& sides_;
  bool is_active_;
  std::optional<Asked> asked_;
  LostWithState<ModelStatePtr> sent_;  // to the one asked
  LostWithState<ModelStatePtr> mixed_;
};

}  // namespace syncopate
