// Codes as such, without a training: matrices, and sums of declared vectors.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>

#include "algorithms/gradient_coding/codes.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::vector<Rank> members(unsigned set, int workers) {
  std::vector<Rank> result;
  for (int worker = 0; worker < workers; ++worker)
    if (set >> worker & 1) result.push_back(Rank{worker});
  return result;
}

// The first of each group, as a server takes them.
std::vector<Rank> first_of_each_group(const GradientCode& code, const std::vector<Rank>& arrivals) {
  std::vector<Rank> taken;
  std::set<int> groups;
  for (const Rank worker : arrivals)
    if (groups.insert(code.group[worker]).second) taken.push_back(worker);
  return taken;
}

// [part]: the weight with which its gradient is in the decoded sum.
std::vector<double> weights_of_parts(const GradientCode& code, const std::vector<Rank>& arrived) {
  const auto a = code.decode(arrived);
  std::vector<double> result(at(code.parts.size()));
  for (std::size_t i = 0; i < arrived.size(); ++i)
    for (const auto& part : code.parts[arrived[i]]) result[at(part.number)] += a[i] * part.weight;
  return result;
}

double largest_error(const std::vector<double>& weights) {
  double error = 0;
  for (const double weight : weights) error = std::max(error, std::abs(weight - 1));
  return error;
}

TEST(GradientCode, FractionalRepetitionGivesTheFullSumForEverySetOfStragglers) {
  constexpr int workers = 12;
  for (const int stragglers : {0, 1, 2, 3, 5}) {
    const GradientCode code = fractional_repetition(workers, stragglers);
    for (unsigned lost = 0; lost < 1u << workers; ++lost) {
      if (std::popcount(lost) != stragglers) continue;
      const auto taken = first_of_each_group(code, members(~lost, workers));
      ASSERT_EQ(static_cast<int>(taken.size()), code.needed);
      ASSERT_EQ(largest_error(weights_of_parts(code, taken)), 0) << "lost " << lost;
    }
    for (const auto& parts : code.parts) EXPECT_EQ(static_cast<int>(parts.size()), stragglers + 1);
  }
}

// Rounding in double precision, 1e-16, times terms of at most 1e7, of which there are s + 1 for a part.
TEST(GradientCode, CyclicRepetitionGivesTheFullSumForEverySetOfStragglers) {
  constexpr int workers = 10;
  for (const int stragglers : {1, 2, 4, 5, 9}) {
    const auto code = cyclic_repetition(workers, stragglers, 1);
    ASSERT_TRUE(code);
    double largest_part = 0, largest_message = 0, error = 0;
    for (int worker = 0; worker < workers; ++worker) {
      const auto& parts = code->parts[Rank{worker}];
      ASSERT_EQ(static_cast<int>(parts.size()), stragglers + 1);
      EXPECT_EQ(parts.front().weight, 1);
      for (int k = 0; k <= stragglers; ++k) {
        EXPECT_EQ(parts[at(k)].number, (worker + k) % workers);
        largest_part = std::max(largest_part, std::abs(parts[at(k)].weight));
      }
    }
    int sets = 0;
    for (unsigned lost = 0; lost < 1u << workers; ++lost) {
      if (std::popcount(lost) != stragglers) continue;
      auto arrived = members(~lost, workers);
      std::rotate(arrived.begin(), arrived.begin() + sets++ % std::ssize(arrived), arrived.end());  // in any order
      ASSERT_EQ(static_cast<int>(arrived.size()), code->needed);
      for (const double weight : code->decode(arrived)) largest_message = std::max(largest_message, std::abs(weight));
      error = std::max(error, largest_error(weights_of_parts(*code, arrived)));
    }
    EXPECT_LE(error, 1e-8) << "s = " << stragglers;
    EXPECT_LE(largest_part * largest_message, largest_cyclic_weight);
    std::printf("n = 10, s = %d: %d sets, max|a| max|B| = %.2g, identity error %.1e\n", stragglers, sets,
                largest_part * largest_message, error);
  }
}

