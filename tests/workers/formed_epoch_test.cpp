#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "workers/data/sampler.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using Samples = std::vector<std::uint32_t>;

Samples of(const FormedEpoch& epoch, std::int64_t i) { return {epoch[i].begin(), epoch[i].end()}; }

// Lengths by sample number: 5, 3, 4, 9, 1, 2.
const std::vector<std::int32_t> lengths = {5, 3, 4, 9, 1, 2};

TEST(FormedEpoch, PacksInOrderUpToTheBudget) {
  const FormedEpoch epoch = packed({0, 1, 2, 3, 4, 5}, lengths, 8);
  ASSERT_EQ(epoch.micro_batches(), 4);
  EXPECT_THAT(of(epoch, 0), ElementsAre(0u, 1u));  // 5 + 3
  EXPECT_THAT(of(epoch, 1), ElementsAre(2u));      // 4, for 9 does not fit
  EXPECT_THAT(of(epoch, 2), ElementsAre(3u));      // longer than the budget: alone
  EXPECT_THAT(of(epoch, 3), ElementsAre(4u, 5u));
  EXPECT_EQ(packed({3, 3}, lengths, 1).micro_batches(), 2);
  EXPECT_EQ(packed({0, 1, 2, 4, 5}, lengths, 100).micro_batches(), 1);
}

TEST(FormedEpoch, BucketsHaveNeighboursInLength) {
  std::vector<std::int32_t> many(103);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int32_t>(1 + 37 * i % 29);
  Samples order(103);
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::reverse(order);
  const FormedEpoch epoch = bucketed(order, many, 96, 8, {.seed = 4});
  ASSERT_EQ(epoch.micro_batches(), 12);
  std::set<std::uint32_t> seen;
  std::vector<std::vector<std::int32_t>> found;
  for (std::int64_t i = 0; i < 12; ++i) {
    ASSERT_EQ(epoch[i].size(), 8u);
    found.emplace_back();
    for (const std::uint32_t sample : epoch[i]) {
      EXPECT_TRUE(seen.insert(sample).second);
      EXPECT_GE(sample, 7u);  // the last seven of the order are left out, whatever their lengths
      found.back().push_back(many[sample]);
    }
  }
  // Cut from the sorted lengths: all those of a bucket lie between the ends of the next ones.
  const bool is_shuffled = !std::ranges::is_sorted(found);
  EXPECT_TRUE(is_shuffled);
  std::ranges::sort(found);
  std::vector<std::int32_t> together;
  for (const auto& bucket : found) together.insert(together.end(), bucket.begin(), bucket.end());
  EXPECT_TRUE(std::ranges::is_sorted(together));
}

}  // namespace
}  // namespace syncopate
