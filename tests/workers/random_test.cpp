#include "workers/base/random.hpp"

#include <Random123/philox.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "tests/workers/instruction_sets.hpp"

namespace syncopate {
namespace {

using Block = std::array<std::uint32_t, 4>;

// Known answers of philox4x32 with 10 rounds, published with Random123 (kat_vectors). The words of the counter are
// those of a stream: block, worker, step, and purpose | stream << 8 | the step's upper bits << 16.
TEST(Random, BlocksAreThoseOfThePublishedKnownAnswers) {
  const RandomStream zeros{0, Purpose{0}, 0, Rank{0}, Step{0}};
  EXPECT_EQ(zeros.block(0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));

  const RandomStream ones{~std::uint64_t{0}, Purpose{0xff}, 0xff, Rank{-1}, Step{0xffffffffffff}};
  EXPECT_EQ(ones.block(0xffffffff), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));

  // Counter 243f6a88 85a308d3 13198a2e 03707344 and key a4093822 299f31d0: the digits of pi.
  const RandomStream pi{0x299f31d0a4093822, Purpose{0x44}, 0x73, Rank{static_cast<int>(0x85a308d3)},
                        Step{0x037013198a2e}};
  EXPECT_EQ(pi.block(0x243f6a88), (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The definition of a uniform number, written with the library's generator alone.
double reference_uniform(const RandomStream& stream, std::uint32_t index) {
  const auto step = static_cast<std::uint64_t>(stream.step.value());
  const r123::Philox4x32::ctr_type counter = {
      {index / 2, static_cast<std::uint32_t>(stream.worker.value), static_cast<std::uint32_t>(step),
       static_cast<std::uint32_t>(static_cast<std::uint64_t>(stream.purpose) | std::uint64_t{stream.stream} << 8 |
                                  (step >> 32) << 16)}};
  const r123::Philox4x32::key_type key = {
      {static_cast<std::uint32_t>(stream.seed), static_cast<std::uint32_t>(stream.seed >> 32)}};
  const auto random = r123::Philox4x32()(counter, key);
  const std::uint64_t low = random[index % 2 * 2], high = random[index % 2 * 2 + 1];
  return (static_cast<double>((high << 32 | low) >> 12) + 0.5) * 0x1p-52;
}

TEST(Random, BatchesOfAnyLengthAndStartHoldTheDefinedNumbers) {
  const RandomStream stream{0x123456789abcdef0, Purpose::delay, 3, Rank{70000}, Step{0x1234567890}};
  with_each_instruction_set([&](const std::string& name) {
    for (const std::uint32_t first : {0u, 1u, 2u, 7u, 12u, 0x7ffffff1u, 0xffffff00u}) {
      for (std::size_t size = 0; size <= 41; ++size) {
        std::vector<double> batch(size + 1, -1.0);
        stream.fill_uniform(first, {batch.data(), size});
        for (std::size_t i = 0; i < size; ++i) {
          const auto index = first + static_cast<std::uint32_t>(i);
          ASSERT_EQ(batch[i], reference_uniform(stream, index))
              << name << ": " << size << " from " << first << ", " << i;
          ASSERT_EQ(batch[i], stream.uniform(index));
        }
        ASSERT_EQ(batch[size], -1.0) << "wrote past the end";
      }
    }
    // Other seeds: keys of an earlier seed must not be used.
    for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{0}, ~std::uint64_t{0}}) {
      std::vector<double> batch(3);
      const RandomStream other{seed, Purpose::delay_burst, 255, Rank{1}, Step{2}};
      other.fill_uniform(0, batch);
      for (std::uint32_t i = 0; i < 3; ++i) ASSERT_EQ(batch[i], reference_uniform(other, i)) << name;
    }
  });
}

TEST(Random, RowsHoldTheNumbersOfTheirOwnStreams) {
  using Along = RandomRows::Along;
  const RandomStream first{0x123456789abcdef0, Purpose::delay, 3, Rank{70000}, Step{0x12fffffffe}};
  with_each_instruction_set([&](const std::string& name) {
    for (const Along along : {Along::workers, Along::steps}) {
      for (const Step step : {Step{5}, first.step}) {  // the second step's low 32 bits overflow within the rows
        for (const std::size_t count : {1u, 2u, 3u, 7u, 8u, 32u}) {
          for (const std::size_t length : {1u, 2u, 3u, 5u, 8u, 12u, 16u, 33u}) {
            for (const std::uint32_t number : {0u, 1u, 6u}) {
              RandomRows rows{first, along, count};
              rows.first.step = step;
              std::vector<double> batch(count * length + 1, -1.0);
              rows.fill_uniform(number, {batch.data(), count * length});
              for (std::size_t i = 0; i < count * length; ++i) {
                RandomStream own = rows.first;
                const auto row = static_cast<int>(i / length);
                if (along == Along::workers) own.worker.value += row;
                if (along == Along::steps) own.step += row;
                ASSERT_EQ(batch[i], reference_uniform(own, number + static_cast<std::uint32_t>(i % length)))
                    << name << ": " << count << " rows of " << length << " from " << number << ", number " << i;
              }
              ASSERT_EQ(batch.back(), -1.0) << "wrote past the end";
            }
          }
        }
      }
    }
  });
}

TEST(Random, NumbersAreOddMultiplesOfTheSmallestStepInsideTheOpenInterval) {
  std::vector<double> numbers(10000);
  RandomStream{.seed = 9}.fill_uniform(0, numbers);
  for (const double u : numbers) {
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    ASSERT_EQ(std::fmod(u * 0x1p53, 2), 1);
  }
}

TEST(Random, OrderOfAccessDoesNotMatter) {
  const RandomStream stream{.seed = 5, .purpose = Purpose::network, .worker = Rank{2}, .step = Step{8}};
  std::vector<double> forward(100), backward(100);
  stream.fill_uniform(0, forward);
  for (std::uint32_t i = 100; i-- > 0;) backward[i] = stream.uniform(i);
  EXPECT_EQ(forward, backward);
}

// Fields that address a stream: if one differs, the streams share no block.
TEST(Random, StreamsThatDifferInOneFieldShareNoBlock) {
  const std::vector<RandomStream> streams = {
      {1, Purpose::delay, 0, Rank{0}, Step{0}},
      {2, Purpose::delay, 0, Rank{0}, Step{0}},
      {1ULL << 32 | 1, Purpose::delay, 0, Rank{0}, Step{0}},
      {1, Purpose::worker_factor, 0, Rank{0}, Step{0}},
      {1, Purpose::data_order, 0, Rank{0}, Step{0}},
      {1, Purpose::initial_parameters, 0, Rank{0}, Step{0}},
      {1, Purpose::gradient_noise, 0, Rank{0}, Step{0}},
      {1, Purpose::synthetic_data, 0, Rank{0}, Step{0}},
      {1, Purpose::network, 0, Rank{0}, Step{0}},
      {1, Purpose::delay, 1, Rank{0}, Step{0}},
      {1, Purpose::delay, 0, Rank{1}, Step{0}},
      {1, Purpose::delay, 0, Rank{0}, Step{1}},
      {1, Purpose::delay, 0, Rank{0}, Step{1LL << 32}},
      {1, Purpose::delay, 0, Rank{0}, Step{1LL << 47}},
  };
  std::set<Block> blocks;
  for (const RandomStream& stream : streams) {
    for (std::uint32_t i = 0; i < 1000; ++i) blocks.insert(stream.block(i));
  }
  EXPECT_EQ(blocks.size(), streams.size() * 1000);
}

// Tolerances are five standard errors: a correct generator exceeds one with probability 6e-7.
TEST(Random, MomentsAreThoseOfTheUniformDistribution) {
  constexpr int n = 1'000'000;
  std::vector<double> numbers(n);
  RandomStream{.seed = 20}.fill_uniform(0, numbers);
  double mean = 0, variance = 0, lag = 0;
  for (const double u : numbers) mean += u / n;
  for (const double u : numbers) variance += (u - 0.5) * (u - 0.5) / n;
  for (int i = 1; i < n; ++i) lag += (numbers[i] - 0.5) * (numbers[i - 1] - 0.5) / n;
  EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(variance, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / n));  // Var (U - 1/2)^2 = 1/80 - 1/144 = 1/180
  EXPECT_NEAR(lag, 0, 5 * (1.0 / 12) / std::sqrt(n));
}

TEST(Random, EqualIndicesOfDifferentWorkersAreUncorrelated) {
  constexpr int n = 200'000;
  double covariance = 0;
  for (int worker = 0; worker < n; ++worker) {
    const RandomStream here{.seed = 3, .worker = Rank{worker}, .step = Step{4}};
    const RandomStream there{.seed = 3, .worker = Rank{worker}, .step = Step{5}};
    covariance += (here.uniform(0) - 0.5) * (there.uniform(0) - 0.5) / n;
  }
  EXPECT_NEAR(covariance, 0, 5 * (1.0 / 12) / std::sqrt(n));
}

// Sets of numbers: random ones, and all of them in order.

// In 6,000 draws each of the 6 sets occurs 1,000 times on average, deviation 29. The tolerance is five deviations.
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

// The sets for which the condition is evaluated, up to and including the first for which it does not hold.
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
  EXPECT_EQ(asked(6, 3, 20).size(), 20u);  // all sets: 6 over 3
  EXPECT_EQ(asked(5, 5, 20).size(), 1u);
  EXPECT_EQ(asked(7, 1, 7).size(), 7u);
}

// There are 20 sets, more than 19. So 19 sets are drawn at random, some of them twice.
TEST(Sets, AreDrawnWhereTheyAreMany) {
  const auto seen = asked(6, 3, 19);
  EXPECT_LT(seen.size(), 19u);
  EXPECT_GT(seen.size(), 6u);
}

TEST(Sets, AreAskedForUntilOneDoesNotHold) { EXPECT_EQ(asked(6, 3, 20, {0, 1, 4}).size(), 3u); }

}  // namespace
}  // namespace syncopate
