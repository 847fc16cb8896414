// Synchronisation periods against sequences computed independently (tests/golden/README.md), against
// the volumes derived from them for the trainings of Gu et al. 2024, and against hand-made cases.
#include "algorithms/local_sgd/sync_period.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "workers/training/learning_rate.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using Periods = std::vector<std::int64_t>;

constexpr Step endless = std::numeric_limits<std::int64_t>::max();

// All rounds of a training of `total` steps, as Local SGD meets them.
Periods rounds_of(const SyncPeriod& period, const LearningRate& rate, Step total) {
  Periods periods;
  for (Step done = 0; done < total;) {
    const Step steps = period.at(done, rate.at(done), total - done);
    periods.push_back(steps.value());
    done += steps;
  }
  return periods;
}

// The steps after which models are averaged.
Periods syncs_of(const SyncPeriod& period, Step total, double learning_rate = 0.1) {
  Periods syncs;
  std::int64_t done = 0;
  for (const auto steps : rounds_of(period, LearningRate({.peak = learning_rate}), total))
    syncs.push_back(done += steps);
  return syncs;
}

std::unique_ptr<const SyncPeriod> power(double power, double coefficient, Step minimum) {
  return make_power_period({.power = power, .coefficient = coefficient, .minimum = minimum});
}

TEST(SyncPeriod, GoldenSequencesMatchRoundForRound) {
  std::ifstream file(SYNCOPATE_SOURCE_DIR "/tests/golden/qsr_golden.json");
  const auto golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.size(), 5U);
  for (const auto& [name, sequence] : golden.items()) {
    SCOPED_TRACE(name);
    const auto& config = sequence["config"];
    const LearningRate rate(
        {.shape = config["kind"] == "linear" ? LearningRate::Shape::linear : LearningRate::Shape::cosine,
         .peak = config["peak"],
         .final = config["final"],
         .warmup_steps = config["W"].get<std::int64_t>(),
         .total_steps = config["T"].get<std::int64_t>()});
    const auto period = make_power_period({.power = config["power"],
                                           .coefficient = config["coef"],
                                           .minimum = config["min_h"].get<std::int64_t>(),
                                           .warmup_steps = config["W"].get<std::int64_t>(),
                                           .warmup_period = Step{config["init_h"].get<std::int64_t>()}});
    Periods expected;
    for (const auto& run : sequence["rle"]) expected.insert(expected.end(), run[1].get<std::size_t>(), run[0]);
    ASSERT_EQ(expected.size(), sequence["rounds"].get<std::size_t>());
    EXPECT_EQ(rounds_of(*period, rate, config["T"].get<std::int64_t>()), expected);
  }
}

// The trainings of the paper: learning rate, length, and what the rule makes of them.
struct Training {
  LearningRate::Shape shape;
  double peak;
  std::int64_t warmup, total;
};
constexpr auto cosine = LearningRate::Shape::cosine;
constexpr auto linear = LearningRate::Shape::linear;
constexpr Training resnet{cosine, 0.8, 1560, 62400};
constexpr Training vit{cosine, 0.008, 10000, 93600};
constexpr Training vit_16384{cosine, 0.016, 2500, 23400};
constexpr Training resnet_linear{linear, 0.8, 1560, 62400};
constexpr Training vit_linear{linear, 0.008, 10000, 93600};

Periods rounds_of(const Training& training, double exponent, double coefficient, Step minimum) {
  const LearningRate rate({.shape = training.shape,
                           .peak = training.peak,
                           .final = 1e-6,
                           .warmup_steps = training.warmup,
                           .total_steps = training.total});
  const auto period = make_power_period(
      {.power = exponent, .coefficient = coefficient, .minimum = minimum, .warmup_steps = training.warmup});
  return rounds_of(*period, rate, training.total);
}

