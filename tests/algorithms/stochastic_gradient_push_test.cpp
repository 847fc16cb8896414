#include "algorithms/gossip/stochastic_gradient_push.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/kicked_workers.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

double total(const std::vector<float>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

TEST(StochasticGradientPush, OneWorkerEqualsSgdBitForBit) {
  const SimulatedRun setup{.workers = 1, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
  const auto expected = setup.run(SyncSgd()).parameters;
  EXPECT_EQ(setup.run(StochasticGradientPush()).parameters, expected);
  EXPECT_EQ(setup.run(StochasticGradientPush({.overlap_steps = 2})).parameters, expected);
}

// While workers wait for all messages every weight is 1, so mixing preserves the mean of the models.
TEST(StochasticGradientPush, WithLinearGradientsTheMeanOfTheModelsIsThatOfSynchronousSgd) {
  for (const int workers : {2, 3, 8}) {
    const SimulatedRun setup{.workers = workers, .micro_batches = 2, .momentum = 0.9, .budget = {.steps = 20}};
    const auto outcome = setup.run(StochasticGradientPush());
    const auto expected = setup.run(SyncSgd());
    for (std::size_t i = 0; i < expected.parameters.size(); ++i)
      EXPECT_NEAR(outcome.parameters[i], expected.parameters[i], 1e-5 * std::abs(expected.parameters[i]));
    EXPECT_EQ(outcome.samples, expected.samples);
    EXPECT_EQ(outcome.learning_rate, setup.rate);
  }
}

// With S the cyclic shift of 8 workers, (I + S)/2 (I + S^2)/2 (I + S^4)/2 is the mean of all eight shifts.
TEST(StochasticGradientPush, WithoutGradientsAPowerOfTwoOfWorkersAgreesAfterItsLogarithmOfSteps) {
  for (const int steps : {1, 2, 3}) {
    const int workers = 1 << steps;
    const auto run = run_kicked({.workers = workers, .budget = {.steps = steps}}, StochasticGradientPush());
    for (const auto& model : run.models)
      EXPECT_EQ(model, std::vector<float>(static_cast<std::size_t>(workers), 1.0f / static_cast<float>(workers)));
  }
}

// The distances of six workers are 1, 2, 4, 1, ... In each step a walk stays or moves on with equal probability. Worker
// j's share in worker i's model is the share of walks from j to i among all walks.
TEST(StochasticGradientPush, ModelsAreMixedAlongTheExponentialGraph) {
  constexpr int workers = 6, steps = 5;
  std::vector<double> walks = {1, 0, 0, 0, 0, 0};  // shares by distance
  for (const int distance : {1, 2, 4, 1, 2}) {
    std::vector<double> next(workers);
    for (std::size_t i = 0; i < workers; ++i) {
      next[i] += walks[i] / 2;
      next[(i + static_cast<std::size_t>(distance)) % workers] += walks[i] / 2;
    }
    walks = next;
  }
  const auto run = run_kicked({.workers = workers, .budget = {.steps = steps}}, StochasticGradientPush());
  for (std::size_t i = 0; i < workers; ++i)
    for (std::size_t j = 0; j < workers; ++j)
      EXPECT_FLOAT_EQ(run.models[i][j], static_cast<float>(walks[(i + workers - j) % workers]));
}

// Messages arrive at any time, so weights differ. But a worker's weight w is the sum of its shares of all models, so
// these shares sum to 1 in z = x / w. Over all workers no share is lost. So the published mean, the sum of all x
// divided by the sum of all w, contains every worker's model with the same weight.
TEST(StochasticGradientPush, NeitherModelsNorWeightsAreLostOnTheWay) {
  for (const int overlap : {0, 1, 4})
    for (const int workers : {5, 8}) {
      const auto run = run_kicked({.workers = workers, .budget = {.steps = 23}, .delays = {exponential_delay(2.0)}},
                                  StochasticGradientPush({.overlap_steps = overlap}));
      for (const auto& model : run.models) EXPECT_NEAR(total(model), 1, 1e-5);
      for (const float value : run.outcome.parameters) EXPECT_NEAR(value, 1.0 / workers, 1e-6);
      expect_exact_accounts(run.outcome);
    }
}

// If data end together with the budget, no worker leaves early, and the mean is over all models.
TEST(StochasticGradientPush, WorkersWhoseDataEndWithTheBudgetAreInTheMean) {
  SimulatedRun setup{.workers = 3, .budget = {.steps = 5}};
  const auto expected = setup.run(StochasticGradientPush());
  setup.data_of = {5, 5, 5};
  EXPECT_EQ(setup.run(StochasticGradientPush()).parameters, expected.parameters);
  setup.data_of = {std::nullopt, 5, std::nullopt};
  EXPECT_EQ(setup.run(StochasticGradientPush()).parameters, expected.parameters);
}

TEST(StochasticGradientPush, WithOverlapWeightsFollowTheMessages) {
  // A message is sent in every second step. Worker 0 takes 1 s per step, worker 1 takes 3 s; messages take 0.5 s.
  // Worker 0 sends 1/2 of e_0 at 1 s and 1/4 at 3 s, and then waits for worker 1's first message, which arrives at 3.5
  // s. Worker 1's second message arrives at 9.5 s, and worker 0 processes it before the end.
  const SimulatedRun setup{
      .workers = 2, .budget = {.steps = 3}, .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 2.0})}};
  const auto run = run_kicked(setup, StochasticGradientPush({.overlap_steps = 2}));
  EXPECT_EQ(run.outcome.log, (std::vector<std::string>{
                                 "step 1 at 3.000 s: kept 2, dropped 0",
                                 "step 2 at 6.000 s: kept 2, dropped 0",
                                 "step 3 at 9.000 s: kept 2, dropped 0",
                             }));
  EXPECT_EQ(run.outcome.totals.messages, 2 + 2 + 1);
  // At 3 s worker 1 sends 1/2 e_1, keeps 1/2 e_1, and has received 1/2 e_0. By 6 s it has received 1/4 e_0 more. At 9 s
  // it sends half of its model, 1/4 e_1 + 3/8 e_0. Until then worker 0 has kept 1/4 e_0 and received 1/2 e_1.
  const std::vector<float> x0 = {1.0f / 4 + 3.0f / 8, 1.0f / 2 + 1.0f / 4};
  const std::vector<float> x1 = {3.0f / 8, 1.0f / 4};
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_FLOAT_EQ(run.models[0][i], x0[i] / (x0[0] + x0[1]));
    EXPECT_FLOAT_EQ(run.models[1][i], x1[i] / (x1[0] + x1[1]));
    EXPECT_FLOAT_EQ(run.outcome.parameters[i], 0.5f);
  }
}

