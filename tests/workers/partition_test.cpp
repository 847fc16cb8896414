#include "workers/data/partition.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/workers/idx_files.hpp"
#include "workers/base/files.hpp"
#include "workers/data/sampler.hpp"

namespace syncopate {
namespace {

using Kind = PartitionOptions::Kind;
using Shards = std::vector<std::vector<std::uint32_t>>;

// Labels of `each` samples of every class; the classes take turns.
std::vector<std::int64_t> labels_of(std::int64_t classes, std::int64_t each) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < classes * each; ++i) labels.push_back(i % classes);
  return labels;
}

std::vector<double> shares_of_class(const Shards& shards, const std::vector<std::int64_t>& labels, std::int64_t one) {
  std::vector<double> shares;
  double all = 0;
  for (const auto& shard : shards) {
    shares.push_back(
        static_cast<double>(std::ranges::count_if(shard, [&](std::uint32_t number) { return labels[number] == one; })));
    all += shares.back();
  }
  for (double& share : shares) share /= all;
  return shares;
}

TEST(Partition, GivesEverySampleToOneWorker) {
  const auto labels = labels_of(7, 101);
  for (const Kind kind : {Kind::dirichlet, Kind::label, Kind::size}) {
    std::vector<std::uint32_t> all;
    for (const auto& shard : divide(labels, 7, 13, {.kind = kind, .alpha = 0.3, .shards = 3}, 5)) {
      EXPECT_TRUE(std::ranges::is_sorted(shard));
      all.insert(all.end(), shard.begin(), shard.end());
    }
    std::ranges::sort(all);
    ASSERT_EQ(all.size(), labels.size());
    for (std::uint32_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i);
  }
}

// In Dirichlet(alpha) over K workers, a share has the mean 1/K and the variance (K - 1) / (K^2 (K alpha + 1)).
TEST(Partition, SharesOfAClassAreDirichlets) {
  constexpr int workers = 8, classes = 600, each = 400;
  const auto labels = labels_of(classes, each);
  for (const double alpha : {0.1, 1.0, 10.0}) {
    const Shards shards = divide(labels, classes, workers, {.kind = Kind::dirichlet, .alpha = alpha}, 11);
    double sum = 0, squares = 0;
    for (std::int64_t one = 0; one < classes; ++one) {
      const double share = shares_of_class(shards, labels, one).front();
      sum += share;
      squares += share * share;
    }
    const double mean = sum / classes, variance = squares / classes - mean * mean;
    const double expected = (workers - 1) / (double{workers} * workers * (workers * alpha + 1));
    EXPECT_NEAR(mean, 1.0 / workers, 4 * std::sqrt(expected / classes)) << "four deviations";
    // The bounds are more than four deviations, because a share's fourth moment is at most that of a Bernoulli
    // variable.
    EXPECT_NEAR(variance / expected, 1, alpha < 1 ? 0.35 : 0.25) << alpha;
  }
}

TEST(Partition, ByLabelAWorkerHasAsManyLabelsAsShards) {
  // 12 classes of 50 samples, and 6 workers with 2 shards of 50 samples each, so a shard is a class.
  const auto labels = labels_of(12, 50);
  std::set<std::int64_t> seen;
  for (const auto& shard : divide(labels, 12, 6, {.kind = Kind::label, .shards = 2}, 3)) {
    std::set<std::int64_t> own;
    for (const std::uint32_t number : shard) own.insert(labels[number]);
    EXPECT_EQ(shard.size(), 100u);
    EXPECT_EQ(own.size(), 2u);
    seen.insert(own.begin(), own.end());
  }
  EXPECT_EQ(seen.size(), 12u);
}

TEST(Partition, BySizeWorkersDifferInTheNumberOfSamplesAlone) {
  const auto labels = labels_of(4, 5000);
  const Shards shards = divide(labels, 4, 5, {.kind = Kind::size, .alpha = 0.5}, 9);
  std::size_t least = labels.size(), most = 0;
  for (const auto& shard : shards) {
    least = std::min(least, shard.size());
    most = std::max(most, shard.size());
    if (shard.size() < 1000) continue;
    const auto zeros = std::ranges::count_if(shard, [&](std::uint32_t number) { return labels[number] == 0; });
    EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(shard.size()), 0.25, 0.06);
  }
  EXPECT_GT(most, 2 * least);
}

TEST(Partition, FollowsTheSeedAlone) {
  const auto labels = labels_of(10, 60);
  const PartitionOptions options{.kind = Kind::dirichlet, .alpha = 0.5};
  EXPECT_EQ(divide(labels, 10, 4, options, 1), divide(labels, 10, 4, options, 1));
  EXPECT_NE(divide(labels, 10, 4, options, 1), divide(labels, 10, 4, options, 2));
}

TEST(Partition, ATinyAlphaStillGivesEverySampleToSomebody) {
  const auto labels = labels_of(5, 20);
  std::size_t all = 0;
  for (const auto& shard : divide(labels, 5, 3, {.kind = Kind::dirichlet, .alpha = 1e-6}, 1)) all += shard.size();
  EXPECT_EQ(all, labels.size());
}

// Two workers have 7 and 3 samples, and micro-batches of 2. A pass through them has three micro-batches or one.
TEST(PartitionedSampler, AWorkerGoesThroughItsOwnSamplesAgainAndAgain) {
  const Sampler sampler({.samples = 10,
                         .workers = 2,
                         .micro_batches = 1,
                         .micro_batch_size = 2,
                         .seed = 4,
                         .shards = {{0, 2, 4, 5, 6, 8, 9}, {1, 3, 7}}});
  std::set<std::vector<std::uint32_t>> orders;
  for (const int worker : {0, 1})
    for (std::int64_t pass = 0; pass < 20; ++pass) {
      const auto& own = sampler.options().shards[static_cast<std::size_t>(worker)];
      const std::int64_t micro_batches = std::ssize(own) / 2;
      std::vector<std::uint32_t> order;
      for (std::int64_t i = 0; i < micro_batches; ++i) {
        sampler.append_samples({.worker = Rank{worker}, .step = pass * micro_batches + i}, order);
      }
      const std::set<std::uint32_t> seen(order.begin(), order.end());
      EXPECT_EQ(seen.size(), order.size()) << "no sample twice in a pass";
      EXPECT_TRUE(std::ranges::includes(own, seen));
      orders.insert(order);
    }
  EXPECT_GT(orders.size(), 20u) << "each pass has an order of its own";
}

TEST(PartitionedSampler, AWorkerWithoutAMicroBatchIsNamed) {
  EXPECT_THAT(
      message_of<DataFault>([] {
        Sampler({.samples = 10, .workers = 2, .micro_batch_size = 3, .shards = {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9}}});
      }),
      testing::HasSubstr("gives worker 1 only 2 samples, fewer than a micro-batch of 3"));
}

}  // namespace
}  // namespace syncopate
