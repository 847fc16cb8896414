// Where each family of methods clips gradients (training.clip_norm), by closed forms of small cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/asynchronous/async_sgd.hpp"
#include "algorithms/asynchronous/throttle.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/quorum/mindflayer.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/asynchronous_updates.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/three_workers.hpp"

namespace syncopate {
namespace {

constexpr int workers = 4, micro_batches = 2;
constexpr double rate = 0.3, most = 6;

// One step of four equal workers from the parameters 1. Two of the four gradients are longer than 6, and so is
// their mean.
SimulatedRun one_step() {
  return {.workers = workers, .micro_batches = micro_batches, .rate = rate, .clip_norm = most, .budget = {.steps = 1}};
}

// The mean over a worker's micro-batches of its first step.
Vector gradient_of(int worker) {
  Vector gradient{};
  for (std::size_t i = 0; i < gradient.size(); ++i)
    for (int m = 0; m < micro_batches; ++m)
      gradient[i] += (1.0 - PullObjective::target({Rank{worker}, 0, m}, i)) / micro_batches;
  return gradient;
}

enum class Clipped { mean, each };

// Where a step along the mean leads.
Vector after(Clipped what) {
  Vector mean{};
  for (int worker = 0; worker < workers; ++worker) {
    const Vector own = what == Clipped::each ? clipped(gradient_of(worker), most) : gradient_of(worker);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += own[i] / workers;
  }
  if (what == Clipped::mean) mean = clipped(mean, most);
  Vector parameters{};
  for (std::size_t i = 0; i < mean.size(); ++i) parameters[i] = 1 - rate * mean[i];
  return parameters;
}

void expect_near(const std::vector<float>& found, const Vector& expected, double tolerance = 2e-5) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance) << i;
}

struct Case {
  std::string_view toml;
  Clipped clipped;
};

// Of each the keys with which its first step takes all gradients, with equal weights that add up to one.
constexpr Case cases[] = {
    // Sums of all: what comes back.
    {"algorithm = \"sync-sgd\"", Clipped::mean},
    {"algorithm = \"dropcompute\"\nthreshold_s = 100", Clipped::mean},
    {"algorithm = \"random-drop\"\ndrop_rate = 0.3\nfrom_step = 5", Clipped::mean},
    {"algorithm = \"stale-sgd\"\nstaleness = 3", Clipped::mean},
    {"algorithm = \"backup-all-reduce\"\nbackups = 0", Clipped::mean},
    {"algorithm = \"eager-sgd\"\nactivation = \"solo\"\nsynchronous_every = 1", Clipped::mean},
    {"algorithm = \"gradient-coding\"\ncode = \"fractional\"\nstragglers = 1", Clipped::mean},
    {"algorithm = \"gradient-coding\"\ncode = \"cyclic\"\nstragglers = 1", Clipped::mean},
    {"algorithm = \"branch-train-merge\"\nseed_steps = 1", Clipped::mean},
    // Servers that take gradients: each worker's, before it is sent.
    {"algorithm = \"backup-workers\"\nbackups = 0", Clipped::each},
    {"algorithm = \"backup-workers\"\nbackups = 0\nservers = 3", Clipped::each},
    {"algorithm = \"backup-tokens\"\nbackups = 0", Clipped::each},
    {"algorithm = \"backup-timeout\"\ntimeout_s = 100", Clipped::each},
    {"algorithm = \"dynamic-backup\"", Clipped::each},
    {"algorithm = \"k-sync\"\ngradients = 4", Clipped::each},
    {"algorithm = \"k-batch-sync\"\ngradients = 4", Clipped::each},
    {"algorithm = \"mindflayer\"\nlimit_s = inf", Clipped::each},
    {"algorithm = \"mindflayer\"\nrule = \"clipping-rennala\"\ntrials = 4\nlimit_s = inf", Clipped::each},
    {"algorithm = \"async-sgd\"", Clipped::each},
    {"algorithm = \"softsync\"\nsplitting = 1", Clipped::each},
    {"algorithm = \"k-async\"\ngradients = 4", Clipped::each},
    {"algorithm = \"k-batch-async\"\ngradients = 4", Clipped::each},
    {"algorithm = \"ringmaster\"\ndelay_threshold = 100", Clipped::each},
    {"algorithm = \"throttle\"\ndivisor = 2", Clipped::each},
    {"algorithm = \"stale-synchronous\"\nslack = 1", Clipped::each},
    {"algorithm = \"bounded-delay\"\nmaximum_delay = 2", Clipped::each},
    {"algorithm = \"sliding-window\"\nmaximum_delay = 100", Clipped::each},
    // Local steps, whatever becomes of them.
    {"algorithm = \"async-local-sgd\"\nlocal_steps = 1\nupdate = { name = \"plain\", rate = 0.25 }", Clipped::each},
    {"algorithm = \"halos\"\nregions = 1\nlocal_steps = 1\nlocal_update = { name = \"plain\", rate = 0.25 }\n"
     "global_update = { name = \"plain\" }\nmerge_every = 4\nmixing = 1",
     Clipped::each},
    {"algorithm = \"stsyn\"\nquorum = 4\nlocal_steps = 1", Clipped::each},
    {"algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 1 }", Clipped::each},
    {"algorithm = \"hierarchical-sgd\"\ngroup_size = 2\ngroup_period = 1\nperiod = { rule = \"constant\", steps = 1 }",
     Clipped::each},
    {"algorithm = \"outer-local-sgd\"\nperiod = { rule = \"constant\", steps = 1 }\nouter = { name = \"diloco\", "
     "rate = 1, momentum = 0 }",
     Clipped::each},
    {"algorithm = \"des-loc\"\nperiod = 1", Clipped::each},
    {"algorithm = \"decentralized-sgd\"", Clipped::each},
    {"algorithm = \"stochastic-gradient-push\"", Clipped::each},
    {"algorithm = \"ad-psgd\"", Clipped::each},
    {"algorithm = \"wagma-sgd\"\ngroup_size = 2", Clipped::each},
};

