#include "workers/mpi/mpi_collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "workers/mpi/mpi_partial_sums.hpp"
#include "workers/mpi/mpi_work.hpp"

namespace syncopate {
namespace {

constexpr ValueLayout layout{.parameters = 2, .buffers = 1};

FlatVector vector_of(const std::vector<float>& values) {
  FlatVector vector(values.size());
  std::copy(values.begin(), values.end(), vector.data());
  return vector;
}

std::vector<float> values_of(const PartialRound& round) {
  const auto span = round.sum.span();
  return {span.begin(), span.end()};
}

struct Coordinator {
  explicit Coordinator(int workers) : rounds(workers, layout) {}

  // The worker has computed one of two planned micro-batches. Its gradient has `value` in all elements.
  void arrive(int worker, std::int64_t round, float value, Activation activation,
              LateGradient late = LateGradient::drop) {
    rounds.arrive({.worker = Rank{worker},
                   .round = round,
                   .activation = activation,
                   .late = late,
                   .kept = 1,
                   .planned = 2,
                   .micro_batches = 1,
                   .compute_time = Duration{10}},
                  vector_of({value, value, value}));
  }
  PartialRound take() {
    EXPECT_TRUE(rounds.takes_place());
    return rounds.take();
  }

  PartialRounds rounds;
};

std::int64_t dropped_of(const Coordinator& coordinator, int worker) {
  return coordinator.rounds.tally_of(Rank{worker}).dropped(DecidedBy::workers);
}
Duration lost_time_of(const Coordinator& coordinator, int worker) {
  return coordinator.rounds.tally_of(Rank{worker}).lost_time(DecidedBy::workers);
}

TEST(PartialRounds, ARoundTakesPlaceOnceTheQuorumIsThere) {
  Coordinator coordinator(4);
  EXPECT_FALSE(coordinator.rounds.takes_place());
  coordinator.arrive(3, 0, 1, {.quorum = 2});
  EXPECT_FALSE(coordinator.rounds.takes_place());
  coordinator.arrive(1, 0, 10, {.quorum = 2});
  const PartialRound round = coordinator.take();
  EXPECT_EQ(values_of(round), (std::vector<float>{11, 11, 11}));
  EXPECT_EQ(std::vector(round.arrived.begin(), round.arrived.end()), (std::vector<char>{0, 1, 0, 1}));
  EXPECT_EQ(round.outcome.contributors, 2);
  EXPECT_EQ(round.outcome.micro_batches, 2);
  EXPECT_EQ(round.row.kept, 2);
  EXPECT_EQ(round.row.dropped, 2);
  EXPECT_FALSE(coordinator.rounds.takes_place());  // the next round begins empty
}

TEST(PartialRounds, SumsAreFormedByRankWhateverTheOrderOfArrival) {
  // In float32, (1e8 + 3) - 1e8 is 0 and (1e8 - 1e8) + 3 is 3, so the result shows the order of the additions.
  std::vector<std::vector<float>> sums;
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}) {
    Coordinator coordinator(3);
    const float values[] = {1e8f, -1e8f, 3};
    for (const int worker : order) coordinator.arrive(worker, 0, values[worker], {.quorum = 3});
    sums.push_back(values_of(coordinator.take()));
  }
  EXPECT_THAT(sums, testing::Each(std::vector<float>{3, 3, 3}));
}

