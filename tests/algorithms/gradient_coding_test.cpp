#include "algorithms/gradient_coding/gradient_coding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

CodedSgd coded(GradientCode code, LateWork late = LateWork::finish) { return {std::move(code), late}; }
GradientCode cyclic(int workers, int stragglers) { return *cyclic_repetition(workers, stragglers, 1); }

std::vector<std::shared_ptr<const DelayProcess>> delays(std::vector<double> delay_s) {
  return {std::make_shared<DelayOfWorker>(std::move(delay_s))};
}

void expect_near(const std::vector<float>& found, const std::vector<float>& expected, double relative) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], relative * std::max(1.0f, std::abs(expected[i])));
}

TEST(CodedSgd, FractionalRepetitionEqualsSynchronousSgdBitForBitWhoeverStraggles) {
  SimulatedRun setup{.workers = 6, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 10}};
  const auto expected = setup.run(SyncSgd()).parameters;
  for (const int stragglers : {0, 1, 2})
    for (int first = 0; first < 6; ++first) {
      std::vector<double> delay_s = {0.3, 0.0, 0.2, 0.1, 0.15, 0.05};
      for (int i = 0; i < stragglers; ++i) delay_s[static_cast<std::size_t>((first + i) % 6)] = HUGE_VAL;
      setup.delays = delays(delay_s);
      const auto outcome = setup.run(coded(fractional_repetition(6, stragglers)));
      EXPECT_EQ(outcome.parameters, expected) << stragglers << " stragglers from worker " << first;
      EXPECT_EQ(outcome.samples, 10 * 6 * 2);
    }
}

// Decoding leaves an error of at most 1e-9 of a gradient. Decoded sums are added in double precision instead of float,
// and ten steps round to floats.
TEST(CodedSgd, CyclicRepetitionEqualsSynchronousSgdUpToRoundingWhoeverStraggles) {
  SimulatedRun setup{.workers = 5, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 10}};
  const auto expected = setup.run(SyncSgd()).parameters;
  for (int first = 0; first < 5; ++first)
    for (int second = 0; second < first; ++second) {
      std::vector<double> delay_s(5);
      delay_s[static_cast<std::size_t>(first)] = delay_s[static_cast<std::size_t>(second)] = HUGE_VAL;
      setup.delays = delays(delay_s);
      const auto outcome = setup.run(coded(cyclic(5, 2)));
      expect_near(outcome.parameters, expected, 1e-5);
      EXPECT_EQ(outcome.samples, 10 * 5 * 2);
    }
}

TEST(CodedSgd, WithoutStragglersEveryExactCodeEqualsSynchronousSgdBitForBit) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 2,
                           .momentum = 0.9,
                           .budget = {.steps = 20},
                           .delays = delays({0.3, 0.0, 0.2, 0.1})};
  const auto expected = setup.run(SyncSgd()).parameters;
  EXPECT_EQ(setup.run(coded(cyclic(4, 0))).parameters, expected);
  EXPECT_EQ(setup.run(coded(ignore_stragglers(4, 0))).parameters, expected);
}

// With N copies and a share p = (N - 1) / N of stragglers, every message has weight 1 / (N (1 - p)) = 1.
TEST(CodedSgd, WithACopyEverywhereOneStochasticMessageIsTheFullSum) {
  SimulatedRun setup{.workers = 4, .momentum = 0.9, .budget = {.steps = 10}};
  const auto expected = setup.run(SyncSgd()).parameters;
  setup.delays = delays({HUGE_VAL, HUGE_VAL, 0, HUGE_VAL});
  const auto outcome = setup.run(coded(stochastic_code(4, {.copies = 4, .straggler_share = 0.75, .needed = 1})));
  expect_near(outcome.parameters, expected, 1e-5);
  EXPECT_EQ(outcome.samples, 40);
}