TEST(Clipping, ActsWhereTheFamilySays) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.toml);
    const MethodReading reading =
        read_method(std::string(c.toml), {.workers = workers, .micro_batches = micro_batches, .total_steps = Step{1}});
    ASSERT_EQ(reading.faults, "");
    expect_near(one_step().run(*reading.algorithm).parameters, after(c.clipped));
  }
}

TEST(Clipping, TellsTheTwoApart) {
  const Vector mean = after(Clipped::mean), each = after(Clipped::each);
  for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_GT(std::abs(mean[i] - each[i]), 1e-3);
}

TEST(Clipping, OfEveryMethodThatSendsGradientsIsKnown) {
  for (const AlgorithmRow& row : algorithms()) {
    const MethodReading reading =
        read_method("algorithm = \"" + std::string(row.name) + "\"\n" + std::string(row.example),
                    {.workers = workers, .total_steps = Step{12}});
    ASSERT_EQ(reading.faults, "");
    if (!reading.algorithm->traits().sends_gradients || row.name == "decoupled-diloco") continue;  // local steps
    const std::string begin = "algorithm = \"" + std::string(row.name) + "\"";
    EXPECT_TRUE(std::ranges::any_of(cases, [&](const Case& c) { return c.toml.starts_with(begin); })) << row.name;
  }
}

// A weight, a share or a correction that came before the clipping would be undone by it.
TEST(Clipping, LeavesWeightsOfStaleGradientsAsTheyAre) {
  SimulatedRun setup = three_workers(3);
  setup.rate = rate;
  setup.clip_norm = 2;  // less than every gradient of the timeline
  const auto outcome = setup.run(AsyncSgd({.rate = {StalenessWeight::inverse_plus_one, RateScaling::none}}));
  expect_near(outcome.parameters,
              after_updates(
                  PlainSgd{rate}, [](const AsynchronousUpdate&, double tau) { return 1 / (1 + tau); }, 2));
}

TEST(Clipping, LeavesSharesOfRepeatsAsTheyAre) {
  SimulatedRun setup = three_workers(3);
  setup.rate = rate;
  setup.clip_norm = 2;
  for (const double divisor : {2.0, 1000.0}) {
    const auto outcome = setup.run(Throttle({.divisor = divisor}));
    expect_near(
        outcome.parameters,
        after_updates(
            PlainSgd{rate / 3},
            [&](const AsynchronousUpdate& update, double) { return update.repeats == 0 ? 1 : 1 / divisor; }, 2));
  }
}

TEST(Clipping, LeavesACorrectionAsItIs) {
  const double distance = std::abs(1 - after(Clipped::each)[0]);
  for (const double correction : {1.0, 3.0}) {
    const auto outcome = one_step().run(ClippingRennala({.trials = workers, .correction = correction}));
    EXPECT_NEAR(std::abs(1.0 - outcome.parameters[0]), correction * distance, 1e-4);
  }
}

TEST(Clipping, OfAGradientThatIsShortEnoughChangesNothing) {
  SimulatedRun setup = three_workers(5);
  setup.micro_batches = 2;
  setup.momentum = 0.9;
  const auto without = setup.run(AsyncSgd({}));
  setup.clip_norm = 1e6;
  const auto with = setup.run(AsyncSgd({}));
  EXPECT_EQ(with.parameters, without.parameters);
  EXPECT_EQ(with.log, without.log);
}

// Each worker has the whole gradient, and so its norm, however many servers have a slice of the model.
TEST(Clipping, DoesNotDependOnHowManyServersShareTheModel) {
  SimulatedRun setup{.micro_batches = 2, .momentum = 0.9, .clip_norm = 2, .budget = {.steps = 8}};
  const auto expected = setup.run(BackupWorkers(3)).parameters;
  for (const int servers : {2, 3, 4}) EXPECT_EQ(setup.run(BackupWorkers(3, {.servers = servers})).parameters, expected);
}

}  // namespace
}  // namespace syncopate