// In the released code's form, with equal workers and steps of 1 s, an exchange ends before the next step begins. If
// messages take longer than a step, the exchange ends at the latest `overlap` steps later.
TEST(StochasticGradientPush, AsReleasedOneMessageIsUnderWayAtATime) {
  const auto run = [](double message_s, int overlap) {
    const SimulatedRun setup{.workers = 2, .network_s = message_s, .budget = {.steps = 12}, .objective = nullptr};
    return setup.run(StochasticGradientPush({.overlap_steps = overlap, .overlap = PushOptions::Overlap::released}));
  };
  const auto sent = [](const SimulatedRun::Outcome& outcome) { return outcome.totals.messages; };
  // At the end there are one message with worker 1's model, and worker 0's farewell.
  EXPECT_EQ(sent(run(0.5, 1)), 2 * 12 + 2);
  EXPECT_EQ(run(0.5, 1).log.back(), "step 12 at 12.000 s: kept 2, dropped 0");
  EXPECT_EQ(sent(run(1.5, 1)), 2 * 12 + 2);  // each step waits half a second
  EXPECT_EQ(run(1.5, 1).log.back(), "step 12 at 17.500 s: kept 2, dropped 0");
  EXPECT_EQ(sent(run(1.5, 2)), 2 * 6 + 2);  // messages arrive after two steps
  EXPECT_EQ(run(1.5, 2).log.back(), "step 12 at 12.000 s: kept 2, dropped 0");
  EXPECT_EQ(sent(run(0.5, 5)), 2 * 12 + 2);  // messages arrive after one step
}

