// One worker's book: the account that time and the fate of its work come to.
#include <gtest/gtest.h>

#include "workers/cluster/accounting.hpp"

namespace syncopate {
namespace {

Time at(int ms) { return start_time + std::chrono::milliseconds(ms); }
Duration ms(int count) { return std::chrono::milliseconds(count); }

// 30 ms of computing, 10 of them for what was lost, and a wait of 5 ms.
Book example() {
  Book book(Rank{0}, start_time, nullptr);
  book.pass(Activity::compute, at(30), {});
  book.pass(Activity::wait, at(35), {});
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
  book.pass(Activity::compute, at(10), {});
  book.pass(Activity::wait, at(4), {});
  EXPECT_EQ(book.now(), at(10));
  EXPECT_EQ(book.account()[Activity::wait], ms(0));
}

TEST(Book, WhatIsMissingUntilTheEndWasSpentWaiting) {
  const Account account = example().account_at(at(50), {}, DecidedBy::workers);
  EXPECT_EQ(account[Activity::compute], ms(20));
  EXPECT_EQ(account[Activity::discarded], ms(10));
  EXPECT_EQ(account[Activity::wait], ms(20));
  EXPECT_EQ(account.total(), ms(50));
}

// What lies beyond the end came too late: it is taken from what was lost, and only then from what was kept.
TEST(Book, WhatLiesBeyondTheEndIsTakenFromWhatWasLostFirst) {
  const Account account = example().account_at(at(20), {}, DecidedBy::workers);
  EXPECT_EQ(account[Activity::discarded], ms(0));
  EXPECT_EQ(account[Activity::compute], ms(15));
  EXPECT_EQ(account.total(), ms(20));
}

TEST(Book, WithServersAllIsLostThatTheyHaveNotKept) {
  Book book = example();
  book.cancel();
  book.keep({Rank{0}, 1, ms(10)});
  const Account account = book.account_at(at(35), {}, DecidedBy::servers);
  EXPECT_EQ(account[Activity::compute], ms(10));
  EXPECT_EQ(account[Activity::discarded], ms(20));
  EXPECT_EQ(book.tally().kept(), 2 + 1);
  EXPECT_EQ(book.tally().dropped(DecidedBy::servers), 3 + 1 - 3);
  EXPECT_EQ(book.tally().dropped(DecidedBy::workers), 2);
}

TEST(Book, TheWallClocksLastThingsAreTakenBackFirst) {
  Book book = example();
  EXPECT_EQ(book.take_back(at(28)), ms(2));  // 5 of the wait, 2 of computing
  EXPECT_EQ(book.account()[Activity::wait], ms(0));
  EXPECT_EQ(book.account()[Activity::compute], ms(28));
}

TEST(Book, SpansAreTakenBackWithTheAccount) {
  SpanRecorder spans(1, 0);
  Book book(Rank{0}, start_time, &spans);
  book.pass(Activity::compute, at(10), {"step", Step{0}, 0});
  book.pass(Activity::compute, at(30), {});
  EXPECT_EQ(book.take_back(at(25)), ms(0));  // no micro-batch
  EXPECT_EQ(book.take_back(at(8)), ms(2));
  EXPECT_EQ(book.account()[Activity::compute], ms(8));
  EXPECT_EQ(account_of(spans.spans(Rank{0})).total(), ms(8));
}

TEST(Book, PartsOfATallyAddUp) {
  Tally own, of_a_server;
  own.compute(3, ms(30));
  own.cancel();
  of_a_server.keep({Rank{0}, 1, ms(10)});
  own += Tally::of(of_a_server.numbers());
  EXPECT_EQ(own.kept(), 1);
  EXPECT_EQ(own.dropped(DecidedBy::servers), 3);
  EXPECT_EQ(own.lost_time(DecidedBy::servers), ms(20));
}

}  // namespace
}  // namespace syncopate
