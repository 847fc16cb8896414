#include "workers/simulated/event_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "workers/base/random.hpp"

namespace syncopate {
namespace {

struct Numbered {
  std::int64_t at;
  int number;
  std::uint64_t ticks() const { return static_cast<std::uint64_t>(at); }
  bool before(const Numbered& other) const { return at != other.at ? at < other.at : number < other.number; }
};

// Compares the queue with an ordered set while events come and go. An event that is pushed at time `now` gets the time
// `time_of(now, u)`, with u in [0, 1).
void expect_order(const std::function<std::int64_t(std::int64_t, double)>& time_of) {
  const auto earlier = [](const Numbered& a, const Numbered& b) { return a.before(b); };
  std::set<Numbered, decltype(earlier)> expected(earlier);
  EventQueue<Numbered> queue;
  const RandomStream stream{.seed = 5, .purpose = Purpose::algorithm, .worker = {}, .step = {}};
  std::int64_t now = 0;
  int popped = 0;
  for (std::uint32_t i = 0; i < 60'000; ++i) {
    const bool grows = i < 30'000 ? stream.uniform(2 * i) < 0.6 : stream.uniform(2 * i) < 0.4;
    if (grows || expected.empty()) {
      const Numbered event{time_of(now, stream.uniform(2 * i + 1)), static_cast<int>(i)};
      queue.push(event);
      expected.insert(event);
    } else {
      ++popped;
      if (i % 2 == 0) {  // looking at the first event changes nothing
        ASSERT_EQ(queue.first().number, expected.begin()->number);
      }
      const Numbered event = queue.pop();
      ASSERT_EQ(event.number, expected.begin()->number);
      expected.erase(expected.begin());
      now = event.at;
    }
    ASSERT_EQ(queue.empty(), expected.empty());
    const auto next = queue.next();
    ASSERT_TRUE(std::is_sorted(next.rbegin(), next.rend(), earlier));
    if (!next.empty()) {  // events that were pushed after sorting may come before these
      ASSERT_TRUE(expected.contains(next.back()));
      ASSERT_FALSE(expected.begin()->at > next.back().at);
    }
  }
  EXPECT_GT(popped, 20'000);
}

TEST(EventQueue, GivesTheEarliestAndOfEqualTimesTheFirst) {
  expect_order([](std::int64_t now, double u) { return now + static_cast<std::int64_t>(100 * u); });
}

TEST(EventQueue, KeepsTheOrderOfTimesOfAllSizes) {
  expect_order([](std::int64_t now, double u) { return now + static_cast<std::int64_t>(std::pow(10, 12 * u)); });
  expect_order([](std::int64_t now, double u) { return u < 0.5 ? now : now + 1'000'000'000; });
  constexpr std::int64_t end = std::numeric_limits<std::int64_t>::max();
  expect_order([=](std::int64_t now, double u) { return u < 0.3 ? end : now + (end - now) / 1'000; });
}

// Workers' programs run ahead of the clock, so most new events come after the sorted ones. But an event may also come
// before events that are already sorted.
TEST(EventQueue, TakesEventsBeforeThoseThatAreSorted) {
  EventQueue<Numbered> queue;
  for (int i = 0; i < 10; ++i) queue.push({1000 + i, i});
  EXPECT_EQ(queue.first().number, 0);
  queue.push({10, 10});
  queue.push({1004, 11});
  std::vector<int> order;
  while (!queue.empty()) order.push_back(queue.pop().number);
  EXPECT_EQ(order, (std::vector<int>{10, 0, 1, 2, 3, 4, 11, 5, 6, 7, 8, 9}));
}

TEST(Inbox, GivesTheFirstThatFitsAndKeepsTheOrderOfTheOthers) {
  struct Item {
    int number;
    Item* next = nullptr;
  };
  Item items[] = {{0}, {1}, {2}, {3}, {4}};
  Inbox<Item> inbox;
  EXPECT_TRUE(inbox.empty());
  for (Item& item : items) inbox.put(&item);
  const auto any = [](const Item*) { return true; };
  const auto is = [](int number) { return [number](const Item* item) { return item->number == number; }; };
  EXPECT_EQ(inbox.take_first(is(3))->number, 3);
  EXPECT_EQ(inbox.take_first(any)->number, 0);
  EXPECT_EQ(inbox.take_first([](const Item* item) { return item->number % 2 == 0; })->number, 2);
  EXPECT_EQ(inbox.take_first(is(0)), nullptr);
  EXPECT_EQ(inbox.take_first(is(4))->number, 4);  // the last item
  inbox.put(&items[0]);
  for (const int left : {1, 0}) EXPECT_EQ(inbox.take_first(any)->number, left);
  EXPECT_TRUE(inbox.empty());
  EXPECT_EQ(inbox.take_first(any), nullptr);
}

using Key = std::pair<Time, std::uint64_t>;  // time and number determine the order

Time at(double uniform) { return start_time + Duration{static_cast<Duration::rep>(uniform * 100)}; }

// Compares with an ordered set while timers are set, replaced by earlier or later ones, and taken.
TEST(Timers, GiveTheEarliestOfEachRanksNewestOnes) {
  constexpr int ranks = 50;
  std::set<Key> expected;
  std::map<int, Key> of_rank;
  Timers timers(ranks);
  EXPECT_TRUE(timers.empty());
  const RandomStream stream{.seed = 5, .purpose = Purpose::algorithm, .worker = {}, .step = {}};
  int taken = 0, replaced = 0;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    if (stream.uniform(3 * i) < 0.6 || expected.empty()) {
      const Rank rank{static_cast<int>(stream.uniform(3 * i + 1) * ranks)};
      const Timer timer{at(stream.uniform(3 * i + 2)), i, rank};
      timers.set(timer);
      if (const auto before = of_rank.find(rank.value); before != of_rank.end()) {
        expected.erase(before->second);
        ++replaced;
      }
      of_rank[rank.value] = {timer.at, i};
      expected.insert({timer.at, i});
    } else {
      const Timer timer = timers.pop();
      ASSERT_EQ(Key(timer.at, timer.number), *expected.begin());
      ASSERT_EQ(of_rank.at(timer.rank.value), *expected.begin());
      expected.erase(expected.begin());
      of_rank.erase(timer.rank.value);
      ++taken;
    }
    ASSERT_EQ(timers.empty(), expected.empty());
    if (expected.empty()) continue;
    ASSERT_EQ(timers.first().number, expected.begin()->second);
    const auto next = timers.next_few();
    if (expected.size() < 2) continue;
    const std::uint64_t second = std::next(expected.begin())->second;
    ASSERT_TRUE(std::any_of(next.begin() + 1, next.end(), [&](const Timer& timer) { return timer.number == second; }));
  }
  EXPECT_GT(taken, 5'000);
  EXPECT_GT(replaced, 2'000);
}

}  // namespace
}  // namespace syncopate
