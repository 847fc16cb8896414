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
#include "workers/delays/exponential.hpp"

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
    "dynamic-averaging\"\nthreshold = 1\ncheck_every = 2",
    "elastic-averaging\"\nbeta = 0.8\nperiod = 2",
    "decentralized-sgd\"",
    "stochastic-gradient-push\""};
const std::vector<std::string> dependent = {"dropcompute\"\nthreshold_s = 1.2",
                                            "backup-workers\"\nbackups = 1",
                                            "backup-tokens\"\nbackups = 1",
                                            "backup-all-reduce\"\nbackups = 1",
                                            "eager-sgd\"\nactivation = \"solo\"",
                                            "async-sgd\"",
                                            "softsync\"\nsplitting = 2",
                                            "stale-synchronous\"\nslack = 1",
                                            "bounded-delay\"\nmaximum_delay = 2",
                                            "dropcompute-local-sgd\"\nthreshold_s = 4" + every_3,
                                            "elastic-averaging\"\nbeta = 0.8\nperiod = 2\nexchange = \"asynchronous\"",
                                            "gradient-coding\"\ncode = \"ignore-stragglers\"\nstragglers = 1",
                                            "stochastic-gradient-push\"\noverlap_steps = 2"};

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
    EXPECT_FALSE(algorithm->depends_on_clock()) << keys;
    EXPECT_LT(difference(*algorithm), 1e-5) << keys;
  }
  for (const std::string& keys : dependent) {
    const auto algorithm = method(keys);
    EXPECT_TRUE(algorithm->depends_on_clock()) << keys;
    EXPECT_GT(difference(*algorithm), 1e-3) << keys;
  }
}

}  // namespace
}  // namespace syncopate
