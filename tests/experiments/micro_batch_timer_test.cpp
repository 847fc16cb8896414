// What is fitted to the times of micro-batches of sequences: made-up times, told by a clock that only gradients move.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "experiments/execution/micro_batch_timer.hpp"
#include "tests/workers/pull_objective.hpp"
#include "workers/base/random.hpp"
#include "workers/data/sampler.hpp"

namespace syncopate {
namespace {

// Four workers' micro-batches of eight sequences of 3 to 40 tokens, or all of one length.
class DrawnLengths : public BatchLengths {
 public:
  explicit DrawnLengths(std::int32_t all = 0) : all_(all) {}
  void append(const MicroBatch& micro_batch, std::vector<std::int32_t>& lengths) const override {
    std::vector<double> uniform(8);
    RandomStream{.seed = 5, .worker = micro_batch.worker, .step = micro_batch.step.value()}.fill_uniform(0, uniform);
    for (const double u : uniform) lengths.push_back(all_ > 0 ? all_ : 3 + static_cast<std::int32_t>(38 * u * u));
  }
  int workers() const override { return 4; }
  int micro_batches() const override { return 2; }
  std::int64_t steps_per_epoch() const override { return 10; }
  bool differs_by_worker() const override { return false; }
  std::int64_t fewest_samples() const override { return 8; }
  std::int32_t shortest() const override { return 3; }

 private:
  std::int32_t all_;
};

struct Meter : PullObjective {
  using Time = std::function<double(const std::vector<std::int32_t>& lengths, int visit)>;
  Meter(std::shared_ptr<const BatchLengths> lengths, Time time)
      : work{.experiment = "e", .key = "k", .load = {}, .lengths = std::move(lengths)}, time(std::move(time)) {}

  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> micro_batches) const override {
    EXPECT_EQ(micro_batches.size(), 1u);
    std::vector<std::int32_t> lengths;
    work.lengths->append(micro_batches[0], lengths);
    EXPECT_GE(micro_batches[0].step.value(), calibration_epoch * work.lengths->steps_per_epoch());
    now_s += time(lengths, visits[micro_batches[0]]++);
    return {};
  }
  LengthFit fit() const {
    return measure_by_lengths(*this, work, 1, [this] { return now_s; });
  }

