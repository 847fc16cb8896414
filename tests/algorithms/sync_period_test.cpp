// Synchronisation periods are compared with sequences that were computed independently (tests/golden/README.md) and
// with hand-made cases. Communication volumes are derived from these sequences for the trainings of Gu et al. 2024.
#include "algorithms/local_sgd/sync_period.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"
#include "workers/training/learning_rate.hpp"

namespace syncopate {
namespace {

using testing::ElementsAre;
using Periods = std::vector<std::int64_t>;

constexpr Step endless = std::numeric_limits<std::int64_t>::max();

// All rounds of a training of `total` steps, as in Local SGD.
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

// The trainings of the paper: learning rate, length, and the rule's results.
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

// Rounds were derived by a re-implementation that was checked against the reference code (hmgxr128/QSR).
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

// Communication volumes from the same derivation, for other schedules and coefficients. For equal communication c =
// alpha / peak is printed with four digits, so these volumes have only four digits, too.
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

// Volumes of the same trainings with the reference code's cosine, which is rounded to powers of two, after a warm-up
// to the unrounded rate.
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

// The reference code does not clip a constant period: its last T mod H steps are not averaged.
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
  // At a rate of 0.1 rounds have (0.5 / 0.1)^2 = 25 steps. A round begun at step 8 is still a round of the warm-up.
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

// The quotients are 4.999... and 2.999..., so their squares are rounded down to 24 and 8, as in the reference code,
// which has the same doubles. Quotients that are exact stay exact.
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
  // The largest periods that still fit: 9e18 < 2^63, and 2^62 with one step fewer left.
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

TEST(SyncPeriod, EveryRuleHasANameAndASentence) {
  std::vector<std::string> names;
  for (const auto& row : sync_periods()) {
    names.emplace_back(row.name);
    EXPECT_FALSE(row.sentence.empty());
    EXPECT_NE(row.make, nullptr);
  }
  EXPECT_THAT(names, ElementsAre("constant", "power", "post-local", "swap", "loss", "per-moment"));
}

// The quadratic rule under every schedule: each round's length is the formula's at the rate of its first step.

using Shape = LearningRate::Shape;

TEST(SyncPeriodSchedules, TheQuadraticRuleFollowsEverySchedule) {
  constexpr int total = 2000;
  for (const Shape shape : {Shape::constant, Shape::step, Shape::exponential, Shape::linear, Shape::polynomial,
                            Shape::cosine, Shape::modified_cosine, Shape::cosine_step}) {
    const LearningRate rate({.shape = shape,
                             .peak = 0.4,
                             .final = 1e-4,
                             .warmup_start = 0.05,
                             .warmup_steps = 100,
                             .total_steps = total,
                             .decay_steps = {700, 1400},
                             .decay_factor = 0.3,
                             .decay_every = 300,
                             .power = 2,
                             .constant_from = 1500});
    const auto period = make_power_period({.coefficient = 0.6,
                                           .minimum = Step{2},
                                           .maximum = Step{400},
                                           .warmup_steps = rate.warmup(),
                                           .warmup_period = Step{3}});
    int done = 0, rounds = 0, longest = 0;
    while (done < total) {
      const double eta = rate.at(done);
      const double asked = done < 100 ? 3 : std::clamp(std::floor(std::pow(0.6 / eta, 2)), 2.0, 400.0);
      const int expected = std::min(static_cast<int>(asked), total - done);
      ASSERT_EQ(period->at(done, eta, total - done), Step{expected}) << static_cast<int>(shape) << " at " << done;
      done += expected;
      longest = std::max(longest, expected);
      ++rounds;
    }
    EXPECT_EQ(done, total);
    EXPECT_TRUE(longest > 3 || shape == Shape::constant) << static_cast<int>(shape);
  }
}

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Reading {
  std::shared_ptr<const SyncPeriod> period;
  std::string faults;
  std::string resolved;
};

Reading read(const std::string& table, const AlgorithmContext& context = {.counts_steps = true},
             bool may_follow_run = false) {
  SettingsDocument document(parse_toml("period = " + table, "test.toml"));
  Settings settings = document.root().section("period");
  Reading reading;
  reading.period = make_sync_period(settings, context, may_follow_run);
  reading.faults = document.check().report();
  reading.resolved = write_toml(document.resolved());
  return reading;
}

TEST(SyncPeriodSettings, AConstantPeriodReadsItsSteps) {
  const auto reading = read(R"({ rule = "constant", steps = 8 })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(100, 0.1, 1000), Step{8});
}

TEST(SyncPeriodSettings, ThePowerRuleReadsEveryKey) {
  const auto reading = read(R"({ rule = "power", power = 3, coefficient = 0.5, minimum = 4, maximum = 100, )"
                            R"(warmup_steps = 50, warmup_period = 6 })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(49, 0.125, 1000), Step{6});
  EXPECT_EQ(reading.period->at(50, 0.5, 1000), Step{4});
  EXPECT_EQ(reading.period->at(50, 0.125, 1000), Step{64});
  EXPECT_EQ(reading.period->at(50, 0.0625, 1000), Step{100});
}

TEST(SyncPeriodSettings, ThePowerRuleIsQuadraticWithoutWarmUpUnlessTold) {
  const auto reading = read(R"({ rule = "power", coefficient = 1, minimum = 4 })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(0, 0.125, 1000), Step{64});
  EXPECT_EQ(reading.period->at(0, 0.001, 2000000), Step{1000000});
  EXPECT_THAT(reading.resolved, AllOf(HasSubstr("power = 2"), HasSubstr("warmup_steps = 0"),
                                      HasSubstr("warmup_period = 4"), Not(HasSubstr("maximum"))));
}

TEST(SyncPeriodSettings, TheWarmUpIsThatOfTheLearningRateUnlessTold) {
  const AlgorithmContext context{.learning_rate_warmup = 50, .counts_steps = true};
  const auto reading = read(R"({ rule = "power", coefficient = 1, minimum = 4 })", context);
  EXPECT_EQ(reading.period->at(49, 0.125, 1000), Step{4});
  EXPECT_EQ(reading.period->at(50, 0.125, 1000), Step{64});
}

TEST(SyncPeriodSettings, WithoutAnEndInStepsTheMaximumIsRequired) {
  EXPECT_THAT(read(R"({ rule = "power", coefficient = 1, minimum = 4 })", {.counts_steps = false}).faults,
              HasSubstr("maximum"));
  EXPECT_EQ(read(R"({ rule = "power", coefficient = 1, minimum = 4, maximum = 9 })", {.counts_steps = false}).faults,
            "");
}

TEST(SyncPeriodSettings, TheWarmUpPeriodIsTheMinimumUnlessTold) {
  const auto reading = read(R"({ rule = "power", coefficient = 1, minimum = 4, warmup_steps = 10 })");
  EXPECT_EQ(reading.period->at(9, 0.125, 1000), Step{4});
  EXPECT_EQ(reading.period->at(10, 0.125, 1000), Step{64});
}

TEST(SyncPeriodSettings, PostLocalReadsItsSwitch) {
  const auto reading = read(R"({ rule = "post-local", switch_step = 30, steps = 16 })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(29, 0.1, 1000), Step{1});
  EXPECT_EQ(reading.period->at(30, 0.1, 1000), Step{16});
}

TEST(SyncPeriodSettings, SwapReadsItsSwitch) {
  const auto reading = read(R"({ rule = "swap", switch_step = 30 })");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(29, 0.1, 971), Step{1});
  EXPECT_EQ(reading.period->at(30, 0.1, 970), Step{970});
  EXPECT_THAT(read(R"({ rule = "swap", switch_step = -1 })").faults, HasSubstr("switch_step = -1"));
  EXPECT_THAT(read(R"({ rule = "swap" })").faults, HasSubstr("switch_step"));
  EXPECT_THAT(read(R"({ rule = "swap", switch_step = 1, steps = 4 })").faults, HasSubstr("steps"));
}

TEST(SyncPeriodSettings, SwapNeedsABudgetThatEndsWithoutCommunication) {
  EXPECT_EQ(read(R"({ rule = "swap", switch_step = 3 })", {.counts_steps = false}).faults,
            "");  // counted in seconds, for example
  EXPECT_THAT(read(R"({ rule = "swap", switch_step = 3 })", {.budget_ends_alone = false}).faults, HasSubstr("bytes"));
}

TEST(SyncPeriodSettings, AnUnknownRuleIsOneFaultThatNamesTheRules) {
  const auto reading = read(R"({ rule = "powr", coefficient = 1, minimum = 4 })");
  EXPECT_THAT(reading.faults, AllOf(HasSubstr("rule"), HasSubstr("powr"), HasSubstr("constant"),
                                    HasSubstr("post-local"), Not(HasSubstr("coefficient"))));
  ASSERT_NE(reading.period, nullptr);
  EXPECT_EQ(reading.period->at(0, 0.1, 1000), Step{1});
}

TEST(SyncPeriodSettings, AllFaultsOfATableAreReportedAtOnce) {
  const auto reading = read(R"({ rule = "power", power = 0, coefficient = -1, minimum = 0, maximum = -5, )"
                            R"(warmup_steps = -1, warmup_period = 0, steps = 3 })");
  for (const char* key : {"power = 0", "coefficient = -1", "minimum = 0", "maximum = -5", "warmup_steps = -1",
                          "warmup_period = 0", "steps"}) {
    EXPECT_THAT(reading.faults, HasSubstr(key));
  }
}

TEST(SyncPeriodSettings, AMaximumBelowTheMinimumIsAFault) {
  EXPECT_THAT(read(R"({ rule = "power", coefficient = 1, minimum = 8, maximum = 7 })").faults,
              HasSubstr("maximum = 7"));
  EXPECT_EQ(read(R"({ rule = "power", coefficient = 1, minimum = 8, maximum = 8 })").faults, "");
}

TEST(SyncPeriodSettings, RequiredKeysAreMissed) {
  EXPECT_THAT(read(R"({ rule = "constant" })").faults, HasSubstr("steps"));
  EXPECT_THAT(read(R"({ rule = "post-local" })").faults, AllOf(HasSubstr("switch_step"), HasSubstr("steps")));
  EXPECT_THAT(read(R"({ rule = "power" })").faults, AllOf(HasSubstr("coefficient"), HasSubstr("minimum")));
  EXPECT_THAT(read("{ }").faults, HasSubstr("rule"));
}

// 1,000 steps at a constant rate of 0.1, so the rule's rounds have floor(coefficient / 0.1) steps.
const LearningRate constant_rate({.peak = 0.1});
AlgorithmContext thousand_steps() { return {.total_steps = Step{1000}, .learning_rate = &constant_rate}; }

TEST(SyncPeriodSettings, StepsAreFoundForTheRoundsThatAreAskedFor) {
  const auto reading = read(R"({ rule = "constant", steps = { rounds = 125 } })", thousand_steps());
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(0, 0.1, 1000), Step{8});
  EXPECT_THAT(reading.resolved, AllOf(HasSubstr("steps = 8\n"), HasSubstr("[period.solved_for]\n"),
                                      HasSubstr("rounds = 125"), HasSubstr("found = 125")));
  const auto post_local =
      read(R"({ rule = "post-local", switch_step = 100, steps = { share = 0.19 } })", thousand_steps());
  EXPECT_EQ(post_local.faults, "");
  EXPECT_EQ(post_local.period->at(100, 0.1, 900), Step{10});
  EXPECT_THAT(post_local.resolved, AllOf(HasSubstr("share = 0.19"), HasSubstr("rounds = 190")));
}

TEST(SyncPeriodSettings, ACoefficientIsFoundForTheRoundsThatAreAskedFor) {
  const auto reading =
      read(R"({ rule = "power", power = 1, coefficient = { rounds = 125 }, minimum = 4 })", thousand_steps());
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.period->at(0, 0.1, 1000), Step{8});
  EXPECT_THAT(reading.resolved, AllOf(HasSubstr("coefficient = 0.8"), HasSubstr("found = 125")));
}

TEST(SyncPeriodSettings, TheNearestIsToldWhereNoneMakesJustAsMany) {
  EXPECT_THAT(read(R"({ rule = "constant", steps = { rounds = 400 } })", thousand_steps()).resolved,
              AllOf(HasSubstr("steps = 3\n"), HasSubstr("rounds = 400"), HasSubstr("found = 334")));
}

TEST(SyncPeriodSettings, WhatWasSolvedReadsBackToItself) {
  for (const char* table : {R"({ rule = "constant", steps = { rounds = 400 } })",
                            R"({ rule = "power", coefficient = { share = 0.07 }, minimum = 4 })"}) {
    const std::string resolved = read(table, thousand_steps()).resolved;
    SettingsDocument document(parse_toml(resolved, "resolved.toml"));
    Settings settings = document.root().section("period");
    make_sync_period(settings, thousand_steps());
    EXPECT_EQ(document.check().report(), "");
    EXPECT_EQ(write_toml(document.resolved()), resolved);
  }
}

TEST(SyncPeriodSettings, WhatIsNotTrueAnyMoreIsNotTold) {
  const std::string told = R"(, solved_for = { rounds = 125, found = 125 } })";
  EXPECT_THAT(read(R"({ rule = "constant", steps = 8)" + told, thousand_steps()).resolved, HasSubstr("solved_for"));
  for (const char* const other : {"7", "9"})  // 143 and 112 rounds
    EXPECT_THAT(read(fmt::format(R"({{ rule = "constant", steps = {}{})", other, told), thousand_steps()).resolved,
                Not(HasSubstr("solved_for")));
}

TEST(SyncPeriodSettings, WhatCannotBeSolvedIsOneFault) {
  const auto faults = [](const std::string& table) {
    const std::string found = read("{ rule = " + table + " }", thousand_steps()).faults;
    EXPECT_EQ(std::ranges::count(found, '\n'), 0) << found;
    return found;
  };
  EXPECT_THAT(faults(R"("constant", steps = { rounds = 1001 })"),
              HasSubstr("steps.rounds = 1001; must be at most the run's 1000 steps"));
  EXPECT_THAT(faults(R"("constant", steps = { rounds = 0 })"),
              HasSubstr("steps.rounds = 0; must be an integer from 1"));
  EXPECT_THAT(faults(R"("constant", steps = { share = 1e-4 })"), HasSubstr("in 1000 steps it gives 0"));
  EXPECT_THAT(faults(R"("constant", steps = { share = 1.5 })"), HasSubstr("at most 1"));
  EXPECT_THAT(faults(R"("constant", steps = { rounds = 5, share = 0.5 })"),
              HasSubstr("steps.share = 0.5; must not be given together with rounds"));
  EXPECT_THAT(faults(R"("constant", steps = {})"), HasSubstr("must be a number, or a table { rounds = 470 }"));
  EXPECT_THAT(faults(R"("constant", steps = { round = 5 })"), HasSubstr("did you mean \"rounds\"?"));
  EXPECT_THAT(faults(R"("swap", switch_step = 10, steps = { rounds = 5 })"), HasSubstr("\"swap\" has a single round"));
  EXPECT_THAT(faults(R"("swap", switch_step = 10, coefficient = { rounds = 5 })"), HasSubstr("must be left out"));
  EXPECT_THAT(faults(R"("constant", steps = 5, coefficient = { rounds = 5 })"), HasSubstr("unknown key"));
  EXPECT_THAT(faults(R"("constant", steps = { rounds = 5 }, solved_for = { found = 5 })"),
              HasSubstr("must be left out"));
  EXPECT_THAT(read(R"({ rule = "constant", steps = { rounds = 5 } })", {.counts_steps = false}).faults,
              HasSubstr("if the budget is not in steps or epochs"));
}

TEST(SyncPeriodSettings, EveryRuleOfTheTableCanBeWritten) {
  for (const auto& row : sync_periods()) {
    const std::string keys = row.name == "power"        ? "coefficient = 0, minimum = 5"
                             : row.name == "post-local" ? "switch_step = 0, steps = 5"
                             : row.name == "swap"       ? "switch_step = 0"
                             : row.name == "loss"       ? "initial_period = 5"
                                                        : "steps = 5";
    const std::string table = "{ rule = \"" + std::string(row.name) + "\", " + keys + " }";
    const auto reading = read(table, {.counts_steps = true}, /*may_follow_run=*/true);
    EXPECT_EQ(reading.faults, "") << row.name;
    EXPECT_EQ(reading.period->at(0, 0.1, 5), Step{5}) << row.name;
    const bool is_for_all = row.name != "loss" && row.name != "per-moment";
    EXPECT_EQ(read(table).faults.empty(), is_for_all) << row.name;
  }
}

// Periods that are solved for a number of rounds are compared with closed forms and with the golden sequences'
// coefficients. If no period gives the exact number, the nearest one is taken.

std::int64_t rounded_up(std::int64_t steps, std::int64_t period) { return (steps + period - 1) / period; }

Step solve_constant(std::int64_t rounds, std::int64_t steps) {
  const LearningRate rate({.peak = 0.1});
  return solve_period(rounds, steps, [&](Step period, std::int64_t at_most) {
    return count_rounds(*make_constant_period(period), rate, steps, at_most);
  });
}

TEST(RoundsOfRule, AConstantPeriodMakesTheStepsOverItsLengthRoundedUp) {
  const LearningRate rate({.peak = 0.1});
  for (const std::int64_t steps : {1, 7, 100, 2340})
    for (std::int64_t period = 1; period <= steps + 1; ++period)
      EXPECT_EQ(count_rounds(*make_constant_period(period), rate, steps), rounded_up(steps, period));
  EXPECT_EQ(count_rounds(*make_constant_period(1), rate, 1'000'000'000, 12), 12) << "no more than were asked about";
}

// The solution is compared with a search over all periods.
TEST(RoundsOfRule, TheConstantPeriodIsTheShortestOfTheNearest) {
  for (const std::int64_t steps : {1, 2, 30, 97, 100})
    for (std::int64_t asked = 1; asked <= steps; ++asked) {
      std::int64_t best = 1;
      for (std::int64_t period = 2; period <= steps; ++period) {
        const auto distance = [&](std::int64_t h) { return std::abs(rounded_up(steps, h) - asked); };
        const bool is_as_near_with_fewer =
            distance(period) == distance(best) && rounded_up(steps, period) < rounded_up(steps, best);
        if (distance(period) < distance(best) || is_as_near_with_fewer) best = period;
      }
      EXPECT_EQ(solve_constant(asked, steps), Step{best}) << asked << " of " << steps;
    }
}

TEST(RoundsOfRule, OfTwoThatAreAsNearItIsTheFewerRounds) {
  EXPECT_EQ(solve_constant(4, 6), Step{2}) << "H = 1 makes 6 rounds, H = 2 makes 3, H = 3 makes 2";
  EXPECT_EQ(solve_constant(4, 5), Step{2}) << "H = 1 makes 5, H = 2 makes 3";
}

TEST(RoundsOfRule, StepsBeforeTheSwitchAreRoundsToo) {
  const LearningRate rate({.peak = 0.1});
  const auto solve = [&](std::int64_t asked) {
    return solve_period(asked, 1000, [&](Step period, std::int64_t at_most) {
      return count_rounds(*make_post_local_period(100, period), rate, 1000, at_most);
    });
  };
  EXPECT_EQ(solve(190), Step{10}) << "100 + 900 / 10";
  EXPECT_EQ(solve(20), Step{900}) << "one round after the switch is the least";
}

struct Golden {
  std::string name;
  LearningRate rate;
  PowerPeriodOptions options;
  Step steps;
  std::int64_t rounds;
};

std::vector<Golden> golden_sequences() {
  std::ifstream file(SYNCOPATE_SOURCE_DIR "/tests/golden/qsr_golden.json");
  std::vector<Golden> all;
  const auto golden = nlohmann::json::parse(file);
  for (const auto& [name, sequence] : golden.items()) {
    const auto& config = sequence["config"];
    const Step steps = config["T"].get<std::int64_t>(), warmup = config["W"].get<std::int64_t>();
    all.push_back({name,
                   LearningRate({.shape = config["kind"] == "linear" ? Shape::linear : Shape::cosine,
                                 .peak = config["peak"],
                                 .final = config["final"],
                                 .warmup_steps = warmup,
                                 .total_steps = steps}),
                   {.power = config["power"],
                    .coefficient = config["coef"],
                    .minimum = config["min_h"].get<std::int64_t>(),
                    .warmup_steps = warmup,
                    .warmup_period = Step{config["init_h"].get<std::int64_t>()}},
                   steps,
                   sequence["rounds"]});
  }
  return all;
}

auto counted(const Golden& golden) {
  return [&golden](double coefficient, std::int64_t at_most) {
    PowerPeriodOptions options = golden.options;
    options.coefficient = coefficient;
    return count_rounds(*make_power_period(options), golden.rate, golden.steps, at_most);
  };
}

TEST(RoundsOfRule, GoldenSequencesHaveTheirRoundsAndACoefficientIsFoundThatMakesThem) {
  const auto all = golden_sequences();
  ASSERT_EQ(all.size(), 5u);
  for (const Golden& golden : all) {
    SCOPED_TRACE(golden.name);
    EXPECT_EQ(counted(golden)(golden.options.coefficient, 100'000), golden.rounds);
    const double solved = solve_coefficient(golden.rounds, golden.rate.options().peak, counted(golden));
    EXPECT_EQ(counted(golden)(solved, 100'000), golden.rounds);
    // Few coefficients give the same number of rounds, so the solution is near the golden coefficient.
    EXPECT_NEAR(solved / golden.options.coefficient, 1, 0.03);
  }
}

// Solutions are compared with independently derived coefficients of equal communication, within the digits of these.
TEST(RoundsOfRule, CoefficientsOfEqualCommunicationAreTheDerivedOnes) {
  struct Row {
    double peak;
    std::int64_t steps, warmup, minimum;
    double share;
    std::vector<double> ratios;  // ratios of coefficient to peak, by power
  };
  for (const Row& row : {Row{0.008, 93600, 10000, 4, 0.10375, {6.118, 2.1875, 1.560}},
                         Row{0.8, 62400, 1560, 2, 0.39731, {0.550, 0.250, 0.190}}}) {
    const LearningRate rate({.shape = Shape::cosine,
                             .peak = row.peak,
                             .final = 1e-6,
                             .warmup_steps = row.warmup,
                             .total_steps = row.steps});
    const auto asked = std::llround(row.share * static_cast<double>(row.steps));
    for (int power = 1; power <= 3; ++power) {
      const auto made = [&](double coefficient, std::int64_t at_most) {
        const auto period = make_power_period({.power = static_cast<double>(power),
                                               .coefficient = coefficient,
                                               .minimum = row.minimum,
                                               .warmup_steps = row.warmup});
        return count_rounds(*period, rate, row.steps, at_most);
      };
      const double solved = solve_coefficient(asked, row.peak, made);
      EXPECT_NEAR(static_cast<double>(made(solved, row.steps)), static_cast<double>(asked), 3);
      EXPECT_NEAR(solved / row.peak, row.ratios[static_cast<std::size_t>(power - 1)], 0.006) << power;
    }
  }
}

TEST(RoundsOfRule, RoundsFallAsTheCoefficientGrows) {
  for (const Golden& golden : golden_sequences()) {
    std::int64_t before = golden.steps.value();
    for (double coefficient = 1e-3; coefficient < 1e4; coefficient *= 1.01) {
      const std::int64_t rounds = counted(golden)(coefficient, 100'000);
      EXPECT_LE(rounds, before) << golden.name << " at " << coefficient;
      before = rounds;
    }
  }
}

// No coefficient gives the exact number of rounds. The solution is compared with a fine grid.
TEST(RoundsOfRule, TheNearestIsTakenWhereNoCoefficientMakesJustAsMany) {
  const LearningRate rate({.shape = Shape::step, .peak = 1, .decay_steps = {50}, .decay_factor = 0.1});
  const auto made = [&](double coefficient, std::int64_t at_most) {
    return count_rounds(*make_power_period({.power = 1, .coefficient = coefficient, .minimum = Step{1}}), rate, 100,
                        at_most);
  };
  bool has_gaps = false;
  for (std::int64_t asked = 1; asked <= 100; ++asked) {
    std::int64_t nearest = 1;
    for (double coefficient = 1e-3; coefficient < 1e3; coefficient *= 1.001)
      if (std::abs(made(coefficient, 1000) - asked) < std::abs(nearest - asked)) nearest = made(coefficient, 1000);
    const std::int64_t rounds = made(solve_coefficient(asked, 1, made), 1000);
    EXPECT_EQ(std::abs(rounds - asked), std::abs(nearest - asked)) << asked;
    has_gaps |= rounds != asked;
  }
  EXPECT_TRUE(has_gaps);
}

TEST(RoundsOfRule, MoreAndFewerRoundsThanTheRuleCanMakeGiveItsBounds) {
  const LearningRate rate(
      {.shape = Shape::cosine, .peak = 0.4, .final = 0.01, .warmup_steps = 100, .total_steps = 1000});
  const auto made = [&](double coefficient, std::int64_t at_most) {
    return count_rounds(*make_power_period({.coefficient = coefficient, .minimum = Step{4}, .warmup_steps = 100}), rate,
                        1000, at_most);
  };
  EXPECT_EQ(made(solve_coefficient(900, 0.4, made), 1000), 250);
  EXPECT_EQ(made(solve_coefficient(3, 0.4, made), 1000), 26) << "the warm-up's, and one";
}

TEST(RoundsOfRule, TheNumberHasFewDigits) {
  const LearningRate rate(
      {.shape = Shape::cosine, .peak = 0.2, .final = 1e-3, .warmup_steps = 60, .total_steps = 2340});
  const auto made = [&](double coefficient, std::int64_t at_most) {
    return count_rounds(*make_power_period({.coefficient = coefficient, .minimum = Step{4}, .warmup_steps = 60}), rate,
                        2340, at_most);
  };
  const double solved = solve_coefficient(470, 0.2, made);
  EXPECT_EQ(made(solved, 2340), 470);
  EXPECT_LE(std::to_string(solved).size(), 8u);
  EXPECT_EQ(solved, std::round(solved * 1e4) / 1e4);
}

}  // namespace
}  // namespace syncopate
