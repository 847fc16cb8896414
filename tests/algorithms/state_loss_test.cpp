// What methods keep in variables of their own is lost with a worker's state: against the iterations in double
// precision.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/gossip/ad_psgd.hpp"
#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/gossip/stochastic_gradient_push.hpp"
#include "algorithms/gossip/wagma_sgd.hpp"
#include "algorithms/local_sgd/drop_local_sgd.hpp"
#include "algorithms/local_sgd/elastic_averaging.hpp"
#include "algorithms/synchronous/drop_compensation.hpp"
#include "algorithms/synchronous/drop_compute.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

std::shared_ptr<const OutagePlan> outage(int worker, double at_s, double duration_s, bool loses_state) {
  return std::make_shared<OutagePlan>(
      1, std::vector<OutageEntry>{{.workers = {Rank{worker}},
                                   .when = ScheduledOutage{from_seconds(at_s), from_seconds(duration_s)},
                                   .loses_state = loses_state}});
}
std::shared_ptr<const OutagePlan> loss(int worker, double at_s, double duration_s) {
  return outage(worker, at_s, duration_s, true);
}

double pull(int worker, int step, double theta) { return theta - PullObjective::target({Rank{worker}, step, 0}, 0); }

constexpr double rate = 0.1, momentum = 0.6, alpha = 0.25;

// Period 2. A worker that loses its state in step `lost` goes on from the centre, without velocity.
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
    // Step 3's loss takes step 2 along, which is after the exchange; step 4's is of itself alone.
    EXPECT_EQ(outcome.totals.dropped, (std::vector<std::int64_t>{0, step == 3 ? 1 : 0, 0}));
    expect_exact_accounts(outcome);
  }
}

// One worker, messages of 0.25 s: the centre of step 2 comes at 3 s, and the worker asks for it again at 3.75 s.
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

// Worker 1 loses its first two steps of four, so that its model counts as that of two.
TEST(StateLoss, WeightsByStepsAreOfTheStepsThatAreThere) {
  const DropLocalSgd method(make_constant_period(4), {.weights = DropLocalOptions::Weights::steps});
  const SimulatedRun setup{.workers = 2, .rate = rate, .budget = {.steps = 4}, .outages = loss(1, 2.5, 1)};
  double theta[2] = {1, 1};
  for (int t = 0; t < 4; ++t)
    for (int w = 0; w < 2; ++w)
      if (w == 0 || t >= 2) theta[w] -= rate * pull(w, t, theta[w]);
  EXPECT_NEAR(setup.run(method).parameters[0], (4 * theta[0] + 2 * theta[1]) / 6, 1e-5);
}

// Worker 1 asks again at 4.5 s, the server answers at 4.75 s, and the gradient arrives 1.5 s later.
TEST(StateLoss, TheAgeOfAGradientCountsFromTheModelItWasComputedAt) {
  SimulatedRun setup{.workers = 2, .network_s = 0.25, .budget = {.steps = 3}, .outages = loss(1, 0.5, 4)};
  const AsyncSgd method({.maximum_age = from_seconds(1.6)});
  const auto asked = setup.run(method);
  EXPECT_EQ(asked.totals.kept, (std::vector<std::int64_t>{5, 1}));
  EXPECT_EQ(asked.totals.end, Time{from_seconds(7.5)});  // as without a limit
  // With its state kept, its first gradient is 5.5 s old.
  setup.outages = outage(1, 0.5, 4, false);
  EXPECT_EQ(setup.run(AsyncSgd({})).totals.kept, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(setup.run(method).totals.kept, (std::vector<std::int64_t>{5, 1}));
}

// Two micro-batches of 1 s, of which one is done before the threshold; an outage of 0.1 s in the second step, from 2 s.
struct Dropping {
  std::shared_ptr<PullObjective> objective = std::make_shared<PullObjective>();
  SimulatedRun::Outcome run(std::shared_ptr<const DropCompensation> compensation, int steps, bool loses) const {
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
  EXPECT_TRUE(carrying.computed(1, 0));  // in step 2, before its own
  EXPECT_FALSE(carrying.computed(2, 0));
  const auto lost = losing.run(make_carry_over(3), 3, true);
  EXPECT_TRUE(losing.computed(0, 1));
  EXPECT_FALSE(losing.computed(1, 0));
  EXPECT_TRUE(losing.computed(2, 0));
  EXPECT_EQ(lost.totals.dropped, std::vector<std::int64_t>{2});  // both of step 1
  expect_exact_accounts(lost);

  const Dropping recomputing, forgetting;
  recomputing.run(make_recomputation(2), 3, false);
  EXPECT_TRUE(recomputing.computed(0, 1));
  EXPECT_TRUE(recomputing.computed(1, 1));
  forgetting.run(make_recomputation(2), 3, true);
  EXPECT_FALSE(forgetting.computed(0, 1));
  EXPECT_TRUE(forgetting.computed(1, 1));
}

// Two workers halve what they have. Worker 1 loses its state in step `lost`, and goes on from what worker 0 sent in the
// step before, without velocity.
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

// A second loss before anything else has come is one of the same model.
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

// Messages of 0.1 s, one step under way: a step's message is taken after the next one. Worker 1 loses its state in the
// third step, and is 0.75 s late from then on, so that it finds worker 0's message of the step that it ends.
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

// Steps of two micro-batches of 1 s, messages of 0.4 s. Worker 1 asks as a step begins; worker 0 answers after its 1st
// or, where worker 1 is late, its second micro-batch; the answer is there after worker 1's second one, in which it has
// lost its state in the third step: it goes on from the answer of the second one, and has half of this one.
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

// A global mean after each step; worker 1 loses its state in the second.
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

}  // namespace
}  // namespace syncopate
