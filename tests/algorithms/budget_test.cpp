// Where a budget ends that is met exactly: after the round that meets it.
#include <gtest/gtest.h>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

std::size_t rounds_of(const Budget& budget) {
  const SimulatedRun setup{.micro_batches = 2, .budget = budget};
  return setup.run(SyncSgd()).rounds.size();
}

// A round takes 2 micro-batches of 1 s and a collective of 0.5 s; 6 samples; an all-reduce among three is
// two passes of the 16 bytes to all but one: 64 bytes.
TEST(Budget, ThatIsMetExactlyEndsTheRun) {
  EXPECT_EQ(rounds_of({.steps = 3}), 3u);
  EXPECT_EQ(rounds_of({.seconds = 7.5}), 3u);
  EXPECT_EQ(rounds_of({.samples = 18}), 3u);
  EXPECT_EQ(rounds_of({.bytes = Bytes{3 * 64}}), 3u);
}

TEST(Budget, ThatIsNotMetGoesOnForAnotherRound) {
  EXPECT_EQ(rounds_of({.seconds = 7.5001}), 4u);
  EXPECT_EQ(rounds_of({.samples = 19}), 4u);
  EXPECT_EQ(rounds_of({.bytes = Bytes{3 * 64 + 1}}), 4u);
}

TEST(Budget, OfSeveralEndsWithTheFirstThatIsMet) {
  EXPECT_EQ(rounds_of({.steps = 5, .seconds = 7.5, .samples = 1000}), 3u);
  EXPECT_EQ(rounds_of({.steps = 2, .seconds = 7.5}), 2u);
}

}  // namespace
}  // namespace syncopate
