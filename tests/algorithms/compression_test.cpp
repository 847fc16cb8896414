// Synchronous methods whose sums are compressed, on the simulated cluster: steps, residuals, identities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/compressed_method.hpp"
#include "tests/algorithms/compressed_sums.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/listed_gradients.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;
using Units = CompressionOptions::Units;

std::vector<float> golden_gradient(const MicroBatch& at) {
  return golden[static_cast<std::size_t>(at.worker.value)][static_cast<std::size_t>(at.step.value())];
}

TEST(Compression, TopOneHasTheGoldenSteps) {
  std::vector<double> x(3);
  for (int steps = 1; steps <= 4; ++steps) {
    for (std::size_t i = 0; i < 3; ++i) x[i] -= 0.1 * golden_steps[static_cast<std::size_t>(steps - 1)][i];
    const SimulatedRun setup{
        .workers = 2, .budget = {.steps = steps}, .objective = std::make_shared<ListedGradients>(3, golden_gradient)};
    const auto found = setup.run(compressed(top_k(0.01))).parameters;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], x[i], 1e-6) << steps;
  }
}

// With a constant rate what was held back is sent later, and the run ends where the dense one does.
TEST(Compression, ErrorFeedbackLosesNothing) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(24, 10, {{"m", 0, 24, 0, 4}})};
  setup.budget = {.steps = 10};
  const auto dense = setup.run(SyncSgd()).parameters;
  CompressionOptions random = of(Kind::random_k);
  random.ratio = 0.25;
  CompressionOptions power = of(Kind::power);
  power.rank = 1;
  power.least_rate = 1;
  CompressionOptions power_of_mean = power;
  power_of_mean.removed = CompressionOptions::Removed::shared;
  CompressionOptions in_turn = power, in_turn_of_mean = power_of_mean;
  in_turn.factors = in_turn_of_mean.factors = CompressionOptions::Factors::in_turn;
  CompressionOptions columns = of(Kind::one_bit);
  columns.scope = CompressionOptions::Scope::column;
  CompressionOptions around_mean = columns;
  around_mean.threshold = CompressionOptions::Threshold::mean;
  for (const CompressionOptions& options :
       {top_k(0.1), random, power, power_of_mean, in_turn, in_turn_of_mean, scale_com(0.1, 1), scale_com(0.1, 0.4),
        columns, around_mean, in_two_phases(Kind::sign), in_two_phases(Kind::one_bit)}) {
    setup.budget = {.steps = 10};
    const auto early = setup.run(compressed(options)).parameters;
    setup.budget = {.steps = 400};
    const auto late = setup.run(compressed(options)).parameters;
    double held_back = 0;
    for (std::size_t i = 0; i < dense.size(); ++i) {
      held_back = std::max(held_back, std::abs(static_cast<double>(early[i]) - dense[i]));
      EXPECT_NEAR(late[i], dense[i], 1e-5) << static_cast<int>(options.kind);
    }
    EXPECT_GT(held_back, 1e-3);
  }
}

TEST(Compression, WithoutErrorFeedbackWhatIsNotSentIsLost) {
  SimulatedRun setup{.workers = 4, .budget = {.steps = 400}, .objective = noise_at_first(24, 10)};
  CompressionOptions options = top_k(0.1);
  options.error_feedback = false;
  const auto lossy = setup.run(compressed(options)).parameters;
  const auto dense = setup.run(SyncSgd()).parameters;
  double lost = 0;
  for (std::size_t i = 0; i < dense.size(); ++i)
    lost = std::max(lost, std::abs(static_cast<double>(lossy[i]) - dense[i]));
  EXPECT_GT(lost, 1e-3);
}

