#include "workers/cluster/accounting.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/workers/account_of.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;

Time at(std::int64_t ns) { return Time{Duration{ns}}; }

void compute(SpanRecorder& recorder, Rank worker, std::int64_t end_ns, int step, int index) {
  recorder.add(worker, Activity::compute, at(end_ns), {micro_batch_name, step, index});
}

// Each span as a string like "compute 0-10 micro-batch": activity, begin and end in nanoseconds, and name.
std::vector<std::string> lines(const std::vector<Span>& spans) {
  std::vector<std::string> result;
  for (const Span& span : spans)
    result.push_back(std::string(activity_names[static_cast<std::size_t>(span.activity)]) + " " +
                     std::to_string(span.begin.time_since_epoch().count()) + "-" +
                     std::to_string(span.end.time_since_epoch().count()) + " " + span.what);
  return result;
}

TEST(SpanRecorder, JoinsWhatIsOneAndLeavesOutWhatTakesNoTime) {
  SpanRecorder recorder(1, 0, {});
  compute(recorder, Rank{0}, 10, 0, 0);
  recorder.add(Rank{0}, Activity::wait, at(10), {"barrier"});
  recorder.add(Rank{0}, Activity::communicate, at(12), {"barrier"});
  recorder.add(Rank{0}, Activity::communicate, at(15), {"barrier"});
  const Timeline timeline = recorder.finish(at(20));
  EXPECT_THAT(lines(timeline.tracks.at(0)),
              ElementsAre("compute 0-10 micro-batch", "communicate 10-15 barrier", "wait 15-20 end of the run"));
  EXPECT_FALSE(timeline.capped);
  EXPECT_EQ(timeline.until, at(20));
}

TEST(SpanRecorder, WithServersTheFirstGradientOfATotalIsTheOneThatIsMeant) {
  SpanRecorder recorder(1, 1, {});
  for (int step = 0; step < 3; ++step)  // two micro-batches per step: 4 and 6 ns, 4 and 7, 4 and 6
    for (int index = 0; index < 2; ++index)
      compute(recorder, Rank{0}, std::vector{4, 10, 14, 21, 25, 31}.at(2 * step + index), step, index);
  recorder.keep(Rank{0}, Duration{11});
  recorder.keep(Rank{0}, Duration{10});
  const Timeline timeline = recorder.finish(at(31));
  EXPECT_THAT(lines(timeline.tracks.at(0)),
              ElementsAre("compute 0-4 micro-batch", "compute 4-10 micro-batch", "compute 10-14 micro-batch",
                          "compute 14-21 micro-batch", "discarded 21-25 micro-batch", "discarded 25-31 micro-batch"));
}

TEST(SpanRecorder, WithoutServersTheLastOneIs) {
  SpanRecorder recorder(2, 0, {});
  for (int step = 0; step < 3; ++step) compute(recorder, Rank{1}, 10 * (step + 1), step, 0);
  recorder.lose(Rank{1}, Duration{10});
  compute(recorder, Rank{1}, 35, 3, 0);
  recorder.lose(Rank{1}, Duration{15});  // time of steps 2 and 3
  const Timeline timeline = recorder.finish(at(35));
  EXPECT_THAT(lines(timeline.tracks.at(1)), ElementsAre("compute 0-10 micro-batch", "discarded 10-20 micro-batch",
                                                        "discarded 20-30 micro-batch", "discarded 30-35 micro-batch"));
}

// The spans have no gaps or overlaps, and their sums equal the bookings.
TEST(SpanRecorder, AnAmountThatNoMicroBatchesMakeUpDividesOne) {
  for (const int servers : {0, 1}) {
    SpanRecorder recorder(1, servers, {});
    for (int i = 0; i < 3; ++i) compute(recorder, Rank{0}, 10 * (i + 1), i, 0);
    if (servers > 0)
      recorder.keep(Rank{0}, Duration{17});
    else
      recorder.lose(Rank{0}, Duration{13});
    compute(recorder, Rank{0}, 40, 3, 0);
    if (servers == 0) recorder.lose(Rank{0}, Duration{10});
    const auto track = recorder.finish(at(40)).tracks.at(0);
    EXPECT_EQ(account_of(track)[Activity::compute], Duration{17}) << servers;
    EXPECT_EQ(account_of(track)[Activity::discarded], Duration{23}) << servers;
    Time end = start_time;
    for (const Span& span : track) EXPECT_EQ(std::exchange(end, span.end), span.begin);
    EXPECT_EQ(end, at(40));
  }
}

