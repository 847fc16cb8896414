#include "workers/data/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "workers/base/files.hpp"

namespace syncopate {
namespace {

// 103 samples, 4 workers, 2 micro-batches of 3 samples: an epoch has 4 steps of 24 samples, and drops 7.
const SamplerOptions options{.samples = 103, .workers = 4, .micro_batches = 2, .micro_batch_size = 3, .seed = 5};

std::vector<std::uint32_t> draw(const Sampler& sampler, int worker, std::int64_t step, int index) {
  std::vector<std::uint32_t> numbers;
  sampler.append_samples({.worker = Rank{worker}, .step = step, .index = index}, numbers);
  return numbers;
}

// All samples of a worker in an epoch, in order.
std::vector<std::uint32_t> worker_epoch(const Sampler& sampler, int worker, std::int64_t epoch) {
  std::vector<std::uint32_t> all;
  const auto steps = sampler.steps_per_epoch();
  for (auto step = epoch * steps; step < (epoch + 1) * steps; ++step)
    for (int index = 0; index < sampler.options().micro_batches; ++index) {
      const auto numbers = draw(sampler, worker, step, index);
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
  return all;
}

TEST(Sampler, StepsPerEpochDropTheRest) {
  EXPECT_EQ(options.steps_per_epoch(), 4);
  // ImageNet as in Gu et al. 2024: 1,281,167 images in batches of 16 x 256 = 4096.
  EXPECT_EQ((SamplerOptions{.samples = 1281167, .workers = 16, .micro_batches = 1, .micro_batch_size = 256}
                 .steps_per_epoch()),
            312);
}

TEST(Sampler, AnEpochTakesSamplesWithoutReplacementInDisjointShards) {
  const Sampler sampler(options);
  for (const std::int64_t epoch : {0, 1, 7}) {
    std::set<std::uint32_t> seen;
    for (int worker = 0; worker < 4; ++worker)
      for (const auto number : worker_epoch(sampler, worker, epoch)) {
        EXPECT_LT(number, 103u);
        EXPECT_TRUE(seen.insert(number).second) << "sample " << number << " twice in epoch " << epoch;
      }
    EXPECT_EQ(seen.size(), 96u);
  }
}

std::vector<std::uint32_t> batches(const Sampler& sampler, int worker, std::int64_t step, int index) {
  std::vector<std::uint32_t> samples;
  sampler.append_samples({.worker = Rank{worker}, .step = step, .index = index}, samples);
  return samples;
}

// Sequences of 1 to 9 tokens.
SamplerOptions sequences(Batching batching) {
  auto written = std::make_shared<std::vector<std::int32_t>>();
  for (int i = 0; i < 103; ++i) written->push_back(1 + i * 5 % 9);
  SamplerOptions result = options;
  result.batching = batching;
  result.token_budget = 20;
  result.lengths = written;
  return result;
}

TEST(Sampler, CountedAndPaddedMicroBatchesAreTheSame) {
  const Sampler counted(options), padded(sequences(Batching::padded));
  EXPECT_EQ(batches(padded, 1, 2, 1), draw(counted, 1, 2, 1));
  EXPECT_EQ(batches(counted, 3, 7, 0), draw(counted, 3, 7, 0));
}

TEST(Sampler, ForTimingAMicroBatchIsItsLongestSequenceAsOftenAsItHasSamples) {
  for (const Batching batching : {Batching::padded, Batching::bucketed, Batching::packed}) {
    SamplerOptions timed = sequences(batching);
    timed.repeats_longest = true;
    const Sampler plain(sequences(batching)), repeated(timed);
    const auto length = [&](std::uint32_t sample) { return (*timed.lengths)[sample]; };
    for (int worker = 0; worker < 4; ++worker) {
      const auto samples = batches(plain, worker, 5, 1), same = batches(repeated, worker, 5, 1);
      ASSERT_EQ(same.size(), samples.size());
      EXPECT_EQ(std::set(same.begin(), same.end()).size(), 1u);
      EXPECT_NE(std::ranges::find(samples, same[0]), samples.end());
      EXPECT_EQ(length(same[0]), length(std::ranges::max(samples, {}, length)));
    }
  }
}

TEST(Sampler, PackedMicroBatchesStayWithinTheBudgetAndShareAnEpoch) {
  const Sampler sampler(sequences(Batching::packed));
  // 103 sequences have 5 tokens on average. They fill 26 micro-batches of 20 tokens, the most, or 32 of 16 tokens, as
  // the next sequence may not fit. That makes 3 steps of 8 micro-batches, with 3 to 4 samples each.
  ASSERT_EQ(sampler.steps_per_epoch(), 3);
  EXPECT_EQ(sampler.samples_per_micro_batch(), 3);
  for (const std::int64_t epoch : {0, 1, 5}) {
    std::set<std::uint32_t> seen;
    std::size_t count = 0;
    for (std::int64_t step = 3 * epoch; step < 3 * epoch + 3; ++step)
      for (int worker = 0; worker < 4; ++worker)
        for (int index = 0; index < 2; ++index) {
          std::int32_t tokens = 0;
          for (const auto sample : batches(sampler, worker, step, index)) {
            seen.insert(sample);
            ++count;
            tokens += (*sampler.options().lengths)[sample];
          }
          EXPECT_LE(tokens, 20);
          EXPECT_GE(tokens, 12);  // the next sequence, of at most 9, did not fit
        }
    EXPECT_EQ(seen.size(), count) << "a sample comes twice in epoch " << epoch;
  }
  EXPECT_NE(batches(sampler, 0, 0, 0), batches(sampler, 0, 3, 0));
}

TEST(Sampler, BucketedMicroBatchesHaveOneLengthOrNeighbours) {
  const Sampler sampler(sequences(Batching::bucketed));
  ASSERT_EQ(sampler.steps_per_epoch(), 4);
  std::set<std::uint32_t> seen;
  for (std::int64_t step = 4; step < 8; ++step)
    for (int worker = 0; worker < 4; ++worker)
      for (int index = 0; index < 2; ++index) {
        const auto samples = batches(sampler, worker, step, index);
        ASSERT_EQ(samples.size(), 3u);
        EXPECT_EQ(draw(sampler, worker, step, index), samples);
        for (const auto sample : samples) EXPECT_TRUE(seen.insert(sample).second);
        const auto [low, high] = std::ranges::minmax(
            samples, {}, [&](std::uint32_t sample) { return (*sampler.options().lengths)[sample]; });
        EXPECT_LE((*sampler.options().lengths)[high] - (*sampler.options().lengths)[low], 1);
      }
  EXPECT_EQ(seen.size(), 96u);
}

TEST(Sampler, WithoutARestAnEpochIsComplete) {
  auto whole = options;
  whole.samples = 96;
  const Sampler sampler(whole);
  std::set<std::uint32_t> seen;
  for (int worker = 0; worker < 4; ++worker)
    for (const auto number : worker_epoch(sampler, worker, 3)) seen.insert(number);
  EXPECT_EQ(seen.size(), 96u);
}

// K and 2 K workers share one permutation: shard k of K workers is the union of shards k and k + K of 2 K workers.
TEST(Sampler, AllWorkersCutOnePermutation) {
  const Sampler one({.samples = 96, .workers = 1, .micro_batches = 1, .micro_batch_size = 96, .seed = 5});
  const Sampler four({.samples = 96, .workers = 4, .micro_batches = 1, .micro_batch_size = 24, .seed = 5});
  const auto permutation = draw(one, 0, 2, 0);
  for (int worker = 0; worker < 4; ++worker) {
    const auto shard = draw(four, worker, 2, 0);
    for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(shard[i], permutation[4 * i + static_cast<std::size_t>(worker)]);
  }
}

TEST(Sampler, ShardsChangeFromEpochToEpoch) {
  const Sampler sampler(options);
  const auto shard = [&](std::int64_t epoch) {
    auto numbers = worker_epoch(sampler, 0, epoch);
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  };
  EXPECT_NE(shard(0), shard(1));
  EXPECT_NE(shard(1), shard(2));
}

TEST(Sampler, IsAPureFunctionOfSeedAndMicroBatch) {
  const Sampler sampler(options);
  const auto expected = draw(sampler, 2, 5, 1);
  for (std::int64_t step = 100; step > 0; --step) draw(sampler, 0, step, 0);  // so many that cached epochs are replaced
  EXPECT_EQ(draw(sampler, 2, 5, 1), expected);
  EXPECT_EQ(draw(Sampler(options), 2, 5, 1), expected);
  auto other = options;
  other.seed = 6;
  EXPECT_NE(draw(Sampler(other), 2, 5, 1), expected);
}

TEST(Sampler, MoreMicroBatchesThanPlannedGoOnInTheShardAndAroundItsEnd) {
  const Sampler sampler(options);
  EXPECT_EQ(draw(sampler, 1, 0, 2), draw(sampler, 1, 1, 0));
  // Worker 3's shard has 25 samples, so sample 25 is sample 0 again.
  const auto first = draw(sampler, 3, 0, 0);
  const auto around = draw(sampler, 3, 0, 8);  // samples 24, 25, 26
  EXPECT_EQ(around[1], first[0]);
  EXPECT_EQ(around[2], first[1]);
}

// Shards of 4 workers have 26, 26, 26 and 25 of 103 samples. A worker uses its whole shard before it repeats one.
TEST(Sampler, AShardIsGivenWholeBeforeItBeginsAgain) {
  const Sampler sampler(options);
  std::set<std::uint32_t> all;
  for (int worker = 0; worker < 4; ++worker) {
    const std::size_t size = worker < 3 ? 26 : 25;
    std::vector<std::uint32_t> drawn;
    for (int index = 0; drawn.size() < 2 * size; ++index)
      for (const auto number : draw(sampler, worker, 0, index)) drawn.push_back(number);
    const std::set<std::uint32_t> own(drawn.begin(), drawn.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(own.size(), size) << worker;
    for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(drawn[i], drawn[i + size]) << worker;
    all.insert(own.begin(), own.end());
  }
  EXPECT_EQ(all.size(), 103u);
}

// chi^2 of which sample is at a position, over 2000 epochs: 9 degrees of freedom, 0.999 quantile 27.9.
TEST(Sampler, EverySampleIsEquallyLikelyAtAPosition) {
  const Sampler sampler({.samples = 10, .workers = 1, .micro_batches = 1, .micro_batch_size = 10, .seed = 1});
  for (const std::size_t position : {0u, 4u, 9u}) {
    std::vector<double> count(10);
    for (std::int64_t epoch = 0; epoch < 2000; ++epoch) ++count[draw(sampler, 0, epoch, 0)[position]];
    double chi_square = 0;
    for (const double c : count) chi_square += (c - 200) * (c - 200) / 200;
    EXPECT_LT(chi_square, 27.9) << "position " << position;
  }
}

TEST(Sampler, TooFewSamplesForOneStepAreAFault) {
  auto few = options;
  few.samples = 23;
  EXPECT_THROW(Sampler{few}, DataFault);
  few.samples = 24;
  EXPECT_NO_THROW(Sampler{few});
}

TEST(Sampler, ThreadsSeeTheSameNumbers) {
  const Sampler sampler({.samples = 5000, .workers = 2, .micro_batches = 1, .micro_batch_size = 500, .seed = 5});
  std::vector<std::vector<std::uint32_t>> seen(2);
  std::vector<std::thread> threads;
  for (auto& numbers : seen)
    threads.emplace_back([&] {
      for (std::int64_t step = 0; step < 200; ++step)
        for (const auto number : draw(sampler, 1, step, 0)) numbers.push_back(number);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(seen[0], seen[1]);
}

using testing::ElementsAre;
using Samples = std::vector<std::uint32_t>;

Samples of(const EpochBatches& epoch, std::int64_t i) { return {epoch[i].begin(), epoch[i].end()}; }

// Lengths by sample number: 5, 3, 4, 9, 1, 2.
const std::vector<std::int32_t> lengths = {5, 3, 4, 9, 1, 2};

TEST(EpochBatches, PacksInOrderUpToTheBudget) {
  const EpochBatches epoch = packed({0, 1, 2, 3, 4, 5}, lengths, 8);
  ASSERT_EQ(epoch.micro_batches(), 4);
  EXPECT_THAT(of(epoch, 0), ElementsAre(0u, 1u));  // 5 + 3
  EXPECT_THAT(of(epoch, 1), ElementsAre(2u));      // 4; another 9 do not fit
  EXPECT_THAT(of(epoch, 2), ElementsAre(3u));      // 9, more than the budget: alone
  EXPECT_THAT(of(epoch, 3), ElementsAre(4u, 5u));
  EXPECT_EQ(packed({3, 3}, lengths, 1).micro_batches(), 2);
  EXPECT_EQ(packed({0, 1, 2, 4, 5}, lengths, 100).micro_batches(), 1);
}

TEST(EpochBatches, BucketsHaveNeighboursInLength) {
  std::vector<std::int32_t> many(103);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int32_t>(1 + 37 * i % 29);
  Samples order(103);
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::reverse(order);
  const EpochBatches epoch = bucketed(order, many, 96, 8, {.seed = 4});
  ASSERT_EQ(epoch.micro_batches(), 12);
  std::set<std::uint32_t> seen;
  std::vector<std::vector<std::int32_t>> found;
  for (std::int64_t i = 0; i < 12; ++i) {
    ASSERT_EQ(epoch[i].size(), 8u);
    found.emplace_back();
    for (const std::uint32_t sample : epoch[i]) {
      EXPECT_TRUE(seen.insert(sample).second);
      EXPECT_GE(sample, 7u);  // 7 samples remain beyond whole micro-batches: the last ones of the order
      found.back().push_back(many[sample]);
    }
  }
  // Buckets are consecutive parts of the sorted lengths: after sorting the buckets, all lengths are sorted again.
  const bool is_shuffled = !std::ranges::is_sorted(found);
  EXPECT_TRUE(is_shuffled);
  std::ranges::sort(found);
  std::vector<std::int32_t> together;
  for (const auto& bucket : found) together.insert(together.end(), bucket.begin(), bucket.end());
  EXPECT_TRUE(std::ranges::is_sorted(together));
}

}  // namespace
}  // namespace syncopate
