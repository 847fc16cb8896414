// Effects of outages on methods: closed forms of the time, of the lost work, and of the models.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/gossip/ad_psgd.hpp"
#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/gossip/wagma_sgd.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/algorithms/three_workers.hpp"
#include "tests/workers/idx_files.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

using Plan = std::shared_ptr<const OutagePlan>;

Plan outage(int worker, double at_s, double duration_s, bool loses_state = false) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}

double seconds_of(const SimulatedRun::Outcome& outcome, int worker, Activity activity) {
  return to_seconds(outcome.totals.accounts.at(static_cast<std::size_t>(worker))[activity]);
}

TEST(OutageRuns, OneDelaysExactlyItsStepOfSynchronousSgd) {
  SimulatedRun setup{.budget = {.steps = 3}};
  const auto without = setup.run(SyncSgd());
  // A step takes 1 s of computing and 0.5 s on the network. The second step is computed from 1.5 to 2.5 s.
  setup.outages = outage(1, 2.0, 0.75);
  const auto kept = setup.run(SyncSgd());
  EXPECT_EQ(kept.log, (Log{"step 1 at 1.500 s: kept 3, dropped 0", "step 2 at 3.750 s: kept 3, dropped 0",
                           "step 3 at 5.250 s: kept 3, dropped 0"}));
  EXPECT_EQ(kept.parameters, without.parameters);
  EXPECT_EQ(seconds_of(kept, 1, Activity::down), 0.75);
  EXPECT_EQ(seconds_of(kept, 1, Activity::compute), 3);
  EXPECT_EQ(seconds_of(kept, 0, Activity::wait), 0.75);
  expect_exact_accounts(kept);

  setup.outages = outage(1, 2.0, 0.75, true);  // half a second's work is repeated
  const auto lost = setup.run(SyncSgd());
  EXPECT_EQ(lost.log.back(), "step 3 at 5.750 s: kept 3, dropped 0");
  EXPECT_EQ(lost.parameters, without.parameters);
  EXPECT_EQ(seconds_of(lost, 1, Activity::down), 0.75);
  EXPECT_EQ(seconds_of(lost, 1, Activity::discarded), 0.5);
  expect_exact_accounts(lost);
}

TEST(OutageRuns, OneThatBeginsWhileAWorkerWaitsCountsFromItsNextMicroBatch) {
  SimulatedRun setup{.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.0, 1.0})}};
  for (const bool loses_state : {false, true}) {
    // Worker 0 waits from 1 to 2 s, and the first collective ends at 2.5 s.
    setup.outages = outage(0, 1.2, 0.3, loses_state);
    const auto past = setup.run(SyncSgd());
    EXPECT_EQ(past.log.back(), "step 2 at 5.000 s: kept 3, dropped 0");
    EXPECT_EQ(seconds_of(past, 0, Activity::down), 0);
    setup.outages = outage(0, 1.8, 1.2, loses_state);
    const auto goes_on = setup.run(SyncSgd());
    EXPECT_EQ(goes_on.log.back(), "step 2 at 5.000 s: kept 3, dropped 0");  // worker 2 is slower
    EXPECT_EQ(seconds_of(goes_on, 0, Activity::down), 0.5);
    EXPECT_EQ(seconds_of(goes_on, 0, Activity::compute), 2);
    EXPECT_EQ(seconds_of(goes_on, 0, Activity::wait), 1.5);
    expect_exact_accounts(goes_on);
  }
}

TEST(OutageRuns, ADeadlineThatPassesWithinOneEndsTheStepAfterIt) {
  const auto method = read_method("algorithm = \"dropcompute\"\nthreshold_s = 2.5\n");
  const auto outcome =
      SimulatedRun{.workers = 2, .micro_batches = 3, .budget = {.steps = 1}, .outages = outage(0, 2.2, 1.0)}.run(
          *method.algorithm);
  EXPECT_EQ(outcome.log, Log{"step 1 at 3.700 s: kept 4, dropped 2"});
  EXPECT_NEAR(seconds_of(outcome, 0, Activity::discarded), 0.2, 1e-9);
  EXPECT_EQ(seconds_of(outcome, 0, Activity::down), 1);
  EXPECT_NEAR(seconds_of(outcome, 1, Activity::wait), 0.7, 1e-9);
  expect_exact_accounts(outcome);
}