TEST(Compression, OfEverythingIsDense) {
  CompressionOptions random = of(Kind::random_k);
  random.ratio = 1;
  for (const CompressionOptions& options : {top_k(1), random, scale_com(1, 1), scale_com(1, 0.5)})
    for (const int workers : {1, 3}) {
      const SimulatedRun setup{.workers = workers, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
      const auto found = setup.run(compressed(options)).parameters, dense = setup.run(SyncSgd()).parameters;
      for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(found[i], dense[i], 1e-5 * std::abs(dense[i]));
    }
}

TEST(Compression, WithManyLevelsIsNearlyDense) {
  CompressionOptions options = of(Kind::qsgd);
  options.bucket = 1;  // each value is its own norm
  const SimulatedRun setup{.workers = 3, .budget = {.steps = 20}};
  const auto dense = setup.run(SyncSgd()).parameters;
  for (const auto pattern : {CompressionOptions::Pattern::gather, CompressionOptions::Pattern::two_phase}) {
    options.pattern = pattern;
    const auto found = setup.run(compressed(options)).parameters;
    for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(found[i], dense[i], 1e-5 * std::abs(dense[i]));
  }
}

// Its three statistics after a micro-batch tell which one it was.
class WithStatistics : public PullObjective {
 public:
  std::size_t buffers() const override { return 3; }
  std::vector<float> initial_buffers() const override { return {1, 1, 1}; }
  bool fuses_micro_batches() const override { return false; }
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    PartialGradient result = PullObjective::gradient(parameters, buffers, micro_batches);
    result.buffers_sum.assign(3, 0);
    for (const MicroBatch& at : micro_batches) {
      result.buffers_sum[0] += static_cast<float>(at.worker.value + 1);
      result.buffers_sum[1] += static_cast<float>(at.step.value());
      result.buffers_sum[2] += buffers[2] + static_cast<float>(at.index);
    }
    return result;
  }
};

// Normalisation statistics go with the last packet, whatever else does.
TEST(Compression, StatisticsAreTheDenseOnes) {
  CompressionOptions dgc = of(Kind::dgc);
  dgc.ratio = 1;
  dgc.momentum = 0;
  const SimulatedRun setup{
      .workers = 3, .micro_batches = 2, .budget = {.steps = 6}, .objective = std::make_shared<WithStatistics>()};
  const auto dense = setup.run(SyncSgd());
  ASSERT_EQ(dense.buffers.size(), 3u);
  CompressionOptions exact = in_two_phases(Kind::qsgd);
  exact.bucket = 1;
  for (const CompressionOptions& options : {top_k(1), dgc, scale_com(1, 1), exact}) {
    const auto found = setup.run(compressed(options));
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(found.buffers[i], dense.buffers[i], 1e-5 * std::abs(dense.buffers[i]));
  }
}

// One worker's majority is its own sign, also of more micro-batches and with a divisor of what was computed.
TEST(Compression, TheMajoritysStepsAreAsLongAsTheRate) {
  const SimulatedRun setup{.workers = 3, .micro_batches = 2, .rate = 0.25, .budget = {.steps = 4}};
  for (const float value : setup.run(compressed(of(Kind::majority))).parameters)
    EXPECT_FLOAT_EQ(value, 1 + 4 * 0.25f);  // targets are above all
}

// With m = 0.9 and masking: sends 1, -0.55, 0.68 at places 0, 1, 0. Without: 1; -0.55; 2.11 - 1 at place 0.
TEST(Compression, MomentumCorrectionHasTheGoldenSteps) {
  const std::vector<std::vector<float>> gradients = {{1, -0.5f, 0.25f}, {0.2f, 0.4f, -0.6f}, {0.3f, 0.3f, 0.3f}};
  const auto listed = [&](const MicroBatch& at) { return gradients[static_cast<std::size_t>(at.step.value())]; };
  CompressionOptions options = of(Kind::dgc);
  options.momentum = 0.9;
  const auto after = [&](int steps) {
    const SimulatedRun setup{
        .workers = 1, .rate = 1, .budget = {.steps = steps}, .objective = std::make_shared<ListedGradients>(3, listed)};
    return setup.run(compressed(options)).parameters;
  };
  const auto is_near = [](const std::vector<float>& values) {
    return testing::Pointwise(testing::FloatNear(1e-6f), values);
  };
  EXPECT_THAT(after(1), is_near({-1, 0, 0}));
  EXPECT_THAT(after(2), is_near({-1, 0.55f, 0}));
  EXPECT_THAT(after(3), is_near({-1.68f, 0.55f, 0}));
}

