// Outer steps along averages that are one round late: delayed, eager, CO2.
#include "algorithms/local_sgd/overlapped_diloco.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/overlapped_recursions.hpp"

namespace syncopate {
namespace {

using Update = OverlappedOuterOptions::Update;
using Averaged = OverlappedOuterOptions::Averaged;
using Outer = OuterOptimizer;

OverlappedOuter late(Outer outer, int period, const OverlappedOuterOptions& options) {
  return {make_constant_period(period), std::move(outer), options, {}};
}
std::vector<Outer> outers() { return {make_plain_outer(0.8), make_slowmo(0.9, 0.6), make_diloco(0.7, 0.9)}; }

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * std::abs(expected[i])) << i;
}

// Outer rules in double precision, as torch and the papers write them.
PulledOuter plain(double rate) {
  return [=](double last, double average, double) { return last - rate * (last - average); };
}
PulledOuter slowmo(double rate, double momentum) {
  return [=, u = 0.0](double last, double average, double inner) mutable {
    u = momentum * u + (last - average) / inner;
    return last - rate * inner * u;
  };
}
PulledOuter diloco(double rate, double momentum) {
  return [=, buffer = 0.0](double last, double average, double) mutable {
    buffer = momentum * buffer + (last - average);
    return last - rate * ((last - average) + momentum * buffer);
  };
}
PulledOuter heavy_ball(double rate, double momentum, double gap) {
  return [=, m = 0.0](double last, double average, double) mutable {
    m = momentum * m + (last - average) / gap;
    return last - rate * m;
  };
}

// Rounds have 2 steps, at a learning rate that falls at every step.
struct Falling {
  explicit Falling(int rounds) : run{.rounds = rounds} {
    const int steps = rounds * Pulled::period;
    setup.budget.steps = steps;
    setup.learning_rate = std::make_shared<LearningRate>(
        LearningRate::Options{.shape = LearningRate::Shape::linear, .peak = 0.2, .total_steps = steps});
    for (int s = 0; s < steps; ++s) run.rates.push_back(0.2 * (steps - s) / steps);
  }
  Pulled run;
  SimulatedRun setup{};
};

TEST(DelayedOuter, FollowsTheRecursion) {
  struct Rule {
    Outer outer;
    PulledOuter expected;
  };
  for (const Averaged averaged : {Averaged::differences, Averaged::models})
    for (const auto& [outer, expected] :
         {Rule{make_plain_outer(0.8), plain(0.8)}, Rule{make_slowmo(0.9, 0.6), slowmo(0.9, 0.6)},
          Rule{make_diloco(0.7, 0.9), diloco(0.7, 0.9)}, Rule{make_heavy_ball(0.8, 0.5, 2), heavy_ball(0.8, 0.5, 2)}}) {
      Falling falling(5);
      const auto outcome = falling.setup.run(late(outer, 2, {Update::delayed, averaged}));
      Pulled& run = falling.run;
      for (run.coordinate = 0; run.coordinate < 4; ++run.coordinate) {
        const double model = delayed_model(run, expected, averaged == Averaged::models);
        EXPECT_NEAR(outcome.parameters[run.coordinate], model, 1e-5 * std::abs(model));
      }
    }
}

TEST(EagerOuter, FollowsTheRecursion) {
  struct Rule {
    Outer outer;
    PulledOuter expected;
  };
  for (const auto& [outer, expected] :
       {Rule{make_plain_outer(0.8), plain(0.8)}, Rule{make_slowmo(0.9, 0.6), slowmo(0.9, 0.6)},
        Rule{make_diloco(0.7, 0.9), diloco(0.7, 0.9)}}) {
    Falling falling(5);
    const auto outcome = falling.setup.run(late(outer, 2, {.update = Update::eager}));
    Pulled& run = falling.run;
    for (run.coordinate = 0; run.coordinate < 4; ++run.coordinate) {
      const double model = eager_models(run, std::vector<PulledOuter>(3, expected))[0];
      EXPECT_NEAR(outcome.parameters[run.coordinate], model, 1e-5 * std::abs(model));
    }
  }
}

