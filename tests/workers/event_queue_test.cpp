#include "workers/simulated/event_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "workers/random/random.hpp"
#include "workers/simulated/inbox.hpp"

namespace syncopate {
namespace {

struct Numbered {
  int at;
  int number;
  bool before(const Numbered& other) const { return at != other.at ? at < other.at : number < other.number; }
};

// Against an ordered set, while events come and go.
TEST(EventQueue, GivesTheEarliestAndOfEqualTimesTheFirst) {
  const auto later = [](const Numbered& a, const Numbered& b) { return a.before(b); };
  std::set<Numbered, decltype(later)> expected(later);
  EventQueue<Numbered> queue;
  const RandomStream stream{.seed = 5, .purpose = Purpose::algorithm, .worker = {}, .step = {}};
  int popped = 0;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const bool grows = i < 10'000 ? stream.uniform(2 * i) < 0.6 : stream.uniform(2 * i) < 0.4;
    if (grows || expected.empty()) {
      const Numbered event{static_cast<int>(stream.uniform(2 * i + 1) * 100), static_cast<int>(i)};
      queue.push(event);
      expected.insert(event);
    } else {
      ++popped;
      ASSERT_EQ(queue.pop().number, expected.begin()->number);
      expected.erase(expected.begin());
    }
    ASSERT_EQ(queue.empty(), expected.empty());
    const auto next = queue.next_few();
    if (expected.empty()) continue;
    ASSERT_EQ(next[0].number, expected.begin()->number);
    if (expected.size() < 2) continue;
    const int second = std::next(expected.begin())->number;
    ASSERT_TRUE(std::any_of(next.begin() + 1, next.end(), [&](const Numbered& e) { return e.number == second; }));
  }
  EXPECT_GT(popped, 5'000);
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
  EXPECT_EQ(inbox.take_first(is(4))->number, 4);  // the last
  inbox.put(&items[0]);
  for (const int left : {1, 0}) EXPECT_EQ(inbox.take_first(any)->number, left);
  EXPECT_TRUE(inbox.empty());
  EXPECT_EQ(inbox.take_first(any), nullptr);
}

}  // namespace
}  // namespace syncopate