TEST(StochasticGradientPush, AsReleasedTheRunEndsHoweverUnlikeTheWorkersAre) {
  for (const int workers : {2, 5, 8})
    for (const int overlap : {1, 3}) {
      const SimulatedRun setup{
          .workers = workers, .budget = {.steps = 25}, .delays = {exponential_delay(2.0)}, .objective = nullptr};
      const auto outcome =
          setup.run(StochasticGradientPush({.overlap_steps = overlap, .overlap = PushOptions::Overlap::released}));
      EXPECT_EQ(outcome.totals.kept, (std::vector<std::int64_t>(static_cast<std::size_t>(workers), 25)));
      EXPECT_EQ(outcome.published, Step{25});
      expect_exact_accounts(outcome);
    }
}

TEST(StochasticGradientPush, AStepWaitsForItsMessageUnlessTheyOverlap) {
  const SimulatedRun setup{.workers = 2, .budget = {.steps = 3}};
  const auto waiting = setup.run(StochasticGradientPush());
  EXPECT_EQ(waiting.log, (std::vector<std::string>{
                             "step 1 at 1.500 s: kept 2, dropped 0",
                             "step 2 at 3.000 s: kept 2, dropped 0",
                             "step 3 at 4.500 s: kept 2, dropped 0",
                         }));
  EXPECT_EQ(to_seconds(waiting.totals.end), 5.0);
  const auto overlapping = setup.run(StochasticGradientPush({.overlap_steps = 1}));
  EXPECT_EQ(overlapping.log.back(), "step 3 at 3.000 s: kept 2, dropped 0");
  EXPECT_EQ(to_seconds(overlapping.totals.end), 4.0);  // the last message arrives at 3.5 s, then the last model
  expect_exact_accounts(overlapping);
}

// Each worker sends one model with a weight per step. At the end all workers except worker 0 send one to worker 0.
TEST(StochasticGradientPush, BytesAndMessagesAreTheFormulas) {
  const SimulatedRun setup{.workers = 6, .budget = {.steps = 7}, .objective = nullptr};
  const auto outcome = setup.run(StochasticGradientPush());
  EXPECT_EQ(outcome.totals.messages, 7 * 6 + 5);
  EXPECT_EQ(outcome.totals.bytes, Bytes{(7 * 6 + 5) * (16 + 8)});
}

TEST(StochasticGradientPush, TheOthersGoOnWithoutAWorkerThatHasLeft) {
  for (const int overlap : {0, 2})
    for (const std::size_t leaver : {0u, 3u}) {
      std::vector<std::optional<Step>> data_of(6);
      data_of[leaver] = Step{4};
      const auto run =
          run_kicked({.workers = 6, .budget = {.steps = 60}, .delays = {exponential_delay(0.5)}, .data_of = data_of},
                     StochasticGradientPush({.overlap_steps = overlap}));
      for (std::size_t worker = 0; worker < 6; ++worker) {
        EXPECT_EQ(run.outcome.totals.kept[worker], worker == leaver ? 4 : 60);
        EXPECT_NEAR(total(run.models[worker]), 1, 1e-5);
        for (std::size_t i = 0; i < 6 && worker != leaver; ++i)
          EXPECT_NEAR(run.models[worker][i], run.models[1][i], 1e-5);
      }
      EXPECT_EQ(run.outcome.published, Step{leaver == 0 ? 4 : 60});
      expect_exact_accounts(run.outcome);
    }
}