TEST(CodedSgd, IgnoringStragglersIsTheMeanOfTheOthers) {
  const SimulatedRun setup{.workers = 4, .rate = 0.5, .budget = {.steps = 1}, .delays = delays({0.0, 9.0, 0.1, 0.2})};
  const auto outcome = setup.run(coded(ignore_stragglers(4, 1)));
  for (std::size_t i = 0; i < 4; ++i) {
    double mean = 0;
    for (const int worker : {0, 2, 3}) mean += PullObjective::target({Rank{worker}, 0, 0}, i) / 3.0;
    EXPECT_NEAR(outcome.parameters[i], 1 - 0.5 * (1 - mean), 1e-6);
  }
  EXPECT_EQ(outcome.samples, 3);
}

TEST(CodedSgd, ADecodedStepEvaluatesEachMicroBatchOnce) {
  for (const auto& code : {fractional_repetition(6, 2), cyclic(6, 2)}) {
    auto objective = std::make_shared<PullObjective>();
    const SimulatedRun setup{.workers = 6, .micro_batches = 2, .budget = {.steps = 5}, .objective = objective};
    setup.run(coded(code));
    EXPECT_EQ(objective->evaluations, 5 * 6 * 2);
  }
}

// Every part arrives from two workers, but is evaluated only once.
TEST(CodedSgd, AStochasticStepEvaluatesEachMicroBatchOnce) {
  auto objective = std::make_shared<PullObjective>();
  const SimulatedRun setup{.workers = 6, .budget = {.steps = 5}, .objective = objective};
  const auto outcome = setup.run(
      coded(stochastic_code(6, {.copies = 2, .straggler_share = 0.1, .needed = 6, .placement = Placement::balanced})));
  EXPECT_EQ(objective->evaluations, 5 * 6);
  EXPECT_EQ(outcome.samples, 5 * 6);
  EXPECT_EQ(sum(outcome.totals.kept), 5 * 6);
  EXPECT_EQ(sum(outcome.totals.dropped), 5 * 6);  // second copies
  EXPECT_EQ(outcome.rounds.back().kept, 6);
  EXPECT_EQ(outcome.rounds.back().dropped, 6);
}

// All four messages arrive at the same time, so a step takes the first three, and the fourth comes too late. In the
// last step the fourth comes after the end. A step sends 4 models of 16 bytes, and 4 messages of 4 doubles.
TEST(CodedSgd, CyclicMessagesTakeTwiceTheBytes) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 3}};
  const auto outcome = setup.run(coded(cyclic(4, 1)));
  EXPECT_EQ(outcome.totals.bytes, Bytes{3 * 4 * 16 + (3 * 4 - 1) * 32});
  EXPECT_EQ(outcome.totals.messages, 3 * (4 + 4) - 1);
  EXPECT_EQ(setup.run(coded(fractional_repetition(4, 1))).totals.bytes, Bytes{3 * 4 * 16 + (3 * 4 - 1) * 16});
}

// A step ends with the (N - s)-th of N workers, each with s + 1 micro-batches of 1 s and one exponential delay of mean
// 0.5 s for all of them. Its mean time is s + 1 + 0.5 (1/(s+1) + ... + 1/N).
TEST(CodedSgd, CyclicStepTimesAreThoseOfTheOrderStatistic) {
  class OnceAStep : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
      for (std::size_t i = 0; i < added_s.size(); ++i)
        if (first + i == 0) added_s[i] -= 0.5 * std::log(stream.uniform(0));
    }
    double mean_s() const override { return 0; }
  };
  constexpr int workers = 10, stragglers = 2, steps = 4000;
  const SimulatedRun setup{.workers = workers,
                           .network_s = 0,
                           .budget = {.steps = steps},
                           .delays = {std::make_shared<OnceAStep>()},
                           .objective = nullptr};
  double mean_s = stragglers + 1, variance = 0;
  for (int i = stragglers + 1; i <= workers; ++i) {
    mean_s += 0.5 / i;
    variance += 0.25 / (i * i);
  }
  // With cancelled work all workers begin each step together. So steps are independent, and the tolerance is four
  // standard errors.
  const auto outcome = setup.run(coded(cyclic(workers, stragglers), LateWork::cancel));
  EXPECT_NEAR(to_seconds(outcome.totals.end) / steps, mean_s, 4 * std::sqrt(variance / steps));
  expect_exact_accounts(outcome);
}

