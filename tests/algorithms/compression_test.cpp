// Synchronous methods whose sums are compressed, on the simulated cluster: residuals, identities, times, bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/compressed_method.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/listed_gradients.hpp"
#include "workers/delays/outages.hpp"
#include "workers/network/ring.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;
using Units = CompressionOptions::Units;

constexpr CompressionOptions of(Kind kind) {
  CompressionOptions options;
  options.kind = kind;
  options.error_feedback = kind != Kind::qsgd && kind != Kind::majority;
  return options;
}

CompressionOptions in_two_phases(Kind kind) {
  CompressionOptions options = of(kind);
  options.pattern = CompressionOptions::Pattern::two_phase;
  return options;
}

CompressionOptions scale_com(double ratio, double filter) {
  CompressionOptions options = of(Kind::scalecom);
  options.ratio = ratio;
  options.filter = filter;
  return options;
}

CompressionOptions top_k(double ratio) {
  CompressionOptions options = of(Kind::top_k);
  options.ratio = ratio;
  return options;
}

// Two workers' gradients in four steps, and what top-1 with error feedback makes of them.
const std::vector<std::vector<std::vector<float>>> golden = {
    {{1, -0.5f, 0.25f}, {0.2f, 0.4f, -0.6f}, {0.3f, 0.3f, 0.3f}, {-1, 0.1f, 0.2f}},
    {{0, 1, -1}, {0.5f, 0.5f, 0.5f}, {-0.2f, 0.9f, 0.1f}, {0.4f, -0.4f, 0.8f}}};
const std::vector<std::vector<double>> golden_steps = {
    {0.5, 0.5, 0}, {0.25, 0, -0.175}, {0.25, 0.7, 0}, {-0.5, -0.2, 0}};

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

float noise(const MicroBatch& at, std::size_t i) {
  std::mt19937 engine(static_cast<unsigned>(1000 * at.worker.value + at.step.value() + 77 * static_cast<int>(i)));
  return std::uniform_real_distribution<float>(-1, 1)(engine);
}

// In the first `active` steps gradients are noise, and then zeros, so that what is left comes out.
std::shared_ptr<const Objective> noise_at_first(std::size_t size, int active,
                                                std::vector<ParameterTensor> tensors = {}) {
  const auto listed = [size, active](const MicroBatch& at) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size && at.step < active; ++i) values[i] = noise(at, i);
    return values;
  };
  return std::make_shared<ListedGradients>(size, listed, std::move(tensors));
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

TEST(Compression, ANotANumberReachesTheModel) {
  const auto listed = [](const MicroBatch& at) {
    std::vector<float> values(8, 1.0f);
    if (at.worker == Rank{1} && at.step == 2) values[5] = std::numeric_limits<float>::quiet_NaN();
    return values;
  };
  for (const CompressionOptions& options :
       {of(Kind::top_k), of(Kind::sign), of(Kind::majority), of(Kind::qsgd), of(Kind::one_bit),
        in_two_phases(Kind::sign), in_two_phases(Kind::qsgd), in_two_phases(Kind::one_bit)}) {
    SimulatedRun setup{.workers = 3, .objective = std::make_shared<ListedGradients>(8, listed)};
    const auto has_it = [&](int steps) {
      setup.budget = {.steps = steps};
      const auto found = setup.run(compressed(options)).parameters;
      return std::any_of(found.begin(), found.end(), [](float value) { return std::isnan(value); });
    };
    EXPECT_FALSE(has_it(2));
    EXPECT_TRUE(has_it(3)) << static_cast<int>(options.kind);
  }
}

// Of ScaleCom it is sent once its worker leads: worker 1 does so at steps 1, 4, ...
TEST(Compression, ANotANumberIsSentByItsLeader) {
  const auto listed = [](const MicroBatch& at) {
    std::vector<float> values(8, 1.0f);
    if (at.worker == Rank{1} && at.step == 2) values[5] = std::numeric_limits<float>::quiet_NaN();
    return values;
  };
  SimulatedRun setup{.workers = 3, .objective = std::make_shared<ListedGradients>(8, listed)};
  const auto fifth = [&](int steps) {
    setup.budget = {.steps = steps};
    return setup.run(compressed(scale_com(0.125, 1))).parameters[5];
  };
  EXPECT_FALSE(std::isnan(fifth(4)));
  EXPECT_TRUE(std::isnan(fifth(5)));
}

// A worker whose batch is dropped sends of its residual: the others' steps, and nothing of what it has dropped.
TEST(Compression, DroppedBatchesAreLostAndResidualsAreNot) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(24, 10)};
  setup.budget = {.steps = 10};
  const auto dense = setup.run(RandomDrop(0.4, Step{0})).parameters;
  setup.budget = {.steps = 400};
  const auto late = setup.run(compressed<RandomDrop>(top_k(0.1), 0.4, Step{0})).parameters;
  const auto whole = setup.run(SyncSgd()).parameters;
  double lost = 0;
  for (std::size_t i = 0; i < dense.size(); ++i) {
    EXPECT_NEAR(late[i], dense[i], 1e-5);
    lost = std::max(lost, std::abs(static_cast<double>(whole[i]) - dense[i]));
  }
  EXPECT_GT(lost, 1e-3);
}