// Two workers compute for 1 s, messages take 0.25 s. So worker 0's gradients arrive at 1.5, 3, 4.5, 6, ... s,
// independently of worker 1.
TEST(OutageRuns, OfAsynchronousSgdConcernsItsWorkerAlone) {
  SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 3}, .outages = outage(1, 0.5, 4)};
  // At 4.5 s worker 1 has 0.75 s left of a gradient, which arrives at 5.5 s with staleness 3; the next arrives at 7 s.
  const auto kept = setup.run(AsyncSgd({}));
  EXPECT_EQ(kept.totals.end, Time{from_seconds(7)});
  EXPECT_EQ(kept.totals.kept, (Counts{4, 2}));
  EXPECT_EQ(kept.totals.staleness, (Counts{3, 2, 0, 1}));
  EXPECT_EQ(seconds_of(kept, 1, Activity::down), 4);
  EXPECT_EQ(seconds_of(kept, 1, Activity::compute), 2);
  expect_exact_accounts(kept);

  // Worker 1 asks at 4.5 s, the server answers at 4.75 s with version 3, and the gradient arrives at 6.25 s.
  setup.outages = outage(1, 0.5, 4, true);
  const auto lost = setup.run(AsyncSgd({}));
  EXPECT_EQ(lost.totals.end, Time{from_seconds(7.5)});
  EXPECT_EQ(lost.totals.kept, (Counts{5, 1}));
  EXPECT_EQ(lost.totals.staleness, (Counts{4, 2}));
  EXPECT_EQ(lost.totals.messages, kept.totals.messages + 2);
  EXPECT_EQ(seconds_of(lost, 1, Activity::down), 4);
  EXPECT_EQ(seconds_of(lost, 1, Activity::compute), 1);
  EXPECT_EQ(seconds_of(lost, 1, Activity::discarded), 0.25 + 1);  // lost, and unfinished at the end
  expect_exact_accounts(lost);

  // The run ends during the outage, after six gradients of worker 0.
  setup.outages = outage(1, 0.5, 100);
  const auto gone = setup.run(AsyncSgd({}));
  EXPECT_EQ(gone.totals.end, Time{from_seconds(9)});
  EXPECT_EQ(gone.totals.kept, (Counts{6, 0}));
  EXPECT_EQ(seconds_of(gone, 1, Activity::down), 8.5);
  EXPECT_EQ(seconds_of(gone, 1, Activity::discarded), 0.25);
  expect_exact_accounts(gone);
}

TEST(OutageRuns, AMessageThatCancelsWaitsUntilTheWorkerIsUp) {
  // Worker 1 needs 6 s. Models arrive at 0.25 s and at 1.75 s, when it is down; the run ends at 3 s.
  const BackupWorkers method(1, {.late = LateWork::cancel});
  for (const bool loses_state : {false, true}) {
    const auto outcome = SimulatedRun{.workers = 2,
                                      .network_s = 0.25,
                                      .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 5.0})},
                                      .outages = outage(1, 1, 1.5, loses_state)}
                             .run(method);
    EXPECT_EQ(outcome.totals.end, Time{from_seconds(3)});
    EXPECT_EQ(seconds_of(outcome, 1, Activity::down), 1.5);
    EXPECT_EQ(seconds_of(outcome, 1, Activity::discarded), 0.75 + 0.5);  // cancelled work, and work until the end
    EXPECT_EQ(outcome.totals.kept, (Counts{2, 0}));
    expect_exact_accounts(outcome);
  }
}

TEST(OutageRuns, LocalSgdLosesItsLocalSteps) {
  constexpr double rate = 0.1, momentum = 0.5;
  SimulatedRun setup{.workers = 2, .momentum = momentum, .rate = rate, .budget = {.steps = 8}};
  setup.outages = outage(1, 2.5, 1, true);
  const auto outcome = setup.run(LocalSgd(make_constant_period(4), {}));
  // Two steps and a half are lost; the last two steps of the round are computed from 3.5 s on.
  EXPECT_EQ(outcome.log, (Log{"step 4 at 6.000 s: kept 6, dropped 2", "step 8 at 10.500 s: kept 8, dropped 0"}));
  EXPECT_EQ(outcome.totals.kept, (Counts{8, 6}));
  EXPECT_EQ(outcome.totals.dropped, (Counts{0, 2}));
  EXPECT_EQ(outcome.samples, 14);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::discarded), 2.5);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::compute), 6);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::down), 1);
  expect_exact_accounts(outcome);
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<double> theta(2, 1.0), velocity(2, 0.0);
    for (int step = 0; step < 8; ++step) {
      for (std::size_t k = 0; k < 2; ++k) {
        if (k == 1 && step < 2) continue;  // lost steps have no effect
        velocity[k] =
            momentum * velocity[k] + theta[k] - PullObjective::target({Rank{static_cast<int>(k)}, step, 0}, i);
        theta[k] -= rate * velocity[k];
      }
      if (step % 4 == 3) theta[0] = theta[1] = (theta[0] + theta[1]) / 2;
    }
    EXPECT_NEAR(outcome.parameters[i], theta[0], 1e-5);
  }
}

