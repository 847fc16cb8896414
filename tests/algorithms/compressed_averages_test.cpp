// Methods in rounds whose averages are compressed, on the simulated cluster: residuals, identities, recursions in
// double precision.
#include "tests/algorithms/compressed_averages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "algorithms/local_sgd/adacomm.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/listed_gradients.hpp"
#include "workers/models/quadratic.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;

TEST(CompressedAverages, OfEverythingAreDense) {
  const SimulatedRun setup{.workers = 3, .micro_batches = 2, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 20}};
  for (const auto& [name, method] : in_rounds(3)) {
    const auto dense = setup.run(*method).parameters;
    for (const Kind kind : {Kind::top_k, Kind::random_k})
      EXPECT_LT(largest_difference(compressed(setup, *method, of(kind, 1)), dense), 3e-5) << name;
  }
}

TEST(CompressedAverages, OfSingleStepsAndEverythingAreSynchronousSgd) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 20}};
  LocalSgd local(make_constant_period(1), {});
  EXPECT_LT(largest_difference(compressed(setup, local, of(Kind::top_k, 1)), setup.run(SyncSgd()).parameters), 2e-5);
}

// Pulled never, PALSGD is DiLoCo; with rounds that stay as they are AdaComm is Local SGD.
TEST(CompressedAverages, OfPalSgdAndAdaCommAreThoseOfTheirLimitCases) {
  const SimulatedRun setup{.workers = 4, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 18}};
  for (const Kind kind : {Kind::top_k, Kind::random_k, Kind::sign, Kind::qsgd, Kind::int8, Kind::fp4}) {
    OuterLocalSgd diloco(make_constant_period(3), make_diloco(0.7, 0.5), {});
    PalSgd pulled(make_constant_period(3), make_diloco(0.7, 0.5), {.probability = 0});
    EXPECT_EQ(compressed(setup, pulled, of(kind, 0.5)), compressed(setup, diloco, of(kind, 0.5)));
    LocalSgd local(make_constant_period(3), {});
    AdaComm constant({.period = {.initial = 3, .minimum = 3, .maximum = Step{3}}});
    EXPECT_EQ(compressed(setup, constant, of(kind, 0.5)), compressed(setup, local, of(kind, 0.5)));
  }
}

// Their rounds follow from the loss, which is that of the dense run.
TEST(CompressedAverages, OfEverythingLeaveAdaCommsRoundsAsTheyAre) {
  SimulatedRun setup{.workers = 3, .rate = 0.05, .budget = {.steps = 60}};
  setup.objective = std::make_shared<Quadratic>(QuadraticOptions{.dimension = 4, .condition = 1, .noise = 0}, 3);
  AdaComm method({.period = {.initial = 9}});
  const auto dense = setup.run(method);
  method.compress(of(Kind::top_k, 1));
  const auto found = setup.run(method);
  EXPECT_LT(largest_difference(found.parameters, dense.parameters), 3e-5);
  EXPECT_EQ(found.rounds.size(), dense.rounds.size());
  EXPECT_GT(dense.rounds.size(), 60u / 9 + 1) << "rounds became shorter";
}

// Rounds of two steps: a quarter of the round's gradient in the first, and the rest in the second.
std::vector<float> golden_gradient(const MicroBatch& at) {
  auto gradient = golden[static_cast<std::size_t>(at.worker.value)][static_cast<std::size_t>(at.step.value()) / 2];
  for (float& value : gradient) value *= at.step.value() % 2 == 0 ? 0.25f : 0.75f;
  return gradient;
}

// A worker's difference is -rate x the sum of its gradients, so that models move by -rate x the golden steps; an outer
// optimizer takes its step along that, the same on all.
TEST(CompressedAverages, TopOneHasTheGoldenSteps) {
  std::vector<double> plain(3), outer(3), velocity(3);
  for (int rounds = 1; rounds <= 4; ++rounds) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double delta = 0.1 * golden_steps[static_cast<std::size_t>(rounds - 1)][i];
      plain[i] -= delta;
      velocity[i] = 0.5 * velocity[i] + delta;
      outer[i] -= 0.7 * (delta + 0.5 * velocity[i]);
    }
    const SimulatedRun setup{.workers = 2,
                             .budget = {.steps = 2 * rounds},
                             .objective = std::make_shared<ListedGradients>(3, golden_gradient)};
    LocalSgd local(make_constant_period(2), {});
    OuterLocalSgd diloco(make_constant_period(2), make_diloco(0.7, 0.5), {});
    const auto of_plain = compressed(setup, local, of(Kind::top_k)),
               of_outer = compressed(setup, diloco, of(Kind::top_k));
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(of_plain[i], plain[i], 1e-6) << rounds;
      EXPECT_NEAR(of_outer[i], outer[i], 1e-6) << rounds;
    }
  }
}

