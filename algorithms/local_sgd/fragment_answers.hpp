// What a server of Decoupled DiLoCo hears: workers' answers for the fragment that is due, and for how long it waits for
// them.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "algorithms/local_sgd/fragment_messages.hpp"
#include "workers/server.hpp"

namespace syncopate {

// What becomes of answers to a round that has ended.
enum class LateAnswers {
  drop,
  count,  // in the next round of their fragment
};

class FragmentAnswers {
 public:
  FragmentAnswers(Server& server, int fragments, LateAnswers late)
      : server_(server), late_(late), of_(static_cast<std::size_t>(fragments)) {}

  void open(const OpenRound& round) { round_ = round; }
  // Takes in what comes until then; less long once all workers have left.
  void wait_until(Time time);
  // Until so many workers have answered for the open round, or as many as have not left.
  void collect(int workers, Time until);

  // Those for the open round, by worker.
  std::vector<FragmentAnswer> take();

 private:
  struct OfFragment {
    std::vector<FragmentAnswer> answers;
    std::set<Rank> senders;  // with late answers a worker may have several
  };

  OfFragment& here() { return of_[static_cast<std::size_t>(round_.fragment(static_cast<int>(of_.size())).index)]; }
  bool all_have_answered();
  void receive(Time until);

  Server& server_;
  LateAnswers late_;
  OpenRound round_;
  std::vector<OfFragment> of_;
};

}  // namespace syncopate
