// What the server of Decoupled DiLoCo and its workers tell each other, and what answers say together.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "algorithms/local_sgd/decoupled_diloco.hpp"

namespace syncopate {
namespace {

TEST(OpenRound, IsWhatItsNumbersSay) {
  const OpenRound round{.number = Step{5}, .begins = Time{from_seconds(1.5)}, .last_ended = Time{from_seconds(1.25)}};
  const OpenRound found = OpenRound::from(round.numbers());
  EXPECT_EQ(found.number, Step{5});
  EXPECT_EQ(found.begins, round.begins);
  EXPECT_EQ(found.last_ended, round.last_ended);
}

TEST(OpenRound, FragmentsAreDueInTurn) {
  std::vector<int> due;
  for (int number = 0; number < 5; ++number) due.push_back(OpenRound{.number = Step{number}}.fragment(3).index);
  EXPECT_EQ(due, (std::vector{0, 1, 2, 0, 1}));
}

TEST(FragmentAnswer, IsWhatItsMessageSays) {
  for (const std::optional<double> sync_s : {std::optional<double>(), std::optional(0.0), std::optional(0.75)}) {
    const FragmentAnswer answer{
        .work = {.micro_batches = 6, .time = from_seconds(9)}, .micro_batches = 4, .steps = Step{2}, .sync_s = sync_s};
    Message message = answer.message({.number = Step{7}}, {.index = 1, .count = 3});
    message.from = Rank{2};
    EXPECT_EQ(message.step, Step{7}) << "of its round";
    EXPECT_EQ(message.slice.index, 1);
    EXPECT_EQ(message_bytes(message, Bytes{48}), Bytes{48 / 3 + 24});
    const FragmentAnswer found = FragmentAnswer::from_message(message);
    EXPECT_EQ(found.from, Rank{2});
    EXPECT_EQ(found.work.micro_batches, 6);
    EXPECT_EQ(found.work.time, from_seconds(9));
    EXPECT_EQ(found.micro_batches, 4);
    EXPECT_EQ(found.steps, Step{2});
    EXPECT_EQ(found.sync_s, sync_s);
  }
}

// Of two micro-batches a step: 2, 1 and 3 steps of 3, 4 and 2 s.
TEST(AnswerTotals, AreTheSlowestStepTheLongestWayAndAllWork) {
  std::vector<FragmentAnswer> answers(3);
  answers[0].work = {.micro_batches = 4, .time = from_seconds(6)};
  answers[1].work = {.micro_batches = 2, .time = from_seconds(4)};
  answers[2].work = {.micro_batches = 6, .time = from_seconds(6)};
  EXPECT_EQ(AnswerTotals(answers, 2).slowest_sync_s, std::nullopt) << "nobody has had a fragment yet";
  answers[1].sync_s = 0.25;
  answers[2].sync_s = 0.5;
  const AnswerTotals totals(answers, 2);
  EXPECT_DOUBLE_EQ(totals.slowest_step_s, 4);
  EXPECT_EQ(totals.slowest_sync_s, 0.5);
  EXPECT_EQ(totals.micro_batches, 12);
}

}  // namespace
}  // namespace syncopate