// What was held back is sent later, whatever the rate does meanwhile: differences are steps.
TEST(CompressedAverages, ErrorFeedbackLosesNothing) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(24, 12)};
  setup.learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
      .shape = LearningRate::Shape::step, .peak = 0.1, .decay_steps = {Step{6}}, .decay_factor = 0.25});
  Methods methods = in_rounds(3);
  methods.erase(std::remove_if(methods.begin(), methods.end(),
                               [](const auto& one) {
                                 const std::string name = one.first;  // those that take up averages as they are
                                 return name != "local-sgd" && name != "cocod";
                               }),
                methods.end());
  for (const auto& [name, method] : methods) {
    setup.budget = {.steps = 12};
    const auto dense = setup.run(*method).parameters;
    for (const Kind kind : {Kind::top_k, Kind::random_k, Kind::int8, Kind::fp4}) {
      CompressionOptions options = of(kind, 0.1);
      options.error_feedback = true;
      setup.budget = {.steps = 12};
      const auto early = compressed(setup, *method, options);
      setup.budget = {.steps = 600};
      const auto late = compressed(setup, *method, options);
      EXPECT_LT(largest_difference(late, dense), 1e-5) << name << " " << static_cast<int>(kind);
      EXPECT_GT(largest_difference(early, dense), 1e-6) << name << " " << static_cast<int>(kind);
    }
  }
}

// With the residuals of workers and of owners.
TEST(CompressedAverages, ErrorFeedbackInTwoPhasesLosesNothing) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(400, 12)};  // an owner's 100 values share some bins
  LocalSgd local(make_constant_period(3), {});
  setup.budget = {.steps = 12};
  const auto dense = setup.run(local).parameters;
  for (const Kind kind : {Kind::int8, Kind::fp4}) {
    CompressionOptions options = of(kind);
    options.pattern = CompressionOptions::Pattern::two_phase;
    options.error_feedback = true;
    setup.budget = {.steps = 12};
    EXPECT_GT(largest_difference(compressed(setup, local, options), dense), 1e-6) << static_cast<int>(kind);
    setup.budget = {.steps = 600};
    EXPECT_LT(largest_difference(compressed(setup, local, options), dense), 1e-5) << static_cast<int>(kind);
  }
}

// Four values of each of two owners, which all are exact with a bin each: so is their mean.
TEST(CompressedAverages, OfExactPacketsInTwoPhasesAreDense) {
  const SimulatedRun setup{.workers = 2, .budget = {.steps = 8}, .objective = noise_at_first(8, 8)};
  for (const auto& [name, method] : in_rounds(2)) {
    if (!method->traits().waits_for_averages) continue;
    CompressionOptions options = of(Kind::int8);
    options.pattern = CompressionOptions::Pattern::two_phase;
    EXPECT_LT(largest_difference(compressed(setup, *method, options), setup.run(*method).parameters), 1e-6) << name;
  }
}

TEST(CompressedAverages, WithoutErrorFeedbackWhatIsNotSentIsLost) {
  SimulatedRun setup{.workers = 4, .budget = {.steps = 600}, .objective = noise_at_first(24, 12)};
  LocalSgd local(make_constant_period(3), {});
  CompressionOptions options = of(Kind::top_k, 0.1);
  options.error_feedback = false;
  EXPECT_GT(largest_difference(compressed(setup, local, options), setup.run(local).parameters), 1e-3);
}

// One worker, whose difference is known: signs times the mean magnitude, of a round of two steps.
TEST(CompressedAverages, OfSignsHaveTheMeanMagnitude) {
  const auto listed = [](const MicroBatch&) { return std::vector<float>{0.5f, -1.5f, -0.0f, 2.0f}; };
  const SimulatedRun setup{
      .workers = 1, .rate = 0.5, .budget = {.steps = 2}, .objective = std::make_shared<ListedGradients>(4, listed)};
  LocalSgd local(make_constant_period(2), {});
  // Differences -0.5, 1.5, 0, -2: the mean magnitude is 1, the sign of 0 is +1.
  EXPECT_EQ(compressed(setup, local, of(Kind::sign)), (std::vector<float>{-1, 1, 1, -1}));
}

TEST(CompressedAverages, WithEightBitsAreWithinABinOfDenseOnes) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 3}, .objective = noise_at_first(1000, 3)};
  LocalSgd local(make_constant_period(3), {});
  CompressionOptions options = of(Kind::int8);
  options.range_std = 6;
  const auto dense = setup.run(local).parameters, found = compressed(setup, local, options);
  // Differences are sums of three uniform numbers times 0.1: a standard deviation of 0.1, bins of 12 of these / 256.
  const double difference = largest_difference(found, dense);
  EXPECT_LT(difference, 0.11 * 12 / 256);
  EXPECT_GT(difference, 1e-5);
}