// Timelines. Models and messages take 0.25 s. A worker has two parts of 1 s each, plus delays of each micro-batch.

TEST(CodedSgd, AFractionalStepEndsWhenEachGroupHasAnswered) {
  const SimulatedRun setup{
      .workers = 4, .network_s = 0.25, .budget = {.steps = 3}, .delays = delays({0.0, 0.5, 0.0, 2.0})};
  const auto outcome = setup.run(coded(fractional_repetition(4, 1)));
  // Workers 0 and 2 answer for their groups after 2.5 s each time. Worker 1 arrives at 3.5 s, gets the model of
  // step 1 and arrives at 7 s; worker 3 arrives at 6.5 s.
  EXPECT_EQ(outcome.log, (std::vector<std::string>{
                             "step 1 at 2.500 s: kept 4, dropped 0",
                             "step 2 at 5.000 s: kept 4, dropped 2",
                             "step 3 at 7.500 s: kept 4, dropped 4",
                         }));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{6, 0, 6, 0}));
  EXPECT_EQ(outcome.totals.accounts[1][Activity::compute], Duration{});
  expect_exact_accounts(outcome);
}

// In step 0 worker 0 needs 10 s more per micro-batch, and afterwards worker 1 does.
TEST(CodedSgd, CancelledWorkStartsAnewWithTheNextModel) {
  class Alternating : public DelayProcess {
   public:
    void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
      const bool slow = stream.worker.value == (stream.step == Step{0} ? 0 : 1);
      for (double& added : added_s) added += slow ? 10 : 0;
    }
    double mean_s() const override { return 0; }
  };
  const SimulatedRun setup{
      .workers = 2, .network_s = 0.25, .budget = {.steps = 2}, .delays = {std::make_shared<Alternating>()}};
  const auto cancelled = setup.run(coded(fractional_repetition(2, 1), LateWork::cancel));
  EXPECT_EQ(cancelled.log, (std::vector<std::string>{
                               "step 1 at 2.500 s: kept 2, dropped 0",
                               "step 2 at 5.000 s: kept 2, dropped 0",
                           }));
  expect_exact_accounts(cancelled);
  // Without cancelling, worker 0 answers at 22.5 s and needs 2.5 s for the next model. Worker 1 begins that model at
  // 2.5 s and takes 22.5 s. So both answer at 25 s.
  const auto finished = setup.run(coded(fractional_repetition(2, 1)));
  EXPECT_EQ(finished.log.back(), "step 2 at 25.000 s: kept 2, dropped 2");
  EXPECT_EQ(cancelled.parameters, finished.parameters);
}

// Each worker has one part, and answers after 1.5, 1.6, 1.7 or 1.8 s.
TEST(CodedSgd, WithAThresholdAStepTakesWhatHasCome) {
  const SimulatedRun setup{
      .workers = 4, .network_s = 0.25, .budget = {.steps = 1}, .delays = delays({0.0, 0.1, 0.2, 0.3})};
  const auto code =
      stochastic_code(4, {.copies = 1, .straggler_share = 0.5, .needed = 4, .placement = Placement::balanced});
  const auto run = [&](double threshold_s) {
    return setup.run(CodedSgd(code, LateWork::finish, from_seconds(threshold_s))).totals;
  };
  EXPECT_DOUBLE_EQ(to_seconds(run(1.65).end), 1.65);
  EXPECT_EQ(run(1.65).kept, (std::vector<std::int64_t>{1, 1, 0, 0}));
  EXPECT_DOUBLE_EQ(to_seconds(run(1.0).end), 1.5);  // a step has at least one message
  EXPECT_EQ(run(1.0).kept, (std::vector<std::int64_t>{1, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(to_seconds(run(9.0).end), 1.8);  // all messages have arrived
}

// Worker i has the parts i and i + 1 (mod 4). The first of three answers brings two parts, the others one each.
TEST(CodedSgd, CopiesOfAMicroBatchCountAsDroppedAndTheirTimeAsWork) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 3,
                           .network_s = 0.25,
                           .budget = {.steps = 2},
                           .delays = delays({0.0, 0.01, 0.02, HUGE_VAL})};
  const auto outcome = setup.run(coded(cyclic(4, 1)));
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{2 * 6, 2 * 3, 2 * 3, 0}));
  EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, 2 * 3, 2 * 3, 0}));
  EXPECT_EQ(outcome.samples, 2 * 4 * 3);
  EXPECT_EQ(outcome.rounds[1].kept, 12);
  EXPECT_EQ(outcome.rounds[1].dropped, 6);
  EXPECT_DOUBLE_EQ(to_seconds(start_time + outcome.totals.accounts[1][Activity::compute]), 2 * 6 * 1.01);
  expect_exact_accounts(outcome);
}

