// Synchronous methods whose sums are compressed, where batches are dropped, states are lost, workers leave, or values
// are no numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/random_drop.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/compressed_gradients.hpp"
#include "tests/algorithms/compressed_method.hpp"
#include "tests/algorithms/compressed_sums.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/listed_gradients.hpp"
#include "workers/time/network.hpp"
#include "workers/time/outages.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;

TEST(CompressionDrops, ANotANumberReachesTheModel) {
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

// A worker whose batch is dropped sends of its residual: the others' steps, and nothing of what it has dropped.
TEST(CompressionDrops, DroppedBatchesAreLostAndResidualsAreNot) {
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
TEST(CompressionDrops, FoldedBatchesComeLater) {
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

// Worker 1 is down in the second step and loses its state: the model lacks what its residual held.
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

// So does the owner's residual of two phases. Worker 1 owns the second half: (3, -3) and (1, 1), each exact as signs,
// are (4, -2), of which it sends (3, -3), and (1, 1) later.
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
    const auto found = setup.run(compressed(in_two_phases(Kind::sign))).parameters;
    EXPECT_FLOAT_EQ(found[2], -0.1f / 2 * (loses_state ? 3 : 4));
    EXPECT_FLOAT_EQ(found[3], 0.1f / 2 * (loses_state ? 3 : 2));
  }
}

// Nobody waits for who has left: the run ends with the reason that a dense one gives.
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
  for (const CompressionOptions& options :
       {of(Kind::top_k), of(Kind::random_k), of(Kind::power), of(Kind::scalecom), in_two_phases(Kind::sign)})
    EXPECT_EQ(who(why(compressed(options))), who(of_dense)) << static_cast<int>(options.kind);
}

}  // namespace
}  // namespace syncopate
