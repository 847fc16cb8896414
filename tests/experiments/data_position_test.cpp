// Steps of one batch in steps of another.
#include <gtest/gtest.h>

#include "experiments/sections/definition.hpp"

namespace syncopate {
namespace {

TEST(DataPosition, WholeEpochsAreWholeEpochs) {
  EXPECT_EQ(in_steps_of({8, 64}, 32, {16, 32}), Step{64});
  EXPECT_EQ(in_steps_of({16, 32}, 192, {8, 64}), Step{96});
  EXPECT_EQ(in_steps_of({7, 14}, 30, {10, 10}), Step{42}) << "also where an epoch drops other samples at its end";
}

TEST(DataPosition, WithinAnEpochNoSampleIsMetAgain) {
  EXPECT_EQ(in_steps_of({8, 64}, 37, {16, 32}), Step{74});
  EXPECT_EQ(in_steps_of({16, 32}, 3, {8, 64}), Step{2}) << "24 samples are one step and a half";
  EXPECT_EQ(in_steps_of({50, 2}, 9, {10, 10}), Step{2});
  EXPECT_EQ(in_steps_of({60, 1}, 9, {10, 10}), Step{1}) << "the next epoch: 90 samples are more than one of its steps";
}

TEST(DataPosition, IsTheSameForTheSameBatchAndWithoutEpochs) {
  EXPECT_EQ(in_steps_of({8, 64}, 37, {8, 64}), Step{37});
  EXPECT_EQ(in_steps_of({8, 0}, 37, {16, 0}), Step{37});
}

}  // namespace
}  // namespace syncopate