// Every method with the example of its registry row, and some methods with options that change their behaviour.
std::vector<std::string> methods() {
  std::vector<std::string> all = {
      "algorithm = \"backup-workers\"\nbackups = 1\nlate = \"cancel\"",
      "algorithm = \"backup-workers\"\nbackups = 1\nservers = 2",
      "algorithm = \"async-local-sgd\"\nlocal_steps = 3\nupdate = { name = \"buffered\", size = 2 }\ngrace_s = 0.5",
      "algorithm = \"decoupled-diloco\"\nquorum = 2\nfragments = 2\ngrace = { margin = 0.9 }\nouter = { name = "
      "\"plain\" }",
      "algorithm = \"elastic-averaging\"\nbeta = 0.8\nperiod = 2\nexchange = \"asynchronous\"",
      "algorithm = \"elastic-averaging\"\nbeta = 0.8\nperiod = 2",
      "algorithm = \"decentralized-sgd\"\ngraph = { kind = \"complete\" }",
      "algorithm = \"ad-psgd\"\noverlap_steps = 0",
      "algorithm = \"stochastic-gradient-push\"\ngraph = { kind = \"hypercube\" }",
      "algorithm = \"stochastic-gradient-push\"\noverlap_steps = 2",
      "algorithm = \"stochastic-gradient-push\"\noverlap_steps = 2\noverlap = \"released\"",
  };
  for (const AlgorithmRow& row : algorithms())
    all.push_back(fmt::format("algorithm = \"{}\"\n{}", row.name, row.example));
  return all;
}

TEST(OutageRuns, EveryMethodBooksEachWorkerSecondOnce) {
  for (const std::string& toml : methods()) {
    SCOPED_TRACE(toml);
    const auto method = read_method(toml, {.workers = 4, .micro_batches = 2, .total_steps = Step{24}});
    ASSERT_EQ(method.faults, "");
    SimulatedRun setup{.workers = 4, .micro_batches = 2, .rate = 0.01, .budget = {.steps = 24}};
    setup.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.1, 0.2, 0.3})};
    const auto without = setup.run(*method.algorithm);
    for (const bool loses_state : {false, true}) {
      setup.outages = outage(1, 1e6, 1, loses_state);
      const auto unharmed = setup.run(*method.algorithm);
      EXPECT_EQ(unharmed.log, without.log);
      EXPECT_EQ(unharmed.parameters, without.parameters);
      EXPECT_EQ(unharmed.totals.end, without.totals.end);

      setup.outages = std::make_shared<OutagePlan>(
          3, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{7, 2}, .loses_state = loses_state}});
      const auto outcome = setup.run(*method.algorithm);
      expect_exact_accounts(outcome);
      for (int worker = 0; worker < 4; ++worker) EXPECT_GT(seconds_of(outcome, worker, Activity::down), 0);
      for (const std::int64_t dropped : outcome.totals.dropped) EXPECT_GE(dropped, 0);
      EXPECT_GT(outcome.totals.end, without.totals.end);
    }
  }
}

// Alone and with a free network a worker never waits, so it is down exactly during its outages.
TEST(OutageRuns, DownIsTheOverlapOfTheOutagesWithTheRun) {
  for (const bool loses_state : {false, true}) {
    const auto plan = std::make_shared<OutagePlan>(
        3, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{5, 1}, .loses_state = loses_state},
                                    {.workers = {}, .when = RandomOutages{9, 2}, .loses_state = false}});
    const auto outcome = SimulatedRun{.workers = 1, .network_s = 0, .budget = {.steps = 200}, .outages = plan}.run(
        LocalSgd(make_constant_period(5), {}));
    WorkerOutages outages = plan->of(Rank{0});
    const Time end = outcome.totals.end;
    Duration down{};
    for (Time t{}; outages.next(t).begin < end;) {
      const Outage next = outages.next(t);
      down += std::min(next.end, end) - next.begin;
      t = next.end;
    }
    EXPECT_GT(down, from_seconds(20));
    EXPECT_EQ(outcome.totals.accounts.front()[Activity::down], down);
    if (!loses_state) {
      EXPECT_EQ(end - start_time, from_seconds(200) + down);
    }
    expect_exact_accounts(outcome);
  }
}

// Worker 1's only micro-batch does not end within the run, and is interrupted by all its outages. Its work between the
// outages is discarded at the end.
TEST(OutageRuns, AMicroBatchThatIsCutOffWithinSeveralIsDownInThemUntilTheEnd) {
  const auto of_worker_1 = [](double at_s, double duration_s) {
    return OutageEntry{.workers = {Rank{1}}, .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)}};
  };
  SimulatedRun setup{.workers = 2, .network_s = 0, .budget = {.steps = 10}};
  setup.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 1000.0})};
  setup.outages = std::make_shared<OutagePlan>(
      1, std::vector{of_worker_1(5, 1), of_worker_1(10, 2), of_worker_1(16, 30), of_worker_1(70, 5)});
  const auto outcome = setup.run(AsyncSgd({}));
  ASSERT_EQ(outcome.totals.end, start_time + from_seconds(20));  // 2 x 10 gradients, all from worker 0
  EXPECT_EQ(seconds_of(outcome, 1, Activity::down), 1 + 2 + 4);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::discarded), 20 - 7);
  EXPECT_EQ(seconds_of(outcome, 1, Activity::compute), 0);
  EXPECT_EQ(seconds_of(outcome, 0, Activity::compute), 20);
  expect_exact_accounts(outcome);
}