// Folded in, they come later: the run ends where one ends that drops nothing, however much it drops.
TEST(Compression, FoldedBatchesComeLater) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(24, 10, {{"m", 0, 24, 0, 4}})};
  setup.budget = {.steps = 10};
  const auto whole = setup.run(SyncSgd()).parameters;
  const auto dropping = setup.run(RandomDrop(0.4, Step{0}));
  CompressionOptions power = of(Kind::power);
  power.rank = 1;
  power.least_rate = 1;
  CompressionOptions in_turn = power;
  in_turn.factors = CompressionOptions::Factors::in_turn;
  for (CompressionOptions options : {top_k(0.1), scale_com(0.1, 0.4), in_two_phases(Kind::sign), power, in_turn}) {
    options.dropped = CompressionOptions::Dropped::folded;
    setup.budget = {.steps = 10};
    const auto early = setup.run(compressed<RandomDrop>(options, 0.4, Step{0}));
    EXPECT_EQ(early.totals.dropped, dropping.totals.dropped);  // in the accounts they are dropped
    EXPECT_EQ(early.totals.kept, dropping.totals.kept);
    setup.budget = {.steps = 400};
    const auto late = setup.run(compressed<RandomDrop>(options, 0.4, Step{0})).parameters;
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(late[i], whole[i], 1e-5) << static_cast<int>(options.kind);
  }
}

TEST(Compression, OfDroppedMicroBatchesGoesOnAsDropComputeDoes) {
  SimulatedRun setup{
      .workers = 3, .micro_batches = 4, .worker_factors = {1, 1, 1.7}, .objective = noise_at_first(12, 6)};
  const DropCompute method(from_seconds(4.5), Preempt::discard, 1.0 / 3);
  DropCompute sparse(from_seconds(4.5), Preempt::discard, 1.0 / 3);
  sparse.compress(top_k(0.2));
  setup.budget = {.steps = 6};
  const auto dense = setup.run(method);
  EXPECT_THAT(dense.totals.dropped, testing::Contains(testing::Gt(0)));
  setup.budget = {.steps = 100};
  const auto late = setup.run(sparse);
  for (std::size_t i = 0; i < dense.parameters.size(); ++i) EXPECT_NEAR(late.parameters[i], dense.parameters[i], 1e-5);
}

// Worker 1 is down in the second step and loses its state: the model lacks what its residual held.
TEST(Compression, ALostStateTakesItsResidualAlong) {
  const auto listed = [](const MicroBatch& at) {
    return at.step == 0 ? std::vector<float>{4, 3} : std::vector<float>{0, 0};
  };
  SimulatedRun setup{.workers = 2, .budget = {.steps = 4}, .objective = std::make_shared<ListedGradients>(2, listed)};
  const auto whole = setup.run(compressed(top_k(0.5))).parameters;
  EXPECT_FLOAT_EQ(whole[1], -0.1f * 3);
  for (const bool loses_state : {false, true}) {
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                     .when = ScheduledOutage{from_seconds(2), from_seconds(1)},
                                     .loses_state = loses_state}});
    EXPECT_FLOAT_EQ(setup.run(compressed(top_k(0.5))).parameters[1], loses_state ? -0.1f * 3 / 2 : -0.1f * 3);
  }
}

// So does the owner's residual of two phases. Worker 1 owns the second half: (3, -3) and (1, 1), each exact as signs,
// are (4, -2), of which it sends (3, -3), and (1, 1) later.
TEST(Compression, ALostStateTakesAnOwnersResidualAlong) {
  const auto listed = [](const MicroBatch& at) {
    if (at.step > 0) return std::vector<float>{0, 0, 0, 0};
    return at.worker == Rank{0} ? std::vector<float>{0, 0, 3, -3} : std::vector<float>{0, 0, 1, 1};
  };
  SimulatedRun setup{.workers = 2, .budget = {.steps = 4}, .objective = std::make_shared<ListedGradients>(4, listed)};
  for (const bool loses_state : {false, true}) {
    setup.outages = std::make_shared<OutagePlan>(
        1, std::vector<OutageEntry>{{.workers = {Rank{1}},
                                     .when = ScheduledOutage{from_seconds(2.5), from_seconds(1)},
                                     .loses_state = loses_state}});
    const auto found = setup.run(compressed(in_two_phases(Kind::sign))).parameters;
    EXPECT_FLOAT_EQ(found[2], -0.1f / 2 * (loses_state ? 3 : 4));
    EXPECT_FLOAT_EQ(found[3], 0.1f / 2 * (loses_state ? 3 : 2));
  }
}