// Workers 2 and 3 of four, from which worker 0 receives, leave after 2 steps and hand their models to their receivers.
// Worker 0 then halves its weight at every second step until it is below an eighth.
TEST(StochasticGradientPush, AWorkerThatNobodySendsToEndsWithThatReason) {
  const SimulatedRun setup{.workers = 4,
                           .budget = {.steps = 60},
                           .data_of = {std::nullopt, std::nullopt, Step{2}, Step{2}},
                           .objective = nullptr};
  try {
    setup.run(StochasticGradientPush());
    FAIL() << "it came to an end";
  } catch (const RunFailure& failure) {
    EXPECT_THAT(failure.what(), testing::ContainsRegex("worker 0 has a weight of 0\\.(0[6-9]|1[0-2])[0-9]* left"));
    EXPECT_THAT(failure.what(), testing::HasSubstr("have left"));
  }
}

// With overlap a worker whose senders are late continues with its model, whose weight halves at each step.
TEST(StochasticGradientPush, LittleWeightIsNoFailureWhileNobodyHasLeft) {
  double least = 1;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const SimulatedRun setup{.workers = 16,
                             .network_s = 0.01,
                             .budget = {.steps = 400},
                             .delays = {pareto_delay(1.6, 0.2)},
                             .objective = nullptr,
                             .seed = seed,
                             .individual_models_every = Step{1}};
    const auto outcome = setup.run(StochasticGradientPush({.overlap_steps = 1}));
    EXPECT_EQ(outcome.published, Step{400});
    for (const WorkerModel& own : outcome.individual_models) least = std::min(least, own.weight);
  }
  EXPECT_LT(least, 1.0 / 16);
}

TEST(StochasticGradientPush, ABudgetOfSecondsEndsForAll) {
  for (const int overlap : {0, 1, 3})
    for (const int slow : {0, 2, 4}) {
      std::vector<double> delay_s(5);
      delay_s[static_cast<std::size_t>(slow)] = 1;
      const SimulatedRun setup{
          .workers = 5, .budget = {.seconds = 20}, .delays = {std::make_shared<DelayOfWorker>(delay_s)}};
      const auto outcome = setup.run(StochasticGradientPush({.overlap_steps = overlap}));
      EXPECT_GE(to_seconds(outcome.totals.end), 20);
      EXPECT_LE(to_seconds(outcome.totals.end), 24);
      expect_exact_accounts(outcome);
    }
}

TEST(StochasticGradientPushSettings, TheOverlapIsRead) {
  EXPECT_EQ(read_method("algorithm = \"stochastic-gradient-push\"").faults, "");
  EXPECT_EQ(read_method("algorithm = \"stochastic-gradient-push\"\noverlap_steps = 2").faults, "");
  EXPECT_THAT(read_method("algorithm = \"stochastic-gradient-push\"\noverlap_steps = -1").faults,
              testing::HasSubstr("overlap_steps = -1; must be"));
  EXPECT_EQ(read_method("algorithm = \"stochastic-gradient-push\"\noverlap_steps = 2\noverlap = \"released\"").faults,
            "");
  EXPECT_THAT(read_method("algorithm = \"stochastic-gradient-push\"\noverlap = \"released\"").faults,
              testing::HasSubstr("overlap = \"released\"; needs overlap_steps of at least 1"));
}

// Stochastic gradient push is compared with a second implementation in double precision, which stores x and w (as in
// the paper's Algorithm 1) and the times of all messages. Workers differ in speed. So with overlap messages are early
// or late, and weights differ much from 1 when gradients are computed.

using Vector = std::array<double, 4>;

// The distance of an exchange's messages: 1, 2, 4, ... in turn.
int hop(int workers, int exchange) {
  int reach = 0;  // number of powers of two below the number of workers
  while ((1 << reach) < workers) ++reach;
  return 1 << exchange % reach;
}