// A worker that loses its state also loses the method's own variables. The expected values are from iterations in
// double precision that do the same.

std::shared_ptr<const OutagePlan> one_outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}
std::shared_ptr<const OutagePlan> loss(int worker, double at_s, double duration_s) {
  return one_outage(worker, at_s, duration_s, true);
}

double pull(int worker, int step, double theta) { return theta - PullObjective::target({Rank{worker}, step, 0}, 0); }

constexpr double rate = 0.1, momentum = 0.6, alpha = 0.25;

// The centre of elastic averaging with period 2. A worker that loses its state in step `lost_step` continues from the
// centre, without velocity.
double synchronous_centre(int steps, int lost_worker, int lost_step) {
  std::vector<double> x(3, 1.0), v(3, 0.0);
  double centre = 1;
  for (int t = 0; t < steps; ++t) {
    const std::vector<double> before = x;
    const double centre_before = centre;
    const bool exchanges = t % 2 == 0;
    if (exchanges)
      for (const double theta : before) centre += alpha * (theta - centre_before);
    for (int w = 0; w < 3; ++w) {
      const auto i = static_cast<std::size_t>(w);
      const bool is_lost = w == lost_worker && t == lost_step;
      if (is_lost) v[i] = 0;
      const double start = is_lost ? centre : before[i];
      v[i] = momentum * v[i] - rate * pull(w, t, start + momentum * v[i]);
      x[i] = start + v[i];
      if (exchanges && !is_lost) x[i] -= alpha * (before[i] - centre_before);
    }
  }
  return centre;
}

// The exchanges of steps 2 and 4 end at 3 and 5.5 s; the steps of 1 s follow.
TEST(StateLoss, SynchronousElasticAveragingGoesOnFromTheCentre) {
  const ElasticAveraging method({.alpha = alpha, .period = 2, .momentum = momentum});
  SimulatedRun setup{.rate = rate, .budget = {.steps = 9}};
  struct Case {
    int step;
    double at_s;
  };
  for (const auto& [step, at_s] : {Case{3, 4.25}, Case{4, 5.75}}) {
    setup.outages = loss(1, at_s, 0.25);
    const auto outcome = setup.run(method);
    EXPECT_NEAR(outcome.parameters[0], synchronous_centre(9, 1, step), 1e-5) << step;
    EXPECT_GT(std::abs(synchronous_centre(9, 1, step) - synchronous_centre(9, -1, 0)), 1e-3);
    // A loss in step 3 also takes step 2, the first after the exchange, with it. A loss in step 4 takes only step 4.
    EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, step == 3 ? 1 : 0, 0}));
    expect_exact_accounts(outcome);
  }
}

// With messages of 0.25 s the only worker has the centre of step 2 at 3 s, and after its loss asks again at 3.75 s.
TEST(StateLoss, AsynchronousElasticAveragingGoesOnFromTheCentre) {
  const ElasticAveraging method(
      {.exchange = ElasticOptions::Exchange::asynchronous, .alpha = alpha, .period = 2, .momentum = momentum});
  const SimulatedRun setup{
      .workers = 1, .network_s = 0.25, .rate = rate, .budget = {.steps = 5}, .outages = loss(0, 3.5, 0.25)};
  double centre = 1, x = 1, v = 0;
  for (int t = 0; t < 5; ++t) {
    const double difference = t % 2 == 0 ? alpha * (x - centre) : 0;
    centre += difference;
    if (t == 2) {
      v = -rate * pull(0, t, centre);
      x = centre + v;
    } else {
      v = momentum * v - rate * pull(0, t, x + momentum * v);
      x += v - difference;
    }
  }
  const auto outcome = setup.run(method);
  EXPECT_NEAR(outcome.parameters[0], centre, 1e-5);
  expect_exact_accounts(outcome);
}

// Worker 1 loses its first two of four steps, so its model has a weight of two steps.
TEST(StateLoss, WeightsByStepsAreOfTheStepsThatAreThere) {
  const DropLocalSgd method(make_constant_period(4), {}, {.weights = ModelWeights::steps});
  const SimulatedRun setup{.workers = 2, .rate = rate, .budget = {.steps = 4}, .outages = loss(1, 2.5, 1)};
  double theta[2] = {1, 1};
  for (int t = 0; t < 4; ++t)
    for (int w = 0; w < 2; ++w)
      if (w == 0 || t >= 2) theta[w] -= rate * pull(w, t, theta[w]);
  EXPECT_NEAR(setup.run(method).parameters[0], (4 * theta[0] + 2 * theta[1]) / 6, 1e-5);
}

