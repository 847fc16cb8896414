// What ends, begins, or ends its forward pass exactly at a deadline. The sources are strict in different ways
// (workers/time/compute_time.hpp): Algorithm 1 keeps what ends before the deadline, the reference codes stop what is
// past it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "algorithms/synchronous/drop_compute.hpp"
#include "tests/algorithms/exact_accounts.hpp"
#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t second = 1'000'000'000;

// Micro-batches of a second, three in a step. What one worker does within a threshold.
struct Case {
  Preempt preempt;
  std::int64_t threshold_ns;
  int kept;
  std::int64_t stops_ns;      // of its work in the step
  std::int64_t discarded_ns;  // of that
};

// The forward pass is the first half.
const std::vector<Case> cases = {
    // The second ends a nanosecond before the deadline, at it, and a nanosecond after it.
    {Preempt::discard, 2 * second + 1, 2, 2 * second + 1, 1},
    {Preempt::discard, 2 * second, 1, 2 * second, second},
    {Preempt::discard, 2 * second - 1, 1, 2 * second - 1, second - 1},
    // The same: layer keeps what ends at it.
    {Preempt::layer, 2 * second + 1, 2, 2 * second + 1, 1},
    {Preempt::layer, 2 * second, 2, 2 * second, 0},
    {Preempt::layer, 2 * second - 1, 1, 2 * second - 1, second - 1},
    // The third begins before, at, and after it.
    {Preempt::microbatch, 2 * second + 1, 3, 3 * second, 0},
    {Preempt::microbatch, 2 * second, 3, 3 * second, 0},
    {Preempt::microbatch, 2 * second - 1, 2, 2 * second, 0},
    // The same, if its forward pass is going to end too late.
    {Preempt::backward, 2 * second + 1, 2, 2 * second + second / 2, second / 2},
    {Preempt::backward, 2 * second, 2, 2 * second + second / 2, second / 2},
    {Preempt::backward, 2 * second - 1, 2, 2 * second, 0},
    // Its forward pass ends before, at, and after it.
    {Preempt::backward, 2 * second + second / 2 + 1, 3, 3 * second, 0},
    {Preempt::backward, 2 * second + second / 2, 3, 3 * second, 0},
    {Preempt::backward, 2 * second + second / 2 - 1, 2, 2 * second + second / 2, second / 2},
};

std::string name_of(const Case& tie) {
  return fmt::format("preempt {}, threshold {} ns", static_cast<int>(tie.preempt), tie.threshold_ns);
}

// Two workers and steps.
void expect_ties_decided(bool in_lockstep) {
  for (const Case& tie : cases) {
    SCOPED_TRACE(name_of(tie));
    const SimulatedRun setup{.workers = 2, .micro_batches = 3, .in_lockstep = in_lockstep, .objective = nullptr};
    const auto outcome = setup.run(DropCompute(Duration{tie.threshold_ns}, tie.preempt, 0.5));
    EXPECT_EQ(outcome.totals.kept, std::vector<std::int64_t>(2, 2 * tie.kept));
    EXPECT_EQ(outcome.totals.dropped, std::vector<std::int64_t>(2, 2 * (3 - tie.kept)));
    ASSERT_EQ(outcome.rounds.size(), 2u);
    EXPECT_EQ(outcome.rounds.front().end.time_since_epoch().count(), tie.stops_ns + second / 2);  // with its collective
    for (const Account& account : outcome.totals.accounts) {
      EXPECT_EQ(account[Activity::discarded].count(), 2 * tie.discarded_ns);
      EXPECT_EQ(account[Activity::compute].count(), 2 * (tie.stops_ns - tie.discarded_ns));
      EXPECT_EQ(account[Activity::wait].count(), 0);
    }
    expect_exact_accounts(outcome);
  }
}

TEST(DeadlineTies, AreDecidedAsInTheSourcesOnFibers) { expect_ties_decided(false); }
TEST(DeadlineTies, AreDecidedAsInTheSourcesInLockstep) { expect_ties_decided(true); }

