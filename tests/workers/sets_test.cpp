// Sets of numbers: drawn, and one after another.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "workers/base/random.hpp"

namespace syncopate {
namespace {

// Each of the 6 sets in 6,000 draws 1,000 times on average, with a standard deviation of 29; five of these.
TEST(Sets, EachIsDrawnAsOftenAsAnyOther) {
  std::map<std::set<int>, int> counts;
  for (std::uint32_t draw = 0; draw < 6000; ++draw) {
    const auto set = draw_set(4, 2, {.seed = 5}, 2 * draw);
    ++counts[std::set<int>(set.begin(), set.end())];
  }
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [set, count] : counts) {
    EXPECT_EQ(set.size(), 2u);
    EXPECT_NEAR(count, 1000, 5 * 29);
  }
}

// Those that were asked for, until one does not hold.
std::set<std::set<int>> asked(int count, int chosen, int most_sets, const std::set<int>& does_not_hold = {}) {
  std::set<std::set<int>> seen;
  int asked = 0;
  const bool all_hold = holds_for_sets(count, chosen, most_sets, {.seed = 5}, [&](std::span<const int> numbers) {
    const std::set<int> set(numbers.begin(), numbers.end());
    EXPECT_EQ(static_cast<int>(set.size()), chosen);
    EXPECT_TRUE(*set.begin() >= 0 && *set.rbegin() < count);
    seen.insert(set);
    ++asked;
    return set != does_not_hold;
  });
  EXPECT_EQ(all_hold, !seen.contains(does_not_hold));
  EXPECT_LE(asked, most_sets);
  return seen;
}

TEST(Sets, AreAllAskedForWhereTheyAreFew) {
  EXPECT_EQ(asked(6, 3, 20).size(), 20u);  // 6 over 3
  EXPECT_EQ(asked(5, 5, 20).size(), 1u);
  EXPECT_EQ(asked(7, 1, 7).size(), 7u);
}

// Of 20 sets 19 are drawn, some of them twice.
TEST(Sets, AreDrawnWhereTheyAreMany) {
  const auto seen = asked(6, 3, 19);
  EXPECT_LT(seen.size(), 19u);
  EXPECT_GT(seen.size(), 6u);
}

TEST(Sets, AreAskedForUntilOneDoesNotHold) { EXPECT_EQ(asked(6, 3, 20, {0, 1, 4}).size(), 3u); }

}  // namespace
}  // namespace syncopate
