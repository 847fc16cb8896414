// A method whose course does not depend on the clock ends with the same model whatever micro-batches and messages take;
// of one that says it does, some delays change the result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/time/distributions.hpp"

namespace syncopate {
namespace {

const std::string every_3 = "\nperiod = { rule = \"constant\", steps = 3 }";
const std::vector<std::string> independent = {
    "sync-sgd\"",
    "random-drop\"\ndrop_rate = 0.3",
    "local-sgd\"" + every_3,
    "outer-local-sgd\"\nouter = { name = \"slowmo\", momentum = 0.5 }" + every_3,
    "hierarchical-sgd\"\ngroup_size = 2\ngroup_period = 1" + every_3,
    "branch-train-merge\"\nseed_steps = 4",
    "branch-train-merge\"\nseed_steps = 4\nmerge = \"ensemble\"",
    "dynamic-averaging\"\nthreshold = 1\ncheck_every = 2\nchecks = \"gathered\"",
    "elastic-averaging\"\nbeta = 0.8\nperiod = 2",
    "decentralized-sgd\"",
    "decentralized-sgd\"\ngraph = { kind = \"one-peer-exponential\" }",
    "stochastic-gradient-push\"",
    "stochastic-gradient-push\"\ngraph = { kind = \"complete\" }",
    "stale-sgd\"\nstaleness = 2\nspread = 1",
    "cocod-sgd\"" + every_3,
    "overlap-local-sgd\"\nmixing = 0.5\nmomentum = 0.5" + every_3,
    "co2\"" + every_3,
    "overlapped-diloco\"\nouter = { name = \"slowmo\", momentum = 0.5 }" + every_3,
    "overlapped-diloco\"\nupdate = \"delayed\"\nouter = { name = \"plain\" }" + every_3};
const std::vector<std::string> dependent = {"dropcompute\"\nthreshold_s = 1.2",
                                            "backup-workers\"\nbackups = 1",
                                            "backup-tokens\"\nbackups = 1",
                                            "backup-all-reduce\"\nbackups = 1",
                                            "eager-sgd\"\nactivation = \"solo\"",
                                            "async-sgd\"",
                                            "softsync\"\nsplitting = 2",
                                            "stale-synchronous\"\nslack = 1",
                                            "bounded-delay\"\nmaximum_delay = 2",
                                            "sliding-window\"\nmaximum_delay = 2",
                                            "async-local-sgd\"\nlocal_steps = 3\nupdate = { name = \"plain\" }",
                                            "decoupled-diloco\"\nquorum = 1\nouter = { name = \"plain\" }",
                                            "dropcompute-local-sgd\"\nthreshold_s = 4" + every_3,
                                            "elastic-averaging\"\nbeta = 0.8\nperiod = 2\nexchange = \"asynchronous\"",
                                            "gradient-coding\"\ncode = \"ignore-stragglers\"\nstragglers = 1",
                                            "stochastic-gradient-push\"\noverlap_steps = 2",
                                            "ad-psgd\"",
                                            "ad-psgd\"\noverlap_steps = 0",
                                            "stochastic-gradient-push\"\noverlap_steps = 2\noverlap = \"released\"",
                                            "dynamic-averaging\"\nthreshold = 20\ncheck_every = 2"};

// The largest difference, relative to the parameters, between runs under two laws of delays.
double difference(const Algorithm& algorithm) {
  SimulatedRun setup{.workers = 4, .budget = {.steps = 12}, .delays = {exponential_delay(1)}};
  const auto even = setup.run(algorithm);
  setup.delays = {std::make_shared<DelayOfWorker>(std::vector{3.0, 0.0, 0.2, 0.7})};
  setup.network_s = 0.05;
  const auto uneven = setup.run(algorithm);
  EXPECT_EQ(even.members.size(), uneven.members.size());
  double largest = 0;
  for (std::size_t i = 0; i < even.parameters.size(); ++i)
    largest = std::max(largest, std::abs(1.0 - uneven.parameters[i] / even.parameters[i]));
  return largest;
}

std::unique_ptr<Algorithm> method(const std::string& keys) {
  auto reading = read_method("algorithm = \"" + keys, {.workers = 4, .total_steps = Step{12}});
  EXPECT_EQ(reading.faults, "");
  return std::move(reading.algorithm);
}

TEST(DependsOnClock, IsSaidOfWhatOthersDelaysChangeAndOfNothingElse) {
  for (const std::string& keys : independent) {
    const auto algorithm = method(keys);
    EXPECT_FALSE(algorithm->traits().follows_clock) << keys;
    EXPECT_LT(difference(*algorithm), 1e-5) << keys;
  }
  for (const std::string& keys : dependent) {
    const auto algorithm = method(keys);
    EXPECT_TRUE(algorithm->traits().follows_clock) << keys;
    EXPECT_GT(difference(*algorithm), 1e-3) << keys;
  }
}

// One program may stand for all workers where none decides anything alone: not by its own clock, as with a budget of
// seconds within a round of several steps, nor by what it has dropped or computed.
TEST(WorkersActAlike, WhereNoneDecidesAnythingAlone) {
  const Budget steps{.steps = 12}, samples{.samples = 100}, bytes{.bytes = Bytes{1000}}, seconds{.seconds = 20},
      both{.steps = 12, .seconds = 20};
  const std::optional<Step> never, always = Step{0};
  const auto expect = [&](const std::string& keys, const std::optional<Step>& from,
                          const std::optional<Step>& from_with_seconds) {
    const auto algorithm = method(keys);
    for (const Budget& budget : {steps, samples, bytes})
      EXPECT_EQ(algorithm->traits().same_course_under(budget), from) << keys;
    for (const Budget& budget : {seconds, both})
      EXPECT_EQ(algorithm->traits().same_course_under(budget), from_with_seconds) << keys;
  };
  expect("sync-sgd\"", always, always);
  expect(independent[2], always, never);  // Local SGD
  expect(independent[3], always, never);  // with an outer optimizer
  const std::string drop_compute = "dropcompute\"\nthreshold_s = 1.2";
  expect(drop_compute, always, always);
  expect(drop_compute + "\nnormalisation = \"computed\"", never, never);
  expect(drop_compute + "\ncompensation = \"extra-steps\"", never, never);
  expect(drop_compute + "\ncompensation = \"larger-batch\"\nredundancy = 0.5", never, never);
  expect(drop_compute + "\ncompensation = \"recompute\"\nrecompute_every_steps = 3", never, never);
  expect(drop_compute + "\ncompensation = \"carry-over\"", never, never);
  const std::string rule = "dropcompute\"\nthreshold = { rule = ";
  expect(rule + "\"automatic\", warmup_steps = 2, calibration_steps = 3 }", Step{5}, Step{5});
  expect(rule + "\"adaptive-mad\", window_steps = 4, update_every_steps = 2 }", never, never);
  for (std::size_t i = 1; i < independent.size(); ++i)
    if (i < 2 || i > 3) expect(independent[i], never, never);
  for (std::size_t i = 1; i < dependent.size(); ++i) expect(dependent[i], never, never);
}

}  // namespace
}  // namespace syncopate