// Derived independently with a re-implementation checked against the reference code's schedule (hmgxr128/QSR).
TEST(SyncPeriod, TrainingsOfThePaperTakeTheDerivedNumberOfRounds) {
  struct Row {
    Training training;
    std::int64_t minimum;
    double alpha;
    std::size_t rounds;
    std::int64_t first_longer;  // first step whose round is longer than the minimum
    Periods last_six;
  };
  const std::vector<Row> rows = {
      {resnet, 2, 0.2, 24792, 47306, {275, 348, 480, 784, 2051, 829}},
      {vit, 4, 0.0175, 9711, 17876, {738, 894, 1145, 1612, 2769, 8142}},
      {vit_16384, 4, 0.0175, 3771, 13096, {218, 277, 385, 641, 1803, 339}},
      {vit_16384, 8, 0.01, 2292, 17096, {176, 225, 316, 538, 1643, 10}},
  };
  for (const auto& row : rows) {
    const auto periods = rounds_of(row.training, 2, row.alpha, row.minimum);
    EXPECT_EQ(periods.size(), row.rounds);
    EXPECT_EQ(Periods(periods.end() - 6, periods.end()), row.last_six);
    std::int64_t done = 0;
    for (auto period = periods.begin(); *period == row.minimum; ++period) done += *period;
    EXPECT_EQ(done, row.first_longer);
  }
}

// From the same derivation: other schedules and coefficients (c = alpha / peak
// of equal communication, printed with four digits, so the volume is too).
TEST(SyncPeriod, CommunicationVolumesMatchTheDerivedPercentages) {
  struct Row {
    Training training;
    double exponent, coefficient;
    std::int64_t minimum;
    double percent, tolerance;
  };
  const std::vector<Row> rows = {
      {resnet, 2, 0.25, 2, 38.46, 0.005},       {resnet, 2, 0.3, 2, 37.28, 0.005},
      {resnet, 2, 0.2, 4, 20.63, 0.005},        {resnet, 2, 0.3, 4, 19.61, 0.005},
      {vit_linear, 2, 0.0175, 4, 9.34, 0.005},  {vit_linear, 2, 0.0175, 8, 6.86, 0.005},
      {resnet_linear, 2, 0.2, 2, 44.69, 0.005}, {resnet_linear, 2, 0.25, 4, 22.56, 0.005},
      {resnet, 2, 0.25, 4, 20.09, 0.005},       {vit, 2, 0.0175, 8, 6.90, 0.005},
      {resnet, 1, 0.550 * 0.8, 2, 39.73, 0.02}, {resnet, 3, 0.190 * 0.8, 2, 39.73, 0.02},
      {resnet, 1, 0.934 * 0.8, 4, 20.09, 0.02}, {resnet, 3, 0.2145 * 0.8, 4, 20.09, 0.02},
      {vit, 1, 6.118 * 0.008, 4, 10.38, 0.01},  {vit, 3, 1.560 * 0.008, 4, 10.38, 0.01},
      {vit, 1, 8.430 * 0.008, 8, 6.90, 0.01},   {vit, 3, 1.362 * 0.008, 8, 6.90, 0.01},
  };
  for (const auto& row : rows) {
    const auto rounds = rounds_of(row.training, row.exponent, row.coefficient, row.minimum).size();
    EXPECT_NEAR(100.0 * static_cast<double>(rounds) / static_cast<double>(row.training.total), row.percent,
                row.tolerance)
        << "exponent " << row.exponent << ", coefficient " << row.coefficient << ", minimum " << row.minimum;
  }
}

// The reference code's cosine rounded to powers of two, after a warm-up to the rate as it is; for the same trainings.
TEST(SyncPeriod, CommunicationVolumesUnderACosineInStepsMatchTheDerivedPercentages) {
  struct Row {
    Training training;
    double coefficient;
    std::int64_t minimum;
    double percent;
  };
  const std::vector<Row> rows = {
      {resnet, 0.2, 2, 40.25}, {resnet, 0.25, 4, 20.22}, {vit, 0.0175, 4, 10.56}, {vit, 0.0175, 8, 6.70}};
  for (const auto& row : rows) {
    const Training& training = row.training;
    const LearningRate smooth({.shape = cosine,
                               .peak = training.peak,
                               .final = 1e-6,
                               .warmup_steps = training.warmup,
                               .total_steps = training.total});
    const auto period =
        make_power_period({.coefficient = row.coefficient, .minimum = row.minimum, .warmup_steps = training.warmup});
    std::int64_t rounds = 0;
    for (Step done = 0; done < training.total; ++rounds) {
      const double rate = smooth.at(done);
      const double in_steps = done < training.warmup ? rate : std::exp2(std::nearbyint(std::log2(rate)));
      done += period->at(done, in_steps, training.total - done);
    }
    EXPECT_NEAR(100.0 * static_cast<double>(rounds) / static_cast<double>(training.total), row.percent, 0.005)
        << "coefficient " << row.coefficient << ", minimum " << row.minimum;
  }
}