// Workers that leave. Data for two micro-batches are one step of two parts.

TEST(CodedSgd, AnExactCodeOutlivesAsManyLeaversAsItAllowsStragglers) {
  for (const auto& code : {fractional_repetition(4, 1), cyclic(4, 1)}) {
    SimulatedRun setup{.workers = 4, .budget = {.steps = 6}, .data_of = {Step{2}, {}, {}, {}}};
    const auto outcome = setup.run(coded(code));
    EXPECT_EQ(outcome.rounds.size(), 6u);
    EXPECT_EQ(outcome.totals.kept[0], 2);
    expect_near(outcome.parameters, setup.run(coded(fractional_repetition(4, 1))).parameters, 1e-5);
    setup.data_of[1] = Step{4};
    try {
      setup.run(coded(code));
      ADD_FAILURE() << "two workers have left";
    } catch (const RunFailure& failure) {
      EXPECT_THAT(failure.what(), HasSubstr("can no longer be decoded"));
    }
  }
}

// A worker leaves after its message, which is still part of its step; the step waits for all other workers, too.
// Messages arrive after 2, 2.5 and 4 s. The next step has two workers.
TEST(CodedSgd, TheMessageOfAWorkerThatLeavesAfterItIsInItsStep) {
  const SimulatedRun setup{.workers = 3,
                           .network_s = 0.5,
                           .budget = {.steps = 2},
                           .delays = delays({0.0, 0.5, 2.0}),
                           .data_of = {Step{1}, {}, {}}};
  const auto inexact = setup.run(coded(ignore_stragglers(3, 0)));
  EXPECT_EQ(inexact.log, (std::vector<std::string>{
                             "step 1 at 4.000 s: kept 3, dropped 0",
                             "step 2 at 8.000 s: kept 2, dropped 0",
                         }));
  // Both workers of the first group have left when the second one answers.
  const SimulatedRun in_groups{.workers = 4,
                               .network_s = 0.5,
                               .budget = {.steps = 1},
                               .delays = delays({0.0, 0.1, 2.0, 3.0}),
                               .data_of = {Step{1}, Step{1}, {}, {}}};
  EXPECT_EQ(in_groups.run(coded(fractional_repetition(4, 1))).log,
            (std::vector<std::string>{"step 1 at 7.000 s: kept 4, dropped 2"}));
}

TEST(CodedSgd, MoreLostWorkersThanTheCodeAllowsAreExplained) {
  const SimulatedRun setup{.workers = 4, .budget = {.steps = 3}, .delays = delays({HUGE_VAL, HUGE_VAL, 0, 0})};
  EXPECT_THROW(setup.run(coded(fractional_repetition(4, 1))), RunFailure);
}

TEST(CodedSgd, InexactMethodsGoOnUntilAllHaveLeft) {
  const auto stochastic =
      stochastic_code(4, {.copies = 1, .straggler_share = 0.25, .needed = 3, .placement = Placement::balanced});
  for (const auto& code : {ignore_stragglers(4, 1), stochastic}) {
    const SimulatedRun setup{.workers = 4, .budget = {.steps = 100}, .data_of = {Step{2}, Step{3}, Step{4}, Step{9}}};
    const auto outcome = setup.run(coded(code));
    // Worker 3's gradients are kept, except that the fourth message of a step is dropped.
    EXPECT_EQ(outcome.totals.kept[3] + outcome.totals.dropped[3], 9);
    EXPECT_GE(outcome.rounds.size(), 9u - 2);
    EXPECT_LT(outcome.rounds.size(), 12u);
    expect_exact_accounts(outcome);
  }
}