// x - rate g(x / w), where the gradient g is the mean over the micro-batches of a step.
Vector stepped(Vector x, double weight, double rate, const MicroBatch& first, int micro_batches) {
  for (std::size_t j = 0; j < x.size(); ++j) {
    double gradient = x[j] / weight;
    for (int m = 0; m < micro_batches; ++m)
      gradient -= PullObjective::target({first.worker, first.step, m}, j) / static_cast<double>(micro_batches);
    x[j] -= rate * gradient;
  }
  return x;
}

struct PushSum {
  int workers, micro_batches, steps, overlap;
  double rate;
  std::int64_t latency_ns;
  std::vector<std::int64_t> step_ns{};  // computing time of a step, by worker

  struct Push {
    int to, exchange;
    std::int64_t arrival_ns;
    Vector x;
    double weight;
    bool is_taken = false;
  };
  struct Peer {
    Vector x{1, 1, 1, 1};
    double weight = 1;
    int step = 0;  // the step in progress
    // End of the computing of `step`; none if the worker waits for messages, or has ended.
    std::optional<std::int64_t> computed_at_ns;
    std::int64_t began_waiting_ns = 0;
  };
  std::vector<Peer> peers{};
  std::vector<Push> pushes{};
  std::vector<std::int64_t> round_ends_ns{};
  double least_weight = 1;  // the least weight by which a gradient was divided

  void run() {
    peers.assign(static_cast<std::size_t>(workers), {});
    round_ends_ns.assign(static_cast<std::size_t>(steps), 0);
    for (int i = 0; i < workers; ++i) peers[at(i)].computed_at_ns = step_ns[at(i)];
    while (const auto next = first_to_finish()) {
      take_step(*next);
      for (int i = 0; i < workers; ++i) go_on_if_possible(i);
    }
    for (int i = 0; i < workers; ++i) absorb(i, [](const Push&) { return true; });
  }
  double parameter(int i, std::size_t j) const { return peers[at(i)].x[j] / peers[at(i)].weight; }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  std::optional<int> first_to_finish() const {
    std::optional<int> first;
    for (int i = 0; i < workers; ++i)
      if (peers[at(i)].computed_at_ns && (!first || *peers[at(i)].computed_at_ns < *peers[at(*first)].computed_at_ns))
        first = i;
    return first;
  }

  int every() const { return std::max(overlap, 1); }

  // x <- x - rate g(x / w). In every tau-th step, half of x and w goes to the receiver whose turn it is.
  void take_step(int i) {
    Peer& peer = peers[at(i)];
    const std::int64_t now_ns = *peer.computed_at_ns;
    peer.computed_at_ns.reset();
    peer.began_waiting_ns = now_ns;
    least_weight = std::min(least_weight, peer.weight);
    peer.x = stepped(peer.x, peer.weight, rate, {Rank{i}, Step{peer.step}, 0}, micro_batches);
    if (peer.step % every() == 0) {
      const int exchange = peer.step / every();
      Push push{.to = (i + hop(workers, exchange)) % workers,
                .exchange = exchange,
                .arrival_ns = now_ns + latency_ns,
                .x = {},
                .weight = peer.weight / 2};
      for (std::size_t j = 0; j < peer.x.size(); ++j) push.x[j] = peer.x[j] /= 2;
      peer.weight /= 2;
      pushes.push_back(push);
    }
    if (overlap > 0) absorb(i, [&](const Push& other) { return other.arrival_ns <= now_ns; });
  }

