// Synchronous methods whose sums are compressed, on the simulated cluster: steps, residuals, identities.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/registry.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/apart_objective.hpp"
#include "tests/workers/compressions.hpp"
#include "tests/workers/listed_gradients.hpp"
#include "tests/workers/random_images.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/torch_objective.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

CompressionOptions one_bit() { return compression("one-bit", R"(scope = "model")"); }

CompressionOptions in_two_phases(CompressionOptions options) {
  options.pattern = CompressionOptions::Pattern::two_phase;
  return options;
}

CompressionOptions scale_com(double ratio, double filter) {
  return compression("scalecom", fmt::format("ratio = {}, filter = {}", ratio, filter));
}

CompressionOptions top_k(double ratio) { return compression("top-k", fmt::format("ratio = {}", ratio)); }

// A method (by default synchronous SGD) with a compression.

template <typename Method = SyncSgd, typename... Args>
Method compressed(const CompressionOptions& options, Args&&... args) {
  Method method(std::forward<Args>(args)...);
  method.compress(options);
  return method;
}

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

// With a constant learning rate, held-back values are sent later, and the run ends with the model of the dense run.
TEST(Compression, ErrorFeedbackLosesNothing) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(24, 10, {{"m", 0, 24, 0, 4}})};
  setup.budget = {.steps = 10};
  const auto dense = setup.run(SyncSgd()).parameters;
  const auto power = [](const std::string& keys) { return compression("powersgd", "rank = 1, least_rate = 1" + keys); };
  const std::string in_turn = R"(, factors = "in-turn")", of_mean = R"(, removed = "mean")";
  for (const CompressionOptions& options :
       {top_k(0.1), compression("random-k", "ratio = 0.25"), power(""), power(of_mean), power(in_turn),
        power(in_turn + of_mean), scale_com(0.1, 1), scale_com(0.1, 0.4), compression("one-bit"),
        compression("one-bit", R"(threshold = "mean")"), in_two_phases(compression("sign")),
        in_two_phases(one_bit())}) {
    setup.budget = {.steps = 10};
    const auto early = setup.run(compressed(options)).parameters;
    setup.budget = {.steps = 400};
    const auto late = setup.run(compressed(options)).parameters;
    EXPECT_LE(largest_difference(late, dense), 1e-5) << options.kind;
    EXPECT_GT(largest_difference(early, dense), 1e-3) << options.kind;
  }
}

TEST(Compression, WithoutErrorFeedbackWhatIsNotSentIsLost) {
  SimulatedRun setup{.workers = 4, .budget = {.steps = 400}, .objective = noise_at_first(24, 10)};
  const auto lossy = setup.run(compressed(compression("top-k", "ratio = 0.1, error_feedback = false"))).parameters;
  const auto dense = setup.run(SyncSgd()).parameters;
  EXPECT_GT(largest_difference(lossy, dense), 1e-3);
}