  MicroBatchWork work;
  Time time;
  mutable double now_s = 100;
  mutable std::map<MicroBatch, int> visits;
};

TEST(LengthMeter, FindsTheCostsThatTimesAreMadeOf) {
  const ContentCost cost{.base_s = 2e-3, .per_token_s = 3e-5, .per_squared_length_s = 4e-7};
  const Meter meter(std::make_shared<DrawnLengths>(),
                    [&](const auto& lengths, int) { return seconds_of(cost, lengths); });
  const LengthFit fit = meter.fit();
  EXPECT_NEAR(fit.cost.base_s, cost.base_s, 1e-9);
  EXPECT_NEAR(fit.cost.per_token_s, cost.per_token_s, 1e-11);
  EXPECT_NEAR(fit.cost.per_squared_length_s, cost.per_squared_length_s, 1e-13);
  EXPECT_EQ(fit.cost.per_padded_token_s, 0);
  EXPECT_NEAR(fit.r_squared, 1, 1e-9);
  EXPECT_LT(fit.largest_residual_s, 1e-9);
  EXPECT_EQ(fit.points, 24);
}

TEST(LengthMeter, TellsPaddedTokensFromTokens) {
  const ContentCost cost{.base_s = 1e-3, .per_padded_token_s = 2e-5};
  Meter meter(std::make_shared<DrawnLengths>(), [&](const auto& lengths, int) { return seconds_of(cost, lengths); });
  meter.work.pads = true;
  const LengthFit fit = meter.fit();
  EXPECT_NEAR(fit.cost.per_padded_token_s, cost.per_padded_token_s, 1e-11);
  EXPECT_EQ(fit.cost.per_token_s, 0);
}

// Of what is timed padded, shorter sequences' own tokens are no part, however the noise falls.
TEST(LengthMeter, FindsNoCostOfOwnTokensWhereAllArePadded) {
  int calls = 0;
  Meter meter(std::make_shared<DrawnLengths>(), [&](const std::vector<std::int32_t>& lengths, int) {
    const double noise = 1e-5 * (++calls * 37 % 11 - 5);
    return seconds_of({.base_s = 1e-3, .per_token_s = 2e-5, .per_padded_token_s = 1e-6}, lengths) + noise;
  });
  EXPECT_GT(meter.fit().cost.per_token_s, 0);
  meter.work.pads = true;
  meter.visits.clear();
  const LengthFit fit = meter.fit();
  EXPECT_EQ(fit.cost.per_token_s, 0);
  EXPECT_GT(fit.cost.per_padded_token_s, 0);
}

// A language model's last layer is of what is asked for, which no padding is.
TEST(LengthMeter, FindsTheCostOfOwnTokensWherePaddingIsAskedForNothing) {
  const ContentCost cost{.base_s = 1e-3, .per_token_s = 2e-5, .per_padded_token_s = 1e-5};
  Meter meter(std::make_shared<DrawnLengths>(), [&](const auto& lengths, int) { return seconds_of(cost, lengths); });
  meter.work.pads = true;
  meter.work.asks_for_tokens = true;
  const LengthFit fit = meter.fit();
  EXPECT_NEAR(fit.cost.per_token_s, cost.per_token_s, 1e-11);
  EXPECT_NEAR(fit.cost.per_padded_token_s, cost.per_padded_token_s, 1e-11);
}

// Visits that are disturbed now and then, and the first ones, in which libraries set themselves up.
TEST(LengthMeter, IsNotMisledByRareDisturbancesNorByTheFirstGradients) {
  const ContentCost cost{.base_s = 2e-3, .per_token_s = 3e-5};
  int calls = 0;
  const Meter meter(std::make_shared<DrawnLengths>(), [&](const auto& lengths, int visit) {
    const bool is_disturbed = visit < 2 || ++calls % 7 == 0;
    return seconds_of(cost, lengths) * (is_disturbed ? 10 : 1);
  });
  const LengthFit fit = meter.fit();
  EXPECT_NEAR(fit.cost.base_s, cost.base_s, 1e-9);
  EXPECT_NEAR(fit.cost.per_token_s, cost.per_token_s, 1e-11);
}

// Half of the lengths take 1 ms more than the line says, the others 1 ms less, at some 7 to 15 ms: the line explains
// all but 1 ms^2 of their variance.
TEST(LengthMeter, SaysHowWellTheLineFits) {
  const Meter meter(std::make_shared<DrawnLengths>(), [&](const std::vector<std::int32_t>& lengths, int) {
    double tokens = 0;
    for (const std::int32_t length : lengths) tokens += length;
    return 5e-3 + 5e-5 * tokens + (static_cast<int>(tokens) % 2 == 0 ? 1e-3 : -1e-3);
  });
  const LengthFit fit = meter.fit();
  EXPECT_NEAR(fit.typical_residual_s, 1e-3, 2e-4);
  EXPECT_GT(fit.largest_residual_s, 0.9e-3);
  EXPECT_GT(fit.r_squared, 0.6);
  EXPECT_LT(fit.r_squared, 0.95);
}

TEST(LengthMeter, TimesMicroBatchesFromTheFewestTokensToTheMost) {
  std::set<double> timed;
  const auto lengths = std::make_shared<DrawnLengths>();
  const auto tokens_of = [](const std::vector<std::int32_t>& one) { return seconds_of({.per_token_s = 1}, one); };
  Meter(lengths, [&](const auto& one, int) { return timed.insert(tokens_of(one)), 1e-3; }).fit();
  std::set<double> all;
  for (int worker = 0; worker < 4; ++worker)
    for (int step = 0; step < 100; ++step) {
      std::vector<std::int32_t> one;
      lengths->append({Rank{worker}, step, 0}, one);
      all.insert(tokens_of(one));
    }
  EXPECT_GE(timed.size(), 20u);
  EXPECT_LT(*timed.begin(), *std::next(all.begin(), 10));
  EXPECT_GT(*timed.rbegin(), *std::prev(all.end(), 10));
}

// Of sequences that are all as long nothing says what a token costs: all of it is the base, which is right for them.
TEST(LengthMeter, ClaimsNoCostPerTokenWhereAllLengthsAreEqual) {
  const Meter meter(std::make_shared<DrawnLengths>(12),
                    [](const auto&, int visit) { return visit % 2 ? 4e-3 : 4.2e-3; });
  const LengthFit fit = meter.fit();
  EXPECT_GE(fit.cost.base_s, 4e-3);
  EXPECT_LE(fit.cost.base_s, 4.2e-3);
  EXPECT_EQ(fit.cost.per_token_s, 0);
  EXPECT_EQ(fit.cost.per_padded_token_s, 0);
  EXPECT_EQ(fit.cost.per_squared_length_s, 0);
}

// At most half a minute, whatever a gradient takes.
TEST(LengthMeter, GivesUpRoundsWhereGradientsAreSlow) {
  const Meter meter(std::make_shared<DrawnLengths>(), [](const auto&, int) { return 0.2; });
  EXPECT_NEAR(meter.fit().cost.base_s, 0.2, 1e-6);
  EXPECT_LT(meter.now_s, 100 + 35);
}

}  // namespace
}  // namespace syncopate