// Worker 1 asks for a model at 4.5 s, the server answers at 4.75 s, and the gradient arrives 1.5 s later.
TEST(StateLoss, TheAgeOfAGradientCountsFromTheModelItWasComputedAt) {
  SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 3}, .outages = loss(1, 0.5, 4)};
  const AsyncSgd method({.maximum_age = from_seconds(1.6)});
  const auto asked = setup.run(method);
  EXPECT_EQ(asked.totals.kept, (std::vector<std::int64_t>{5, 1}));
  EXPECT_EQ(asked.totals.end, Time{from_seconds(7.5)});  // as without an age limit
  // If worker 1 keeps its state, its first gradient is 5.5 s old.
  setup.outages = one_outage(1, 0.5, 4, false);
  EXPECT_EQ(setup.run(AsyncSgd({})).totals.kept, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(setup.run(method).totals.kept, (std::vector<std::int64_t>{5, 1}));
}

// A step has two micro-batches of 1 s, one of which is in time. An outage of 0.1 s begins at 2.25 s, in step 1.
struct Dropping {
  std::shared_ptr<PullObjective> objective = std::make_shared<PullObjective>();
  SimulatedRun::Outcome run(DropCompensation compensation, int steps, bool loses) const {
    const DropCompute method({.threshold = make_fixed_threshold(from_seconds(1.5)), .compensation = compensation});
    return SimulatedRun{.workers = 1,
                        .micro_batches = 2,
                        .budget = {.steps = steps},
                        .outages = loses ? loss(0, 2.25, 0.1) : nullptr,
                        .objective = objective}
        .run(method);
  }
  bool computed(int step, int micro_batch) const {
    return objective->evaluated.contains({Rank{0}, Step{step}, micro_batch});
  }
};

TEST(StateLoss, ListsOfDroppedMicroBatchesAreLost) {
  const Dropping carrying, losing;
  carrying.run(make_carry_over(3), 3, false);
  EXPECT_TRUE(carrying.computed(0, 1));
  EXPECT_TRUE(carrying.computed(1, 0));  // step 1's, computed in step 2 before its own
  EXPECT_FALSE(carrying.computed(2, 0));
  const auto lost = losing.run(make_carry_over(3), 3, true);
  EXPECT_TRUE(losing.computed(0, 1));
  EXPECT_FALSE(losing.computed(1, 0));
  EXPECT_TRUE(losing.computed(2, 0));
  EXPECT_EQ(lost.totals.dropped, std::vector<std::int64_t>{2});  // both micro-batches of step 1
  expect_exact_accounts(lost);

  const Dropping recomputing, forgetting;
  recomputing.run(make_recomputation(2), 3, false);
  EXPECT_TRUE(recomputing.computed(0, 1));
  EXPECT_TRUE(recomputing.computed(1, 1));
  forgetting.run(make_recomputation(2), 3, true);
  EXPECT_FALSE(forgetting.computed(0, 1));
  EXPECT_TRUE(forgetting.computed(1, 1));
}

// Two workers average their models. Worker 1 loses its state in step `lost`, and continues from the model that worker 0
// sent in the step before, without velocity.
double neighbours_mean(int steps, int lost) {
  double x[2] = {1, 1}, v[2] = {0, 0}, sent_before = 1;
  for (int t = 0; t < steps; ++t) {
    const double sent[2] = {x[0], x[1]};
    if (t == lost) {
      x[1] = sent_before;
      v[1] = 0;
    }
    for (int w = 0; w < 2; ++w) {
      v[w] = momentum * v[w] + pull(w, t, x[w]);
      x[w] = (x[w] + sent[1 - w]) / 2 - rate * v[w];
    }
    sent_before = sent[0];
  }
  return (x[0] + x[1]) / 2;
}

TEST(StateLoss, DecentralizedSgdGoesOnFromWhatANeighbourSentLast) {
  SimulatedRun setup{.workers = 2, .network_s = 0.25, .momentum = momentum, .rate = rate, .budget = {.steps = 6}};
  for (const int lost : {2, 3}) {
    setup.outages = loss(1, lost + 0.5, 0.25);
    const auto outcome = setup.run(DecentralizedSgd());
    EXPECT_NEAR(outcome.parameters[0], neighbours_mean(6, lost), 1e-5) << lost;
    EXPECT_GT(std::abs(neighbours_mean(6, lost) - neighbours_mean(6, -1)), 1e-3);
    EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>{6, 6}));
    expect_exact_accounts(outcome);
  }
}