// Not clipping is what the reference code does with a constant period: T mod H steps stay un-averaged.
TEST(SyncPeriod, TheLastAverageFallsOnTheLastStepUnlikeTheReferencesConstantPeriod) {
  const auto constant = make_constant_period(4);
  Periods reference;
  int local_steps = 0;
  for (int done = 1; done <= 10; ++done) {
    if (++local_steps < constant->at(done, 0.1, endless).value()) continue;
    reference.push_back(done);
    local_steps = 0;
  }
  EXPECT_THAT(reference, ElementsAre(4, 8));
  EXPECT_THAT(syncs_of(*constant, 10), ElementsAre(4, 8, 10));
  EXPECT_THAT(syncs_of(*power(2, 0.1, 4), 10), ElementsAre(4, 8, 10));
}

TEST(SyncPeriod, PostLocalAveragesEveryStepBeforeTheSwitch) {
  EXPECT_THAT(syncs_of(*make_post_local_period(3, 5), 15), ElementsAre(1, 2, 3, 8, 13, 15));
  EXPECT_THAT(syncs_of(*make_post_local_period(0, 5), 12), ElementsAre(5, 10, 12));
}

TEST(SyncPeriod, SwapAveragesEveryStepBeforeTheSwitchAndOnceAtTheEnd) {
  EXPECT_THAT(syncs_of(*make_swap_period(3), 100), ElementsAre(1, 2, 3, 100));
  EXPECT_THAT(syncs_of(*make_swap_period(0), 100), ElementsAre(100));
  EXPECT_THAT(syncs_of(*make_swap_period(5), 4), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(make_swap_period(3)->at(3, 0.1, endless), endless);
}

TEST(SyncPeriod, CoefficientZeroEqualsAConstantPeriod) {
  const auto off = make_power_period({.coefficient = 0, .minimum = 2, .warmup_steps = 5, .warmup_period = Step{3}});
  for (const Step total : {1, 3, 10, 100}) EXPECT_EQ(syncs_of(*off, total), syncs_of(*make_constant_period(3), total));
}

TEST(SyncPeriod, WarmUpUsesItsOwnPeriodAndItsLastRoundMayRunPastItsEnd) {
  const auto period =
      make_power_period({.power = 2, .coefficient = 0.5, .minimum = 2, .warmup_steps = 10, .warmup_period = Step{4}});
  // (0.5 / 0.1)^2 = 25; a round begun at step 8 is still a round of the warm-up.
  EXPECT_THAT(syncs_of(*period, 50), ElementsAre(4, 8, 12, 37, 50));
  EXPECT_EQ(make_power_period({.coefficient = 0.5, .minimum = 7, .warmup_steps = 10})->at(0, 0.1, 50), Step{7});
}

TEST(SyncPeriod, TheMaximumCapsWhatAFallingRateAsksFor) {
  const auto period = make_power_period({.power = 2, .coefficient = 1, .minimum = 4, .maximum = Step{500}});
  EXPECT_EQ(period->at(0, 1, endless), Step{4});
  EXPECT_EQ(period->at(0, 0.0625, endless), Step{256});
  EXPECT_EQ(period->at(0, 0.03125, endless), Step{500});  // 1024 without the cap
  EXPECT_EQ(period->at(0, 0, endless), Step{500});
  EXPECT_EQ(period->at(0, 0, 499), Step{499});
}

// Doubles just below an integer: the quotients are 4.999... and 2.999..., so their squares round down to
// 24 and 8. The reference code meets the same doubles. Exact neighbours stay exact.
TEST(SyncPeriod, QuotientsJustBelowAnIntegerRoundDown) {
  EXPECT_EQ(power(2, 0.2, 1)->at(0, 0.4 * 0.1, 1000), Step{24});
  EXPECT_EQ(power(2, 0.3, 1)->at(0, 0.1, 1000), Step{8});
  EXPECT_EQ(power(2, 0.5, 1)->at(0, 0.125, 1000), Step{16});
  EXPECT_EQ(power(1, 0.75, 1)->at(0, 0.25, 1000), Step{3});
  EXPECT_EQ(power(3, 1.5, 1)->at(0, 0.5, 1000), Step{27});
}

TEST(SyncPeriod, PeriodsBeyondAnyIntegerBecomeAllThatIsLeft) {
  const auto qsr = power(2, 0.0175, 4);
  const double tiny = 0.0175 / std::sqrt(4e19);  // (alpha / eta)^2 = 4e19 > 2^63
  for (const double eta : {tiny, 1e-200, std::numeric_limits<double>::denorm_min(), 0.0, -0.0, -1.0}) {
    for (const Step left : {Step{1}, Step{777}, endless}) EXPECT_EQ(qsr->at(50, eta, left), left) << eta;
  }
  // The largest periods that still fit: 9e18 < 2^63, and 2^62 against an odd rest.
  EXPECT_EQ(power(2, 3e9, 1)->at(0, 1, endless), Step{9000000000000000000});
  EXPECT_EQ(power(1, std::pow(2.0, 62), 1)->at(0, 1, endless), Step{std::int64_t{1} << 62});
  EXPECT_EQ(power(1, std::pow(2.0, 62), 1)->at(0, 1, (std::int64_t{1} << 62) - 1), Step{(std::int64_t{1} << 62) - 1});
}

TEST(SyncPeriod, NothingLeftStillGivesOneStep) {
  for (const Step left : {0, -1, -1000}) {
    EXPECT_EQ(make_constant_period(4)->at(10, 0.1, left), Step{1});
    EXPECT_EQ(make_post_local_period(5, 4)->at(10, 0.1, left), Step{1});
    EXPECT_EQ(power(2, 0.2, 4)->at(10, 1e-6, left), Step{1});
    EXPECT_EQ(power(2, 0.2, 4)->at(10, 0, left), Step{1});
  }
}

TEST(SyncPeriod, AnyRuleFillsTheTrainingExactly) {
  for (const Step total : {1, 2, 7, 100, 997}) {
    const LearningRate rate({.shape = cosine, .peak = 0.4, .total_steps = total});
    for (const double coefficient : {0.0, 0.01, 0.3, 5.0, std::numeric_limits<double>::infinity()}) {
      for (const std::int64_t minimum : {1, 3, 2000}) {
        std::int64_t sum = 0;
        for (const auto steps : rounds_of(*power(2, coefficient, minimum), rate, total)) {
          EXPECT_GE(steps, 1);
          sum += steps;
        }
        EXPECT_EQ(Step{sum}, total);
      }
    }
  }
}

TEST(SyncPeriod, RejectsOptionsWithoutAMeaning) {
  EXPECT_THROW(make_constant_period(0), std::invalid_argument);
  EXPECT_THROW(make_post_local_period(-1, 4), std::invalid_argument);
  EXPECT_THROW(make_post_local_period(10, 0), std::invalid_argument);
  EXPECT_THROW(make_swap_period(-1), std::invalid_argument);
  EXPECT_THROW(power(0, 0.1, 4), std::invalid_argument);
  EXPECT_THROW(power(std::numeric_limits<double>::quiet_NaN(), 0.1, 4), std::invalid_argument);
  EXPECT_THROW(power(2, -0.1, 4), std::invalid_argument);
  EXPECT_THROW(power(2, std::numeric_limits<double>::quiet_NaN(), 4), std::invalid_argument);
  EXPECT_THROW(power(2, 0.1, 0), std::invalid_argument);
  EXPECT_THROW(make_power_period({.minimum = 4, .maximum = Step{3}}), std::invalid_argument);
  EXPECT_THROW(make_power_period({.warmup_steps = -1}), std::invalid_argument);
  EXPECT_THROW(make_power_period({.warmup_period = Step{0}}), std::invalid_argument);
}

TEST(SyncPeriod, EveryRuleHasANameAndASentence) {
  std::vector<std::string> names;
  for (const auto& row : sync_periods()) {
    names.emplace_back(row.name);
    EXPECT_FALSE(row.sentence.empty());
    EXPECT_NE(row.make, nullptr);
  }
  EXPECT_THAT(names, ElementsAre("constant", "power", "post-local", "swap"));
}

}  // namespace
}  // namespace syncopate