TEST(Compression, OfEverythingIsDense) {
  for (const CompressionOptions& options :
       {top_k(1), compression("random-k", "ratio = 1"), scale_com(1, 1), scale_com(1, 0.5)})
    for (const int workers : {1, 3}) {
      const SimulatedRun setup{.workers = workers, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
      const auto found = setup.run(compressed(options)).parameters, dense = setup.run(SyncSgd()).parameters;
      for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(found[i], dense[i], 1e-5 * std::abs(dense[i]));
    }
}

TEST(Compression, WithManyLevelsIsNearlyDense) {
  CompressionOptions options = compression("qsgd", "bucket = 1");  // each bucket has one value, which is its norm
  const SimulatedRun setup{.workers = 3, .budget = {.steps = 20}};
  const auto dense = setup.run(SyncSgd()).parameters;
  for (const auto pattern : {CompressionOptions::Pattern::gather, CompressionOptions::Pattern::two_phase}) {
    options.pattern = pattern;
    const auto found = setup.run(compressed(options)).parameters;
    for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(found[i], dense[i], 1e-5 * std::abs(dense[i]));
  }
}

// The three statistics after a micro-batch identify this micro-batch.
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

// Normalisation statistics are sent with the last packet, without compression.
TEST(Compression, StatisticsAreTheDenseOnes) {
  const SimulatedRun setup{
      .workers = 3, .micro_batches = 2, .budget = {.steps = 6}, .objective = std::make_shared<WithStatistics>()};
  const auto dense = setup.run(SyncSgd());
  ASSERT_EQ(dense.buffers.size(), 3u);
  for (const CompressionOptions& options : {top_k(1), compression("dgc", "ratio = 1, momentum = 0"), scale_com(1, 1),
                                            in_two_phases(compression("qsgd", "bucket = 1"))}) {
    const auto found = setup.run(compressed(options));
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(found.buffers[i], dense.buffers[i], 1e-5 * std::abs(dense.buffers[i]));
  }
}

// A step is the majority of the signs times the learning rate, whatever the number of micro-batches.
TEST(Compression, TheMajoritysStepsAreAsLongAsTheRate) {
  const SimulatedRun setup{.workers = 3, .micro_batches = 2, .rate = 0.25, .budget = {.steps = 4}};
  for (const float value : setup.run(compressed(compression("majority"))).parameters)
    EXPECT_FLOAT_EQ(value, 1 + 4 * 0.25f);  // all gradients are negative: targets are above all values
}

// With momentum 0.9 and masking dgc sends 1, -0.55, 0.68 at indices 0, 1, 0; without masking 1, -0.55, 2.11 - 1.
TEST(Compression, MomentumCorrectionHasTheGoldenSteps) {
  const std::vector<std::vector<float>> gradients = {{1, -0.5f, 0.25f}, {0.2f, 0.4f, -0.6f}, {0.3f, 0.3f, 0.3f}};
  const auto listed = [&](const MicroBatch& at) { return gradients[static_cast<std::size_t>(at.step.value())]; };
  const auto after = [&](int steps) {
    const SimulatedRun setup{
        .workers = 1, .rate = 1, .budget = {.steps = steps}, .objective = std::make_shared<ListedGradients>(3, listed)};
    return setup.run(compressed(compression("dgc", "momentum = 0.9"))).parameters;
  };
  const auto is_near = [](const std::vector<float>& values) {
    return testing::Pointwise(testing::FloatNear(1e-6f), values);
  };
  EXPECT_THAT(after(1), is_near({-1, 0, 0}));
  EXPECT_THAT(after(2), is_near({-1, 0.55f, 0}));
  EXPECT_THAT(after(3), is_near({-1.68f, 0.55f, 0}));
}

// At ratio 1 momentum correction is momentum SGD without masking, and plain SGD with masking.
TEST(Compression, MomentumCorrectionOfEverythingIsMomentum) {
  for (const bool masking : {false, true}) {
    const CompressionOptions options =
        compression("dgc", fmt::format("ratio = 1, momentum = 0.8, masking = {}", masking));
    SimulatedRun setup{.workers = 3, .budget = {.steps = 15}};
    const auto found = setup.run(compressed(options)).parameters;
    setup.momentum = masking ? 0 : 0.8;
    const auto dense = setup.run(SyncSgd()).parameters;
    // The whole velocity is sent in each step, so no residual is left.
    for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(found[i], dense[i], 1e-5 * std::abs(dense[i]));
  }
}

TEST(Compression, SignumVotesByAverages) {
  // Gradients are +3, then -1 for ever. With beta = 0.5 their averages are 1.5, 0.25, -0.375, ...
  const auto listed = [](const MicroBatch& at) { return std::vector<float>{at.step == 0 ? 3.0f : -1.0f}; };
  const auto after = [&](int steps) {
    const SimulatedRun setup{.workers = 1,
                             .rate = 0.5,
                             .budget = {.steps = steps},
                             .objective = std::make_shared<ListedGradients>(1, listed)};
    return setup.run(compressed(compression("majority", "momentum = 0.5"))).parameters.front();
  };
  EXPECT_FLOAT_EQ(after(1), -0.5f);
  EXPECT_FLOAT_EQ(after(2), -1);
  EXPECT_FLOAT_EQ(after(3), -0.5f);
}

// A residual e may be kept as a gradient or as a step. After the learning rate eta has fallen by a factor f, these two
// move the model by f eta e and by eta e, which differ by (1 - f) eta e.
TEST(Compression, ResidualsKeepTheirUnitsWhenTheRateChanges) {
  // One worker sends one of two values: 4 in the first step, and in the second the 3 that it kept.
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
  for (const CompressionOptions& options :
       {compression("top-k"), compression("dgc"), compression("random-k"), scale_com(0.1, 0.5), compression("sign"),
        one_bit(), compression("majority"), compression("qsgd"), compression("powersgd"),
        compression("powersgd", R"(factors = "in-turn")"), in_two_phases(compression("sign")),
        in_two_phases(compression("qsgd"))}) {
    SimulatedRun setup{.workers = 5,
                       .threads = 0,
                       .momentum = 0.9,
                       .budget = {.steps = 15},
                       .objective = noise_at_first(600, 15, {{"m", 0, 600, 0, 20}})};
    const auto alone = setup.run(compressed(options)).parameters;
    setup.threads = 3;
    EXPECT_EQ(setup.run(compressed(options)).parameters, alone) << options.kind;
  }
}

TEST(Compression, OfOneTensorNeedsAMatrix) {
  const SimulatedRun setup;
  EXPECT_THROW(setup.run(compressed(compression("powersgd"))), RunFailure);
}

TEST(CompressionDrops, ANotANumberReachesTheModel) {
  const auto listed = [](const MicroBatch& at) {
    std::vector<float> values(8, 1.0f);
    if (at.worker == Rank{1} && at.step == 2) values[5] = std::numeric_limits<float>::quiet_NaN();
    return values;
  };
  for (const CompressionOptions& options :
       {compression("top-k"), compression("sign"), compression("majority"), compression("qsgd"), one_bit(),
        in_two_phases(compression("sign")), in_two_phases(compression("qsgd")), in_two_phases(one_bit())}) {
    SimulatedRun setup{.workers = 3, .objective = std::make_shared<ListedGradients>(8, listed)};
    const auto has_it = [&](int steps) {
      setup.budget = {.steps = steps};
      const auto found = setup.run(compressed(options)).parameters;
      return std::any_of(found.begin(), found.end(), [](float value) { return std::isnan(value); });
    };
    EXPECT_FALSE(has_it(2));
    EXPECT_TRUE(has_it(3)) << options.kind;
  }
}

// ScaleCom sends a NaN once its worker leads: worker 1 leads at steps 1, 4, ...
TEST(CompressionDrops, ANotANumberIsSentByItsLeader) {
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

// A worker whose batch is dropped still sends values of its residual. The dropped gradient does not reach the model,
// but the residual of its earlier gradients does.
TEST(CompressionDrops, DroppedBatchesAreLostAndResidualsAreNot) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(24, 10)};
  setup.budget = {.steps = 10};
  const auto dense = setup.run(RandomDrop(0.4, Step{0})).parameters;
  setup.budget = {.steps = 400};
  const auto late = setup.run(compressed<RandomDrop>(top_k(0.1), 0.4, Step{0})).parameters;
  const auto whole = setup.run(SyncSgd()).parameters;
  EXPECT_LE(largest_difference(late, dense), 1e-5);
  EXPECT_GT(largest_difference(whole, dense), 1e-3);
}

// Dropped gradients that are folded in are sent later. So the run ends with the same model as a run without drops.
TEST(CompressionDrops, FoldedBatchesComeLater) {
  SimulatedRun setup{.workers = 4, .objective = noise_at_first(24, 10, {{"m", 0, 24, 0, 4}})};
  setup.budget = {.steps = 10};
  const auto whole = setup.run(SyncSgd()).parameters;
  const auto dropping = setup.run(RandomDrop(0.4, Step{0}));
  for (CompressionOptions options : {top_k(0.1), scale_com(0.1, 0.4), in_two_phases(compression("sign")),
                                     compression("powersgd", "rank = 1, least_rate = 1"),
                                     compression("powersgd", R"(rank = 1, least_rate = 1, factors = "in-turn")")}) {
    options.dropped = CompressionOptions::Dropped::folded;
    setup.budget = {.steps = 10};
    const auto early = setup.run(compressed<RandomDrop>(options, 0.4, Step{0}));
    EXPECT_EQ(early.totals.dropped, dropping.totals.dropped);  // folded micro-batches still count as dropped
    EXPECT_EQ(early.totals.kept, dropping.totals.kept);
    setup.budget = {.steps = 400};
    const auto late = setup.run(compressed<RandomDrop>(options, 0.4, Step{0})).parameters;
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(late[i], whole[i], 1e-5) << options.kind;
  }
}