// The worker has no model from a neighbour. After the second loss it continues from the first model again.
TEST(StateLoss, OneWorkerThatHasHeardOfNobodyGoesOnFromTheFirstModel) {
  SimulatedRun setup{.workers = 1, .rate = rate, .budget = {.steps = 5}};
  setup.outages = std::make_shared<OutagePlan>(
      1,
      std::vector<OutageEntry>{
          {.workers = {Rank{0}}, .when = ScheduledOutage{from_seconds(2.5), from_seconds(0.5)}, .loses_state = true},
          {.workers = {Rank{0}}, .when = ScheduledOutage{from_seconds(4.5), from_seconds(0.5)}, .loses_state = true}});
  double x = 1;  // the steps end at 1, 2, 4, 6 and 7 s
  for (const int step : {3, 4}) x -= rate * pull(0, step, x);
  EXPECT_NEAR(setup.run(DecentralizedSgd()).parameters[0], x, 1e-5);
}

// Messages take 0.1 s and overlap one step: a step's message is used after the next step. Worker 1 loses its state in
// the third step, and is 0.75 s late from then on. So at the end of a step it already has worker 0's message of the
// same step.
double pushed_mean(int steps, bool loses) {
  struct Sent {
    double z, w;
  };
  double z[2] = {1, 1}, w[2] = {1, 1};
  std::vector<Sent> sent[2];
  const auto take = [&](int worker, int exchange) {
    const auto i = static_cast<std::size_t>(worker);
    const Sent& other = sent[1 - i].at(static_cast<std::size_t>(exchange));
    z[i] = (w[i] * z[i] + other.w * other.z) / (w[i] + other.w);
    w[i] += other.w;
  };
  for (int t = 0; t < steps; ++t) {
    if (loses && t == 2) {
      z[1] = sent[0].at(0).z;
      w[1] = 1;
    }
    for (int i = 0; i < 2; ++i) {
      z[i] -= rate / w[i] * pull(i, t, z[i]);
      sent[i].push_back({z[i], w[i] /= 2});
    }
    for (int i = 0; i < 2; ++i) {
      const bool is_late = loses && i == 1 && t >= 2;
      if (t > 0 && (!is_late || t == 2)) take(i, t - 1);
      if (is_late) take(i, t);
    }
  }
  take(0, steps - 1);
  if (!loses) take(1, steps - 1);
  return (w[0] * z[0] + w[1] * z[1]) / (w[0] + w[1]);
}

TEST(StateLoss, StochasticGradientPushBeginsAnewWithAWeightOfOne) {
  SimulatedRun setup{.workers = 2, .network_s = 0.1, .rate = rate, .budget = {.steps = 6}};
  const StochasticGradientPush method({.overlap_steps = Step{1}});
  EXPECT_NEAR(setup.run(method).parameters[0], pushed_mean(6, false), 1e-5);
  setup.outages = loss(1, 2.5, 0.25);
  const auto outcome = setup.run(method);
  EXPECT_NEAR(outcome.parameters[0], pushed_mean(6, true), 1e-5);
  EXPECT_GT(std::abs(pushed_mean(6, true) - pushed_mean(6, false)), 1e-3);
  expect_exact_accounts(outcome);
}

// Steps have two micro-batches of 1 s, messages take 0.4 s. Worker 1 asks when it begins a step. Worker 0 answers after
// its first micro-batch, or after its second if worker 1 is late. Worker 1 uses the answer after its second
// micro-batch. In the third step it loses its state during that micro-batch. It continues from the second step's
// answer, which it then averages with the third step's answer.
double met_mean(int steps, int lost) {
  double x[2] = {1, 1}, answered_before = 1;
  const auto pull_of = [](int worker, int step, int index, double theta) {
    return theta - PullObjective::target({Rank{worker}, step, index}, 0);
  };
  for (int t = 0; t < steps; ++t) {
    const double base = t == lost ? answered_before : x[1];
    const double gradient[2] = {(pull_of(0, t, 0, x[0]) + pull_of(0, t, 1, x[0])) / 2,
                                (pull_of(1, t, 0, x[1]) + pull_of(1, t, 1, base)) / 2};
    const double asked = x[1], answered = x[0];
    x[0] = (answered + asked) / 2 - rate * gradient[0];
    x[1] = (base + answered) / 2 - rate * gradient[1];
    answered_before = answered;
  }
  return (x[0] + x[1]) / 2;
}

TEST(StateLoss, AsynchronousGossipGoesOnFromTheLastAnswer) {
  SimulatedRun setup{.workers = 2, .micro_batches = 2, .network_s = 0.4, .rate = rate, .budget = {.steps = 4}};
  EXPECT_NEAR(setup.run(AdPsgd()).parameters[0], met_mean(4, -1), 1e-5);
  setup.outages = loss(1, 5.5, 0.25);
  const auto outcome = setup.run(AdPsgd());
  EXPECT_NEAR(outcome.parameters[0], met_mean(4, 2), 1e-5);
  EXPECT_GT(std::abs(met_mean(4, 2) - met_mean(4, -1)), 1e-3);
  expect_exact_accounts(outcome);
}

