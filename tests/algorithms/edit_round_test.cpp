// What EDiT's workers tell each other at the end of a round, and what all know then.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/local_sgd/edit.hpp"
#include "algorithms/method/algorithm.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

TEST(EditRound, TheNormOfAWholeIsThatOfItsParts) {
  EXPECT_EQ(norm_of({3, 4, 12}), 13);
  EXPECT_EQ(norm_of({}), 0);
}

TEST(EditRound, AWorkerTellsANormOfEachModuleAndOfItsStepsFourNumbers) {
  EditOptions options{.period = make_constant_period(4)};
  EXPECT_EQ(options.told_numbers(), std::nullopt) << "nobody knows how many tensors there are";
  options.tensors = 7;
  EXPECT_EQ(options.told_numbers(), 7);
  options.penalty.step_share = 0.5;
  EXPECT_EQ(options.told_numbers(), 7 + 4);
  options.scope = EditOptions::Scope::model;
  EXPECT_EQ(options.told_numbers(), 1 + 4);
  options.tensors.reset();
  EXPECT_EQ(options.told_numbers(), 1 + 4);
  EXPECT_EQ((EditOptions{.tensors = 7}.told_numbers()), 7 + 4) << "rounds end by time";
}

// Three workers end a round after 2, 3 and 4 steps, at rates of 0.1, 0.2 and 0.4; the second has lost one of them.
class OneMeeting : public Algorithm {
 public:
  OneMeeting(EditOptions options, std::vector<RoundMeeting>& met) : options_(std::move(options)), met_(met) {}

  void run(Worker& worker) const override {
    constexpr double rates[] = {0.1, 0.2, 0.4};
    const int self = worker.rank().value;
    RoundWork work(worker);
    work.passed = Step{2 + self};
    *work.kept = Step{self == 1 ? 2 : 2 + self};
    work.rates = (2 + self) * rates[self];
    EXPECT_DOUBLE_EQ(work.mean_rate(), rates[self]);
    met_[static_cast<std::size_t>(self)] = *meet(worker, options_, worker.model(), work, nullptr);
  }

 private:
  EditOptions options_;
  std::vector<RoundMeeting>& met_;
};

std::vector<RoundMeeting> meetings_of(EditOptions options) {
  SimulatedRun setup;
  setup.objective = nullptr;
  std::vector<RoundMeeting> met(3);
  setup.run(OneMeeting(std::move(options), met));
  return met;
}

TEST(EditRound, AllLearnOfTheLongestRoundAndTheMeanRateOfAllSteps) {
  for (const RoundMeeting& met : meetings_of({})) {
    EXPECT_EQ(met.longest, Step{4});
    EXPECT_DOUBLE_EQ(met.inner_rate, (2 * 0.1 + 3 * 0.2 + 4 * 0.4) / 9);
    EXPECT_FALSE(met.is_put_off);
  }
}

TEST(EditRound, StepsThatAreToldOfNobodyAreNotKnown) {
  for (const RoundMeeting& met : meetings_of({.period = make_constant_period(4)})) {
    EXPECT_EQ(met.longest, Step{0});
    EXPECT_EQ(met.inner_rate, 0);
  }
}

// Eight of the nine steps are in somebody's model.
TEST(EditRound, ARoundWithTooFewStepsOfAllIsPutOff) {
  for (const auto& [minimum, is_put_off] : {std::pair{8, false}, {9, true}}) {
    EditOptions options;
    options.timed.minimum_steps = minimum;
    for (const RoundMeeting& met : meetings_of(options)) EXPECT_EQ(met.is_put_off, is_put_off) << minimum;
  }
}

}  // namespace
}  // namespace syncopate