// Nobody waits for who has left: the run ends with the reason that a dense one gives.
TEST(Compression, AWorkerThatHasLeftIsMissedAsInADenseSum) {
  const auto why = [](const Algorithm& method) -> std::string {
    const SimulatedRun setup{.workers = 3,
                             .network = make_ring_network(0, 1e12),
                             .budget = {.steps = 5},
                             .data_of = {std::nullopt, Step{2}, std::nullopt},
                             .objective = noise_at_first(300, 10, {{"m", 0, 300, 0, 10}})};
    try {
      setup.run(method);
    } catch (const RunFailure& failure) {
      return failure.what();
    }
    return "";
  };
  const std::string of_dense = why(SyncSgd());
  EXPECT_THAT(of_dense, testing::HasSubstr("worker 1 left at 2.000000 s"));
  const auto who = [](const std::string& text) { return text.substr(0, text.find(',')); };
  for (const CompressionOptions& options :
       {of(Kind::top_k), of(Kind::random_k), of(Kind::power), of(Kind::scalecom), in_two_phases(Kind::sign)})
    EXPECT_EQ(who(why(compressed(options))), who(of_dense)) << static_cast<int>(options.kind);
}

// Micro-batches of 1 s, 2 s on worker 2; ring: 2 (N - 1) (L + P / (N B)), all-gather (N - 1) (L + p / B).
TEST(Compression, ExchangesTakeWhatTheNetworkSays) {
  const std::size_t size = 300;
  SimulatedRun setup{.workers = 3,
                     .network = make_ring_network(0.01, 1000),
                     .worker_factors = {1, 1, 2},
                     .objective = noise_at_first(size, 10, {{"m", 0, 300, 0, 10}})};
  EXPECT_EQ(setup.run(compressed(top_k(0.1))).log,
            (std::vector<std::string>{"step 1 at 2.500 s: kept 3, dropped 0", "step 2 at 5.000 s: kept 3, dropped 0"}));
  CompressionOptions random = of(Kind::random_k);
  random.ratio = 0.1;
  EXPECT_EQ(setup.run(compressed(random)).log.front(), "step 1 at 2.200 s: kept 3, dropped 0");
  CompressionOptions power = of(Kind::power);
  power.rank = 3;
  // 4 (0.01 + 120 / 3000) and 4 (0.01 + 360 / 3000)
  EXPECT_EQ(setup.run(compressed(power)).log.front(), "step 1 at 2.720 s: kept 3, dropped 0");
  const auto outcome = setup.run(compressed(power));
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 2 * 2 * (120 + 360)});
  EXPECT_EQ(outcome.totals.collectives, 4);
  EXPECT_EQ(outcome.rounds.size(), 2u);
  expect_exact_accounts(outcome);
}

// Broadcast on a ring: ceil(log2 N) (L + P / B); all-to-all (N - 1) (L + P / (N B)).
TEST(Compression, ExchangesOfOtherKindsTakeWhatTheNetworkSays) {
  SimulatedRun setup{.workers = 3,
                     .network = make_ring_network(0.01, 1000),
                     .worker_factors = {1, 1, 2},
                     .objective = noise_at_first(300, 10)};
  // 30 places, 2 (0.01 + 120 / 1000), and their values, 4 (0.01 + 120 / 3000).
  const auto leading = setup.run(compressed(scale_com(0.1, 1)));
  EXPECT_EQ(leading.log.front(), "step 1 at 2.460 s: kept 3, dropped 0");
  EXPECT_EQ(leading.totals.bytes, Bytes{2 * (2 * 120 + 2 * 2 * 120)});
  EXPECT_EQ(leading.totals.collectives, 4);
  expect_exact_accounts(leading);
  // Chunks of 100 values: 4 words of signs and a scale, 20 bytes; 2 (0.01 + 60 / 3000) twice.
  const auto in_phases = setup.run(compressed(in_two_phases(Kind::sign)));
  EXPECT_EQ(in_phases.log.front(), "step 1 at 2.120 s: kept 3, dropped 0");
  EXPECT_EQ(in_phases.totals.bytes, Bytes{2 * 2 * 2 * 60});
  EXPECT_EQ(in_phases.totals.collectives, 4);
  EXPECT_EQ(in_phases.rounds.size(), 2u);
  expect_exact_accounts(in_phases);
}

// Time-only runs, on fibers and in lockstep, take what training takes.
TEST(Compression, TimesNeedNoModel) {
  for (const CompressionOptions& options :
       {of(Kind::top_k), of(Kind::random_k), of(Kind::scalecom), of(Kind::sign), of(Kind::one_bit), of(Kind::majority),
        of(Kind::qsgd), in_two_phases(Kind::sign), in_two_phases(Kind::qsgd)}) {
    SimulatedRun setup{.workers = 3, .network = make_ring_network(0.01, 1000), .worker_factors = {1, 1, 2}};
    const auto trained = setup.run(compressed(options));
    setup.objective = nullptr;
    const auto timed = setup.run(compressed(options));
    setup.in_lockstep = true;
    const auto in_lockstep = setup.run(compressed(options));
    EXPECT_EQ(timed.log, trained.log);
    EXPECT_EQ(in_lockstep.log, trained.log);
    EXPECT_EQ(timed.totals.bytes, trained.totals.bytes);
    EXPECT_EQ(in_lockstep.totals.bytes, trained.totals.bytes);
  }
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