TEST(CodedSgd, WorkersWithoutPartsAreNotWaitedFor) {
  GradientCode code = ignore_stragglers(3, 0);
  code.parts[Rank{1}].clear();
  const SimulatedRun setup{.workers = 3, .budget = {.steps = 3}};
  const auto outcome = setup.run(coded(code));
  EXPECT_EQ(outcome.rounds.size(), 3u);
  EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{3, 0, 3}));
  expect_exact_accounts(outcome);
}

MethodReading read(const std::string& keys, int workers = 12) {
  return read_method("algorithm = \"gradient-coding\"\n" + keys, {.workers = workers});
}

TEST(CodedSgdSettings, EveryCodeIsRead) {
  for (const std::string keys :
       {"code = \"fractional\"\nstragglers = 3", "code = \"cyclic\"\nstragglers = 4\ncode_seed = 3\nlate = \"cancel\"",
        "code = \"ignore-stragglers\"\nstragglers = 0", "code = \"stochastic\"\ncopies = 2\nstragglers = 3",
        "code = \"stochastic\"\ncopies = 2\nthreshold_s = 0.1\nstraggler_share = 0.2\nplacement = \"balanced\""}) {
    const auto reading = read(keys);
    EXPECT_EQ(reading.faults, "") << keys;
    ASSERT_NE(reading.algorithm, nullptr);
    EXPECT_EQ(SimulatedRun{.workers = 12}.run(*reading.algorithm).rounds.size(), 2u);
  }
}

TEST(CodedSgdSettings, TheShareOfStragglersFollowsFromTheirNumber) {
  EXPECT_THAT(read("code = \"stochastic\"\ncopies = 2\nstragglers = 3").resolved, HasSubstr("straggler_share = 0.25"));
}

