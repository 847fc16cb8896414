// Runs in lockstep, compared with the same runs on fibers. The two implementations share durations and networks, but
// have their own clocks, accounts and order of events.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "algorithms/synchronous/drop_threshold.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/simulated/simulated_cluster.hpp"
#include "workers/time/delays.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/network.hpp"

namespace syncopate {
namespace {

using Outcome = SimulatedRun::Outcome;

std::string text_of(const RunTotals& totals) {
  std::string text = fmt::format("T {}, {} B, {} collectives, {} messages\n", totals.end.time_since_epoch().count(),
                                 totals.bytes.value(), totals.collectives, totals.messages);
  for (std::size_t i = 0; i < totals.accounts.size(); ++i) {
    text += fmt::format("worker {}: kept {}, dropped {}", i, totals.kept[i], totals.dropped[i]);
    for (const Duration time : totals.accounts[i].time) text += fmt::format(" {}", time.count());
    text += '\n';
  }
  return text;
}

std::string text_of(const Outcome& outcome) {
  std::string text;
  for (const StepRow& round : outcome.rounds)
    text += fmt::format("step {} (+{}) at {} for {}: kept {}, dropped {}, {} B\n", round.step.value(),
                        round.period.value(), round.end.time_since_epoch().count(), round.duration.count(), round.kept,
                        round.dropped, round.bytes.value());
  for (const Publication& publication : outcome.publications)
    text += fmt::format("published step {} at {}: {} samples, {} B\n", publication.step.value(),
                        publication.time.time_since_epoch().count(), publication.samples, publication.bytes.value());
  return text + text_of(outcome.totals);
}

// Runs the method on fibers and in lockstep.
void expect_equal_runs(SimulatedRun run, const Algorithm& algorithm, const std::string& what) {
  ASSERT_TRUE(algorithm.traits().lockstep_under(run.budget)) << what;
  run.objective = nullptr;
  run.in_lockstep = false;
  const std::string on_fibers = text_of(run.run(algorithm));
  run.in_lockstep = true;
  EXPECT_EQ(text_of(run.run(algorithm)), on_fibers) << what;
}

std::shared_ptr<const SyncPeriod> every(int steps) { return make_constant_period(steps); }

struct Method {
  std::string name;
  std::shared_ptr<const Algorithm> algorithm;
};

std::vector<Method> methods() {
  std::vector<Method> all = {{"sync", std::make_shared<SyncSgd>()},
                             {"H = 1", std::make_shared<LocalSgd>(every(1), StatePolicies{})},
                             {"H = 3", std::make_shared<LocalSgd>(every(3), StatePolicies{})}};
  // Thresholds in base times of a micro-batch: before the first one ends, amid them, late, and never reached.
  for (const double threshold_s : {0.5, 6.5, 16.5, 1e9}) {
    for (const Preempt preempt : {Preempt::discard, Preempt::microbatch, Preempt::backward, Preempt::layer})
      all.push_back({fmt::format("threshold {}, preempt {}", threshold_s, static_cast<int>(preempt)),
                     std::make_shared<DropCompute>(from_seconds(threshold_s), preempt, 0.4)});
  }
  all.push_back({"no threshold", std::make_shared<DropCompute>(longest_duration, Preempt::discard, 0.4)});
  const AutomaticThresholdOptions found_in_four_steps{.warmup_steps = 1, .calibration_steps = 3};
  all.push_back({"automatic", std::make_shared<DropCompute>(
                                  DropComputeOptions{.threshold = make_automatic_threshold(found_in_four_steps)})});
  all.push_back({"mean rate", std::make_shared<DropCompute>(
                                  DropComputeOptions{.threshold = make_fixed_threshold(from_seconds(15)),
                                                     .normalisation = DropComputeOptions::Normalisation::mean_rate,
                                                     .mean_drop_rate = 0.1})});
  return all;
}

std::vector<std::pair<std::string, SimulatedRun>> environments() {
  const DelayReach servers_in_bursts{.group_size = 4, .bursts = BurstLengths{2, 5}, .cluster_size = 70};
  return {
      {"alone", {.workers = 1, .micro_batches = 3, .delays = {exponential_delay(0.5)}}},
      {"more micro-batches than are drawn at once",
       {.workers = 3, .micro_batches = 70, .delays = {normal_delay(0, 0.2)}}},
      {"one micro-batch", {.workers = 33, .micro_batches = 1, .delays = {exponential_delay(2)}}},
      {"the environment of the paper",
       {.workers = 70, .micro_batches = 12, .delays = {tabulated_lognormal_delay(0.5)}}},
      {"slow workers, and servers in bursts",
       {.workers = 5,
        .micro_batches = 12,
        .worker_factors = {1, 2, 1, 1, 0.5},
        .delays = {exponential_delay(0.2), scoped_delay(exponential_delay(3), servers_in_bursts)}}},
      {"no delays: everybody at once", {.workers = 9, .micro_batches = 4}},
      {"collectives over one link",
       {.workers = 6,
        .micro_batches = 2,
        .network = make_parameter_server_network(6, {0.1, 100}),
        .delays = {exponential_delay(0.5)}}},
      {"exchanges that overlap the backward pass",
       {.workers = 6,
        .micro_batches = 3,
        .network = with_jitter(make_ring_network(0.01, 100, {.overlap = Overlap{4, 0.5}}), 0.2, 3),
        .delays = {exponential_delay(0.5)}}},
      {"a network that varies",
       {.workers = 6,
        .micro_batches = 2,
        .network = with_jitter(make_fixed_network(0.5), 0.3, 3),
        .delays = {exponential_delay(0.5)}}},
  };
}

TEST(LockstepCluster, RunsEqualThoseOnFibersToTheNanosecond) {
  for (auto& [where, run] : environments()) {
    for (const auto& [name, algorithm] : methods()) {
      run.budget = {.steps = 7};
      expect_equal_runs(run, *algorithm, where + ", " + name);
    }
  }
}

// The first four steps, on fibers, find a threshold. From the fifth step on, in lockstep, it must drop something.
TEST(LockstepCluster, AThresholdIsFoundOnFibersAndEnforcedInLockstep) {
  const AutomaticThresholdOptions found_in_four_steps{.warmup_steps = 1, .calibration_steps = 3};
  const DropCompute method(DropComputeOptions{.threshold = make_automatic_threshold(found_in_four_steps)});
  EXPECT_EQ(method.traits().lockstep_from_step, Step{4});
  SimulatedRun run{
      .workers = 40, .micro_batches = 12, .budget = {.steps = 30}, .delays = {tabulated_lognormal_delay(0.5)}};
  run.objective = nullptr;
  run.in_lockstep = true;
  const Outcome outcome = run.run(method);
  ASSERT_EQ(outcome.rounds.size(), 30u);
  std::int64_t dropped = 0;
  for (std::size_t step = 0; step < 30; ++step) dropped += outcome.rounds[step].dropped * (step < 4 ? 1000 : 1);
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, 0.3 * 26 * 40 * 12);
}

// Equal results do not show which program computed them, so the test counts programs.
TEST(LockstepCluster, OneProgramStandsForAllOnceWorkersActAlike) {
  struct Counted : Algorithm {
    explicit Counted(std::optional<Step> from) : from(from) {}
    void run(Worker& worker) const override {
      while (worker.budget_left()) {
        ++programs.at(static_cast<std::size_t>(worker.step().value()));
        Gradient sum = worker.compute_step_gradient();
        worker.all_reduce_sum(sum);
        worker.descend(sum / worker.size());
      }
    }
    Traits traits() const override { return {.lockstep_from_step = from}; }
    std::optional<Step> from;
    mutable std::vector<int> programs = std::vector<int>(6);  // number of programs that have done each step
  };
  SimulatedRun run{.workers = 5, .budget = {.steps = 6}, .delays = {exponential_delay(0.5)}};
  run.objective = nullptr;
  run.in_lockstep = true;
  const auto programs_of = [&](std::optional<Step> from) {
    const Counted method(from);
    run.run(method);
    return method.programs;
  };
  EXPECT_EQ(programs_of(std::nullopt), (std::vector<int>{5, 5, 5, 5, 5, 5}));
  EXPECT_EQ(programs_of(Step{0}), (std::vector<int>{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(programs_of(Step{2}), (std::vector<int>{5, 5, 5, 1, 1, 1}));
}

TEST(LockstepCluster, EveryKindOfBudgetEndsAtTheSameStep) {
  SimulatedRun run{.workers = 6, .micro_batches = 4, .delays = {exponential_delay(0.5)}};
  for (const auto& [name, algorithm] : methods()) {
    // These thresholds keep nothing, so budgets of samples or bytes would never end the run.
    if (name == "threshold 0.5, preempt 0" || name == "threshold 0.5, preempt 3") continue;
    run.budget = {.samples = 500};
    expect_equal_runs(run, *algorithm, name + ", samples");
    run.budget = {.bytes = Bytes{2000}};
    expect_equal_runs(run, *algorithm, name + ", bytes");
    run.budget = {.seconds = 60};
    if (algorithm->traits().lockstep_under(run.budget)) expect_equal_runs(run, *algorithm, name + ", seconds");
  }
}

std::string failure_of(SimulatedRun run, const Algorithm& algorithm, bool in_lockstep) {
  run.objective = nullptr;
  run.in_lockstep = in_lockstep;
  try {
    run.run(algorithm);
  } catch (const RunFailure& failure) {
    const std::string what = failure.what();
    const auto place = what.find("never ends (");  // the place of the call differs, so it is left out
    return place == what.npos ? what : what.substr(0, place) + what.substr(what.find(')', place));
  }
  return "none";
}

TEST(LockstepCluster, FailuresSayTheSame) {
  const DelayReach of_one{.workers = {2}};
  const SimulatedRun lost{
      .workers = 5,
      .micro_batches = 3,
      .delays = {scoped_delay(
          std::make_shared<DelayOfWorker>(std::vector<double>(5, std::numeric_limits<double>::infinity())), of_one)}};
  const SimulatedRun late{.workers = 2, .base_s = 4e9, .budget = {.steps = 100}};  // 127 years per micro-batch
  for (const auto& [name, algorithm] : methods()) {
    // With a threshold nobody waits for a lost worker.
    if (name.starts_with("threshold") || name == "mean rate") continue;
    for (const SimulatedRun& run : {lost, late}) {
      const std::string on_fibers = failure_of(run, *algorithm, false);
      EXPECT_NE(on_fibers, "none") << name;
      EXPECT_EQ(failure_of(run, *algorithm, true), on_fibers) << name;
    }
  }
}

TEST(LockstepCluster, WhatItCannotSimulateRunsOnFibers) {
  const auto network = make_fixed_network(0);
  const auto shared = make_parameter_server_network(2, {1e-3, 1e9});
  const ComputeTime compute_time(1, 1.0, {}, {});
  Executor executor(0);
  Training training(nullptr, nullptr, {}, executor);
  Training with_tensors(std::make_shared<PullObjective>(), make_sgd({}), {}, executor);
  const SimulatedOptions usual{.workers = 2, .compute_time = compute_time, .network = *network, .training = training};
  const auto is_on_fibers = [](const SimulatedOptions& options, std::optional<Step> alike_from) {
    return dynamic_cast<SimulatedCluster*>(make_simulated_cluster(options, alike_from).get()) != nullptr;
  };
  const auto is_in_lockstep = [&](const SimulatedOptions& options, bool alike) {
    return !is_on_fibers(options, alike ? std::optional(Step{0}) : std::nullopt);
  };
  EXPECT_FALSE(is_on_fibers(usual, Step{3}));
  EXPECT_TRUE(is_in_lockstep(usual, true));
  EXPECT_FALSE(is_in_lockstep(usual, false));
  RunRecord record;
  EXPECT_FALSE(is_in_lockstep(
      {.workers = 2, .compute_time = compute_time, .network = *network, .training = training, .record = &record},
      true));
  EXPECT_FALSE(is_in_lockstep(
      {.workers = 2, .servers = 1, .compute_time = compute_time, .network = *network, .training = training}, true));
  // Shared links have no effect if all workers meet at the same time.
  EXPECT_TRUE(
      is_in_lockstep({.workers = 2, .compute_time = compute_time, .network = *shared, .training = training}, true));
  EXPECT_FALSE(is_in_lockstep(
      {.workers = 2, .compute_time = compute_time, .network = *network, .training = with_tensors}, true));
}

// A method that wrongly declares that its workers act alike fails when it requests a value that differs between them.
TEST(LockstepCluster, WhatDiffersBetweenWorkersIsAnErrorToAskFor) {
  struct Gathers : Algorithm {
    void run(Worker& worker) const override {
      const double mine = worker.rank().value;
      worker.all_gather({&mine, 1}, [](std::span<const double> all) { return all.size(); });
    }
    Traits traits() const override { return {.lockstep_from_step = 0}; }
  };
  struct StartsTwo : Algorithm {
    void run(Worker& worker) const override {
      auto first = worker.start(Collective::all_reduce(worker.compute_step_gradient()));
      auto second = worker.start(Collective::all_reduce(worker.compute_step_gradient()));
      worker.finish(std::move(first));
      worker.finish(std::move(second));
    }
    Traits traits() const override { return {.lockstep_from_step = 0}; }
  };
  struct Counts : DropCompute {
    Counts()
        : DropCompute(DropComputeOptions{.threshold = make_fixed_threshold(from_seconds(1)),
                                         .normalisation = DropComputeOptions::Normalisation::computed}) {}
    Traits traits() const override { return {.lockstep_from_step = 0}; }
  };
  SimulatedRun run;
  run.objective = nullptr;
  run.in_lockstep = true;
  EXPECT_THROW(run.run(Gathers()), std::logic_error);
  EXPECT_THROW(run.run(StartsTwo()), std::logic_error);
  EXPECT_EQ(Counts().DropCompute::traits().lockstep_from_step, std::nullopt);
  EXPECT_THROW(run.run(Counts()), std::logic_error);
}

}  // namespace
}  // namespace syncopate