TEST(CompressionDrops, OfDroppedMicroBatchesGoesOnAsDropComputeDoes) {
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

// Worker 1 is down in the second step and loses its state: the model lacks what was in its residual.
TEST(CompressionDrops, ALostStateTakesItsResidualAlong) {
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

// Worker 1 owns the second half of the values, and also loses the residual of its second phase. (3, -3) and (1, 1) are
// each exact as signs with a scale, and sum to (4, -2). The owner sends (3, -3) first, and (1, 1) would follow.
TEST(CompressionDrops, ALostStateTakesAnOwnersResidualAlong) {
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
    const auto found = setup.run(compressed(in_two_phases(compression("sign")))).parameters;
    EXPECT_FLOAT_EQ(found[2], -0.1f / 2 * (loses_state ? 3 : 4));
    EXPECT_FLOAT_EQ(found[3], 0.1f / 2 * (loses_state ? 3 : 2));
  }
}

// No worker waits for one that has left. The run ends with the same reason as a dense run.
TEST(CompressionDrops, AWorkerThatHasLeftIsMissedAsInADenseSum) {
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
  for (const CompressionOptions& options : {compression("top-k"), compression("random-k"), compression("powersgd"),
                                            compression("scalecom"), in_two_phases(compression("sign"))})
    EXPECT_EQ(who(why(compressed(options))), who(of_dense)) << options.kind;
}

// Forms of compression in which papers and published code differ, on the simulated cluster.

std::shared_ptr<const Objective> noise(std::size_t size, std::vector<ParameterTensor> tensors) {
  const auto listed = [size](const MicroBatch& at) {
    std::mt19937 engine(static_cast<unsigned>(1000 * at.worker.value + 10 * at.step.value() + at.index));
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(size);
    for (float& value : values) value = uniform(engine);
    return values;
  };
  return std::make_shared<ListedGradients>(size, listed, std::move(tensors));
}

// A file may request full rank with least_rate = 0, though the factors are larger than the matrix.
TEST(CompressionForms, OfFullRankIsDense) {
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>(4, 6), {6, 4}, {5, 5}}) {
    const std::size_t size = rows * columns + 3;
    const SimulatedRun setup{
        .workers = 3,
        .micro_batches = 2,
        .momentum = 0.9,
        .budget = {.steps = 12},
        .objective = noise(size, {{"m", 0, rows * columns, 0, rows}, {"b", rows * columns, 3, 1}})};
    const auto dense = setup.run(SyncSgd()).parameters;
    for (const char* const removed : {"own", "mean"}) {
      const std::string keys =
          fmt::format("rank = {}, least_rate = 0, removed = \"{}\"", std::min(rows, columns), removed);
      const auto found = setup.run(compressed(compression("powersgd", keys))).parameters;
      for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(found[i], dense[i], 1e-5) << rows;
    }
  }
}

// At ratio 1 without masking, dgc's Nesterov momentum is that of an optimizer.
TEST(CompressionForms, NesterovsMomentumOfEverythingIsNesterovs) {
  const CompressionOptions options = compression("dgc", "ratio = 1, momentum = 0.8, masking = false, nesterov = true");
  SimulatedRun setup{.workers = 3, .micro_batches = 2, .budget = {.steps = 15}};
  const auto found = setup.run(compressed(options)).parameters;
  setup.optimizer = make_sgd({.momentum = 0.8, .nesterov = true});
  const auto dense = setup.run(SyncSgd()).parameters;
  for (std::size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(found[i], dense[i], 1e-5 * std::abs(dense[i]));
}

// Each worker's mean over its micro-batches, of norm 5 or 1, is clipped. So is a mean that is dropped and folded in.
TEST(CompressionForms, ClipsEachWorkersMeanBeforeItAccumulates) {
  const auto listed = [](const MicroBatch& at) {
    if (at.step > 0) return std::vector<float>{0, 0};
    const float more = at.index % 2 == 0 ? 1.5f : 0.5f;
    return at.worker == Rank{0} ? std::vector<float>{3 * more, 4 * more} : std::vector<float>{-more, 0};
  };
  const CompressionOptions options = compression("dgc", R"(ratio = 1, momentum = 0, clip = 2, dropped = "fold")");
  const SimulatedRun setup{.workers = 2,
                           .micro_batches = 2,
                           .rate = 1,
                           .budget = {.steps = 3},
                           .objective = std::make_shared<ListedGradients>(2, listed)};
  for (const auto& found : {setup.run(compressed(options)).parameters,
                            setup.run(compressed<RandomDrop>(options, 0.999, Step{0})).parameters}) {
    EXPECT_NEAR(found[0], -(3 * 2.0 / 5 - 1) / 2, 1e-6);
    EXPECT_NEAR(found[1], -(4 * 2.0 / 5) / 2, 1e-6);
  }
}

// A step's computing takes 2 s, on worker 2. On a ring of latency L and bandwidth B an all-reduce of P bytes takes 2 (N
// - 1) (L + P / (N B)), an all-gather of packets of p bytes (N - 1) (L + p / B).
TEST(CompressionTimes, ExchangesTakeWhatTheNetworkSays) {
  const std::size_t size = 300;
  SimulatedRun setup{.workers = 3,
                     .network = make_ring_network(0.01, 1000),
                     .worker_factors = {1, 1, 2},
                     .objective = noise_at_first(size, 10, {{"m", 0, 300, 0, 10}})};
  EXPECT_EQ(setup.run(compressed(top_k(0.1))).log,
            (std::vector<std::string>{"step 1 at 2.500 s: kept 3, dropped 0", "step 2 at 5.000 s: kept 3, dropped 0"}));
  EXPECT_EQ(setup.run(compressed(compression("random-k", "ratio = 0.1"))).log.front(),
            "step 1 at 2.200 s: kept 3, dropped 0");
  const CompressionOptions power = compression("powersgd", "rank = 3");
  // Two all-reduces, of 120 and 360 bytes, take 4 (0.01 + 120 / 3000) and 4 (0.01 + 360 / 3000) s.
  EXPECT_EQ(setup.run(compressed(power)).log.front(), "step 1 at 2.720 s: kept 3, dropped 0");
  const auto outcome = setup.run(compressed(power));
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * 2 * 2 * (120 + 360)});
  EXPECT_EQ(outcome.totals.collectives, 4);
  EXPECT_EQ(outcome.rounds.size(), 2u);
  expect_exact_accounts(outcome);
}