TEST(GradientCode, LargerCyclicCodesDecodeRandomSetsOfStragglers) {
  struct Case {
    int workers, stragglers;
  };
  for (const auto& [workers, stragglers] : {Case{20, 5}, Case{30, 6}, Case{64, 3}, Case{100, 10}}) {
    const auto code = cyclic_repetition(workers, stragglers, 7);
    ASSERT_TRUE(code) << workers;
    double error = 0;
    for (std::uint32_t set = 0; set < 200; ++set) {
      const auto lost = draw_set(workers, stragglers, {.seed = 99}, set * 100);
      std::vector<Rank> arrived;
      for (int worker = 0; worker < workers; ++worker)
        if (std::find(lost.begin(), lost.end(), worker) == lost.end()) arrived.push_back(Rank{worker});
      error = std::max(error, largest_error(weights_of_parts(*code, arrived)));
    }
    EXPECT_LE(error, 1e-7);
    std::printf("n = %d, s = %d: identity error %.1e over 200 sets\n", workers, stragglers, error);
  }
}

TEST(GradientCode, ACyclicCodeIsDecidedByItsSeed) {
  const auto weight = [](std::uint64_t seed) { return cyclic_repetition(10, 3, seed)->parts[Rank{4}][2].weight; };
  EXPECT_EQ(weight(1), weight(1));
  EXPECT_NE(weight(1), weight(2));
}

TEST(GradientCode, IgnoredStragglersAreMadeUpForByTheOthers) {
  const GradientCode code = ignore_stragglers(5, 2);
  EXPECT_EQ(code.needed, 3);
  const auto weights = weights_of_parts(code, {Rank{4}, Rank{0}, Rank{3}});
  for (const int part : {0, 3, 4}) EXPECT_DOUBLE_EQ(weights[at(part)], 5.0 / 3);
  EXPECT_EQ(weights[1] + weights[2], 0);
}

// Where others have left, fewer may come than the code can do without.
TEST(GradientCode, OfIgnoredStragglersTheMeanIsThatOfWhoeverHasCome) {
  const auto weights = weights_of_parts(ignore_stragglers(5, 2), {Rank{4}, Rank{1}});
  EXPECT_DOUBLE_EQ(weights[1], 5.0 / 2);
  EXPECT_DOUBLE_EQ(weights[4], 5.0 / 2);
}

// [part]: how many workers hold it; and how many hold two given parts.
std::vector<int> copies(const GradientCode& code) {
  std::vector<int> count(at(code.parts.size()));
  for (const auto& parts : code.parts)
    for (const auto& part : parts) ++count[at(part.number)];
  return count;
}
int shared_workers(const GradientCode& code, int a, int b) {
  return static_cast<int>(std::count_if(code.parts.begin(), code.parts.end(), [&](const auto& parts) {
    const auto holds = [&](int p) { return std::ranges::any_of(parts, [&](const auto& x) { return x.number == p; }); };
    return holds(a) && holds(b);
  }));
}

TEST(StochasticCode, EveryPartIsWithAsManyDifferentWorkersAsItHasCopies) {
  for (const Placement placement : {Placement::independent, Placement::balanced})
    for (const int d : {1, 3, 8}) {
      const auto code = stochastic_code(8, {.copies = d, .straggler_share = 0.2, .placement = placement});
      EXPECT_EQ(copies(code), std::vector<int>(8, d));
      for (const auto& parts : code.parts)
        for (const auto& part : parts) EXPECT_DOUBLE_EQ(part.weight, 1 / (d * 0.8));
    }
}

// Offsets 0, 1, 3 (mod 7) and their like make every two parts share exactly one worker: the Fano plane.
TEST(StochasticCode, ABalancedPlacementFindsTheFanoPlane) {
  const auto code = stochastic_code(7, {.copies = 3, .straggler_share = 0.1, .placement = Placement::balanced});
  for (const auto& parts : code.parts) EXPECT_EQ(parts.size(), 3u);
  for (int a = 0; a < 7; ++a)
    for (int b = 0; b < a; ++b) EXPECT_EQ(shared_workers(code, a, b), 1);
}

// Over all sets of stragglers with their probabilities, so without any error but rounding.
TEST(StochasticCode, TheSumIsUnbiased) {
  constexpr int workers = 9;
  constexpr double p = 0.3;
  const auto code = stochastic_code(workers, {.copies = 2, .straggler_share = p});
  std::vector<double> mean(workers);
  for (unsigned set = 0; set < 1u << workers; ++set) {
    const auto arrived = members(set, workers);
    const double probability = std::pow(1 - p, arrived.size()) * std::pow(p, workers - std::ssize(arrived));
    const auto weights = weights_of_parts(code, arrived);
    for (int part = 0; part < workers; ++part) mean[at(part)] += probability * weights[at(part)];
  }
  for (const double value : mean) EXPECT_NEAR(value, 1, 1e-12);
}

