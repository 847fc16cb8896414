#include "algorithms/asynchronous/staleness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/k_async.hpp"
#include "algorithms/asynchronous/ringmaster.hpp"
#include "algorithms/asynchronous/sliding_window.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/asynchronous/stale_synchronous.hpp"
#include "algorithms/asynchronous/throttle.hpp"
#include "tests/algorithms/asynchronous_updates.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "workers/base/random.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Reading {
  UpdateRate rate;
  std::string faults;
  std::string resolved;
};

Reading read(const std::string& text) {
  SettingsDocument document(parse_toml(text, "test.toml"));
  Settings settings = document.root();
  Reading reading;
  reading.rate = read_update_rate(settings);
  reading.faults = document.check().report();
  reading.resolved = write_toml(document.resolved());
  return reading;
}

double staleness_weight(StalenessWeight rule, Step staleness, int workers) {
  return UpdateRate{.weight = rule}.of_gradient(staleness, workers);
}

TEST(StalenessWeight, IsOneAtNoStalenessWhateverTheRule) {
  for (const auto rule : {StalenessWeight::none, StalenessWeight::inverse, StalenessWeight::inverse_plus_one,
                          StalenessWeight::beyond_workers})
    EXPECT_EQ(staleness_weight(rule, 0, 4), 1.0);
}

TEST(StalenessWeight, FollowsItsFormula) {
  EXPECT_EQ(staleness_weight(StalenessWeight::none, 8, 4), 1.0);
  EXPECT_EQ(staleness_weight(StalenessWeight::inverse, 1, 4), 1.0);
  EXPECT_EQ(staleness_weight(StalenessWeight::inverse, 8, 4), 0.125);
  EXPECT_EQ(staleness_weight(StalenessWeight::inverse_plus_one, 1, 4), 0.5);
  EXPECT_EQ(staleness_weight(StalenessWeight::inverse_plus_one, 7, 4), 0.125);
  EXPECT_EQ(staleness_weight(StalenessWeight::beyond_workers, 4, 4), 1.0);
  EXPECT_EQ(staleness_weight(StalenessWeight::beyond_workers, 8, 4), 0.5);
}

// With c gradients per update and N workers, N / c updates are one step of the budget.
TEST(StalenessWeight, LinearScalingGoesAsFarAlongEqualSamples) {
  const UpdateRate linear{.scaling = RateScaling::linear}, none{.scaling = RateScaling::none};
  for (const int gradients : {1, 2, 4, 8}) {
    EXPECT_EQ(8.0 / gradients * linear.of_update(gradients, 8), 1.0);
    EXPECT_EQ(none.of_update(gradients, 8), 1.0);
  }
}

TEST(StalenessWeight, WithoutKeysTheRateGoesByTheSamplesAlone) {
  const auto reading = read("");
  EXPECT_EQ(reading.faults, "");
  EXPECT_EQ(reading.rate.weight, StalenessWeight::none);
  EXPECT_EQ(reading.rate.scaling, RateScaling::linear);
  EXPECT_THAT(reading.resolved,
              AllOf(HasSubstr("staleness_weight = \"none\""), HasSubstr("rate_scaling = \"linear\"")));
}

TEST(StalenessWeight, AChosenWeightReplacesTheScalingUnlessTold) {
  const auto inverse = read("staleness_weight = \"1/tau\"");
  EXPECT_EQ(inverse.rate.weight, StalenessWeight::inverse);
  EXPECT_EQ(inverse.rate.scaling, RateScaling::none);
  EXPECT_THAT(inverse.resolved, HasSubstr("rate_scaling = \"none\""));
  const auto both = read("staleness_weight = \"1/(tau+1)\"\nrate_scaling = \"linear\"");
  EXPECT_EQ(both.rate.weight, StalenessWeight::inverse_plus_one);
  EXPECT_EQ(both.rate.scaling, RateScaling::linear);
}

TEST(StalenessWeight, AnUnknownRuleIsAFault) {
  EXPECT_THAT(read("staleness_weight = \"1/t\"").faults, AllOf(HasSubstr("staleness_weight"), HasSubstr("1/tau")));
  EXPECT_THAT(read("rate_scaling = \"liner\"").faults, AllOf(HasSubstr("rate_scaling"), HasSubstr("linear")));
}

// The weight of an asynchronous update, by its staleness or its share, multiplies the learning rate. So it scales
// weight decay, too, and an adaptive optimizer cannot undo it.

constexpr double rate = 0.1, decay = 0.4, momentum = 0.7, epsilon = 1e-3;
constexpr UpdateRate weighted{.weight = StalenessWeight::inverse_plus_one, .scaling = RateScaling::none};

double inverse_plus_one(const AsynchronousUpdate&, double tau) { return 1 / (1 + tau); }

