#include "algorithms/quorum/stsyn.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/predicted_run.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "tests/workers/engine.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using testing::FloatNear;
using testing::Pointwise;

// The workers are equal, so all finish U steps at the same time. The notes take two messages, during which no worker
// ends another step. Then the models are sent.
TEST(Stsyn, OfAllWorkersWithEqualTimesIsLocalSgd) {
  const SimulatedRun setup{.workers = 4,
                           .micro_batches = 2,
                           .network_s = 0.25,
                           .momentum = 0.9,
                           .learning_rate = std::make_shared<LearningRate>(LearningRate::Options{
                               .shape = LearningRate::Shape::cosine, .peak = 0.2, .total_steps = Step{10}}),
                           .budget = {.steps = 10}};
  for (const auto weights : {StsynMean::Weights::equal, StsynMean::Weights::steps}) {
    const auto found = setup.run(Stsyn({.quorum = 4, .local_steps = 4, .mean = {.weights = weights}}));
    const auto expected = setup.run(LocalSgd(make_constant_period(4), {}));
    EXPECT_THAT(found.parameters, Pointwise(FloatNear(2e-5f), expected.parameters));
    EXPECT_EQ(found.totals.kept, expected.totals.kept);
    EXPECT_EQ(found.published, Step{10});
    EXPECT_EQ(found.publications.size(), 3u) << "of 4, 4 and 2 steps";
    EXPECT_EQ(found.totals.end, Time{from_seconds(10 * 2 + 3 * 4 * 0.25)});
    expect_exact_accounts(found);
  }
}

// The first parameter, in double precision, from each worker's number of steps in each round.
struct Replay {
  std::vector<std::vector<int>> rounds;
  std::map<std::pair<int, int>, int> lost = {};  // by round and worker: steps lost before the counted ones
  bool by_steps = false;
  double momentum = 0;
  int left_out = -1;

  double theta() const {
    constexpr double rate = 0.1;
    double theta = 1;
    std::vector<int> turn(rounds.front().size());
    std::vector<double> velocity(rounds.front().size());
    for (std::size_t r = 0; r < rounds.size(); ++r) {
      const std::vector<int>& steps = rounds[r];
      double sum = 0, weights = 0;
      for (std::size_t w = 0; w < steps.size(); ++w) {
        const auto gone = lost.find({static_cast<int>(r), static_cast<int>(w)});
        if (gone != lost.end()) turn[w] += gone->second;
        double x = theta;
        for (int s = 0; s < steps[w]; ++s) {
          const double gradient = x - PullObjective::target({Rank{static_cast<int>(w)}, turn[w]++, 0}, 0);
          velocity[w] = momentum * velocity[w] + gradient;
          x -= rate * velocity[w];
        }
        if (steps[w] == 0 || static_cast<int>(w) == left_out) continue;
        const double weight = by_steps ? steps[w] : 1;
        sum += weight * x;
        weights += weight;
      }
      theta = sum / weights;
    }
    return theta;
  }
};

// Models arrive at 0.25 s. Workers 0 and 1 have done two steps at 2.25 and 2.45 s. The server learns this at 2.7 s, and
// all workers learn at 2.95 s that the round has ended. Worker 2 has done a step at 2.85 s. The next models arrive at
// 3.45 s.
TEST(Stsyn, ARoundEndsWithTheKthWorkerAndTakesWhatAllHaveDone) {
  SimulatedRun setup = three_workers(3);
  setup.momentum = 0.5;
  const auto outcome = setup.run(Stsyn({.quorum = 2, .local_steps = 2}));
  EXPECT_EQ(outcome.log, (Log{"step 1 at 3.200 s: kept 5, dropped 0", "step 3 at 6.400 s: kept 5, dropped 0"}));
  EXPECT_EQ(outcome.totals.kept, (Counts{4, 4, 2}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{2, 2, 2})) << "cancelled";
  EXPECT_EQ(outcome.totals.staleness, Counts{6});
  EXPECT_EQ(outcome.totals.accounts[0][Activity::discarded], from_seconds(2 * 0.7));
  EXPECT_EQ(outcome.totals.accounts[1][Activity::discarded], from_seconds(2 * 0.5));
  EXPECT_EQ(outcome.totals.accounts[2][Activity::discarded], from_seconds(2 * 0.1));
  EXPECT_EQ(outcome.totals.messages, 2 * (3 + 2 + 3 + 3)) << "models, news of two steps, the end, differences";
  EXPECT_EQ(outcome.totals.bytes, Bytes{2 * (3 + 3) * 16});
  EXPECT_EQ(outcome.samples, 10);
  const Replay replay{.rounds = {{2, 2, 1}, {2, 2, 1}}, .momentum = 0.5};
  EXPECT_NEAR(outcome.parameters[0], replay.theta(), 1e-5);
  expect_exact_accounts(outcome);
}

