#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "workers/time/compute_time.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Lengths = std::vector<std::int32_t>;

// Two workers, two micro-batches of two sequences, three steps until the data begin anew.
class WrittenLengths final : public BatchLengths {
 public:
  static Lengths of(const MicroBatch& m) {
    static const Lengths all[2][3][2] = {{{{3, 5}, {1, 2}}, {{8, 8}, {4, 1}}, {{2, 2}, {2, 2}}},
                                         {{{9, 1}, {5, 5}}, {{7, 3}, {6, 6}}, {{1, 1}, {3, 4}}}};
    return all[m.worker.value][m.step.value() % 3][m.index];
  }
  void append(const MicroBatch& m, Lengths& lengths) const override {
    const Lengths own = of(m);
    lengths.insert(lengths.end(), own.begin(), own.end());
  }
  int workers() const override { return 2; }
  int micro_batches() const override { return 2; }
  std::int64_t steps_per_epoch() const override { return 3; }
  bool differs_by_worker() const override { return false; }
  std::int64_t fewest_samples() const override { return 2; }
  std::int32_t shortest() const override { return 1; }
};

TEST(ContentTime, OneSequencesTimeIsWhatItsLengthCosts) {
  const ContentCost cost{.base_s = 1, .per_token_s = 0.1, .per_squared_length_s = 0.01};
  EXPECT_DOUBLE_EQ(seconds_of(cost, Lengths{7}), 1 + 0.7 + 0.49);
  ContentCost padded = cost;
  padded.pads = true;
  padded.per_padded_token_s = 0.001;
  EXPECT_DOUBLE_EQ(seconds_of(padded, Lengths{7}), 1 + 0.7 + 0.49 + 0.007);
}

TEST(ContentTime, OfSeveralSequencesByHand) {
  const Lengths lengths = {3, 5, 4};
  EXPECT_DOUBLE_EQ(seconds_of({.base_s = 2}, lengths), 2);
  EXPECT_DOUBLE_EQ(seconds_of({.per_token_s = 1}, lengths), 12);
  EXPECT_DOUBLE_EQ(seconds_of({.per_padded_token_s = 1}, lengths), 15);
  EXPECT_DOUBLE_EQ(seconds_of({.per_squared_length_s = 1}, lengths), 9 + 25 + 16);
  EXPECT_DOUBLE_EQ(seconds_of({.per_squared_length_s = 1, .pads = true}, lengths), 75);
}

TEST(ContentTime, FollowsFactorsAndAddedDelays) {
  const auto base = content_time({.base_s = 0.5, .per_token_s = 0.1}, std::make_shared<WrittenLengths>());
  const ComputeTime time(1, base, {1, 3}, {constant_delay(0.25)});
  std::vector<Duration> out(2);
  time.durations(Rank{0}, Step{0}, 0, out);
  EXPECT_EQ(out, (std::vector{from_seconds(0.5 + 0.8 + 0.25), from_seconds(0.5 + 0.3 + 0.25)}));
  time.durations(Rank{1}, Step{4}, 0, out);
  EXPECT_EQ(out, (std::vector{from_seconds(3 * 1.5 + 0.25), from_seconds(3 * 1.7 + 0.25)}));
}

// What a worker computes of another's part, or of a step gone by, takes as long as that is; the delay is the slot's.
TEST(ContentTime, FollowsTheSamplesAndDelaysTheSlot) {
  const auto base = content_time({.per_token_s = 0.1}, std::make_shared<WrittenLengths>());
  const ComputeTime time(1, base, {1, 3}, {constant_delay(0.25)});
  EXPECT_TRUE(time.follows_samples());
  const MicroBatch slot{Rank{1}, Step{0}, 0}, samples{Rank{0}, Step{1}, 1};
  EXPECT_EQ(time.duration(slot, samples), from_seconds(3 * 0.5 + 0.25));
  EXPECT_EQ(time.duration(slot, slot), from_seconds(3 * 1.0 + 0.25));
  EXPECT_FALSE(ComputeTime(1, 0.1, {}, {}).follows_samples());
}

TEST(ContentTime, LawsAreThoseOfTheEpochItself) {
  const auto process = content_time({.per_token_s = 1}, std::make_shared<WrittenLengths>());
  const std::vector<double> ones = {8, 3, 16, 5, 4, 4, 10, 10, 10, 12, 2, 7}, steps = {11, 21, 8, 20, 22, 9};
  const auto law = [](const std::vector<double>& values) {
    double mean = 0, variance = 0;
    for (const double value : values) mean += value / static_cast<double>(values.size());
    for (const double value : values) variance += std::pow(value - mean, 2) / static_cast<double>(values.size());
    return StepLaw{mean, variance};
  };
  EXPECT_NEAR(process->mean_s(), law(ones).mean_s, 1e-12);
  EXPECT_NEAR(process->variance_s2(), law(ones).variance_s2, 1e-12);
  EXPECT_NEAR(process->step_law({}, 2).mean_s, law(steps).mean_s, 1e-12);
  EXPECT_NEAR(process->step_law({}, 2).variance_s2, law(steps).variance_s2, 1e-12);
  EXPECT_NEAR(process->step_law({}, 5).mean_s, 5 * law(ones).mean_s, 1e-12);
  EXPECT_DOUBLE_EQ(process->minimum_s(), 2);
}

}  // namespace
}  // namespace syncopate