// Normalisation statistics are averaged as they are: those of a dense run whose models are the same.
TEST(CompressedAverages, OfStatisticsAreDense) {
  struct WithStatistics : PullObjective {
    std::size_t buffers() const override { return 3; }
    std::vector<float> initial_buffers() const override { return {0, 0, 0}; }
    PartialGradient gradient(const float* parameters, const float* buffers,
                             std::span<const MicroBatch> micro_batches) const override {
      PartialGradient result = PullObjective::gradient(parameters, nullptr, micro_batches);
      result.buffers_sum.assign(3, 0.0f);
      for (const MicroBatch& at : micro_batches)
        for (std::size_t i = 0; i < 3; ++i)
          result.buffers_sum[i] += buffers[i] + 0.5f * (static_cast<float>(i) + target(at, i) - buffers[i]);
      return result;
    }
  };
  for (const StatePolicy policy : {StatePolicy::average, StatePolicy::keep, StatePolicy::reset}) {
    SimulatedRun setup{.workers = 3, .momentum = 0.9, .rate = 0.02, .budget = {.steps = 8}};
    setup.objective = std::make_shared<WithStatistics>();
    StatePolicies policies;
    policies.average.buffers = policy;
    LocalSgd local(make_constant_period(4), policies);
    const auto dense = setup.run(local);
    local.compress(of(Kind::top_k, 1));
    const auto found = setup.run(local);
    EXPECT_LT(largest_difference(found.buffers, dense.buffers), 1e-5);
    // Gathered: 8 bytes of each of 4 values, and statistics as they are. Two averages, three workers.
    const int statistics = policy == StatePolicy::average ? 12 : 0;
    EXPECT_EQ(found.totals.bytes, Bytes{2 * 2 * 3 * (32 + statistics)});
  }
}

// Worker 1 is down in the second round and loses its state: it takes up the common model, and its residual is gone.
TEST(CompressedAverages, ALostStateTakesItsResidualAlong) {
  const auto listed = [](const MicroBatch& at) {
    return at.step < 2 ? std::vector<float>{2, 1.5f} : std::vector<float>{0, 0};
  };
  SimulatedRun setup{.workers = 2, .budget = {.steps = 6}, .objective = std::make_shared<ListedGradients>(2, listed)};
  LocalSgd local(make_constant_period(2), {});
  EXPECT_FLOAT_EQ(compressed(setup, local, of(Kind::top_k, 0.5))[1], -0.1f * 3);
  for (const bool loses_state : {false, true}) {
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                     .when = ScheduledOutage{from_seconds(3), from_seconds(1)},
                                     .loses_state = loses_state}});
    EXPECT_FLOAT_EQ(compressed(setup, local, of(Kind::top_k, 0.5))[1], loses_state ? -0.1f * 3 / 2 : -0.1f * 3);
  }
}

TEST(CompressedAverages, AWorkerThatHasLeftIsMissedAsInADenseAverage) {
  for (const auto& [name, method] : in_rounds(2)) {
    const auto why = [&, method = method]() -> std::string {
      const SimulatedRun setup{.workers = 3, .budget = {.steps = 8}, .data_of = {std::nullopt, Step{3}, std::nullopt}};
      try {
        setup.run(*method);
      } catch (const RunFailure& failure) {
        return std::string(failure.what()).substr(0, std::string(failure.what()).find(','));
      }
      return "";
    };
    const std::string of_dense = why();
    method->compress(of(Kind::top_k, 0.5));
    EXPECT_EQ(why(), of_dense) << name;
  }
}

TEST(CompressedAverages, DoNotDependOnThreads) {
  for (const auto& [name, method] : in_rounds(2))
    for (const Kind kind : {Kind::top_k, Kind::random_k, Kind::sign, Kind::qsgd, Kind::int8, Kind::fp4}) {
      SimulatedRun setup{.workers = 4, .threads = 0, .momentum = 0.9, .budget = {.steps = 8}};
      setup.objective = noise_at_first(300, 8);
      const auto alone = compressed(setup, *method, of(kind, 0.2));
      setup.threads = 3;
      EXPECT_EQ(compressed(setup, *method, of(kind, 0.2)), alone) << name << " " << static_cast<int>(kind);
    }
}

TEST(CompressedAverages, LeaveSynchronousStepsBeforeRoundsDense) {
  const SimulatedRun setup{.workers = 3, .budget = {.steps = 4}, .objective = noise_at_first(24, 9)};
  LocalSgd local(make_post_local_period(Step{4}, Step{2}), {});
  EXPECT_EQ(compressed(setup, local, of(Kind::top_k)), setup.run(SyncSgd()).parameters);
}

TEST(CompressedAverages, ANotANumberReachesTheModel) {
  const auto listed = [](const MicroBatch& at) {
    std::vector<float> values(8, 1.0f);
    if (at.worker == Rank{1} && at.step == 2) values[5] = std::numeric_limits<float>::quiet_NaN();
    return values;
  };
  SimulatedRun setup{.workers = 3, .objective = std::make_shared<ListedGradients>(8, listed)};
  for (const Kind kind : {Kind::top_k, Kind::sign, Kind::qsgd, Kind::int8, Kind::fp4}) {
    const auto has_it = [&](int steps) {
      setup.budget = {.steps = steps};
      LocalSgd local(make_constant_period(2), {});
      const auto found = compressed(setup, local, of(kind));
      return std::any_of(found.begin(), found.end(), [](float value) { return std::isnan(value); });
    };
    EXPECT_FALSE(has_it(2));
    EXPECT_TRUE(has_it(4)) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace syncopate