TEST(Stsyn, WeighsModelsByTheirStepsAndLeavesOneOutIfToldTo) {
  const SimulatedRun setup = three_workers(3);
  const auto by_steps =
      setup.run(Stsyn({.quorum = 2, .local_steps = 2, .mean = {.weights = StsynMean::Weights::steps}}));
  const Replay weighted{.rounds = {{2, 2, 1}, {2, 2, 1}}, .by_steps = true};
  EXPECT_NEAR(by_steps.parameters[0], weighted.theta(), 1e-5);
  // The first of the two workers with the most steps is left out. Three steps in a round make one step of the budget.
  const auto without = setup.run(Stsyn({.quorum = 2, .local_steps = 2, .mean = {.leaves_out_most = true}}));
  EXPECT_EQ(without.totals.kept, (Counts{0, 7, 2}));
  // One step of the budget then remains, so rounds have one local step. Each such round uses one worker's step, and
  // three rounds complete the budget.
  EXPECT_EQ(without.log, (Log{"step 1 at 3.200 s: kept 3, dropped 2", "step 2 at 6.400 s: kept 3, dropped 2",
                              "step 3 at 12.700 s: kept 3, dropped 3"}));
  const Replay left_out{.rounds = {{2, 2, 1}, {2, 2, 1}, {1, 1, 0}, {1, 1, 0}, {1, 1, 0}}, .left_out = 0};
  EXPECT_NEAR(without.parameters[0], left_out.theta(), 1e-5);
  expect_exact_accounts(without);
}

// Worker 2 has done a step at 2.85 s, and all workers know at 3.35 s that the round has ended. Until then workers 0 and
// 1 continue or wait.
TEST(Stsyn, ACapLetsTheFastWaitForTheEnd) {
  const SimulatedRun setup = three_workers(1);
  const auto open = setup.run(Stsyn({.quorum = 3, .local_steps = 1}));
  EXPECT_EQ(open.totals.kept, (Counts{3, 2, 1}));
  const auto capped = setup.run(Stsyn({.quorum = 3, .local_steps = 1, .most_steps = Step{1}}));
  EXPECT_EQ(capped.totals.kept, (Counts{1, 1, 1}));
  EXPECT_EQ(capped.totals.dropped, (Counts{0, 0, 0})) << "nobody has anything under way";
  EXPECT_EQ(capped.totals.end, open.totals.end);
  const Replay one_each{.rounds = {{1, 1, 1}}};
  EXPECT_NEAR(capped.parameters[0], one_each.theta(), 1e-5);
  SimulatedRun two = setup;
  two.budget.steps = 2;
  const auto of_two = two.run(Stsyn({.quorum = 3, .local_steps = 2, .most_steps = Step{3}}));
  EXPECT_EQ(of_two.totals.kept, (Counts{3, 3, 2}));
  expect_exact_accounts(of_two);
}

TEST(Stsyn, StatisticsAreTheMeanOfThoseOfAllWithAStep) {
  SimulatedRun setup = three_workers(1);
  setup.objective = std::make_shared<PullWithStatistics>();
  const auto found = setup.run(Stsyn({.quorum = 2, .local_steps = 1})).buffers;
  // There are two rounds, each with one step of workers 0 and 1.
  const auto zero = PullWithStatistics::statistics_of(std::vector{MicroBatch{Rank{0}, 1, 0}});
  const auto one = PullWithStatistics::statistics_of(std::vector{MicroBatch{Rank{1}, 1, 0}});
  ASSERT_EQ(found.size(), zero.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], (zero[i] + one[i]) / 2, 1e-5);
}

// The probability that a sum of U exponential times of mean 1 is at most t.
double erlang(int steps, double t) {
  double term = std::exp(-t), above = 0;
  for (int u = 0; u < steps; term *= t / ++u) above += term;
  return 1 - above;
}