// Beside others that are earlier or later, so that no worker's tie is decided by another's.
TEST(DeadlineTies, OfOneWorkerConcernItAlone) {
  for (const bool in_lockstep : {false, true}) {
    SimulatedRun setup{.workers = 40, .micro_batches = 3, .budget = {.steps = 1}, .in_lockstep = in_lockstep};
    setup.objective = nullptr;
    setup.worker_factors.assign(40, 1.0);
    for (std::size_t worker = 0; worker < 40; worker += 3) setup.worker_factors[worker] = 0.9;
    for (std::size_t worker = 1; worker < 40; worker += 3) setup.worker_factors[worker] = 1.1;
    const auto kept = [&](Preempt preempt) {
      return setup.run(DropCompute(Duration{2 * second}, preempt, 0.5)).totals.kept;
    };
    std::vector<std::int64_t> discard, microbatch;
    for (std::size_t worker = 0; worker < 40; ++worker) {
      discard.push_back(worker % 3 == 0 ? 2 : 1);     // 1.8, 2.2, 2.0 s
      microbatch.push_back(worker % 3 == 1 ? 2 : 3);  // the third begins then
    }
    EXPECT_EQ(kept(Preempt::discard), discard);
    EXPECT_EQ(kept(Preempt::microbatch), microbatch);
  }
}

// One worker; the deadline and the outage in the first micro-batch.
struct WithOutage {
  double begin_s, duration_s;  // of the outage
  std::int64_t threshold_ns;
  int kept;
  double stops_s, discarded_s;
};

TEST(DeadlineTies, ABackwardPassIsJudgedWhereItsForwardPassEndsAfterAnOutage) {
  const std::int64_t ms = second / 1000;
  const std::vector<WithOutage> cases = {
      // Half a second forward, of which 0.3 s come after the outage: it ends at 0.9 s.
      {0.2, 0.4, 900 * ms + 1, 1, 1.4, 0},
      {0.2, 0.4, 900 * ms, 1, 1.4, 0},
      {0.2, 0.4, 900 * ms - 1, 0, 0.9, 0.5},
      // The deadline passes with the outage, and within it: the first leaves a forward pass that is thrown away.
      {0.2, 0.4, 600 * ms, 0, 0.9, 0.5},
      {0.2, 0.4, 600 * ms - 1, 0, 0.6, 0.2},
      // The outage begins where the forward pass ends: the backward pass goes on after it, unless it was too late.
      {0.5, 0.4, 700 * ms, 1, 1.4, 0},
      {0.5, 0.4, 500 * ms, 1, 1.4, 0},
      {0.5, 0.4, 500 * ms - 1, 0, 0.5, 0.5},
      // A third of the forward pass is left to it.
      {0.4, 0.3, 800 * ms, 1, 1.3, 0},
      {0.4, 0.3, 800 * ms - 1, 0, 0.8, 0.5},
  };
  for (const WithOutage& tie : cases) {
    SCOPED_TRACE(
        fmt::format("outage at {} s for {} s, threshold {} ns", tie.begin_s, tie.duration_s, tie.threshold_ns));
    SimulatedRun setup{.workers = 1, .network_s = 0, .budget = {.steps = 1}, .objective = nullptr};
    setup.outages = std::make_shared<OutagePlan>(
        1,
        std::vector<OutageEntry>{{.when = ScheduledOutage{from_seconds(tie.begin_s), from_seconds(tie.duration_s)}}});
    const auto outcome = setup.run(DropCompute(Duration{tie.threshold_ns}, Preempt::backward, 0.5));
    EXPECT_EQ(outcome.totals.kept.front(), tie.kept);
    EXPECT_EQ(outcome.totals.end, start_time + from_seconds(tie.stops_s));
    const Account& account = outcome.totals.accounts.front();
    EXPECT_EQ(account[Activity::discarded], from_seconds(tie.discarded_s));
    EXPECT_EQ(account[Activity::compute], from_seconds(tie.kept));
    expect_exact_accounts(outcome);
  }
}

}  // namespace
}  // namespace syncopate