// All workers average after each step. Worker 1 loses its state in the second step.
TEST(StateLoss, WagmaBeginsItsMomentumAnew) {
  SimulatedRun setup{.workers = 2,
                     .network_s = 0.25,
                     .momentum = momentum,
                     .rate = rate,
                     .budget = {.steps = 2},
                     .outages = loss(1, 2, 0.5)};
  double x = 0, v[2];
  for (int w = 0; w < 2; ++w) {
    v[w] = pull(w, 0, 1);
    x += (1 - rate * v[w]) / 2;
  }
  v[1] = 0;
  double mean = 0;
  for (int w = 0; w < 2; ++w) mean += (x - rate * (momentum * v[w] + pull(w, 1, x))) / 2;
  const auto outcome = setup.run(WagmaSgd({.group_size = 2, .global_every = 1}));
  EXPECT_NEAR(outcome.parameters[0], mean, 1e-5);
}

// If outages follow each other for ever in a micro-batch or while a worker waits, the run fails soon, with the reason.

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

struct Met {
  std::vector<Rank> workers{};  // hit by outages at intervals of 1 s; empty: all workers
  std::shared_ptr<const DelayProcess> delay{};
};

std::string failure_of(const std::string& method, const Met& met) {
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = met.workers, .when = RandomOutages{1, 0.1}, .loses_state = false}});
  const auto read = read_method(method);
  return message_of<RunFailure>([&] {
    SimulatedRun{.workers = 2, .budget = {.steps = 1000}, .delays = {met.delay}, .outages = plan}.run(*read.algorithm);
  });
}

// The longest of 1,000 draws from a Pareto law of shape 0.3 is about 1,000^(1 / 0.3) = 1e10 times the shortest.
TEST(EndlessOutages, OfADelayWithoutAMeanAreAFailure) {
  for (const char* method : {"algorithm = \"sync-sgd\"\n", "algorithm = \"async-sgd\"\n"})
    EXPECT_THAT(failure_of(method, {.delay = pareto_delay(0.3, 0.1)}),
                AllOf(MatchesRegex("worker [01] at .* s: it had 1000000 outages within one micro-batch.*"),
                      HasSubstr("mean_time_between_s"), HasSubstr("Pareto")))
        << method;
}

// Worker 1, which has no outages, takes 1e8 s; worker 0 waits for it.
TEST(EndlessOutages, WhileAWorkerWaitsAreAFailure) {
  EXPECT_THAT(failure_of("algorithm = \"sync-sgd\"\n",
                         {.workers = {Rank{0}}, .delay = scoped_delay(constant_delay(1e8), {.workers = {1}})}),
              AllOf(MatchesRegex("worker 0 at .* s: it had 1000000 outages .* between two.*")));
}

// A micro-batch of 1e5 s meets an outage after every 1 s of work on average, so it meets 1e5 of them.
TEST(EndlessOutages, AreMoreThanManyOfThem) {
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{1, 0.1}, .loses_state = false}});
  const auto outcome =
      SimulatedRun{.workers = 2, .budget = {.steps = 1}, .delays = {constant_delay(1e5)}, .outages = plan}.run(
          *read_method("algorithm = \"sync-sgd\"\n").algorithm);
  EXPECT_NEAR(to_seconds(outcome.totals.accounts[0][Activity::down]), 1e4, 4 * 0.1 * std::sqrt(2e5));
}

// If a micro-batch never ends because of outages, the run fails with a reason instead of restarting it for ever.

using testing::AllOf;
using testing::HasSubstr;

// Micro-batches take 1 s, and outages hit at intervals of 10 ms: on average e^100 restarts until there is none.
std::string restart_failure(const std::string& method) {
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{0.01, 0.001}, .loses_state = true}});
  const auto read = read_method(method);
  return message_of<RunFailure>([&] {
    SimulatedRun{.workers = 2, .micro_batches = 2, .budget = {.steps = 2}, .outages = plan}.run(*read.algorithm);
  });
}

TEST(EndlessRestarts, OfAMicroBatchAreAFailure) {
  for (const char* method :
       {"algorithm = \"sync-sgd\"\n", "algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 2 }\n",
        "algorithm = \"dropcompute\"\nthreshold_s = 1e9\n", "algorithm = \"eager-sgd\"\n"})
    EXPECT_THAT(restart_failure(method),
                AllOf(HasSubstr("worker 0 at "), HasSubstr(" s: micro-batch 0 of step 0 was restarted 100000 times, "),
                      HasSubstr("mean_time_between_s"), HasSubstr("\"kept\"")))
        << method;
}

