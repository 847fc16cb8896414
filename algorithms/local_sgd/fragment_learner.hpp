// A worker of Decoupled DiLoCo, which takes local steps and waits for nobody: what it holds of the model's fragments,
// of the server's open round, and of its own steps.
// Source:  as in decoupled_diloco.hpp.
// Shapes:  the worker's model and its base: (P,) flat float32.
// Cost:    as there.
// Differs: as there.
// Checks:  with the method.
#pragma once

#include <optional>

#include "algorithms/local_sgd/fragment_messages.hpp"
#include "algorithms/local_sgd/fragment_progress.hpp"
#include "workers/worker.hpp"

namespace syncopate {

class FragmentLearner {
 public:
  // The worker outlives it. It answers once it has taken `minimum_steps` since it got a fragment; with the difference
  // to what it began from where it `subtracts`, else with what it has come to.
  FragmentLearner(Worker& worker, int fragments, Step minimum_steps, bool subtracts);

  Rank server() const { return server_; }

  // From what the worker has. Where an outage has taken that, from the server's newest model, which is the base from
  // here on; then it asks which round is open.
  void take_local_step();
  // Those that the server has sent by now, in the place of its own.
  void take_up_fragments();
  // Sends the open round's fragment where there is such a round, and the worker has not answered it.
  void answer_if_due();
  // What nobody has been told of is lost.
  void leave() { discard(progress_.receive_all()); }

 private:
  void discard(const Work& lost);
  void begin_anew();
  FragmentAnswer answer_of(int fragment);

  Worker& worker_;
  Rank server_;
  Step minimum_steps_;
  FragmentProgress progress_;
  std::optional<OpenRound> open_ = OpenRound{};  // none: answered, or not known
  std::optional<double> sync_s_{};               // how long the last fragment took to come; none: there was none
  ModelStatePtr base_{};                         // none: the server subtracts
};

}  // namespace syncopate
