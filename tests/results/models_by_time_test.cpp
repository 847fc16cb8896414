// Workers' own models at times of the clock, by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "results/recorder.hpp"

namespace syncopate {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::Pair;

class TwoWorkers : public testing::Test {
 protected:
  // A step that ends then; told of if it is wanted.
  bool step(int worker, int number, int at_s) {
    OwnModel model{.worker = Rank{worker}, .step = number, .time = Time{seconds(at_s)}};
    if (!models_.wants(model.worker, model.time)) return false;
    models_.add(std::move(model));
    return true;
  }
  // Steps by worker; empty where there are none yet.
  std::map<int, std::int64_t> next() {
    std::map<int, std::int64_t> steps;
    if (const auto first = models_.take_first())
      for (const auto& [worker, model] : *first) steps[worker.value] = model.step.value();
    return steps;
  }

  ModelsByTime models_{2, seconds(10)};
};

TEST_F(TwoWorkers, OfEachTheFirstStepAtOrAfterEachMultipleIsWanted) {
  EXPECT_FALSE(step(0, 1, 4));
  EXPECT_FALSE(step(0, 2, 9));
  EXPECT_TRUE(step(0, 3, 10));  // at it
  EXPECT_FALSE(step(0, 4, 19));
  EXPECT_TRUE(step(0, 5, 45)) << "it is the first after 20, 30 and 40";
  EXPECT_FALSE(step(0, 6, 49));
  EXPECT_TRUE(step(1, 1, 11)) << "each by its own clock";
}

TEST_F(TwoWorkers, TheyAreThereOnceTheSlowestIs) {
  step(0, 3, 10);
  step(0, 5, 20);
  EXPECT_THAT(next(), ElementsAre());
  step(1, 1, 13);
  EXPECT_THAT(next(), ElementsAre(Pair(0, 3), Pair(1, 1)));
  EXPECT_THAT(next(), ElementsAre()) << "worker 1 has none at 20";
  step(1, 2, 24);
  EXPECT_THAT(next(), ElementsAre(Pair(0, 5), Pair(1, 2)));
}

// Worker 1's first step ends at 35: it stands for 10, and by then 20 and 30 have passed.
TEST_F(TwoWorkers, MultiplesUpToTheLatestOfThemArePassedWithIt) {
  for (const int at_s : {10, 20, 30, 40}) step(0, at_s / 10, at_s);
  step(1, 1, 35);
  EXPECT_THAT(next(), ElementsAre(Pair(0, 1), Pair(1, 1)));
  EXPECT_THAT(next(), ElementsAre());
  step(1, 2, 41);
  EXPECT_THAT(next(), ElementsAre(Pair(0, 4), Pair(1, 2))) << "at 40";
}

TEST_F(TwoWorkers, ThereAreNoMoreOnceOneHasEndedWithoutOne) {
  step(0, 1, 12);
  step(0, 2, 22);
  step(0, 3, 32);
  step(1, 1, 11);
  step(1, 2, 20);
  models_.end(Rank{1});
  EXPECT_THAT(next(), ElementsAre(Pair(0, 1), Pair(1, 1)));
  EXPECT_THAT(next(), ElementsAre(Pair(0, 2), Pair(1, 2))) << "from before its end";
  EXPECT_THAT(next(), ElementsAre());
  EXPECT_FALSE(step(0, 4, 40)) << "nothing is kept any more";
  EXPECT_TRUE(models_.take_all().empty());
}

TEST_F(TwoWorkers, AllThatAreLeftCanBeTakenAtOnce) {
  step(0, 1, 12);
  step(1, 1, 11);
  step(0, 2, 25);
  EXPECT_EQ(models_.take_all().size(), 3u);
  EXPECT_TRUE(models_.take_all().empty());
}

}  // namespace
}  // namespace syncopate