TEST(SpanRecorder, WhatIsCutOffCountsAsItWasAdded) {
  SpanRecorder recorder(1, 0, {});
  compute(recorder, Rank{0}, 10, 0, 0);
  compute(recorder, Rank{0}, 20, 0, 1);
  recorder.lose(Rank{0}, Duration{10});
  recorder.add(Rank{0}, Activity::wait, at(25), {"barrier"});
  const auto removed = recorder.remove_beyond(Rank{0}, at(14));
  ASSERT_TRUE(removed);
  EXPECT_EQ(removed->account[Activity::compute], Duration{6});
  EXPECT_EQ(removed->micro_batches, Duration{6});
  EXPECT_EQ(removed->account[Activity::wait], Duration{5});
  EXPECT_THAT(lines(recorder.finish(at(14)).tracks.at(0)),
              ElementsAre("compute 0-10 micro-batch", "discarded 10-14 micro-batch"));
}

// Worker 0 is far ahead when worker 1 begins. Each gets half of the spans. The timeline ends where the first of the two
// uses up its half.
TEST(SpanRecorder, ALimitCutsAllWorkersAtOneTime) {
  SpanRecorder recorder(2, 0, {.spans = 8});
  for (int step = 0; step < 100; ++step) compute(recorder, Rank{0}, 10 * (step + 1), step, 0);
  for (int step = 0; step < 100; ++step) compute(recorder, Rank{1}, 25 * (step + 1), step, 0);
  recorder.lose(Rank{0}, Duration{10});  // the last step, which is not recorded
  const Timeline timeline = recorder.finish(at(2500));
  EXPECT_TRUE(timeline.capped);
  EXPECT_EQ(timeline.until, at(40));
  EXPECT_EQ(timeline.end, at(2500));
  EXPECT_EQ(timeline.tracks.at(0).size(), 4u);
  EXPECT_EQ(account_of(timeline.tracks.at(0))[Activity::discarded], Duration{0});
  EXPECT_THAT(lines(timeline.tracks.at(1)), ElementsAre("compute 0-25 micro-batch", "compute 25-40 micro-batch"));
}

// A difference of models is sent after two steps. Only the first step of the second difference is recorded.
TEST(SpanRecorder, ALimitMayCutWhatIsSentAfterSeveralSteps) {
  for (const bool is_kept : {true, false}) {
    SpanRecorder recorder(1, 1, {.spans = 10});  // five for the worker, five for the server
    const auto round = [&](std::int64_t begin_ns, int step) {
      recorder.add(Rank{0}, Activity::communicate, at(begin_ns), {"receive"});
      compute(recorder, Rank{0}, begin_ns + 10, step, 0);
      compute(recorder, Rank{0}, begin_ns + 22, step + 1, 0);
    };
    for (int i = 0; i < 3; ++i) round(5 + 30 * i, 2 * i);
    recorder.keep(Rank{0}, Duration{22});
    if (is_kept) recorder.keep(Rank{0}, Duration{22});
    if (!is_kept) recorder.keep(Rank{0}, Duration{23});  // longer than the second difference, which took 22 ns
    EXPECT_THAT(lines(recorder.finish(at(90)).tracks.at(0)),
                ElementsAre("communicate 0-5 receive", "compute 5-15 micro-batch", "compute 15-27 micro-batch",
                            "communicate 27-35 receive",
                            is_kept ? "compute 35-45 micro-batch" : "discarded 35-45 micro-batch"));
  }
}

TEST(SpanRecorder, ALimitOfTimeLetsAStepEndAndThenCutsIt) {
  SpanRecorder recorder(1, 1, {.time = Duration{15}});
  for (int i = 0; i < 4; ++i) compute(recorder, Rank{0}, 10 * (i + 1), 0, i);
  compute(recorder, Rank{0}, 50, 1, 0);
  recorder.keep(Rank{0}, Duration{40});  // the time of the whole gradient, although the limit cuts it
  recorder.add(Rank{1}, Activity::wait, at(50), {"receive"});
  const Timeline timeline = recorder.finish(at(60));
  EXPECT_TRUE(timeline.capped);
  EXPECT_EQ(timeline.until, at(15));
  EXPECT_THAT(lines(timeline.tracks.at(0)), ElementsAre("compute 0-10 micro-batch", "compute 10-15 micro-batch"));
  EXPECT_THAT(lines(timeline.tracks.at(1)), ElementsAre("wait 0-15 receive"));
}