SimulatedRun with(std::shared_ptr<const Optimizer> optimizer) {
  SimulatedRun setup = three_workers(3);
  setup.rate = rate;
  setup.optimizer = std::move(optimizer);
  return setup;
}
std::shared_ptr<const Optimizer> sgd_with_decay() {
  return make_sgd({.momentum = momentum, .weight_decay = {.rate = decay}});
}
std::shared_ptr<const Optimizer> adamw() {
  return make_adamw({.epsilon = epsilon, .weight_decay = {.rate = decay, .form = DecayForm::decoupled}});
}

void expect_near(const std::vector<float>& found, const Vector& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-5) << i;
}

TEST(WeightedRates, ScaleWeightDecayAndMomentumAsTheRateDoes) {
  const auto outcome = with(sgd_with_decay()).run(AsyncSgd({.rate = weighted}));
  expect_near(outcome.parameters, after_updates(PlainSgd{rate, momentum, decay}, inverse_plus_one));
}

TEST(WeightedRates, AreNotUndoneByAnAdaptiveOptimizer) {
  const auto outcome = with(adamw()).run(AsyncSgd({.rate = weighted}));
  expect_near(outcome.parameters, after_updates(PlainAdamW{rate, decay, epsilon}, inverse_plus_one));
}

// In these methods each update is along one gradient, and no worker waits.
TEST(WeightedRates, AreThoseOfEveryMethodWithUpdatesByOneGradient) {
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  for (const auto& optimizer : {sgd_with_decay(), adamw()}) {
    const SimulatedRun setup = with(optimizer);
    const auto expected = setup.run(AsyncSgd({.rate = weighted})).parameters;
    EXPECT_EQ(setup.run(StaleSynchronous(any, weighted)).parameters, expected);
    EXPECT_EQ(setup.run(SlidingWindow(any, weighted)).parameters, expected);
    EXPECT_EQ(setup.run(Ringmaster(any, LateWork::finish, weighted)).parameters, expected);
    EXPECT_EQ(setup.run(Softsync(1, weighted)).parameters, expected);
    EXPECT_EQ(setup.run(KAsync(1, weighted)).parameters, expected);
  }
}

TEST(WeightedRates, OfThrottleAreTheSharesOfRepeats) {
  using Repeats = ThrottleOptions::Repeats;
  for (const Repeats repeats : {Repeats::of_first, Repeats::alone}) {
    const auto share = [&](const AsynchronousUpdate& update, double) {
      if (update.repeats == 0) return 1.0;
      return repeats == Repeats::of_first ? 1.0 / 5 : 3.0 / 5;
    };
    const Throttle method({.divisor = 5, .repeats = repeats});
    expect_near(with(sgd_with_decay()).run(method).parameters,
                after_updates(PlainSgd{rate / 3, momentum, decay}, share));
    expect_near(with(adamw()).run(method).parameters, after_updates(PlainAdamW{rate / 3, decay, epsilon}, share));
  }
}

// Two updates along three gradients each: first three new ones, then two that are stale by one and a new one.
template <typename Reference>
Vector after_two_means(Reference optimizer) {
  const auto gradient = [](const Vector& at, int worker, int own_step) {
    Vector result = at;
    for (std::size_t i = 0; i < result.size(); ++i) result[i] -= PullObjective::target({Rank{worker}, own_step, 0}, i);
    return result;
  };
  const auto mean = [](const Vector& a, const Vector& b, const Vector& c, double weight_of_a_and_b) {
    Vector result{};
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] = (weight_of_a_and_b * (a[i] + b[i]) + c[i]) / (2 * weight_of_a_and_b + 1);
    return result;
  };
  const Vector start = {1, 1, 1, 1};
  Vector parameters = start;
  optimizer.step(parameters, mean(gradient(start, 0, 0), gradient(start, 1, 0), gradient(start, 0, 1), 1), 1);
  const Vector first = parameters;
  optimizer.step(parameters, mean(gradient(start, 2, 0), gradient(start, 1, 1), gradient(first, 0, 2), 0.5),
                 (0.5 + 0.5 + 1) / 3);
  return parameters;
}

// Plain SGD steps along each gradient with its own weight; decay and adaptive optimizers use the mean weight.
TEST(WeightedRates, OfAMeanAreThoseOfItsGradientsOnAverage) {
  const auto outcome_with = [](std::shared_ptr<const Optimizer> optimizer) {
    SimulatedRun setup = with(std::move(optimizer));
    setup.budget.steps = 2;
    return setup.run(Softsync(3, weighted)).parameters;
  };
  expect_near(outcome_with(make_sgd({})), after_two_means(PlainSgd{rate}));
  expect_near(outcome_with(sgd_with_decay()), after_two_means(PlainSgd{rate, momentum, decay}));
  expect_near(outcome_with(adamw()), after_two_means(PlainAdamW{rate, decay, epsilon}));
}

