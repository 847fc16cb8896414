#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "workers/base/random.hpp"
#include "workers/simulated/event_queue.hpp"

namespace syncopate {
namespace {

using Key = std::pair<Time, std::uint64_t>;  // time and number: the order

Time at(double uniform) { return start_time + Duration{static_cast<Duration::rep>(uniform * 100)}; }

// Against an ordered set, while timers are set, replaced by earlier and later ones, and taken.
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