// Book: one worker's account of its time and of its kept and dropped micro-batches.

Time at_ms(int ms) { return start_time + std::chrono::milliseconds(ms); }
Duration ms(int count) { return std::chrono::milliseconds(count); }

// 30 ms of computing, 10 ms of which are for lost work, and 5 ms of waiting.
Book example() {
  Book book(Rank{0}, start_time, nullptr);
  book.pass(Activity::compute, at_ms(30), {});
  book.pass(Activity::wait, at_ms(35), {});
  book.compute(3, ms(30));
  book.lose(ms(10));
  StepRow row;
  book.contribute({.kept = 2, .planned = 4, .step = 1, .period = 1}, row);
  EXPECT_EQ(row.kept, 2);
  EXPECT_EQ(row.dropped, 2);
  return book;
}

TEST(Book, TimeIsEnteredOnceAndDoesNotGoBack) {
  Book book(Rank{0}, start_time, nullptr);
  book.pass(Activity::compute, at_ms(10), {});
  book.pass(Activity::wait, at_ms(4), {});
  EXPECT_EQ(book.now(), at_ms(10));
  EXPECT_EQ(book.account()[Activity::wait], ms(0));
}

TEST(Book, WhatIsMissingUntilTheEndWasSpentWaiting) {
  const Account account = example().account_at(at_ms(50), {}, DecidedBy::workers);
  EXPECT_EQ(account[Activity::compute], ms(20));
  EXPECT_EQ(account[Activity::discarded], ms(10));
  EXPECT_EQ(account[Activity::wait], ms(20));
  EXPECT_EQ(account.total(), ms(50));
}

// The end cuts off 15 ms: the 10 ms of lost work, and then 5 ms of kept work.
TEST(Book, WhatLiesBeyondTheEndIsTakenFromWhatWasLostFirst) {
  const Account account = example().account_at(at_ms(20), {}, DecidedBy::workers);
  EXPECT_EQ(account[Activity::discarded], ms(0));
  EXPECT_EQ(account[Activity::compute], ms(15));
  EXPECT_EQ(account.total(), ms(20));
}

TEST(Book, WithServersAllIsLostThatTheyHaveNotKept) {
  Book book = example();
  book.cancel();
  book.keep({Rank{0}, 1, ms(10)});
  const Account account = book.account_at(at_ms(35), {}, DecidedBy::servers);
  EXPECT_EQ(account[Activity::compute], ms(10));
  EXPECT_EQ(account[Activity::discarded], ms(20));
  EXPECT_EQ(book.tally().kept, 2 + 1);
  EXPECT_EQ(book.tally().dropped(DecidedBy::servers), 3 + 1 - 3);
  EXPECT_EQ(book.tally().dropped(DecidedBy::workers), 2);
}

TEST(Book, TheWallClocksLastThingsAreTakenBackFirst) {
  Book book = example();
  EXPECT_EQ(book.take_back(at_ms(28)), ms(2));  // 5 ms of waiting, then 2 ms of computing
  EXPECT_EQ(book.account()[Activity::wait], ms(0));
  EXPECT_EQ(book.account()[Activity::compute], ms(28));
}

TEST(Book, SpansAreTakenBackWithTheAccount) {
  SpanRecorder spans(1, 0, {});
  Book book(Rank{0}, start_time, &spans);
  book.pass(Activity::compute, at_ms(10), {"step", Step{0}, 0});
  book.pass(Activity::compute, at_ms(30), {});
  EXPECT_EQ(book.take_back(at_ms(25)), ms(0));  // returns only the time of micro-batches
  EXPECT_EQ(book.take_back(at_ms(8)), ms(2));
  EXPECT_EQ(book.account()[Activity::compute], ms(8));
  EXPECT_EQ(account_of(spans.spans(Rank{0})).total(), ms(8));
}

TEST(Book, PartsOfATallyAddUp) {
  Tally own{.computed = 3, .cancelled = 1, .computed_time = ms(30)};
  own += {.kept = 1, .kept_time = ms(10)};
  EXPECT_EQ(own.kept, 1);
  EXPECT_EQ(own.dropped(DecidedBy::servers), 3);
  EXPECT_EQ(own.lost_time(DecidedBy::servers), ms(20));
}

}  // namespace
}  // namespace syncopate