TEST(PartialRounds, LateGradientsAreDroppedAndCountInTheNextRow) {
  Coordinator coordinator(3);
  coordinator.arrive(0, 0, 1, {.quorum = 1});
  coordinator.take();
  coordinator.arrive(1, 0, 100, {.quorum = 1});
  EXPECT_FALSE(coordinator.rounds.takes_place());
  EXPECT_EQ(dropped_of(coordinator, 1), 2);
  EXPECT_EQ(lost_time_of(coordinator, 1), Duration{0});  // the worker itself books the loss of its time
  coordinator.arrive(0, 1, 2, {.quorum = 1});
  const PartialRound round = coordinator.take();
  EXPECT_EQ(values_of(round), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(round.row.kept, 1);
  EXPECT_EQ(round.row.dropped, 1 + 2);
}

TEST(PartialRounds, LateGradientsAreAccumulatedAlsoWithOnesThatComeInTime) {
  Coordinator coordinator(3);
  const Activation first{.quorum = 1}, second{.quorum = 2};
  coordinator.arrive(0, 0, 1, first);
  coordinator.take();
  for (const float value : {10.0f, 20.0f}) coordinator.arrive(1, 0, value, first, LateGradient::accumulate);
  coordinator.arrive(2, 0, 100, first, LateGradient::accumulate);
  EXPECT_FALSE(coordinator.rounds.takes_place());  // late gradients do not count as arrivals
  EXPECT_EQ(coordinator.rounds.tally_of(Rank{1}).kept, 0);
  EXPECT_EQ(dropped_of(coordinator, 1), 4);  // as long as no round takes them
  EXPECT_EQ(lost_time_of(coordinator, 1), Duration{20});
  coordinator.arrive(0, 1, 1000, second);
  coordinator.arrive(1, 1, 40, second);
  const PartialRound round = coordinator.take();
  EXPECT_EQ(values_of(round), std::vector<float>(3, 1000 + 70 + 100));
  EXPECT_EQ(round.outcome.contributors, 3);
  EXPECT_EQ(std::vector(round.arrived.begin(), round.arrived.end()), (std::vector<char>{1, 1, 0}));
  EXPECT_EQ(round.outcome.micro_batches, 5);
  EXPECT_EQ(coordinator.rounds.tally_of(Rank{1}).kept, 3);
  EXPECT_EQ(dropped_of(coordinator, 1), 3);
  EXPECT_EQ(lost_time_of(coordinator, 1), Duration{0});
}

TEST(PartialRounds, WorkersThatHaveLeftAreNotWaitedFor) {
  Coordinator coordinator(3);
  coordinator.arrive(0, 0, 1, {.quorum = 3});
  coordinator.rounds.leave(Rank{2});
  EXPECT_FALSE(coordinator.rounds.takes_place());
  coordinator.arrive(1, 0, 1, {.quorum = 3});
  EXPECT_EQ(coordinator.take().outcome.contributors, 2);

  const Activation by_rank{.rank = Rank{1}};
  coordinator.arrive(0, 1, 1, by_rank);
  EXPECT_FALSE(coordinator.rounds.takes_place());
  coordinator.rounds.leave(Rank{1});
  EXPECT_EQ(coordinator.take().outcome.contributors, 1);
}

TEST(PartialRounds, ADeadlockNamesWhoIsLost) {
  Coordinator coordinator(4);
  const ByRank<char> lost = {0, 1, 0, 1};
  EXPECT_EQ(coordinator.rounds.explain_deadlock(lost), "");  // nobody waits
  coordinator.arrive(0, 0, 1, {.quorum = 4});
  EXPECT_EQ(coordinator.rounds.explain_deadlock(lost), "");  // worker 2 may arrive
  coordinator.rounds.leave(Rank{2});
  EXPECT_EQ(coordinator.rounds.explain_deadlock(lost),
            "partial all-reduce 1 waits for workers in a micro-batch that never ends: 1, 3");
}

TEST(PartialRounds, WorkersMustAgreeAboutTheActivation) {
  Coordinator coordinator(3);
  coordinator.arrive(0, 0, 1, {.quorum = 2});
  EXPECT_THROW(coordinator.arrive(1, 0, 1, {.quorum = 3}), RunFailure);
  Coordinator other(3);
  EXPECT_THROW(other.arrive(0, 0, 1, {.rank = Rank{3}}), RunFailure);
}

// One float32 cannot hold the sum of 2^40 and 1/4.
TEST(PartialRounds, OneWideGradientMakesTheSumWide) {
  PartialRounds rounds(3, layout);
  const auto arrive = [&](int worker, const std::vector<float>& values, bool wide) {
    rounds.arrive({.worker = Rank{worker}, .activation = {.quorum = 3}, .micro_batches = 1, .wide = wide},
                  vector_of(values));
  };
  arrive(0, {0.25f, 1, 7}, false);
  arrive(1, {0x1p40f, 2, 0.5f, 0, 7}, true);
  arrive(2, {0.25f, -0x1p40f, 7}, false);
  const PartialRound round = rounds.take();
  EXPECT_TRUE(round.outcome.wide);
  EXPECT_EQ(values_of(round), (std::vector<float>{0x1p40f, -0x1p40f, 1.0f, 3.0f, 21}));
}

std::vector<float> layout_values_of(const FlatVector& vector) { return {vector.span().begin(), vector.span().end()}; }

constexpr ValueLayout narrow{.parameters = 5, .buffers = 2};
constexpr ValueLayout wide{.parameters = 5, .buffers = 2, .wide = true};

TEST(ValueLayout, ASliceIsItsParametersAndTheFirstHasTheBuffers) {
  const FlatVector whole = vector_of({1, 2, 3, 4, 5, 10, 20});
  EXPECT_EQ(layout_values_of(cut(whole, narrow, {.index = 0, .count = 2})), (std::vector<float>{1, 2, 10, 20}));
  EXPECT_EQ(layout_values_of(cut(whole, narrow, {.index = 1, .count = 2})), (std::vector<float>{3, 4, 5}));
  const FlatVector exact = vector_of({1, 2, 3, 4, 5, .1f, .2f, .3f, .4f, .5f, 10, 20});
  EXPECT_EQ(layout_values_of(cut(exact, wide, {.index = 0, .count = 2})), (std::vector<float>{1, 2, .1f, .2f, 10, 20}));
  EXPECT_EQ(layout_values_of(cut(exact, wide, {.index = 1, .count = 2})), (std::vector<float>{3, 4, 5, .3f, .4f, .5f}));
}

// More slices than parameters, so some slices are empty.
TEST(ValueLayout, SlicesSpreadOutMakeTheWholeAgain) {
  for (const ValueLayout& layout : {narrow, wide})
    for (const int count : {1, 2, 3, 5, 8}) {
      std::vector<float> values;
      for (std::size_t i = 0; i < layout.size(); ++i) values.push_back(static_cast<float>(i) + 0.5f);
      const FlatVector whole = vector_of(values);
      std::vector<float> sum(layout.size(), 0.0f);
      for (int index = 0; index < count; ++index) {
        const Slice slice{.index = index, .count = count};
        const auto part = layout_values_of(spread(cut(whole, layout, slice), layout, slice));
        ASSERT_EQ(part.size(), layout.size());
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      EXPECT_EQ(sum, values) << count << " slices";
    }
}

TEST(ValueLayout, WideSumsKeepWhatOneFloatCannot) {
  FlatVector total = widened(vector_of({1, 2, 3, 4, 5, 10, 20}), narrow);
  ASSERT_EQ(total.size(), wide.size());
  add_values(total, vector_of({0x1p40f, 0, 0, 0, 0, 0.5f, 0, 0, 0, 0, 1, 1}), wide);
  EXPECT_EQ(layout_values_of(total), (std::vector<float>{0x1p40f, 2, 3, 4, 5, 1.5f, 0, 0, 0, 0, 11, 21}));
  add_values(total, vector_of({-0x1p40f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), wide);
  EXPECT_EQ(total.data()[0], 1.5f);
  EXPECT_EQ(total.data()[5], 0);
}

TEST(ValueLayout, NarrowSumsAreElementwise) {
  FlatVector total = vector_of({1, 2, 3, 4, 5, 10, 20});
  add_values(total, vector_of({1, 1, 1, 1, 1, 2, 3}), narrow);
  EXPECT_EQ(layout_values_of(total), (std::vector<float>{2, 3, 4, 5, 6, 12, 23}));
}

std::vector<StepRow> rows_of(const std::vector<std::vector<StepRow>>& by_worker) {
  struct Seen : RunObserver {
    std::vector<StepRow> rows;
    void on_row(const StepRow& row) override { rows.push_back(row); }
    void on_publish(const Publication&) override {}
  } seen;
  StepRows rows(&seen);
  close_rows(by_worker, rows);
  return seen.rows;
}

Time at(int nanoseconds) { return start_time + Duration{nanoseconds}; }

TEST(StepRows, RowsOfEqualNumberAreSummedAndEndWithTheLast) {
  const auto rounds = rows_of({{{.step = 1, .end = at(100), .kept = 2, .dropped = 0, .period = 1, .bytes = 10},
                                {.step = 2, .end = at(250), .kept = 1, .dropped = 1, .period = 1, .bytes = 30}},
                               {{.step = 1, .end = at(170), .kept = 1, .dropped = 1, .period = 1, .bytes = 5},
                                {.step = 2, .end = at(200), .kept = 2, .dropped = 0, .period = 3, .bytes = 5}}});
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[0].step, Step{1});
  EXPECT_EQ(rounds[0].kept, 3);
  EXPECT_EQ(rounds[0].dropped, 1);
  EXPECT_EQ(rounds[0].end, start_time + Duration{170});
  EXPECT_EQ(rounds[0].duration, Duration{170});
  EXPECT_EQ(rounds[0].bytes, Bytes{15});
  EXPECT_EQ(rounds[1].end, start_time + Duration{250});
  EXPECT_EQ(rounds[1].duration, Duration{80});
  EXPECT_EQ(rounds[1].period, Step{3});
  EXPECT_EQ(rounds[1].bytes, Bytes{20});
}

// A worker may skip steps, or end before the others.
TEST(StepRows, StepsThatNotAllHaveTakenAreRowsToo) {
  const auto rounds = rows_of({{{.step = 1, .end = at(900), .kept = 1, .bytes = 4}},
                               {{.step = 1, .end = at(100), .kept = 1, .bytes = 1},
                                {.step = 2, .end = at(200), .kept = 1, .bytes = 2},
                                {.step = 5, .end = at(1000), .kept = 1, .bytes = 8}},
                               {}});
  ASSERT_EQ(rounds.size(), 3u);
  EXPECT_EQ(rounds[0].kept, 2);
  EXPECT_EQ(rounds[1].step, Step{2});
  EXPECT_EQ(rounds[1].kept, 1);
  EXPECT_EQ(rounds[1].end, start_time + Duration{900});  // time does not go backwards
  EXPECT_EQ(rounds[1].duration, Duration{0});
  EXPECT_EQ(rounds[1].bytes, Bytes{1});
  EXPECT_EQ(rounds[2].step, Step{5});
  EXPECT_EQ(rounds[2].duration, Duration{100});
  EXPECT_EQ(rounds[2].bytes, Bytes{6});
}

TEST(StepRows, NobodysRowsAreNone) { EXPECT_TRUE(rows_of({{}, {}}).empty()); }

}  // namespace
}  // namespace syncopate