// On a ring, a broadcast of P bytes takes ceil(log2 N) (L + P / B), and an all-to-all (N - 1) (L + P / (N B)).
TEST(CompressionTimes, ExchangesOfOtherKindsTakeWhatTheNetworkSays) {
  SimulatedRun setup{.workers = 3,
                     .network = make_ring_network(0.01, 1000),
                     .worker_factors = {1, 1, 2},
                     .objective = noise_at_first(300, 10)};
  // A broadcast of 30 indices takes 2 (0.01 + 120 / 1000) s, an all-reduce of their values 4 (0.01 + 120 / 3000) s.
  const auto leading = setup.run(compressed(scale_com(0.1, 1)));
  EXPECT_EQ(leading.log.front(), "step 1 at 2.460 s: kept 3, dropped 0");
  EXPECT_EQ(leading.totals.bytes, Bytes{2 * (2 * 120 + 2 * 2 * 120)});
  EXPECT_EQ(leading.totals.collectives, 4);
  expect_exact_accounts(leading);
  // Each of three owners has a chunk of 100 values, which takes 20 bytes: 4 words of signs and a scale. Each of the two
  // phases, to the owners and from them, takes 2 (0.01 + 60 / 3000) s.
  const auto in_phases = setup.run(compressed(in_two_phases(compression("sign"))));
  EXPECT_EQ(in_phases.log.front(), "step 1 at 2.120 s: kept 3, dropped 0");
  EXPECT_EQ(in_phases.totals.bytes, Bytes{2 * 2 * 2 * 60});
  EXPECT_EQ(in_phases.totals.collectives, 4);
  EXPECT_EQ(in_phases.rounds.size(), 2u);
  expect_exact_accounts(in_phases);
}

