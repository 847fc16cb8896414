// The weight of an asynchronous update, by its staleness or its share, is one of the learning rate: weight decay is
// multiplied by it too, and an adaptive optimizer cannot undo it.
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/k_async.hpp"
#include "algorithms/asynchronous/ringmaster.hpp"
#include "algorithms/asynchronous/sliding_window.hpp"
#include "algorithms/asynchronous/softsync.hpp"
#include "algorithms/asynchronous/stale_synchronous.hpp"
#include "algorithms/asynchronous/throttle.hpp"
#include "tests/algorithms/asynchronous_updates.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

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

// Where each update is along one gradient, and nobody waits.
TEST(WeightedRates, AreThoseOfEveryMethodWithUpdatesByOneGradient) {
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  for (const auto& optimizer : {sgd_with_decay(), adamw()}) {
    const SimulatedRun setup = with(optimizer);
    const auto expected = setup.run(AsyncSgd({.rate = weighted})).parameters;
    EXPECT_EQ(setup.run(StaleSynchronous(any, weighted)).parameters, expected);
    EXPECT_EQ(setup.run(SlidingWindow(any, weighted)).parameters, expected);
    EXPECT_EQ(setup.run(Ringmaster(any, Ringmaster::Late::finish, weighted)).parameters, expected);
    EXPECT_EQ(setup.run(Softsync(3, weighted)).parameters, expected);
    EXPECT_EQ(setup.run(Softsync::of_gradients(1, weighted)).parameters, expected);
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

// Two updates along three gradients each: new ones, then two that are stale by one beside one that is new.
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

// Plain SGD goes along each gradient as far as its own weight says; decay and adaptive optimizers see the mean weight.
TEST(WeightedRates, OfAMeanAreThoseOfItsGradientsOnAverage) {
  const auto outcome_with = [](std::shared_ptr<const Optimizer> optimizer) {
    SimulatedRun setup = with(std::move(optimizer));
    setup.budget.steps = 2;
    return setup.run(Softsync(1, weighted)).parameters;
  };
  expect_near(outcome_with(make_sgd({})), after_two_means(PlainSgd{rate}));
  expect_near(outcome_with(sgd_with_decay()), after_two_means(PlainSgd{rate, momentum, decay}));
  expect_near(outcome_with(adamw()), after_two_means(PlainAdamW{rate, decay, epsilon}));
}

// The report of the learning rate is that of the schedule and the number of gradients, not of who came last.
TEST(WeightedRates, AreNotPartOfTheLearningRateThatIsReported) {
  const auto outcome = with(sgd_with_decay()).run(AsyncSgd({.rate = weighted}));
  for (const Publication& publication : outcome.publications) EXPECT_EQ(publication.learning_rate, rate);
}

}  // namespace
}  // namespace syncopate