// The mean of the K-th smallest of N such sums, as the integral of the probability that fewer than K are done.
double expected_kth(int quorum, int workers, int steps) {
  const double dt = 1e-3;
  double sum = 0;
  for (double t = dt / 2; t < 60; t += dt) {
    const double p = erlang(steps, t);
    double fewer = 0, ways = 1;
    for (int k = 0; k < quorum; ways *= static_cast<double>(workers - k) / (k + 1), ++k)
      fewer += ways * std::pow(p, k) * std::pow(1 - p, workers - k);
    sum += fewer * dt;
  }
  return sum;
}

TEST(Stsyn, RoundsOfExponentialTimesAreOrderStatisticsOfTheirSums) {
  EXPECT_NEAR(expected_kth(3, 8, 1), 1.0 / 8 + 1.0 / 7 + 1.0 / 6, 1e-4)
      << "the integral itself, against its closed form";
  for (const auto& [quorum, steps] : {std::pair{1, 5}, {3, 4}, {8, 2}, {6, 10}}) {
    const SimulatedRun setup{.workers = 8,
                             .base_s = 1e-9,
                             .network_s = 0,
                             .budget = {.steps = 30'000},
                             .delays = {exponential_delay(1)},
                             .objective = nullptr};
    const auto outcome = setup.run(Stsyn({.quorum = quorum, .local_steps = steps}));
    const auto rounds = static_cast<double>(outcome.publications.size());
    const double expected_s = expected_kth(quorum, 8, steps);
    EXPECT_NEAR(to_seconds(outcome.totals.end) / rounds, expected_s, 0.03 * expected_s) << quorum << ' ' << steps;
    // Steps end like the events of a Poisson process, one per second and worker, until a stopping time.
    EXPECT_NEAR(static_cast<double>(sum(outcome.totals.kept)) / rounds, 8 * expected_s, 0.03 * 8 * expected_s);
  }
}

// With equal times a round takes U steps of 2 s for every K, and four messages: the notes about the steps, the note
// about the end, the differences, and the next model.
TEST(Stsyn, OfConstantTimesTakesItsStepsAndFourMessages) {
  const PredictedRun run{.workers = 4, .micro_batches = 2, .delays = {}, .steps = 64, .network_s = 0.125};
  EXPECT_NEAR(run.simulate(Stsyn({.quorum = 2, .local_steps = 4})).step_s, (4 * 2 + 4 * 0.125) / 4, 0.125 / 64);
}

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

// A step takes 1 s. Worker 1 has done two steps when it loses them at 2.5 s, and is up again at 3 s. Worker 0 has done
// three at 3.25 s. Both know at 3.75 s that the round has ended, when worker 1 has done none. From 4.25 s on both do
// three steps.
TEST(Stsyn, ALostStateTakesTheRoundsStepsWithIt) {
  SimulatedRun setup{
      .workers = 2, .network_s = 0.25, .momentum = 0.5, .budget = {.steps = 4}, .outages = outage(1, 2.5, 0.5, true)};
  const auto outcome = setup.run(Stsyn({.quorum = 1, .local_steps = 3}));
  EXPECT_EQ(outcome.log, (Log{"step 1 at 4.000 s: kept 3, dropped 0", "step 4 at 8.000 s: kept 6, dropped 0"}));
  EXPECT_EQ(outcome.totals.kept, (Counts{6, 3}));
  EXPECT_EQ(outcome.totals.accounts[1][Activity::discarded], from_seconds(2 + 0.25 + 0.75 + 0.5));
  EXPECT_EQ(outcome.totals.accounts[1][Activity::down], from_seconds(0.5));
  const Replay replay{.rounds = {{3, 0}, {3, 3}}, .lost = {{{0, 1}, 2}}, .momentum = 0.5};
  EXPECT_NEAR(outcome.parameters[0], replay.theta(), 1e-5);
  expect_exact_accounts(outcome);
}

// A worker that loses its state in a later round goes back to that round's first model, here of the second
// round, which begins at 4 s.
TEST(Stsyn, AStateLostInALaterRoundIsThatRounds) {
  SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 6}, .outages = outage(1, 5.5, 0.5, true)};
  const auto outcome = setup.run(Stsyn({.quorum = 1, .local_steps = 3}));
  // Rounds end at 4 and 8 s. In the second, worker 1 loses the step of 5.25 s and has done another at 7 s.
  EXPECT_EQ(outcome.totals.kept, (Counts{3 + 3 + 1, 3 + 1 + 1}));
  const Replay replay{.rounds = {{3, 3}, {3, 1}, {1, 1}}, .lost = {{{1, 1}, 1}}};
  EXPECT_NEAR(outcome.parameters[0], replay.theta(), 1e-5);
  expect_exact_accounts(outcome);
}