TEST(CodedSgdSettings, ACodeThatDoesNotFitTheWorkerCountIsAFault) {
  EXPECT_THAT(read("code = \"fractional\"\nstragglers = 4").faults,
              HasSubstr("stragglers = 4; stragglers + 1 must divide the number of workers, 12"));
  EXPECT_THAT(read("code = \"cyclic\"\nstragglers = 12").faults, HasSubstr("stragglers = 12; must be"));
  EXPECT_THAT(read("code = \"cyclic\"\nstragglers = 1", 600).faults, HasSubstr("at most 512 workers, found 600"));
  EXPECT_THAT(read("code = \"stochastic\"\ncopies = 13\nstragglers = 1").faults, HasSubstr("copies = 13; must be"));
  EXPECT_THAT(read("code = \"stochastic\"\ncopies = 2\nstragglers = 1\nthreshold_s = 1\nstraggler_share = 0.1").faults,
              HasSubstr("must not be given together with stragglers"));
  EXPECT_THAT(read("code = \"stochastic\"\ncopies = 2").faults, HasSubstr("stragglers"));
  EXPECT_THAT(read("code = \"ignore-stragglers\"\nstragglers = 1", 262'145).faults,
              HasSubstr("code = \"ignore-stragglers\"; allows at most 262144 workers, found 262145"));
  EXPECT_THAT(read("code = \"fountain\"\nstragglers = 1").faults, HasSubstr("code = \"fountain\""));
}

// Codes without training: their matrices, and sums of given vectors.

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::vector<Rank> members(unsigned set, int workers) {
  std::vector<Rank> result;
  for (int worker = 0; worker < workers; ++worker)
    if (set >> worker & 1) result.push_back(Rank{worker});
  return result;
}

// The first arrival of each group, as a server takes them.
std::vector<Rank> first_of_each_group(const GradientCode& code, const std::vector<Rank>& arrivals) {
  std::vector<Rank> taken;
  std::set<int> groups;
  for (const Rank worker : arrivals)
    if (groups.insert(code.group[worker]).second) taken.push_back(worker);
  return taken;
}

// Maps each part to the weight of its gradient in the decoded sum.
std::vector<double> weights_of_parts(const GradientCode& code, const std::vector<Rank>& arrived) {
  const auto a = code.decode(arrived);
  std::vector<double> result(at(code.parts.size()));
  for (std::size_t i = 0; i < arrived.size(); ++i)
    for (const auto& part : code.parts[arrived[i]]) result[at(part.number)] += a[i] * part.weight;
  return result;
}

double largest_error(const std::vector<double>& weights) {
  double error = 0;
  for (const double weight : weights) error = std::max(error, std::abs(weight - 1));
  return error;
}

TEST(GradientCode, FractionalRepetitionGivesTheFullSumForEverySetOfStragglers) {
  constexpr int workers = 12;
  for (const int stragglers : {0, 1, 2, 3, 5}) {
    const GradientCode code = fractional_repetition(workers, stragglers);
    for (unsigned lost = 0; lost < 1u << workers; ++lost) {
      if (std::popcount(lost) != stragglers) continue;
      const auto taken = first_of_each_group(code, members(~lost, workers));
      ASSERT_EQ(static_cast<int>(taken.size()), code.needed);
      ASSERT_EQ(largest_error(weights_of_parts(code, taken)), 0) << "lost " << lost;
    }
    for (const auto& parts : code.parts) EXPECT_EQ(static_cast<int>(parts.size()), stragglers + 1);
  }
}

// The error is rounding in double precision, 1e-16, times terms of at most 1e7; the sum of a part has s + 1 terms.
TEST(GradientCode, CyclicRepetitionGivesTheFullSumForEverySetOfStragglers) {
  constexpr int workers = 10;
  for (const int stragglers : {1, 2, 4, 5, 9}) {
    const auto code = cyclic_repetition(workers, stragglers, 1);
    ASSERT_TRUE(code);
    double largest_part = 0, largest_message = 0, error = 0;
    for (int worker = 0; worker < workers; ++worker) {
      const auto& parts = code->parts[Rank{worker}];
      ASSERT_EQ(static_cast<int>(parts.size()), stragglers + 1);
      EXPECT_EQ(parts.front().weight, 1);
      for (int k = 0; k <= stragglers; ++k) {
        EXPECT_EQ(parts[at(k)].number, (worker + k) % workers);
        largest_part = std::max(largest_part, std::abs(parts[at(k)].weight));
      }
    }
    int sets = 0;
    for (unsigned lost = 0; lost < 1u << workers; ++lost) {
      if (std::popcount(lost) != stragglers) continue;
      auto arrived = members(~lost, workers);
      std::rotate(arrived.begin(), arrived.begin() + sets++ % std::ssize(arrived), arrived.end());
      ASSERT_EQ(static_cast<int>(arrived.size()), code->needed);
      for (const double weight : code->decode(arrived)) largest_message = std::max(largest_message, std::abs(weight));
      error = std::max(error, largest_error(weights_of_parts(*code, arrived)));
    }
    EXPECT_LE(error, 1e-8) << "s = " << stragglers;
    EXPECT_LE(largest_part * largest_message, largest_cyclic_weight);
    std::printf("n = 10, s = %d: %d sets, max|a| max|B| = %.2g, identity error %.1e\n", stragglers, sets,
                largest_part * largest_message, error);
  }
}

TEST(GradientCode, LargerCyclicCodesDecodeRandomSetsOfStragglers) {
  struct Case {
    int workers, stragglers;
  };
  for (const auto& [workers, stragglers] : {Case{20, 5}, Case{30, 6}, Case{64, 3}, Case{100, 10}}) {
    const auto code = cyclic_repetition(workers, stragglers, 7);
    ASSERT_TRUE(code) << workers;
    double error = 0;
    for (std::uint32_t set = 0; set < 200; ++set) {
      const auto lost = draw_set(workers, stragglers, {.seed = 99}, set * 100);
      std::vector<Rank> arrived;
      for (int worker = 0; worker < workers; ++worker)
        if (std::find(lost.begin(), lost.end(), worker) == lost.end()) arrived.push_back(Rank{worker});
      error = std::max(error, largest_error(weights_of_parts(*code, arrived)));
    }
    EXPECT_LE(error, 1e-7);
    std::printf("n = %d, s = %d: identity error %.1e over 200 sets\n", workers, stragglers, error);
  }
}

TEST(GradientCode, ACyclicCodeIsDecidedByItsSeed) {
  const auto weight = [](std::uint64_t seed) { return cyclic_repetition(10, 3, seed)->parts[Rank{4}][2].weight; };
  EXPECT_EQ(weight(1), weight(1));
  EXPECT_NE(weight(1), weight(2));
}

TEST(GradientCode, IgnoredStragglersAreMadeUpForByTheOthers) {
  const GradientCode code = ignore_stragglers(5, 2);
  EXPECT_EQ(code.needed, 3);
  const auto weights = weights_of_parts(code, {Rank{4}, Rank{0}, Rank{3}});
  for (const int part : {0, 3, 4}) EXPECT_DOUBLE_EQ(weights[at(part)], 5.0 / 3);
  EXPECT_EQ(weights[1] + weights[2], 0);
}

// If workers have left, fewer messages may arrive than the code needs.
TEST(GradientCode, OfIgnoredStragglersTheMeanIsThatOfWhoeverHasCome) {
  const auto weights = weights_of_parts(ignore_stragglers(5, 2), {Rank{4}, Rank{1}});
  EXPECT_DOUBLE_EQ(weights[1], 5.0 / 2);
  EXPECT_DOUBLE_EQ(weights[4], 5.0 / 2);
}

// The number of workers that hold each part.
std::vector<int> copies(const GradientCode& code) {
  std::vector<int> count(at(code.parts.size()));
  for (const auto& parts : code.parts)
    for (const auto& part : parts) ++count[at(part.number)];
  return count;
}
int shared_workers(const GradientCode& code, int a, int b) {
  return static_cast<int>(std::count_if(code.parts.begin(), code.parts.end(), [&](const auto& parts) {
    const auto holds = [&](int p) { return std::ranges::any_of(parts, [&](const auto& x) { return x.number == p; }); };
    return holds(a) && holds(b);
  }));
}

TEST(StochasticCode, EveryPartIsWithAsManyDifferentWorkersAsItHasCopies) {
  for (const Placement placement : {Placement::independent, Placement::balanced})
    for (const int d : {1, 3, 8}) {
      const auto code = stochastic_code(8, {.copies = d, .straggler_share = 0.2, .placement = placement});
      EXPECT_EQ(copies(code), std::vector<int>(8, d));
      for (const auto& parts : code.parts)
        for (const auto& part : parts) EXPECT_DOUBLE_EQ(part.weight, 1 / (d * 0.8));
    }
}

// Offsets 0, 1, 3 (mod 7) and similar ones make every two parts share exactly one worker: the Fano plane.
TEST(StochasticCode, ABalancedPlacementFindsTheFanoPlane) {
  const auto code = stochastic_code(7, {.copies = 3, .straggler_share = 0.1, .placement = Placement::balanced});
  for (const auto& parts : code.parts) EXPECT_EQ(parts.size(), 3u);
  for (int a = 0; a < 7; ++a)
    for (int b = 0; b < a; ++b) EXPECT_EQ(shared_workers(code, a, b), 1);
}

// The mean is over all sets of stragglers with their probabilities, so the only error is rounding.
TEST(StochasticCode, TheSumIsUnbiased) {
  constexpr int workers = 9;
  constexpr double p = 0.3;
  const auto code = stochastic_code(workers, {.copies = 2, .straggler_share = p});
  std::vector<double> mean(workers);
  for (unsigned set = 0; set < 1u << workers; ++set) {
    const auto arrived = members(set, workers);
    const double probability = std::pow(1 - p, arrived.size()) * std::pow(p, workers - std::ssize(arrived));
    const auto weights = weights_of_parts(code, arrived);
    for (int part = 0; part < workers; ++part) mean[at(part)] += probability * weights[at(part)];
  }
  for (const double value : mean) EXPECT_NEAR(value, 1, 1e-12);
}

// Each part has a gradient of two numbers.
struct Gradients {
  std::vector<std::array<double, 2>> parts;
  double sum_of_squares = 0, square_of_sum = 0;

  explicit Gradients(int workers) {
    std::array<double, 2> sum{};
    for (int i = 0; i < workers; ++i) {
      parts.push_back({1 + std::sin(i), 0.5 * i - 1});
      for (const std::size_t k : {0u, 1u}) {
        sum[k] += parts.back()[k];
        sum_of_squares += parts.back()[k] * parts.back()[k];
      }
    }
    square_of_sum = sum[0] * sum[0] + sum[1] * sum[1];
  }
  // |decoded sum - full sum|^2
  double squared_error(const std::vector<double>& weights) const {
    std::array<double, 2> error{};
    for (std::size_t i = 0; i < parts.size(); ++i)
      for (const std::size_t k : {0u, 1u}) error[k] += (weights[i] - 1) * parts[i][k];
    return error[0] * error[0] + error[1] * error[1];
  }
};

// Over stragglers and independent placements, E |decoded sum - G|^2 = p / (1 - p) [(1/d - 1/n) sum |g_i|^2 + |G|^2 / n]
// for gradients g_i with sum G, n workers, d copies, and a share p of stragglers. The tolerance is four standard
// errors, estimated from 40,000 draws.
TEST(StochasticCode, TheVarianceIsTheFormulas) {
  constexpr int workers = 10, draws = 40000;
  constexpr double p = 0.2;
  const Gradients g(workers);
  for (const int d : {1, 2, 4}) {
    double sum = 0, sum_of_squares = 0;
    for (int draw = 0; draw < draws; ++draw) {
      const auto code = stochastic_code(
          workers, {.copies = d, .straggler_share = p, .seed = static_cast<std::uint64_t>(1000 + draw)});
      std::vector<Rank> arrived;
      const RandomStream stream{.seed = 77, .step = Step{draw}};
      for (int worker = 0; worker < workers; ++worker)
        if (stream.uniform(static_cast<std::uint32_t>(worker)) >= p) arrived.push_back(Rank{worker});
      const double squared = g.squared_error(weights_of_parts(code, arrived));
      sum += squared;
      sum_of_squares += squared * squared;
    }
    const double mean = sum / draws;
    const double standard_error = std::sqrt((sum_of_squares / draws - mean * mean) / draws);
    const double expected = p / (1 - p) * ((1.0 / d - 1.0 / workers) * g.sum_of_squares + g.square_of_sum / workers);
    EXPECT_NEAR(mean, expected, 4 * standard_error) << "d = " << d;
    EXPECT_LT(standard_error, 0.02 * expected);  // otherwise the test would show little
    std::printf("d = %d: variance %.3f +- %.3f, formula %.3f\n", d, mean, standard_error, expected);
  }
}

// If every two parts share l workers, the formula is p / (1 - p) [(1/d - l/d^2) sum |g_i|^2 + l/d^2 |G|^2]. The mean is
// over all sets of stragglers with their probabilities.
TEST(StochasticCode, TheVarianceOfABalancedPlacementIsItsDesigns) {
  constexpr int workers = 7;
  constexpr double p = 0.25, d = 3, l = 1;
  const Gradients g(workers);
  const auto code = stochastic_code(workers, {.copies = 3, .straggler_share = p, .placement = Placement::balanced});
  double mean = 0;
  for (unsigned set = 0; set < 1u << workers; ++set) {
    const auto arrived = members(set, workers);
    mean += std::pow(1 - p, arrived.size()) * std::pow(p, workers - std::ssize(arrived)) *
            g.squared_error(weights_of_parts(code, arrived));
  }
  const double expected = p / (1 - p) * ((1 / d - l / (d * d)) * g.sum_of_squares + l / (d * d) * g.square_of_sum);
  EXPECT_NEAR(mean, expected, 1e-9 * expected);
}

}  // namespace
}  // namespace syncopate