// Gradients of the parts: one vector of two numbers each.
struct Gradients {
  std::vector<std::array<double, 2>> parts;
  double sum_of_squares = 0, square_of_sum = 0;

  explicit Gradients(int workers) {
    std::array<double, 2> sum{};
    for (int i = 0; i < workers; ++i) {
      parts.push_back({1 + std::sin(i), 0.5 * i - 1});
      for (const std::size_t k : {0u, 1u}) {
        sum[k] += parts.back()[k];
        sum_of_squares += parts.back()[k] * parts.back()[k];
      }
    }
    square_of_sum = sum[0] * sum[0] + sum[1] * sum[1];
  }
  // |decoded sum - full sum|^2
  double squared_error(const std::vector<double>& weights) const {
    std::array<double, 2> error{};
    for (std::size_t i = 0; i < parts.size(); ++i)
      for (const std::size_t k : {0u, 1u}) error[k] += (weights[i] - 1) * parts[i][k];
    return error[0] * error[0] + error[1] * error[1];
  }
};

// E |decoded - G|^2 = p / (1 - p) [(1/d - 1/n) sum |g_i|^2 + |G|^2 / n] over stragglers and independent
// placements. 40,000 draws; the standard error is estimated from them, and four of it allowed.
TEST(StochasticCode, TheVarianceIsTheFormulas) {
  constexpr int workers = 10, draws = 40000;
  constexpr double p = 0.2;
  const Gradients g(workers);
  for (const int d : {1, 2, 4}) {
    double sum = 0, sum_of_squares = 0;
    for (int draw = 0; draw < draws; ++draw) {
      const auto code = stochastic_code(
          workers, {.copies = d, .straggler_share = p, .seed = static_cast<std::uint64_t>(1000 + draw)});
      std::vector<Rank> arrived;
      const RandomStream stream{.seed = 77, .step = Step{draw}};
      for (int worker = 0; worker < workers; ++worker)
        if (stream.uniform(static_cast<std::uint32_t>(worker)) >= p) arrived.push_back(Rank{worker});
      const double squared = g.squared_error(weights_of_parts(code, arrived));
      sum += squared;
      sum_of_squares += squared * squared;
    }
    const double mean = sum / draws;
    const double standard_error = std::sqrt((sum_of_squares / draws - mean * mean) / draws);
    const double expected = p / (1 - p) * ((1.0 / d - 1.0 / workers) * g.sum_of_squares + g.square_of_sum / workers);
    EXPECT_NEAR(mean, expected, 4 * standard_error) << "d = " << d;
    EXPECT_LT(standard_error, 0.02 * expected);  // or the test would say little
    std::printf("d = %d: variance %.3f +- %.3f, formula %.3f\n", d, mean, standard_error, expected);
  }
}

// Where every two parts share l workers the formula is p / (1 - p) [(1/d - l/d^2) sum |g_i|^2 + l/d^2 |G|^2];
// over all sets of stragglers with their probabilities.
TEST(StochasticCode, TheVarianceOfABalancedPlacementIsItsDesigns) {
  constexpr int workers = 7;
  constexpr double p = 0.25, d = 3, l = 1;
  const Gradients g(workers);
  const auto code = stochastic_code(workers, {.copies = 3, .straggler_share = p, .placement = Placement::balanced});
  double mean = 0;
  for (unsigned set = 0; set < 1u << workers; ++set) {
    const auto arrived = members(set, workers);
    mean += std::pow(1 - p, arrived.size()) * std::pow(p, workers - std::ssize(arrived)) *
            g.squared_error(weights_of_parts(code, arrived));
  }
  const double expected = p / (1 - p) * ((1 / d - l / (d * d)) * g.sum_of_squares + l / (d * d) * g.square_of_sum);
  EXPECT_NEAR(mean, expected, 1e-9 * expected);
}

}  // namespace
}  // namespace syncopate