// Worker 2 is down from 1 to 11 s, and keeps or loses its state. The other workers wait for it only at the round's end.
// If worker 2 has done steps before, it reports them once it is up.
TEST(Stsyn, AWorkerThatIsDownAtTheEndOfARoundIsHeardOnceItIsUp) {
  for (const bool loses_state : {false, true}) {
    SimulatedRun setup = three_workers(3);
    setup.outages = outage(2, 1, 10, loses_state);
    const auto outcome = setup.run(Stsyn({.quorum = 2, .local_steps = 2}));
    EXPECT_EQ(outcome.log.front(), "step 1 at 11.250 s: kept 4, dropped 0") << loses_state;
    EXPECT_EQ(outcome.published, Step{3});
    expect_exact_accounts(outcome);
  }
}

TEST(Stsyn, WhoseDataAreUsedUpCountsAsDoneAndNobodyWaitsForWhoHasLeft) {
  SimulatedRun setup = three_workers(6);
  setup.data_of = {7, 1, std::nullopt};
  const auto outcome = setup.run(Stsyn({.quorum = 3, .local_steps = 4}));
  EXPECT_EQ(outcome.totals.kept[0], 7);
  EXPECT_EQ(outcome.totals.kept[1], 1);
  EXPECT_EQ(outcome.published, Step{6});
  expect_exact_accounts(outcome);
  setup.data_of = {3, 2, 2};
  const auto all_left = setup.run(Stsyn({.quorum = 3, .local_steps = 4}));
  EXPECT_EQ(all_left.totals.kept, (Counts{3, 2, 2}));
  expect_exact_accounts(all_left);
}

TEST(Stsyn, ABudgetOfSecondsEndsARound) {
  SimulatedRun setup = three_workers(1);
  setup.budget = {.seconds = 3};
  const auto outcome = setup.run(Stsyn({.quorum = 2, .local_steps = 1000}));
  // Workers 0 and 1 end a step after 3 s, at 3.25 and 3.55 s. The server knows at 3.8 s that the round has ended, and
  // all workers know it at 4.05 s.
  EXPECT_EQ(outcome.totals.end, Time{from_seconds(4.3)});
  EXPECT_EQ(outcome.totals.kept, (Counts{3, 3, 1}));
  expect_exact_accounts(outcome);
}

TEST(Stsyn, AMicroBatchThatNeverEndsIsCancelled) {
  SimulatedRun setup = three_workers(3);
  setup.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, std::numeric_limits<double>::infinity()})};
  const auto outcome = setup.run(Stsyn({.quorum = 2, .local_steps = 2}));
  EXPECT_EQ(outcome.published, Step{3});
  EXPECT_EQ(outcome.totals.kept[2], 0);
  expect_exact_accounts(outcome);
}

TEST(StsynSettings, WrongOnesAreFaultsWithTheirPlace) {
  const auto faults = [](const std::string& keys) { return read_method("algorithm = \"stsyn\"\n" + keys).faults; };
  EXPECT_EQ(faults("quorum = 4\nlocal_steps = 1"), "");
  EXPECT_EQ(faults("quorum = 2\nlocal_steps = 4\nmost_steps = 6\nweights = \"steps\"\nleaves_out_most = true"), "");
  EXPECT_NE(faults("local_steps = 4"), "");
  EXPECT_NE(faults("quorum = 2"), "");
  EXPECT_THAT(faults("quorum = 5\nlocal_steps = 4"),
              testing::AllOf(testing::HasSubstr("test.toml:2"), testing::HasSubstr("quorum = 5")));
  EXPECT_THAT(faults("quorum = 2\nlocal_steps = 0"),
              testing::AllOf(testing::HasSubstr("test.toml:3"), testing::HasSubstr("local_steps = 0")));
  EXPECT_THAT(faults("quorum = 2\nlocal_steps = 4\nmost_steps = 3"), testing::HasSubstr("test.toml:4"));
  EXPECT_NE(faults("quorum = 0\nlocal_steps = 4"), "");
  EXPECT_NE(faults("quorum = 2\nlocal_steps = 4\nweights = \"samples\""), "");
  EXPECT_NE(faults("quorum = 2\nlocal_steps = 4\nleaves_out_most = 1"), "");
}