  // Continues once all messages for which the worker waits have been sent. With overlap, the worker waits for all
  // exchanges except the last one. Without overlap, it also waits for the last one.
  void go_on_if_possible(int i) {
    Peer& peer = peers[at(i)];
    if (peer.computed_at_ns || peer.step == steps) return;
    const int last = overlap > 0 ? peer.step / overlap - 1 : peer.step;
    int sent = 0;
    std::int64_t now_ns = peer.began_waiting_ns;
    for (const Push& push : pushes) {
      if (push.to != i || push.exchange > last) continue;
      ++sent;
      if (!push.is_taken) now_ns = std::max(now_ns, push.arrival_ns);
    }
    if (sent < last + 1) return;  // one message of each exchange
    absorb(i, [&](const Push& push) { return push.exchange <= last; });
    auto& end_ns = round_ends_ns[at(peer.step)];
    end_ns = std::max(end_ns, now_ns);
    if (++peer.step < steps) peer.computed_at_ns = now_ns + step_ns[at(i)];
  }

  template <typename Wanted>
  void absorb(int i, Wanted wanted) {
    Peer& peer = peers[at(i)];
    for (Push& push : pushes) {
      if (push.to != i || push.is_taken || !wanted(push)) continue;
      push.is_taken = true;
      for (std::size_t j = 0; j < peer.x.size(); ++j) peer.x[j] += push.x[j];
      peer.weight += push.weight;
    }
  }
};

TEST(PushSum, TrainingIsThatOfASecondImplementationWithXAndWeights) {
  const std::vector<double> delays_s = {0.0, 0.371, 1.213, 0.133, 0.719, 0.293};
  double least_weight = 1;
  for (const int workers : {2, 3, 5, 6})
    for (const int overlap : {0, 1, 2, 4}) {
      SCOPED_TRACE(testing::Message() << workers << " workers, overlap " << overlap);
      const SimulatedRun setup{.workers = workers,
                               .micro_batches = 2,
                               .network_s = 0.47,
                               .rate = 0.05,
                               .budget = {.steps = 11},
                               .delays = {std::make_shared<DelayOfWorker>(delays_s)}};
      const StochasticGradientPush method({.overlap_steps = overlap});
      const WithLastModels recorded(method, workers);
      const auto outcome = setup.run(recorded);

      PushSum expected{.workers = workers,
                       .micro_batches = 2,
                       .steps = 11,
                       .overlap = overlap,
                       .rate = setup.rate,
                       .latency_ns = 470'000'000};
      for (int i = 0; i < workers; ++i)
        expected.step_ns.push_back(std::llround(2e9 * (1 + delays_s[static_cast<std::size_t>(i)])));
      expected.run();
      least_weight = std::min(least_weight, expected.least_weight);

      for (int i = 0; i < workers; ++i)
        for (std::size_t j = 0; j < 4; ++j)
          EXPECT_NEAR(recorded.models[static_cast<std::size_t>(i)][j], expected.parameter(i, j),
                      1e-5 * std::abs(expected.parameter(i, j)))
              << "worker " << i << ", parameter " << j;
      ASSERT_EQ(outcome.rounds.size(), 11u);
      for (std::size_t step = 0; step < 11; ++step)
        EXPECT_EQ(outcome.rounds[step].end.time_since_epoch().count(), expected.round_ends_ns[step]) << step;
    }
  EXPECT_LT(least_weight, 0.5);
}

// The released code's form, with x and w. Before each gradient a worker uses the message of the exchange under way, if
// this message has arrived. Once the exchange is tau steps old, the worker waits for the message. Only after that does
// it send the next half. The class records every worker's model after `recorded` steps, while no worker has ended yet.
struct ReleasedPushSum {
  int workers, micro_batches, recorded, overlap;
  double rate;
  std::int64_t latency_ns;
  std::vector<std::int64_t> step_ns{};

  struct Push {
    std::int64_t arrival_ns;
    Vector x;
    double weight;
  };
  struct Peer {
    Vector x{1, 1, 1, 1};
    double weight = 1;
    int step = 0, exchanges = 0, begun_at = 0;
    std::int64_t ready_ns = 0;
    bool waits = false;              // for a message that has not been sent yet
    std::map<int, Push> received{};  // by exchange
  };
  std::vector<Peer> peers{};
  std::vector<Vector> models{};
  std::size_t there = 0;  // workers that have taken `recorded` steps; they continue, since others may wait for them

