// What a server of Decoupled DiLoCo hears: workers' answers for the fragment that is due, and for how long it waits for
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "workers/server.hpp"

namespace syncopate {

// What the server tells of the round that is open, as the numbers of a message.
struct OpenRound {
  Step number{};                 // from 0
  Time begins = start_time;      // no answer before
  Time last_ended = start_time;  // when the round before it did

  std::vector<double> numbers() const;
  static OpenRound from(const std::vector<double>& numbers);
  Slice fragment(int fragments) const { return {static_cast<int>(number.value() % fragments), fragments}; }
};

// What a worker answers.
struct FragmentAnswer {
  Rank from{};
  ModelStatePtr model{};  // or a difference; null in time-only runs
  Work work{};            // its steps since its last answer
  // Since it received the fragment:
  std::int64_t micro_batches = 0;  // k
  Step steps{};                    // s
  std::optional<double> sync_s{};  // how long the last new fragment took to it; none: it has had none

  Message message(const OpenRound& round, Slice fragment) const;
  static FragmentAnswer from_message(const Message& message);
};

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
