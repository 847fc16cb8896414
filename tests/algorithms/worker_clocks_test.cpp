#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "algorithms/asynchronous/staleness.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

TEST(WorkerClocks, OnlyTheUniqueSlowestRaisesTheMinimum) {
  WorkerClocks clocks(2);
  EXPECT_FALSE(clocks.tick(Rank{0}));
  EXPECT_FALSE(clocks.tick(Rank{0}));
  EXPECT_EQ(clocks.ahead_of_slowest(Rank{0}), 2);
  EXPECT_TRUE(clocks.tick(Rank{1}));
  EXPECT_EQ(clocks.ahead_of_slowest(Rank{0}), 1);
  EXPECT_TRUE(clocks.remove(Rank{1}));
  EXPECT_FALSE(clocks.has(Rank{1}));
  EXPECT_EQ(clocks.ahead_of_slowest(Rank{0}), 0);
  EXPECT_FALSE(clocks.remove(Rank{0}));
}

TEST(WorkerClocks, AgreeWithASearchForTheMinimum) {
  constexpr int workers = 7;
  WorkerClocks clocks(workers);
  std::map<int, std::int64_t> expected;
  for (int w = 0; w < workers; ++w) expected[w] = 0;
  const auto slowest = [&] {
    std::int64_t least = expected.begin()->second;
    for (const auto& [worker, clock] : expected) least = std::min(least, clock);
    return least;
  };
  const RandomStream stream{.seed = 3, .purpose = Purpose::algorithm, .worker = {}, .step = {}};
  for (std::uint32_t i = 0; i < 5000; ++i) {
    const auto chosen = static_cast<int>(stream.uniform(i) * workers);
    if (!expected.contains(chosen)) continue;
    const std::int64_t before = slowest();
    bool raised = false;
    if (i % 1000 == 999 && expected.size() > 1) {
      raised = clocks.remove(Rank{chosen});
      expected.erase(chosen);
    } else {
      raised = clocks.tick(Rank{chosen});
      ++expected[chosen];
    }
    ASSERT_EQ(raised, slowest() > before);
    for (const auto& [worker, clock] : expected) ASSERT_EQ(clocks.ahead_of_slowest(Rank{worker}), clock - slowest());
  }
  EXPECT_LT(expected.size(), 7u);
}

}  // namespace
}  // namespace syncopate
