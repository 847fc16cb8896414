// What the server of Decoupled DiLoCo and its workers tell each other.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "workers/participant.hpp"

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

// What the answers of a round say together.
struct AnswerTotals {
  AnswerTotals(const std::vector<FragmentAnswer>& answers, int micro_batches_per_step);

  double slowest_step_s = 0;
  std::optional<double> slowest_sync_s{};
  std::int64_t micro_batches = 0;
};

}  // namespace syncopate