// Time-only runs, on fibers and in lockstep, take the same time as training.
TEST(CompressionTimes, TimesNeedNoModel) {
  for (const CompressionOptions& options :
       {compression("top-k"), compression("random-k"), compression("scalecom"), compression("sign"), one_bit(),
        compression("majority"), compression("qsgd"), in_two_phases(compression("sign")),
        in_two_phases(compression("qsgd"))}) {
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

// Compressed sums of gradients that share a backward pass, compared with gradients that have separate passes.

std::vector<CompressionOptions> some_kinds() {
  return {top_k(0.25),
          compression("sign"),
          scale_com(0.25, 1),
          compression("dgc", "ratio = 0.25, momentum = 0.5"),
          one_bit(),
          compression("powersgd", "rank = 1"),
          in_two_phases(compression("sign"))};
}

constexpr SampleShape shape{.channels = 1, .height = 6, .width = 6};
constexpr std::int64_t classes = 4;
const SamplerOptions sampling{.samples = 200, .workers = 5, .micro_batches = 3, .micro_batch_size = 4, .seed = 9};

// Computes gradients separately, if required.
class MaybeApart : public TorchObjective {
 public:
  explicit MaybeApart(bool apart)
      : TorchObjective(mlp_network(shape, classes, {10}, 0.25), std::make_shared<RandomImages>(shape, classes, 200, 50),
                       sampling, 32),
        apart_(apart) {}
  bool has_batched_gradients() const override { return apart_ && TorchObjective::has_batched_gradients(); }

 private:
  bool apart_;
};

std::shared_ptr<const TorchObjective> network(bool apart = true) { return std::make_shared<MaybeApart>(apart); }

SimulatedRun run_of(std::shared_ptr<const Objective> objective) {
  SimulatedRun setup{.workers = 5, .micro_batches = 3, .momentum = 0.9, .rate = 0.05, .budget = {.steps = 12}};
  setup.objective = std::move(objective);
  return setup;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

TEST(CompressionTogether, OfExactGradientsIsThatOfSingleOnes) {
  for (const CompressionOptions& options : some_kinds()) {
    if (options.kind == "powersgd") continue;  // needs matrices
    const auto together = std::make_shared<ApartObjective>(24, 24, 8);
    const auto single = std::make_shared<PullObjective>(24, 24, 8);
    for (const int threads : {0, 1, 3}) {
      SimulatedRun a = run_of(together), b = run_of(single);
      a.threads = b.threads = threads;
      a.micro_batches = b.micro_batches = 2;
      EXPECT_EQ(a.run(compressed(options)).parameters, b.run(compressed(options)).parameters) << options.kind;
      EXPECT_EQ(a.run(compressed<RandomDrop>(options, 0.4, Step{0})).parameters,
                b.run(compressed<RandomDrop>(options, 0.4, Step{0})).parameters);
    }
    EXPECT_FALSE(together->passes.empty());
  }
}

// If values differ by rounding, signs and indices may differ, and then all later steps. So only the first steps are
// compared.
TEST(CompressionTogether, OfANetworkIsThatOfSinglePassesUpToRounding) {
  const auto objective = network();
  ASSERT_TRUE(objective->has_batched_gradients());
  for (const CompressionOptions& options : some_kinds()) {
    SCOPED_TRACE(options.kind);
    SimulatedRun together = run_of(objective), single = run_of(network(false));
    for (SimulatedRun* setup : {&together, &single}) setup->budget = {.steps = 3};
    const auto start = objective->initial_parameters(0);
    const auto expected = single.run(compressed(options)).parameters;
    EXPECT_LT(distance(together.run(compressed(options)).parameters, expected), 1e-4 * distance(expected, start));
    const auto dropped = [&](const SimulatedRun& setup) {
      return setup.run(compressed<RandomDrop>(options, 0.4, Step{0})).parameters;
    };
    const auto some = dropped(single);
    EXPECT_LT(distance(dropped(together), some), 1e-4 * distance(some, start));
  }
}

TEST(CompressionTogether, OfANetworkHasTheSameBitsOnAnyNumberOfThreads) {
  SimulatedRun setup = run_of(network());
  for (const CompressionOptions& options : some_kinds()) {
    std::vector<float> first;
    for (const int threads : {0, 1, 4}) {
      setup.threads = threads;
      const auto found = setup.run(compressed(options)).parameters;
      if (first.empty()) first = found;
      EXPECT_EQ(found, first) << options.kind;
    }
  }
}

TEST(CompressionTogether, DelaysDoNotChangeBits) {
  SimulatedRun setup = run_of(network());
  const auto first = setup.run(compressed(some_kinds().front())).parameters;
  setup.delays = {std::make_shared<DelayOfWorker>(std::vector<double>{3, 0.5, 2, 0, 1})};
  EXPECT_EQ(setup.run(compressed(some_kinds().front())).parameters, first);
}

// Sums whose embeddings are sent as touched rows, on the simulated cluster.

// A bias of 5 values, a table of 20 rows of 4, a matrix of 6 x 3, a table of 7 rows of 2.
constexpr std::size_t size = 5 + 80 + 18 + 14;
const std::vector<ParameterTensor> tensors = {{.name = "bias", .offset = 0, .size = 5},
                                              {.name = "words.weight", .offset = 5, .size = 80, .rows = 20},
                                              {.name = "linear1.weight", .offset = 85, .size = 18, .rows = 6},
                                              {.name = "places.weight", .offset = 103, .size = 14, .rows = 7}};

std::mt19937 engine_of(const MicroBatch& at) {
  return std::mt19937(static_cast<unsigned>(1000 * at.worker.value + 10 * at.step.value() + at.index));
}

// Worker i draws i + 1 rows of the table of words, possibly some of them twice, and one row of the table of places.
std::vector<std::size_t> rows_of(const MicroBatch& at) {
  auto engine = engine_of(at);
  std::vector<std::size_t> rows;
  for (int i = 0; i <= at.worker.value; ++i) rows.push_back(engine() % 20);
  rows.push_back(20 + engine() % 7);
  return rows;
}

std::vector<float> listed(const MicroBatch& at) {
  std::vector<float> values(size);
  std::uniform_real_distribution<float> noise(0.5f, 1);
  auto engine = engine_of(at);
  for (std::size_t i = 0; i < size; ++i)
    if (i < 5 || (i >= 85 && i < 103)) values[i] = noise(engine);
  for (const std::size_t row : rows_of(at)) {
    const std::size_t begin = row < 20 ? 5 + 4 * row : 103 + 2 * (row - 20), columns = row < 20 ? 4 : 2;
    for (std::size_t i = begin; i < begin + columns; ++i) values[i] += noise(engine);
  }
  return values;
}

CompressionOptions rows(const std::string& tables = R"("words.weight", "places.weight")") {
  return compression("sparse-rows", fmt::format("tables = [{}]", tables));
}
SyncSgd sparse(const CompressionOptions& options = rows()) {
  SyncSgd method;
  method.compress(options);
  return method;
}

SimulatedRun of_texts(int workers, int steps) {
  return {.workers = workers,
          .budget = {.steps = steps},
          .objective = std::make_shared<ListedGradients>(size, listed, tensors)};
}

// Number of 4-byte units in a worker's packet for a step.
std::int64_t words_of(int worker, int step, int micro_batches) {
  std::vector<bool> touched(27);
  for (int m = 0; m < micro_batches; ++m)
    for (const std::size_t row : rows_of({Rank{worker}, Step{step}, m})) touched[row] = true;
  std::int64_t words = 1;
  for (std::size_t row = 0; row < 27; ++row)
    if (touched[row]) words += 1 + (row < 20 ? 4 : 2);
  return words;
}

TEST(SparseRows, GiveTheStepOfTheDenseSum) {
  for (const int workers : {1, 4})
    for (const bool is_adam : {false, true}) {
      SimulatedRun setup = of_texts(workers, 15);
      setup.micro_batches = 2;
      setup.momentum = 0.9;
      if (is_adam) setup.optimizer = make_adamw({});
      const auto dense = setup.run(SyncSgd()).parameters, found = setup.run(sparse()).parameters;
      for (std::size_t i = 0; i < size; ++i)
        EXPECT_NEAR(found[i], dense[i], 2e-5 * std::max(1.0f, std::abs(dense[i]))) << i;
    }
}

// On a ring, each of 23 dense parameters sends 2 (N - 1) x 4 bytes, and each worker's rows are sent N - 1 times.
TEST(SparseRows, SendWhatHasBeenTouched) {
  constexpr int workers = 4, steps = 6, micro_batches = 3;
  SimulatedRun setup = of_texts(workers, steps);
  setup.micro_batches = micro_batches;
  std::int64_t words = 0;
  for (int step = 0; step < steps; ++step)
    for (int worker = 0; worker < workers; ++worker) words += words_of(worker, step, micro_batches);
  const auto outcome = setup.run(sparse());
  EXPECT_EQ(outcome.totals.bytes, Bytes{4 * (workers - 1) * (2 * 23 * steps + words)});
  EXPECT_EQ(outcome.totals.collectives, 2 * steps);
  EXPECT_EQ(outcome.rounds.size(), static_cast<std::size_t>(steps));
  expect_exact_accounts(outcome);
}

// Computing takes 1 s, an all-reduce of the 23 dense parameters 2 (N - 1) (L + 92 / (N B)), an all-gather of all
// workers' rows (N - 1) (L + all rows / (N B)).
TEST(SparseRows, TakeTheTimeOfWhatIsSent) {
  SimulatedRun setup = of_texts(3, 1);
  setup.network = make_ring_network(0.01, 1000);
  const double words = static_cast<double>(words_of(0, 0, 1) + words_of(1, 0, 1) + words_of(2, 0, 1));
  const auto outcome = setup.run(sparse());
  EXPECT_NEAR(to_seconds(outcome.totals.end), 1 + 4 * (0.01 + 92.0 / 3000) + 2 * (0.01 + 4 * words / 3000), 1e-9);
}

TEST(SparseRows, OfOneTableLeaveTheOthersDense) {
  SimulatedRun setup = of_texts(2, 4);
  const auto dense = setup.run(SyncSgd()).parameters;
  const auto found = setup.run(sparse(rows(R"("words")")));
  for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(found.parameters[i], dense[i], 1e-5) << i;
  EXPECT_NE(found.totals.bytes, setup.run(sparse()).totals.bytes);
}

TEST(SparseRows, OfDroppedMicroBatchesAreThoseThatCount) {
  SimulatedRun setup = of_texts(3, 8);
  setup.micro_batches = 4;
  setup.worker_factors = {1, 1, 1.7};
  const DropCompute dense(from_seconds(4.5), Preempt::discard, 1.0 / 3);
  DropCompute method(from_seconds(4.5), Preempt::discard, 1.0 / 3);
  method.compress(rows());
  const auto expected = setup.run(dense), found = setup.run(method);
  EXPECT_THAT(found.totals.dropped, testing::Contains(testing::Gt(0)));
  for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(found.parameters[i], expected.parameters[i], 1e-5) << i;
}

TEST(SparseRows, DoNotDependOnThreads) {
  SimulatedRun setup = of_texts(5, 8);
  setup.threads = 0;
  const auto alone = setup.run(sparse());
  setup.threads = 3;
  const auto together = setup.run(sparse());
  EXPECT_EQ(together.parameters, alone.parameters);
  EXPECT_EQ(together.log, alone.log);
}

TEST(SparseRows, ANotANumberIsSent) {
  SimulatedRun setup = of_texts(2, 1);
  setup.objective = std::make_shared<ListedGradients>(
      size,
      [](const MicroBatch& at) {
        auto values = listed(at);
        values[5 + 4 * 3] = std::numeric_limits<float>::quiet_NaN();
        return values;
      },
      tensors);
  EXPECT_TRUE(std::isnan(setup.run(sparse()).parameters[5 + 4 * 3]));
}

TEST(SparseRows, OfNoTableAreAFault) {
  try {
    of_texts(2, 1).run(sparse(rows(R"("tokens")")));
    FAIL() << "there is no such table";
  } catch (const RunFailure& failure) {
    EXPECT_THAT(failure.what(), testing::AllOf(testing::HasSubstr("tokens"), testing::HasSubstr("words.weight")));
  }
}

using testing::HasSubstr;

std::string faults_of(const std::string& compression, bool time_only = false) {
  return read_method("algorithm = \"sync-sgd\"\ncompression = " + compression, {.workers = 4, .time_only = time_only})
      .faults;
}

TEST(SparseRows, AreReadWithTheirDefaults) {
  const auto reading = read_method("algorithm = \"sync-sgd\"\ncompression = { name = \"sparse-rows\" }");
  ASSERT_EQ(reading.faults, "");
  EXPECT_THAT(reading.resolved, HasSubstr(R"("words.weight", "places.weight", "bag_of_words")"));
  EXPECT_FALSE(read_method("algorithm = \"sync-sgd\"\ncompression = { name = \"sparse-rows\", exchange = \"dense\" }")
                   .algorithm->compression());
}

TEST(SparseRows, AreRefusedWithTheirPlace) {
  EXPECT_THAT(faults_of("{ name = \"sparse-rows\" }", true), HasSubstr("needs a model"));
  EXPECT_EQ(faults_of("{ name = \"sparse-rows\", exchange = \"dense\" }", true), "");
  EXPECT_THAT(faults_of("{ name = \"sparse-rows\", exchange = \"reduce\" }"), HasSubstr("gather"));
  EXPECT_THAT(faults_of("{ name = \"sparse-rows\", tables = [] }"), HasSubstr("tables"));
  EXPECT_THAT(faults_of("{ name = \"sparse-rows\", error_feedback = true }"), HasSubstr("error_feedback"));
}

using testing::HasSubstr;

std::string sum_faults(const std::string& compression, const std::string& method = "algorithm = \"sync-sgd\"",
                       bool time_only = false) {
  return read_method(method + "\ncompression = " + compression, {.workers = 4, .time_only = time_only}).faults;
}

TEST(CompressionSettings, WithoutTheTableNothingIsCompressed) {
  const auto reading = read_method("algorithm = \"sync-sgd\"");
  EXPECT_FALSE(reading.algorithm->compression());
  EXPECT_THAT(reading.resolved, testing::Not(HasSubstr("compression")));
}

TEST(CompressionSettings, AreReadWithTheirDefaults) {
  const auto reading = read_method("algorithm = \"sync-sgd\"\ncompression = { name = \"powersgd\", rank = 4 }");
  ASSERT_EQ(reading.faults, "");
  const CompressionOptions& options = *reading.algorithm->compression();
  EXPECT_EQ(options.kind, "powersgd");
  EXPECT_TRUE(options.error_feedback);
  for (const char* key : {"rank = 4", "least_rate = 2", "warm_start = true", "error_feedback = true",
                          "residual = \"gradient\"", "removed = \"own\""})
    EXPECT_THAT(reading.resolved, HasSubstr(key));
}

TEST(CompressionSettings, AreRefusedWithTheirPlace) {
  EXPECT_EQ(sum_faults("{ name = \"top-k\", ratio = 0.01 }"), "");
  EXPECT_THAT(sum_faults("{ name = \"top-k\", ratio = 0 }"), HasSubstr("test.toml:2:"));
  EXPECT_THAT(sum_faults("{ name = \"top-k\", ratio = 1.5 }"), HasSubstr("ratio = 1.5"));
  EXPECT_THAT(sum_faults("{ name = \"random-k\" }"), HasSubstr("ratio"));
  EXPECT_THAT(sum_faults("{ name = \"topk\", ratio = 0.1 }"), HasSubstr("top-k"));
  EXPECT_THAT(sum_faults("{ name = \"powersgd\", rank = 0 }"), HasSubstr("rank = 0"));
  EXPECT_THAT(sum_faults("{ name = \"qsgd\", levels = 128 }"), HasSubstr("levels = 128"));
  EXPECT_THAT(sum_faults("{ name = \"majority\", error_feedback = true }"), HasSubstr("error_feedback"));
  EXPECT_THAT(sum_faults("{ name = \"majority\", momentum = 1 }"), HasSubstr("momentum"));
}

TEST(CompressionSettings, AreRefusedWithTheMethodsReasonWhereNothingCanBeCompressed) {
  int refused = 0;
  for (const AlgorithmRow& row : algorithms()) {
    const std::string method = fmt::format("algorithm = \"{}\"\n{}", row.name, row.example);
    const auto reading = read_method(method);
    ASSERT_EQ(reading.faults, "") << row.name;
    const Traits traits = reading.algorithm->traits();
    if (traits.compresses() != Compresses::nothing) continue;
    ++refused;
    EXPECT_NE(traits.exchanged_whole, "") << row.name;
    EXPECT_THAT(sum_faults("{ name = \"top-k\", ratio = 0.01 }", method),
                HasSubstr("compression = a table; must not be given: " + std::string(traits.exchanged_whole)));
  }
  EXPECT_GE(refused, 12);
}

// The message explains why a compression for gradients does not apply to the values that this method sends.
TEST(CompressionSettings, EachThatIsForGradientsAloneIsRefusedWithAReason) {
  for (const auto& [what, method] :
       {std::pair(Compresses::averages,
                  std::string("algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 2 }")),
        std::pair(Compresses::moments, std::string("algorithm = \"one-bit-adam\"\nfreeze_step = 2")),
        std::pair(Compresses::messages, std::string("algorithm = \"async-sgd\""))}) {
    ASSERT_EQ(read_method(method, {.workers = 4}).faults, "");
    for (const Alternative& row : compressions_of(Compresses::gradients)) {
      const auto known = compressions_of(what);
      if (std::ranges::find(known, row.name, &Alternative::name) != known.end()) continue;
      EXPECT_THAT(sum_faults(fmt::format("{{ name = \"{}\" }}", row.name), method), HasSubstr("cannot be used here: "))
          << row.name << " in " << method;
    }
  }
}

TEST(CompressionSettings, OfTwoPhasesAreRefusedWithAReasonWhereThereIsOne) {
  const std::string two_phases = "{ name = \"sign\", exchange = \"two-phase\" }";
  EXPECT_THAT(sum_faults(two_phases, "algorithm = \"async-sgd\""), HasSubstr("a message goes to one server"));
  EXPECT_THAT(sum_faults(two_phases, "algorithm = \"cocod-sgd\"\nperiod = { rule = \"constant\", steps = 2 }"),
              HasSubstr("the second phase would follow the first while workers compute"));
}

TEST(CompressionSettings, OfTheWarmUpAreRefusedWithTheirPlace) {
  const auto faults = [](const std::string& keys) {
    return sum_faults("{ name = \"dgc\", ratio = 0.001, " + keys + " }");
  };
  EXPECT_EQ(faults("warmup_ratios = [0.25, 0.063, 0.015, 0.004], warmup_steps = 40"), "");
  EXPECT_THAT(faults("warmup_ratios = [0.25, 0.0], warmup_steps = 40"), HasSubstr("warmup_ratios"));
  EXPECT_THAT(faults("warmup_ratios = [0.25]"), HasSubstr("needs warmup_steps"));
  EXPECT_THAT(faults("warmup_ratios = [0.25], warmup_epochs = 2"), HasSubstr("needs a data set"));
  EXPECT_THAT(faults("warmup_steps = 40"), HasSubstr("has no effect without warmup_ratios"));
  EXPECT_THAT(faults("warmup_ratios = [0.25], warmup_steps = 0"), HasSubstr("warmup_steps = 0"));
}

TEST(CompressionSettings, AWarmUpTakesAnEpochPerRatioUnlessItSaysOtherwise) {
  const auto steps_of = [](const std::string& keys) {
    const auto reading = read_method(
        "algorithm = \"sync-sgd\"\ncompression = { name = \"dgc\", ratio = 0.001, warmup_ratios = [0.3, 0.1, 0.03]" +
            keys + " }",
        {.workers = 4, .steps_per_epoch = Step{50}});
    EXPECT_EQ(reading.faults, "");
    return reading.algorithm->compression()->warmup_steps;
  };
  EXPECT_EQ(steps_of(""), Step{150});
  EXPECT_EQ(steps_of(", warmup_epochs = 1.5"), Step{75});
  EXPECT_EQ(steps_of(", warmup_steps = 20"), Step{20});
}

TEST(CompressionSettings, OfWhatIsNewAreRefusedWithTheirPlace) {
  EXPECT_THAT(sum_faults("{ name = \"scalecom\", ratio = 0.1, filter = 0 }"), HasSubstr("filter = 0"));
  EXPECT_THAT(sum_faults("{ name = \"scalecom\", ratio = 0.1, error_feedback = false, filter = 0.5 }"),
              HasSubstr("filter"));
  EXPECT_THAT(sum_faults("{ name = \"top-k\", ratio = 0.1, exchange = \"two-phase\" }"), HasSubstr("exchange"));
  EXPECT_THAT(sum_faults("{ name = \"majority\", exchange = \"two-phase\" }"), HasSubstr("exchange"));
  EXPECT_THAT(sum_faults("{ name = \"sign\", exchange = \"ring\" }"), HasSubstr("two-phase"));
  EXPECT_THAT(sum_faults("{ name = \"one-bit\" }", "algorithm = \"sync-sgd\"", true), HasSubstr("needs a model"));
  EXPECT_EQ(sum_faults("{ name = \"one-bit\", scope = \"model\" }", "algorithm = \"sync-sgd\"", true), "");
  EXPECT_THAT(sum_faults("{ name = \"dgc\", ratio = 0.1, dense_vectors = true }", "algorithm = \"sync-sgd\"", true),
              HasSubstr("needs a model"));
  EXPECT_THAT(sum_faults("{ name = \"dgc\", ratio = 0.1, clip = 1, clip_by = \"tensor-norm\" }",
                         "algorithm = \"sync-sgd\"", true),
              HasSubstr("needs a model"));
  EXPECT_EQ(sum_faults("{ name = \"dgc\", ratio = 0.1, clip = 1, clip_by = \"value\", clip_scaling = \"1/sqrt(N)\" }"),
            "");
  EXPECT_THAT(sum_faults("{ name = \"dgc\", ratio = 0.1, clip = 0 }"), HasSubstr("clip = 0"));
  EXPECT_THAT(sum_faults("{ name = \"dgc\", ratio = 0.1, clip_by = \"value\" }"),
              HasSubstr("has no effect without `clip`"));
  EXPECT_THAT(sum_faults("{ name = \"one-bit\", threshold = 0.5 }"), HasSubstr("threshold"));
  EXPECT_THAT(sum_faults("{ name = \"powersgd\", least_rate = -1 }"), HasSubstr("least_rate = -1"));
  EXPECT_THAT(sum_faults("{ name = \"powersgd\", factors = \"in-turn\", warm_start = false }"),
              HasSubstr("reuses the previous step's factor"));
}

// A file without these keys has the same configuration as before they were introduced, so its finished runs stay valid.
TEST(CompressionSettings, OfFormsAreInNoFileThatDoesNotWriteThem) {
  for (const char* compression :
       {"{ name = \"dgc\", ratio = 0.1 }", "{ name = \"one-bit\" }", "{ name = \"powersgd\" }"}) {
    const auto reading = read_method(std::string("algorithm = \"sync-sgd\"\ncompression = ") + compression);
    for (const char* key : {"nesterov", "clip", "threshold", "factors"})
      EXPECT_THAT(reading.resolved, testing::Not(HasSubstr(key))) << compression;
  }
}

// Computed gradients can be folded in; a micro-batch stopped by a deadline has no gradient.
TEST(CompressionSettings, OnlyWhatIsComputedCanBeFolded) {
  const std::string folding = "{ name = \"top-k\", ratio = 0.1, dropped = \"fold\" }";
  EXPECT_EQ(sum_faults(folding, "algorithm = \"random-drop\"\ndrop_rate = 0.1"), "");
  EXPECT_THAT(sum_faults(folding, "algorithm = \"dropcompute\"\nthreshold_s = 2"),
              HasSubstr("are not completely computed"));
  EXPECT_EQ(sum_faults("{ name = \"top-k\", ratio = 0.1, dropped = \"lost\" }",
                       "algorithm = \"dropcompute\"\nthreshold_s = 2"),
            "");
  EXPECT_THAT(sum_faults(folding), HasSubstr("this method leaves no gradient out"));
  EXPECT_THAT(sum_faults("{ name = \"qsgd\", dropped = \"fold\" }", "algorithm = \"random-drop\"\ndrop_rate = 0.1"),
              HasSubstr("dropped"));
}

TEST(CompressionSettings, AreForMethodsThatSumGradients) {
  const std::string top_k = "{ name = \"top-k\", ratio = 0.1 }";
  for (const char* method :
       {"algorithm = \"decentralized-sgd\"", "algorithm = \"gradient-coding\"\ncode = \"fractional\"\nstragglers = 1",
        "algorithm = \"dynamic-averaging\"\nthreshold = 1\ncheck_every = 2",
        "algorithm = \"dropcompute\"\nthreshold_s = 2\npreempt = \"layer\""})
    EXPECT_THAT(sum_faults(top_k, method), HasSubstr("must not be given")) << method;
  for (const char* method : {"algorithm = \"stale-sgd\"\nstaleness = 2", "algorithm = \"random-drop\"\ndrop_rate = 0.1",
                             "algorithm = \"dropcompute\"\nthreshold_s = 2"})
    EXPECT_EQ(sum_faults(top_k, method), "") << method;
}

TEST(CompressionSettings, ByTensorsNeedAModel) {
  EXPECT_THAT(sum_faults("{ name = \"powersgd\" }", "algorithm = \"sync-sgd\"", true), HasSubstr("needs a model"));
  EXPECT_THAT(sum_faults("{ name = \"sign\", scope = \"tensor\" }", "algorithm = \"sync-sgd\"", true),
              HasSubstr("needs a model"));
  EXPECT_EQ(sum_faults("{ name = \"sign\" }", "algorithm = \"sync-sgd\"", true), "");
}

// Rounds, bytes and step times by formula, compared with a run whose micro-batches all take 1 s.
TEST(CompressionSettings, FormulasAreThoseOfRuns) {
  constexpr std::int64_t steps = 5;
  for (const char* compression :
       {"{ name = \"top-k\", ratio = 0.5 }", "{ name = \"random-k\", ratio = 0.25 }", "{ name = \"sign\" }",
        "{ name = \"qsgd\" }", "{ name = \"scalecom\", ratio = 0.5 }", "{ name = \"one-bit\", scope = \"model\" }",
        "{ name = \"sign\", exchange = \"two-phase\" }",
        "{ name = \"dgc\", ratio = 0.25, warmup_ratios = [1.0, 0.5], warmup_steps = 3 }"}) {
    const auto reading = read_method(std::string("algorithm = \"sync-sgd\"\ncompression = ") + compression);
    ASSERT_EQ(reading.faults, "");
    const std::shared_ptr<const NetworkModel> network = make_ring_network(0.01, 1000);
    const auto outcome =
        SimulatedRun{.workers = 4, .network = network, .budget = {.steps = steps}}.run(*reading.algorithm);
    const auto exchanges = exchanges_of(reading.algorithm->compression(), {}, Bytes{16}, 4);
    const LearningRate rate(LearningRate::Options{.peak = 0.1});
    const CommunicationInput input{
        .workers = 4, .parameter_bytes = Bytes{16}, .steps = steps, .learning_rate = rate, .exchanges = exchanges};
    EXPECT_EQ(reading.algorithm->communication(input), (Communicated{steps, outcome.totals.bytes})) << compression;
    const SampledTimes times;
    const PredictionInput prediction{.workers = 4,
                                     .times = times,
                                     .network = *network,
                                     .parameter_bytes = Bytes{16},
                                     .budget = {.steps = steps},
                                     .learning_rate = rate,
                                     .exchanges = exchanges};
    EXPECT_NEAR(prediction.all_reduce_s(), to_seconds(outcome.totals.end) / steps - 1, 1e-8) << compression;
    EXPECT_NE(prediction.all_reduce_s(), prediction.dense_all_reduce_s()) << compression;
  }
}

}  // namespace
}  // namespace syncopate