// A server's step to the mean over unequal numbers of local steps, for models known in closed form.

using Counts = std::vector<std::int64_t>;
using Weights = StsynMean::Weights;

// Each worker takes its number of steps from the server's model and sends the difference; then the server steps once.
class OneMean : public Algorithm {
 public:
  OneMean(std::vector<int> steps, const StsynMean& how) : steps_(std::move(steps)), how_(how) {}

  void run(Worker& worker) const override {
    while (worker.receive_model()) {
      const ModelStatePtr start = worker.model();
      BookedTime work;
      for (int step = 0; step < steps_[static_cast<std::size_t>(worker.rank().value)]; ++step) {
        const Gradient gradient = worker.compute_step_gradient();
        worker.descend(gradient / worker.micro_batches());
        work.micro_batches += gradient.micro_batches();
        work.time += gradient.compute_time();
      }
      const ModelStatePtr difference = worker.combine({{1, start}, {-1, worker.model()}});
      worker.send(Rank{worker.size()}, Message::of_difference(worker.step(), difference, work));
    }
  }

  void serve(Server& server) const override {
    server.send_model(Receivers::all);
    std::vector<Message> brought;
    while (std::ssize(brought) < server.size())
      if (const auto message = server.receive()) brought.push_back(std::move(*message));
    std::ranges::sort(brought, {}, &Message::from);
    step_to_mean(server, std::move(brought), how_);
  }

  Traits traits() const override { return {.servers = 1, .publishes_rounds = true}; }

 private:
  std::vector<int> steps_;
  StsynMean how_;
};

// At rate 1 a step ends at its target, which is worker + 10 step in the first parameter. So after s steps worker w is
// at w + 10 (s - 1), wherever it began.
SimulatedRun::Outcome mean_of(const std::vector<int>& steps, const StsynMean& how) {
  const SimulatedRun setup{.workers = static_cast<int>(steps.size()), .rate = 1};
  return setup.run(OneMean(steps, how));
}

void expect_mean(const SimulatedRun::Outcome& outcome, double mean) {
  ASSERT_EQ(outcome.parameters.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(outcome.parameters[i], mean + static_cast<double>(i), 1e-5);
}

TEST(StsynMean, CountsAllWorkersAlikeOrByTheirSteps) {
  const auto equal = mean_of({1, 3, 3}, {});
  expect_mean(equal, (0 + 21 + 22) / 3.0);
  EXPECT_EQ(equal.totals.kept, (Counts{1, 3, 3}));
  EXPECT_EQ(equal.samples, 7);
  expect_mean(mean_of({1, 3, 3}, {.weights = Weights::steps}), (1 * 0 + 3 * 21 + 3 * 22) / 7.0);
}

TEST(StsynMean, LeavesOutTheFirstOfThoseWithMostSteps) {
  const auto equal = mean_of({1, 3, 3}, {.leaves_out_most = true});
  expect_mean(equal, (0 + 22) / 2.0);
  EXPECT_EQ(equal.totals.kept, (Counts{1, 0, 3}));
  EXPECT_EQ(equal.totals.dropped, (Counts{0, 3, 0}));
  expect_mean(mean_of({1, 3, 3}, {.weights = Weights::steps, .leaves_out_most = true}), (1 * 0 + 3 * 22) / 4.0);
}

TEST(StsynMean, OfOneWorkerIsItsModelEvenIfItHasMostSteps) { expect_mean(mean_of({3}, {.leaves_out_most = true}), 20); }

TEST(StsynMean, OfEqualStepsBothWeightsAreThePlainMean) {
  const auto equal = mean_of({2, 2, 2}, {}), by_steps = mean_of({2, 2, 2}, {.weights = Weights::steps});
  expect_mean(equal, (10 + 11 + 12) / 3.0);
  EXPECT_EQ(equal.parameters, by_steps.parameters);
}

}  // namespace
}  // namespace syncopate
