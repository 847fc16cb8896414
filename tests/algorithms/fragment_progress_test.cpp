#include <gtest/gtest.h>

#include "algorithms/local_sgd/decoupled_diloco.hpp"
#include "algorithms/local_sgd/outer_optimizer.hpp"

namespace syncopate {
namespace {

void take_steps(FragmentProgress& progress, int steps) {
  for (int i = 0; i < steps; ++i) progress.add_step({.micro_batches = 2, .time = Duration{10}});
}

void expect_work(const Work& work, int steps) {
  EXPECT_EQ(work.micro_batches, 2 * steps);
  EXPECT_EQ(work.time, Duration{10 * steps});
}

TEST(FragmentProgress, CountsTheStepsSinceEachFragmentWasReceived) {
  FragmentProgress progress(2);
  take_steps(progress, 3);
  progress.receive(0);
  take_steps(progress, 1);
  EXPECT_EQ(progress.steps(0), Step{1});
  EXPECT_EQ(progress.micro_batches(0), 2);
  EXPECT_EQ(progress.steps(1), Step{4});
  EXPECT_EQ(progress.micro_batches(1), 8);
}

TEST(FragmentProgress, TellsEachStepOnce) {
  FragmentProgress progress(2);
  take_steps(progress, 3);
  expect_work(progress.tell(), 3);
  expect_work(progress.tell(), 0);
  take_steps(progress, 2);
  expect_work(progress.tell(), 2);
  EXPECT_EQ(progress.steps(1), Step{5});
}

TEST(FragmentProgress, OfOneFragmentLosesWhatNobodyWasTold) {
  FragmentProgress progress(1);
  take_steps(progress, 3);
  progress.tell();
  take_steps(progress, 2);
  expect_work(progress.receive(0), 2);
}

TEST(FragmentProgress, LosesStepsThatAreInNoFragmentAnyMore) {
  FragmentProgress progress(3);
  take_steps(progress, 2);
  expect_work(progress.receive(0), 0);
  take_steps(progress, 1);
  expect_work(progress.receive(1), 0);
  take_steps(progress, 4);
  expect_work(progress.receive(2), 2);  // the first fragment has the five since
  expect_work(progress.receive(0), 1);  // the second has four
  expect_work(progress.tell(), 4);
  take_steps(progress, 1);
  expect_work(progress.receive_all(), 1);
  EXPECT_EQ(progress.steps(2), Step{0});
}

TEST(MergeWeights, AreQuantityTimesQuality) {
  EXPECT_EQ(weight_of(12, Step{4}), 12 * (12.0 / 4));
  EXPECT_EQ(weight_of(5, Step{2}), 12.5);
  EXPECT_EQ(weight_of(0, Step{0}), 0);
  EXPECT_EQ(weight_of(8, Step{4}) / weight_of(2, Step{1}), 4);  // equal batches: in proportion to the steps
}

}  // namespace
}  // namespace syncopate
