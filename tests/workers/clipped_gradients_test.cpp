// Gradients that a worker clips before it sends them: a promise like any other, without a copy's rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/workers/engine.hpp"

namespace syncopate {
namespace {

// At the first model, 1, the gradient of worker w is 1 - (w, w + 1, w + 2, w + 3).
TEST(ClippedGradients, HaveTheMostThatTheirMeanMayHave) {
  Engine engine(2, 0, 4, 2.0);
  const auto model = engine.training.initial_state();
  Gradient sum = engine.promise(model, 4);
  sum += engine.promise(model, 6);  // twice -(4, 5, 6, 7)
  const auto values = engine.training.values(engine.training.clipped(sum, 2));
  const double norm = std::sqrt(16.0 + 25 + 36 + 49);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(values[i], -2 * (4.0 + static_cast<double>(i)) * 2 / norm, 1e-5);
}

TEST(ClippedGradients, ThatAreShortEnoughStayAsTheyAreToTheBit) {
  Engine engine(2, 0, 4, 12.0);
  const auto model = engine.training.initial_state();
  Gradient sum = engine.promise(model, 4);
  sum += engine.promise(model, 6);
  sum *= 0.7;
  EXPECT_EQ(engine.training.values(engine.training.clipped(sum, 2)), engine.training.values(sum));
}

TEST(ClippedGradients, KeepTheirStatisticsAndWhatTheyCount) {
  Engine engine(std::make_shared<PullWithStatistics>(4, 4), make_sgd({}), {.clip_norm = 0.5});
  const auto model = engine.training.initial_state();
  Gradient sum = engine.promise(model, 4, 1);
  sum += engine.promise(model, 6, 2);
  const Gradient clipped = engine.training.clipped(sum, 2);
  EXPECT_EQ(clipped.micro_batches(), 2);
  EXPECT_EQ(clipped.compute_time(), sum.compute_time());
  const auto next = engine.training.descend(model, clipped / 2, 1.0, {.clipping = Clipping::none});
  EXPECT_THAT(engine.values(next->buffers), testing::ElementsAre((4 + 6) / 2.0f, (8 + 16) / 2.0f));
  double squares = 0;
  for (const float value : engine.training.values(next)) squares += (value - 1.0) * (value - 1.0);
  EXPECT_NEAR(std::sqrt(squares), 0.5, 1e-5);
}

TEST(ClippedGradients, AreNotClippedAgainByAStepThatIsTold) {
  Engine engine(2, 0, 4, 2.0);
  const auto model = engine.training.initial_state();
  const Gradient clipped = engine.training.clipped(engine.promise(model, 5), 1) * 3;
  const auto norm_after = [&](const Training::StepRules& rules) {
    double squares = 0;
    for (const float value : engine.training.values(engine.training.descend(model, clipped, 1.0, rules)))
      squares += (value - 1.0) * (value - 1.0);
    return std::sqrt(squares);
  };
  EXPECT_NEAR(norm_after({.clipping = Clipping::none}), 6, 1e-5);
  EXPECT_NEAR(norm_after({.clipping = Clipping::of_step}), 2, 1e-5);
}

TEST(ClippedGradients, AreThemselvesWithoutALimitAndComputeNothing) {
  Engine engine;
  const auto model = engine.training.initial_state();
  const Gradient gradient = engine.training.clipped(engine.promise(model, 4), 1);
  EXPECT_EQ(gradient.terms().size(), 1u);
  EXPECT_EQ(gradient.terms().front().at, model);
  EXPECT_EQ(engine.objective->evaluations, 0);
}

TEST(ClippedGradients, TellWhichMicroBatchesAreKept) {
  std::vector<MicroBatch> kept;
  Engine engine(std::make_shared<PullObjective>(), make_sgd({}),
                {.clip_norm = 1, .on_kept = [&](const MicroBatch& micro_batch) { kept.push_back(micro_batch); }});
  const auto model = engine.training.initial_state();
  const Gradient clipped = engine.training.clipped(engine.promise(model, 4, 2, 1), 1);
  EXPECT_TRUE(kept.empty());
  engine.training.values(engine.training.descend(model, clipped, 1.0));
  EXPECT_THAT(kept, testing::ElementsAre(MicroBatch{Rank{4}, 2, 1}));
}

}  // namespace
}  // namespace syncopate