  void run() {
    peers.assign(step_ns.size(), {});
    models.assign(step_ns.size(), {});
    while (there < peers.size()) {
      std::size_t next = peers.size();
      for (std::size_t i = 0; i < peers.size(); ++i)
        if (!peers[i].waits && (next == peers.size() || is_before(i, next))) next = i;
      go_on(next);
    }
  }

 private:
  bool is_before(std::size_t i, std::size_t j) const { return peers[i].ready_ns < peers[j].ready_ns; }

  void go_on(std::size_t i) {
    Peer& peer = peers[i];
    if (peer.exchanges > 0) {
      const auto found = peer.received.find(peer.exchanges - 1);
      const bool is_sent = found != peer.received.end();
      if (!is_sent || found->second.arrival_ns > peer.ready_ns) {
        if (peer.step - peer.begun_at < overlap) return take_step(i);
        peer.waits = !is_sent;
        if (is_sent) peer.ready_ns = found->second.arrival_ns;
        return;
      }
      for (std::size_t j = 0; j < peer.x.size(); ++j) peer.x[j] += found->second.x[j];
      peer.weight += found->second.weight;
    }
    const auto to = (i + static_cast<std::size_t>(hop(workers, peer.exchanges))) % peers.size();
    for (double& x : peer.x) x /= 2;
    peer.weight /= 2;
    peers[to].received[peer.exchanges] = {peer.ready_ns + latency_ns, peer.x, peer.weight};
    peers[to].waits = false;
    peer.begun_at = peer.step;
    ++peer.exchanges;
    take_step(i);
  }

  void take_step(std::size_t i) {
    Peer& peer = peers[i];
    peer.x = stepped(peer.x, peer.weight, rate, {Rank{static_cast<int>(i)}, Step{peer.step}, 0}, micro_batches);
    peer.ready_ns += step_ns[i];
    if (++peer.step != recorded) return;
    for (std::size_t j = 0; j < peer.x.size(); ++j) models[i][j] = peer.x[j] / peer.weight;
    ++there;
  }
};

TEST(PushSum, AsReleasedItIsThatOfASecondImplementationToo) {
  const std::vector<double> delays_s = {0.0, 0.371, 1.213, 0.133, 0.719, 0.293};
  for (const int workers : {2, 3, 5, 6})
    for (const int overlap : {1, 2, 4})
      for (const double latency_s : {0.47, 2.9}) {
        SCOPED_TRACE(testing::Message() << workers << " workers, overlap " << overlap << ", " << latency_s << " s");
        const SimulatedRun setup{.workers = workers,
                                 .micro_batches = 2,
                                 .network_s = latency_s,
                                 .rate = 0.05,
                                 .budget = {.steps = 36},
                                 .delays = {std::make_shared<DelayOfWorker>(delays_s)},
                                 .individual_models_every = 11};
        const auto outcome =
            setup.run(StochasticGradientPush({.overlap_steps = overlap, .overlap = PushOptions::Overlap::released}));
        ReleasedPushSum expected{.workers = workers,
                                 .micro_batches = 2,
                                 .recorded = 11,
                                 .overlap = overlap,
                                 .rate = setup.rate,
                                 .latency_ns = std::llround(1e9 * latency_s)};
        for (int i = 0; i < workers; ++i)
          expected.step_ns.push_back(std::llround(2e9 * (1 + delays_s[static_cast<std::size_t>(i)])));
        expected.run();
        const auto& found = outcome.own_values.at(Step{11});
        ASSERT_EQ(std::ssize(found), workers);
        for (const auto& [worker, model] : found) {
          const Vector& other = expected.models[static_cast<std::size_t>(worker.value)];
          for (std::size_t j = 0; j < 4; ++j)
            EXPECT_NEAR(model[j], other[j], 1e-5 * std::abs(other[j])) << worker.value;
        }
      }
}

}  // namespace
}  // namespace syncopate