TEST(EagerOuter, OfOneWorkerEqualsTheMethodThatWaits) {
  const SimulatedRun setup{.workers = 1, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 11}};
  for (const Outer& outer : outers())
    expect_near(setup.run(late(outer, 3, {.update = Update::eager})).parameters,
                setup.run(OuterLocalSgd(make_constant_period(3), outer, {})).parameters);
}

// Each worker steps along its own part of the newest average and the others' parts of the late average. Together these
// are steps along all averages.
TEST(EagerOuter, OfAPlainOptimizerTelescopesToTheSumOfAllAverages) {
  const Pulled run{.workers = 4, .rounds = 6};
  Pulled::Models x = run.initial(), before(4, 0.0);
  double averages = 0;
  for (int r = 0; r < run.rounds; ++r) {
    const Pulled::Models added = difference(run.trained(x, r), x);
    averages += mean(added);
    for (std::size_t w = 0; w < 4; ++w) {
      const double late = r > 0 ? mean(before) : 0;
      x[w] += 0.8 * (late + (added[w] - before[w]) / 4);
    }
    before = added;
  }
  const double expected = 1 + 0.8 * averages;
  for (std::size_t w = 0; w < 4; ++w)  // the last average's rest, without the worker's own part
    EXPECT_NEAR(x[w] + 0.8 * (mean(before) - before[w] / 4), expected, 1e-12);

  class Kept : public OverlappedOuter {
   public:
    using OverlappedOuter::OverlappedOuter;
    void run(Worker& worker) const override {
      OverlappedOuter::run(worker);
      models.push_back(worker.model());
    }
    mutable std::vector<ModelStatePtr> models;
  };
  const Kept method(make_constant_period(2), make_plain_outer(0.8), {.update = Update::eager}, {});
  class Compared : public Algorithm {
   public:
    explicit Compared(const Kept& kept) : kept_(kept) {}
    void run(Worker& worker) const override {
      kept_.run(worker);
      worker.barrier();
      if (worker.rank() == Rank{0})
        for (const ModelStatePtr& model : kept_.models) distances.push_back(worker.distance(model, worker.model()));
    }
    mutable std::vector<double> distances;

   private:
    const Kept& kept_;
  };
  const Compared compared(method);
  const auto outcome = SimulatedRun{.workers = 4, .budget = {.steps = 12}}.run(compared);
  EXPECT_NEAR(outcome.parameters[0], expected, 1e-5 * expected);
  ASSERT_EQ(compared.distances.size(), 4u);
  for (const double distance : compared.distances) EXPECT_LT(distance, 1e-5 * expected) << "all end with the same";
}

// A worker's gradient is the same at each step and each model.
struct ConstantGradient : PullObjective {
  PartialGradient gradient(const float*, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    static const std::vector<float> ones(4, 1.0f);
    std::vector<MicroBatch> of_first(micro_batches.begin(), micro_batches.end());
    for (MicroBatch& micro_batch : of_first) micro_batch.step = Step{0};
    return PullObjective::gradient(ones.data(), buffers, of_first);
  }
};

TEST(DelayedOuter, OfConstantDifferencesEqualsTheMethodThatWaits) {
  SimulatedRun setup{.workers = 4, .budget = {.steps = 12}};
  setup.objective = std::make_shared<ConstantGradient>();
  for (const Outer& outer : outers())
    expect_near(setup.run(late(outer, 3, {.update = Update::delayed})).parameters,
                setup.run(OuterLocalSgd(make_constant_period(3), outer, {})).parameters);
}

TEST(Co2, AnchoredAtTheRoundsStartEqualsDelayedDiLoCoWithoutMomentum) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 12}};
  expect_near(setup.run(late(make_heavy_ball(0.6, 0, 2), 3, {Update::delayed, Averaged::differences})).parameters,
              setup.run(late(make_diloco(0.3, 0), 3, {Update::delayed, Averaged::differences})).parameters);
}

// f(x) = x^2 / 2 in each coordinate: the gradient is x itself, whatever the samples are.
struct Parabola : PullObjective {
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    std::vector<float> shifted(4);
    for (std::size_t i = 0; i < shifted.size(); ++i) {
      double target = 0;
      for (const MicroBatch& micro_batch : micro_batches)
        target += PullObjective::target(micro_batch, i) / static_cast<double>(micro_batches.size());
      shifted[i] = static_cast<float>(parameters[i] + target);
    }
    return PullObjective::gradient(shifted.data(), buffers, micro_batches);
  }
};