TEST(EndlessRestarts, OfAServersStepAreAFailure) {
  for (const char* method :
       {"algorithm = \"async-sgd\"\n", "algorithm = \"softsync\"\n", "algorithm = \"backup-workers\"\nbackups = 1\n"})
    EXPECT_THAT(restart_failure(method),
                AllOf(HasSubstr("(2 micro-batches) was restarted 100000 times"), HasSubstr("\"kept\"")))
        << method;
}

// Restarts are counted for each micro-batch and each step: thousands of restarts in a run are no failure.
TEST(EndlessRestarts, AreThoseOfOneMicroBatchNotOfARun) {
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{0.125, 0.001}, .loses_state = true}});
  const auto outcome = SimulatedRun{.workers = 2, .micro_batches = 2, .budget = {.steps = 100}, .outages = plan}.run(
      *read_method("algorithm = \"sync-sgd\"\n").algorithm);
  EXPECT_EQ(outcome.published, Step{100});
  // A micro-batch of 1 s begins e^8 times on average until it meets no outage, and each begin takes 0.125 s on average.
  // So e^8 / 8 - 1 s are lost for each micro-batch.
  double discarded_s = 0;
  for (const Account& account : outcome.totals.accounts) discarded_s += to_seconds(account[Activity::discarded]);
  const double expected_s = 400 * (std::exp(8) / 8 - 1);
  EXPECT_NEAR(discarded_s, expected_s, 4 * expected_s / std::sqrt(400));
}

// A restarted micro-batch takes the same time D. Outages at intervals of 1 / rate interrupt it e^(rate D) - 1 times on
// average. The lost work is (e^(rate D) - 1) / rate - D in total. For D = 1 s + an exponential time of mean m, the
// mean of e^(rate D) is e^rate / (1 - rate m), and the mean of its square is e^(2 rate) / (1 - 2 rate m).
TEST(EndlessRestarts, OfRandomMicroBatchesAreAsManyAsTheirLawSays) {
  constexpr double rate = 2, mean_s = 0.1;
  constexpr int steps = 2000, micro_batches = 2 * 2 * steps;
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{1 / rate, 0.001}, .loses_state = true}});
  const auto outcome = SimulatedRun{.workers = 2,
                                    .micro_batches = 2,
                                    .budget = {.steps = steps},
                                    .delays = {exponential_delay(mean_s)},
                                    .outages = plan,
                                    .objective = nullptr}
                           .run(*read_method("algorithm = \"sync-sgd\"\n").algorithm);
  EXPECT_EQ(outcome.published, Step{steps});
  double discarded_s = 0;
  for (const Account& account : outcome.totals.accounts) discarded_s += to_seconds(account[Activity::discarded]);
  const double lost_s = (std::exp(rate) / (1 - rate * mean_s) - 1) / rate - (1 + mean_s);
  // The number of restarts has a variance below twice the mean of e^(2 rate D), and each restart loses about 1 / rate
  // at most.
  const double deviation_s = std::sqrt(2 * std::exp(2 * rate) / (1 - 2 * rate * mean_s)) / rate;
  EXPECT_NEAR(discarded_s / micro_batches, lost_s, 4 * deviation_s / std::sqrt(micro_batches));
}

// A Pareto law of shape 1.2 occasionally gives a micro-batch that never ends under these outages: it needs e^14
// restarts or more, while all before it need fewer than e^9. The drawn times show which micro-batch it is.
TEST(EndlessRestarts, OfARandomMicroBatchNameTheFirstThatIsTooLong) {
  const std::vector<std::shared_ptr<const DelayProcess>> delays = {pareto_delay(1.2, 0.1)};
  constexpr double between_s = 0.3;
  const auto plan = std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {}, .when = RandomOutages{between_s, 0.001}, .loses_state = true}});
  const SimulatedRun setup{.workers = 1,
                           .micro_batches = 2,
                           .budget = {.steps = 10'000},
                           .delays = delays,
                           .outages = plan,
                           .objective = nullptr};
  const ComputeTime compute_time(setup.seed, setup.base_s, {}, delays);
  std::string too_long;
  for (Step step = 0; too_long.empty() && step < setup.budget.steps; ++step) {
    std::vector<Duration> drawn(2);
    compute_time.durations(Rank{0}, step, 0, drawn);
    for (std::size_t m = 0; m < drawn.size() && too_long.empty(); ++m) {
      const double outages = to_seconds(drawn[m]) / between_s;
      ASSERT_TRUE(outages < 9 || outages > 14) << "another seed is needed: this micro-batch may end or not";
      if (outages > 14) too_long = fmt::format(": micro-batch {} of step {} was restarted", m, step.value());
    }
  }
  ASSERT_FALSE(too_long.empty());
  const auto read = read_method("algorithm = \"sync-sgd\"\n");
  EXPECT_THAT(message_of<RunFailure>([&] { setup.run(*read.algorithm); }), HasSubstr(too_long));
}

}  // namespace
}  // namespace syncopate