// At ratio 1 without masking it is momentum SGD, with masking plain SGD.
TEST(Compression, MomentumCorrectionOfEverythingIsMomentum) {
  CompressionOptions options = of(Kind::dgc);
  options.ratio = 1;
  options.momentum = 0.8;
  for (const bool masking : {false, true}) {
    options.masking = masking;
    SimulatedRun setup{.workers = 3, .budget = {.steps = 15}};
    const auto found = setup.run(compressed(options)).parameters;
    setup.momentum = masking ? 0 : 0.8;
    const auto dense = setup.run(SyncSgd()).parameters;
    // What was sent is the velocity, not what is left of it, so that p begins anew at 0 each step.
    for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(found[i], dense[i], 1e-5 * std::abs(dense[i]));
  }
}

TEST(Compression, SignumVotesByAverages) {
  // +3, then -1 for ever: with beta = 0.5 averages are 1.5, 0.25, -0.375, ...
  const auto listed = [](const MicroBatch& at) { return std::vector<float>{at.step == 0 ? 3.0f : -1.0f}; };
  CompressionOptions options = of(Kind::majority);
  options.momentum = 0.5;
  const auto after = [&](int steps) {
    const SimulatedRun setup{.workers = 1,
                             .rate = 0.5,
                             .budget = {.steps = steps},
                             .objective = std::make_shared<ListedGradients>(1, listed)};
    return setup.run(compressed(options)).parameters.front();
  };
  EXPECT_FLOAT_EQ(after(1), -0.5f);
  EXPECT_FLOAT_EQ(after(2), -1);
  EXPECT_FLOAT_EQ(after(3), -0.5f);
}

// After a decay by f the two units differ by what is replayed: (1 - f) eta e.
TEST(Compression, ResidualsKeepTheirUnitsWhenTheRateChanges) {
  // One worker, top-1 of two values: the first step sends 4 and keeps 3, the second sends that.
  const auto listed = [](const MicroBatch& at) {
    return at.step == 0 ? std::vector<float>{4, 3} : std::vector<float>{0, 0};
  };
  const LearningRate falling(LearningRate::Options{
      .shape = LearningRate::Shape::step, .peak = 0.1, .decay_steps = {Step{1}}, .decay_factor = 0.25});
  const auto end = [&](Units units) {
    CompressionOptions options = top_k(0.5);
    options.units = units;
    const SimulatedRun setup{.workers = 1,
                             .learning_rate = std::make_shared<LearningRate>(falling),
                             .budget = {.steps = 2},
                             .objective = std::make_shared<ListedGradients>(2, listed)};
    return setup.run(compressed(options)).parameters[1];
  };
  EXPECT_FLOAT_EQ(end(Units::gradient), -0.1f * 0.25f * 3);
  EXPECT_FLOAT_EQ(end(Units::step), -0.1f * 3);
}

TEST(Compression, DoesNotDependOnThreads) {
  CompressionOptions in_turn = of(Kind::power);
  in_turn.factors = CompressionOptions::Factors::in_turn;
  for (const CompressionOptions& options :
       {of(Kind::top_k), of(Kind::dgc), of(Kind::random_k), scale_com(0.1, 0.5), of(Kind::sign), of(Kind::one_bit),
        of(Kind::majority), of(Kind::qsgd), of(Kind::power), in_turn, in_two_phases(Kind::sign),
        in_two_phases(Kind::qsgd)}) {
    SimulatedRun setup{.workers = 5,
                       .threads = 0,
                       .momentum = 0.9,
                       .budget = {.steps = 15},
                       .objective = noise_at_first(600, 15, {{"m", 0, 600, 0, 20}})};
    const auto alone = setup.run(compressed(options)).parameters;
    setup.threads = 3;
    EXPECT_EQ(setup.run(compressed(options)).parameters, alone) << static_cast<int>(options.kind);
  }
}

TEST(Compression, OfOneTensorNeedsAMatrix) {
  const SimulatedRun setup;
  EXPECT_THROW(setup.run(compressed(of(Kind::power))), RunFailure);
}

}  // namespace
}  // namespace syncopate
