// Numbers of rounds that are asked for: closed forms, the golden sequences' own coefficients, and the nearest where
// none makes just as many.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "algorithms/local_sgd/sync_period.hpp"

namespace syncopate {
namespace {

using Shape = LearningRate::Shape;

std::int64_t rounded_up(std::int64_t steps, std::int64_t period) { return (steps + period - 1) / period; }

SolvedRounds<Step> solve_constant(std::int64_t rounds, std::int64_t steps) {
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

// Against a search over all periods.
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
      const auto solved = solve_constant(asked, steps);
      EXPECT_EQ(solved.value, Step{best}) << asked << " of " << steps;
      EXPECT_EQ(solved.rounds, rounded_up(steps, best));
    }
}

TEST(RoundsOfRule, OfTwoThatAreAsNearItIsTheFewerRounds) {
  const auto solved = solve_constant(4, 6);  // H = 1 makes 6, H = 2 makes 3, H = 3 makes 2
  EXPECT_EQ(solved.value, Step{2});
  EXPECT_EQ(solve_constant(4, 5).rounds, 3) << "H = 1 makes 5, H = 2 makes 3";
}

TEST(RoundsOfRule, StepsBeforeTheSwitchAreRoundsToo) {
  const LearningRate rate({.peak = 0.1});
  const auto solve = [&](std::int64_t asked) {
    return solve_period(asked, 1000, [&](Step period, std::int64_t at_most) {
      return count_rounds(*make_post_local_period(100, period), rate, 1000, at_most);
    });
  };
  EXPECT_EQ(solve(190).value, Step{10}) << "100 + 900 / 10";
  EXPECT_EQ(solve(190).rounds, 190);
  EXPECT_EQ(solve(20).rounds, 101) << "one round after the switch is the least";
  EXPECT_EQ(solve(20).value, Step{900});
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
    const auto solved = solve_coefficient(golden.rounds, golden.rate.options().peak, counted(golden));
    EXPECT_EQ(solved.rounds, golden.rounds);
    EXPECT_EQ(counted(golden)(solved.value, 100'000), golden.rounds);
    // Few coefficients make as many, so that the one found is about theirs.
    EXPECT_NEAR(solved.value / golden.options.coefficient, 1, 0.03);
  }
}

// The coefficients of equal communication that the fact sheet derives for the paper's trainings, within its digits.
TEST(RoundsOfRule, CoefficientsOfEqualCommunicationAreTheDerivedOnes) {
  struct Row {
    double peak;
    std::int64_t steps, warmup, minimum;
    double share;
    std::vector<double> ratios;  // of coefficient to peak, by power
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
      const auto solved = solve_coefficient(asked, row.peak, [&](double coefficient, std::int64_t at_most) {
        const auto period = make_power_period({.power = static_cast<double>(power),
                                               .coefficient = coefficient,
                                               .minimum = row.minimum,
                                               .warmup_steps = row.warmup});
        return count_rounds(*period, rate, row.steps, at_most);
      });
      EXPECT_NEAR(static_cast<double>(solved.rounds), static_cast<double>(asked), 3);
      EXPECT_NEAR(solved.value / row.peak, row.ratios[static_cast<std::size_t>(power - 1)], 0.006) << power;
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

// No value makes as many: against a fine grid.
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
    const auto solved = solve_coefficient(asked, 1, made);
    EXPECT_EQ(made(solved.value, 1000), solved.rounds);
    EXPECT_EQ(std::abs(solved.rounds - asked), std::abs(nearest - asked)) << asked;
    has_gaps |= solved.rounds != asked;
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
  EXPECT_EQ(solve_coefficient(900, 0.4, made).rounds, 250);
  EXPECT_EQ(solve_coefficient(3, 0.4, made).rounds, 26) << "the warm-up's, and one";
}

TEST(RoundsOfRule, TheNumberHasFewDigits) {
  const LearningRate rate(
      {.shape = Shape::cosine, .peak = 0.2, .final = 1e-3, .warmup_steps = 60, .total_steps = 2340});
  const auto solved = solve_coefficient(470, 0.2, [&](double coefficient, std::int64_t at_most) {
    return count_rounds(*make_power_period({.coefficient = coefficient, .minimum = Step{4}, .warmup_steps = 60}), rate,
                        2340, at_most);
  });
  EXPECT_EQ(solved.rounds, 470);
  EXPECT_LE(std::to_string(solved.value).size(), 8u);
  EXPECT_EQ(solved.value, std::round(solved.value * 1e4) / 1e4);
}

}  // namespace
}  // namespace syncopate