// One worker has rounds of one step, and the last average arrives after all rounds. That is SGD whose gradients are one
// step late. Its models, by hand, are 1, 0.9, 0.8, 0.71, 0.63, 0.559. If the difference were the late model minus the
// newest one, the models would be 0.9, 0.9, 0.81, 0.81, 0.729.
TEST(Co2, OfOneWorkerIsSgdByGradientsOneStepLate) {
  const std::vector<double> expected = {1, 0.9, 0.8, 0.71, 0.63, 0.559};
  for (int steps = 1; steps < std::ssize(expected); ++steps) {
    const auto method = read_method(R"(algorithm = "co2"
momentum = 0
period = { rule = "constant", steps = 1 })");
    ASSERT_EQ(method.faults, "");
    SimulatedRun setup{.workers = 1, .budget = {.steps = steps}};
    setup.objective = std::make_shared<Parabola>();
    EXPECT_NEAR(setup.run(*method.algorithm).parameters[0], expected[static_cast<std::size_t>(steps)], 1e-6) << steps;
  }
}

// In blocking rounds the outer step takes model X to X - 0.8 m, with m = m / 2 + (X - mean(y)) / 2 for this round's
// models y.
TEST(Co2, OfBlockingRoundsIsHeavyBallAlongThisRoundsAverage) {
  const auto method = read_method(R"(algorithm = "co2"
rounds = "blocking"
rate = 0.8
gap = 2
period = { rule = "constant", steps = 2 })");
  ASSERT_EQ(method.faults, "");
  Falling falling(5);
  const auto outcome = falling.setup.run(*method.algorithm);
  Pulled& run = falling.run;
  for (run.coordinate = 0; run.coordinate < 4; ++run.coordinate) {
    double x = 1, m = 0;
    for (int r = 0; r < run.rounds; ++r) {
      m = m / 2 + (x - mean(run.trained(Pulled::Models(3, x), r))) / 2;
      x -= 0.8 * m;
    }
    EXPECT_NEAR(outcome.parameters[run.coordinate], x, 1e-5 * std::abs(x));
  }
}

// Blocking rounds take the time of their steps and of their average.
TEST(Co2, OfBlockingRoundsWithoutMomentumIsLocalSgd) {
  const auto method = read_method(R"(algorithm = "co2"
rounds = "blocking"
momentum = 0
period = { rule = "constant", steps = 3 })");
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 12}};
  const auto outcome = setup.run(*method.algorithm), local = setup.run(LocalSgd(make_constant_period(3), {}));
  expect_near(outcome.parameters, local.parameters);
  EXPECT_EQ(outcome.log, local.log);
}

TEST(Co2, OfBlockingRoundsHasNoAnchor) {
  const std::string blocking = "algorithm = \"co2\"\nrounds = \"blocking\"\n";
  const std::string period = "period = { rule = \"constant\", steps = 2 }\n";
  EXPECT_EQ(read_method(blocking + period).faults, "");
  EXPECT_THAT(read_method(blocking + "anchor = \"round-start\"\n" + period).faults,
              testing::HasSubstr("must be left out with rounds = \"blocking\""));
}

// Each round begins at the average of the round before the previous one. So the even rounds are one training by Local
// SGD, and the odd rounds are another. The odd rounds' last average is the result of the run.
TEST(Co2, AnchoredAtTheNewestModelIsTwoTrainingsOfHalfTheRounds) {
  const Pulled run{.workers = 4, .rounds = 6};
  double odd = 1;
  for (const int r : {1, 3, 5}) odd = mean(run.trained(Pulled::Models(4, odd), r));
  const auto outcome = SimulatedRun{.workers = 4, .budget = {.steps = 12}}.run(
      late(make_heavy_ball(1, 0, 1), 2, {Update::delayed, Averaged::models}));
  EXPECT_NEAR(outcome.parameters[0], odd, 1e-5 * odd);
}

}  // namespace
}  // namespace syncopate