// The reported learning rate depends on the schedule and the number of gradients, not on the staleness of the last one.
TEST(WeightedRates, AreNotPartOfTheLearningRateThatIsReported) {
  const auto outcome = with(sgd_with_decay()).run(AsyncSgd({.rate = weighted}));
  for (const Publication& publication : outcome.publications) EXPECT_EQ(publication.learning_rate, rate);
}

TEST(WorkerClocks, OnlyTheUniqueSlowestRaisesTheMinimum) {
  WorkerClocks clocks(2);
  EXPECT_FALSE(clocks.tick(Rank{0}));
  EXPECT_FALSE(clocks.tick(Rank{0}));
  EXPECT_EQ(clocks.ahead_of_slowest(Rank{0}), 2);
  EXPECT_TRUE(clocks.tick(Rank{1}));
  EXPECT_EQ(clocks.ahead_of_slowest(Rank{0}), 1);
  EXPECT_TRUE(clocks.remove(Rank{1}));
  EXPECT_FALSE(clocks.has(Rank{1}));
  EXPECT_EQ(clocks.ahead_of_slowest(Rank{0}), 0);
  EXPECT_FALSE(clocks.remove(Rank{0}));
}

TEST(WorkerClocks, AgreeWithASearchForTheMinimum) {
  constexpr int workers = 7;
  WorkerClocks clocks(workers);
  std::map<int, std::int64_t> expected;
  for (int w = 0; w < workers; ++w) expected[w] = 0;
  const auto slowest = [&] {
    std::int64_t least = expected.begin()->second;
    for (const auto& [worker, clock] : expected) least = std::min(least, clock);
    return least;
  };
  const RandomStream stream{.seed = 3, .purpose = Purpose::algorithm, .worker = {}, .step = {}};
  for (std::uint32_t i = 0; i < 5000; ++i) {
    const auto chosen = static_cast<int>(stream.uniform(i) * workers);
    if (!expected.contains(chosen)) continue;
    const std::int64_t before = slowest();
    bool raised = false;
    if (i % 1000 == 999 && expected.size() > 1) {
      raised = clocks.remove(Rank{chosen});
      expected.erase(chosen);
    } else {
      raised = clocks.tick(Rank{chosen});
      ++expected[chosen];
    }
    ASSERT_EQ(raised, slowest() > before);
    for (const auto& [worker, clock] : expected) ASSERT_EQ(clocks.ahead_of_slowest(Rank{worker}), clock - slowest());
  }
  EXPECT_LT(expected.size(), 7u);
}

// The mean staleness of a server's gradients, by formula and simulated, is (N - 1) / c with c gradients per update. If
// an update takes one gradient of each of K workers and restarts them, it is N / K - 1. Both hold for any times.

double mean_of(const std::vector<std::int64_t>& counts) {
  double sum = 0, gradients = 0;
  for (std::size_t staleness = 0; staleness < counts.size(); ++staleness) {
    sum += static_cast<double>(staleness) * static_cast<double>(counts[staleness]);
    gradients += static_cast<double>(counts[staleness]);
  }
  return sum / gradients;
}

// While one gradient is under way, each of the other N - 1 workers delivers one on average, whatever their times;
// c of these make an update.
TEST(MeanStaleness, IsThatOfOtherWorkersGradientsPerUpdate) {
  constexpr int workers = 12, steps = 500;
  const std::vector<std::pair<std::shared_ptr<const Algorithm>, double>> methods = {
      {std::make_shared<AsyncSgd>(AsyncSgd::Options{}), 11},
      {std::make_shared<Softsync>(1), 11},
      {std::make_shared<Softsync>(2), 11.0 / 2},
      {std::make_shared<Softsync>(3), 11.0 / 3},
      {std::make_shared<Softsync>(12), 11.0 / 12},
      {std::make_shared<KAsync>(1), 11},
      {std::make_shared<KAsync>(5), 7.0 / 5},
      {std::make_shared<KAsync>(12), 0}};
  for (const auto& [method, expected] : methods) {
    const SimulatedRun simulated{.workers = workers,
                                 .micro_batches = 4,
                                 .budget = {.steps = steps},
                                 .delays = {exponential_delay(2)},
                                 .objective = nullptr};
    // Sums telescope: only the first and the last gradient of each worker deviate, by the largest staleness at most.
    const auto counts = simulated.run(*method).totals.staleness;
    EXPECT_NEAR(mean_of(counts), expected, static_cast<double>(counts.size()) / steps);
  }
}

}  // namespace
}  // namespace syncopate
