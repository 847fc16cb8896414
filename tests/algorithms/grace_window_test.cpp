#include <gtest/gtest.h>

#include <limits>

#include "algorithms/local_sgd/decoupled_diloco.hpp"

namespace syncopate {
namespace {

TEST(GraceWindowLength, IsThePartOfWhatOverlappedStepsLeave) {
  GraceWindow window({.margin = 0.5, .overlap_steps = 4, .averaging = 1});
  window.note_step(2);
  window.note_quorum(3);
  window.note_sync(1.5);
  EXPECT_DOUBLE_EQ(window.length_s(), 0.5 * (4 * 2 - 3 - 1.5));
  window.note_quorum(6.75);  // nothing is to spare
  EXPECT_DOUBLE_EQ(window.length_s(), 0);
}

TEST(GraceWindowLength, OfNoMarginIsNone) {
  for (const double overlap_steps : {1e6, std::numeric_limits<double>::infinity()}) {
    GraceWindow window({.margin = 0, .overlap_steps = overlap_steps});
    window.note_step(2);
    window.note_quorum(0);
    window.note_sync(0);
    EXPECT_EQ(window.length_s(), 0);
  }
}

TEST(GraceWindowLength, IsFixedUntilAllThreeTimesHaveBeenMeasured) {
  GraceWindow window({.margin = 1, .overlap_steps = 2, .initial_s = 0.3});
  EXPECT_EQ(window.length_s(), 0.3);
  window.note_step(2);
  window.note_quorum(1);
  EXPECT_EQ(window.length_s(), 0.3);
  window.note_sync(0.5);
  EXPECT_DOUBLE_EQ(window.length_s(), 2.5);
}

TEST(GraceWindowLength, IsNoLongerThanTheLongest) {
  GraceWindow window({.margin = 1, .overlap_steps = 100, .initial_s = 9, .longest_s = 0.75});
  EXPECT_EQ(window.length_s(), 0.75);
  window.note_step(1);
  window.note_quorum(1);
  window.note_sync(1);
  EXPECT_EQ(window.length_s(), 0.75);
}

// After values x_0, ..., x_n an average of factor a is (1 - a)^n x_0 + the sum of a (1 - a)^(n - k) x_k.
TEST(GraceWindowLength, GoesByExponentialAverages) {
  GraceWindow window({.margin = 1, .overlap_steps = 10, .averaging = 0.25});
  for (const double step_s : {1.0, 2.0, 4.0}) window.note_step(step_s);
  for (const double quorum_s : {3.0, 1.0}) window.note_quorum(quorum_s);
  window.note_sync(0.5);
  const double step_s = 0.75 * 0.75 * 1 + 0.25 * 0.75 * 2 + 0.25 * 4, quorum_s = 0.75 * 3 + 0.25 * 1;
  EXPECT_DOUBLE_EQ(*window.step_s(), step_s);
  EXPECT_DOUBLE_EQ(window.length_s(), 10 * step_s - quorum_s - 0.5);
}

}  // namespace
}  // namespace syncopate
