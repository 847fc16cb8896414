// The cluster contract on the MPI cluster: every rank runs this program (mpirun -n 3 ...), and is one participant. If
// the variable SYNCOPATE_MPI_FAILURE names a way to fail, the program fails in that way, for mpi_failures_test. If
// SYNCOPATE_MPI_STANDSTILL names a way to deadlock, its ranks deadlock in that way.
#include <cstdlib>
#include <thread>

#include "tests/workers/cluster_contract.hpp"
#include "tests/workers/mpi_test_main.hpp"
#include "workers/mpi/mpi_cluster.hpp"

namespace syncopate {
namespace {

const MpiSession* session = nullptr;

std::unique_ptr<Cluster> make_mpi(const ContractSetup& setup) {
  return make_mpi_cluster({.workers = setup.workers,
                           .servers = setup.servers,
                           .compute_time = setup.compute_time,
                           .pace = Pace::emulate,
                           .training = setup.training,
                           .observer = setup.observer,
                           .record = setup.record,
                           .outages = setup.outages,
                           .session = *session});
}

// Ranks share cores with each other and with other programs, so a delay of the scheduler is no fault. But it is a fault
// if a micro-batch of an hour that should end at once continues.
ClusterKind mpi() {
  return {.name = "MPI",
          .participants = session ? session->size() : 1,
          .make = make_mpi,
          .tolerance = std::chrono::seconds(60),
          .hesitation = std::chrono::milliseconds(30)};
}

INSTANTIATE_TEST_SUITE_P(Mpi, ClusterContract, testing::ValuesIn([] { return std::vector{mpi()}; }()));
INSTANTIATE_TEST_SUITE_P(Mpi, BookingContract, testing::ValuesIn([] { return std::vector{mpi()}; }()));
INSTANTIATE_TEST_SUITE_P(Mpi, TwoServersContract, testing::ValuesIn([] {
                           return mpi().participants < 3 ? std::vector<ClusterKind>{} : std::vector{mpi()};
                         }()));
INSTANTIATE_TEST_SUITE_P(Mpi, RegionsContract, testing::ValuesIn([] {
                           return mpi().participants < 3 ? std::vector<ClusterKind>{} : std::vector{mpi()};
                         }()));
INSTANTIATE_TEST_SUITE_P(Mpi, PartialContract, testing::ValuesIn([] { return std::vector{mpi()}; }()));
INSTANTIATE_TEST_SUITE_P(Mpi, RecordContract, testing::ValuesIn([] { return std::vector{mpi()}; }()));
INSTANTIATE_TEST_SUITE_P(Mpi, OutageContract, testing::ValuesIn([] { return std::vector{mpi()}; }()));

class MpiRanks : public ClusterContract {};
INSTANTIATE_TEST_SUITE_P(Mpi, MpiRanks, testing::ValuesIn([] { return std::vector{mpi()}; }()));

TEST_P(MpiRanks, RanksThatAMethodDoesNotNeedStayIdleAndLearnTheTotals) {
  const int workers = participants() - 1;
  bool worked = false;
  const RunTotals totals = run(workers, [&](Cluster& cluster, Rank self) {
    worked = true;
    Gradient sum = gradient(cluster, self, 1);
    cluster.all_reduce_sum(self, sum, {}, {.kept = 1, .planned = 1}, here());
    EXPECT_EQ(sum.micro_batches(), workers);
  });
  EXPECT_EQ(worked, session->rank() < workers);
  EXPECT_EQ(totals.accounts.size(), static_cast<std::size_t>(workers));
  EXPECT_EQ(totals.kept, std::vector<std::int64_t>(static_cast<std::size_t>(workers), 1));
  EXPECT_GE(totals.end, start_time + from_seconds(base_s));
}

TEST_P(MpiRanks, TooFewRanksAreAnErrorOnEveryRank) {
  const ComputeTime compute_time(7, base_s, {}, {});
  EXPECT_THROW(make_mpi({.workers = participants(), .servers = 1, .compute_time = compute_time, .training = training}),
               std::invalid_argument);
}

// Computing a gradient takes `takes` on the wall clock.
class SlowObjective : public KnownObjective {
 public:
  explicit SlowObjective(Duration takes) : takes_(takes) {}
  PartialGradient gradient(const float* parameters, const float* buffers,
                           std::span<const MicroBatch> micro_batches) const override {
    const std::int64_t begin_ns = monotonic_ns();
    std::this_thread::sleep_for(takes_);
    took = Duration{monotonic_ns() - begin_ns};
    return KnownObjective::gradient(parameters, buffers, micro_batches);
  }

  mutable Duration took{};  // wall-clock time of the last call of gradient()

 private:
  Duration takes_;
};

struct SlowRun {
  RunTotals totals;
  Duration in_calls{};  // time in calls of compute_gradient(), over all workers
};

// Worker w computes w + 1 micro-batches. Each takes `real` to compute; its drawn time is `drawn_s`.
SlowRun run_with(Duration real, double drawn_s, int workers) {
  Executor executor{0};
  Training training{std::make_shared<SlowObjective>(real), make_sgd({}), {}, executor};
  const ComputeTime compute_time(7, drawn_s, {}, {});
  const auto cluster = make_mpi({.workers = workers, .compute_time = compute_time, .training = training});
  std::int64_t in_calls_ns = 0;
  SlowRun run;
  run.totals = cluster->run(
      [&](Rank self) {
        for (int i = 0; i <= self.value; ++i) {
          const Time before = cluster->now(self);
          cluster->compute_gradient(self, training.initial_state(), {self, 0, i}, {self, 0, i}, {});
          in_calls_ns += (cluster->now(self) - before).count();
        }
      },
      nullptr);
  MPI_Allreduce(MPI_IN_PLACE, &in_calls_ns, 1, MPI_INT64_T, MPI_SUM, session->communicator());
  run.in_calls = Duration{in_calls_ns};
  return run;
}

TEST_P(MpiRanks, MicroBatchesThatDoNotFitIntoTheirDrawnTimeAreCounted) {
  const int n = participants();
  const SlowRun slow = run_with(std::chrono::milliseconds(5), 0.001, n);
  const SlowRun fitting = run_with(std::chrono::milliseconds(1), 0.5, n);
  for (int w = 0; w < n; ++w) {
    EXPECT_EQ(slow.totals.emulated.at(static_cast<std::size_t>(w)), w + 1);
    EXPECT_EQ(slow.totals.overruns.at(static_cast<std::size_t>(w)), w + 1);
    EXPECT_EQ(fitting.totals.emulated.at(static_cast<std::size_t>(w)), w + 1);
    EXPECT_EQ(fitting.totals.overruns.at(static_cast<std::size_t>(w)), 0);
  }
  const int micro_batches = n * (n + 1) / 2;
  EXPECT_GE(slow.totals.overrun_excess, micro_batches * std::chrono::milliseconds(4));
  EXPECT_LE(slow.totals.overrun_excess, slow.in_calls - micro_batches * std::chrono::milliseconds(1));
  EXPECT_EQ(fitting.totals.overrun_excess, Duration{});
}

// The test takes the shortest of four calls, because other programs may delay some of them.
TEST_P(MpiRanks, ASlowWorkerSleepsByItsFactorLessTheOneThatItComputes) {
  constexpr double factor = 3;
  const auto real = std::chrono::milliseconds(60);
  const int n = participants();
  Executor executor{0};
  const auto objective = std::make_shared<SlowObjective>(real);
  Training training{objective, make_sgd({}), {}, executor};
  std::vector<double> factors(static_cast<std::size_t>(n), 1.0);
  factors.back() = factor;
  const ComputeTime compute_time(7, base_s, factors, {});
  const auto made = make_mpi_cluster(
      {.workers = n, .compute_time = compute_time, .pace = Pace::inject, .training = training, .session = *session});
  Cluster& cluster = *made;
  cluster.run(
      [&](Rank self) {
        double least = 1e9;  // shortest call, as a multiple of the time of its arithmetic
        for (int i = 0; i < 4; ++i) {
          const Time before = cluster.now(self);
          cluster.compute_gradient(self, training.initial_state(), {self, 0, i}, {self, 0, i}, {});
          least = std::min(least, to_seconds(cluster.now(self) - before) / to_seconds(objective->took));
        }
        EXPECT_GE(least, self.value == n - 1 ? factor : 1);
        EXPECT_LT(least, self.value == n - 1 ? factor + 0.5 : 1.5);
      },
      nullptr);
}

// Delays are sleeps in addition to the arithmetic; a factor stretches only the arithmetic.
TEST_P(MpiRanks, DelaysAreInjectedOnTopOfTheArithmeticAndRecorded) {
  const auto real = std::chrono::milliseconds(5);
  const int n = participants();
  Executor executor{0};
  Training training{std::make_shared<SlowObjective>(real), make_sgd({}), {}, executor};
  std::vector<double> factors(static_cast<std::size_t>(n), 1.0);
  factors.back() = 3;
  const ComputeTime compute_time(7, base_s, factors, {std::make_shared<DelayByIndex>(0.02)});
  RunRecord record;
  record.durations.emplace();
  const auto made = make_mpi_cluster({.workers = n,
                                      .compute_time = compute_time,
                                      .pace = Pace::inject,
                                      .training = training,
                                      .record = &record,
                                      .session = *session});
  Cluster& cluster = *made;
  constexpr int micro_batches = 3;
  cluster.run(
      [&](Rank self) {
        for (int i = 0; i < micro_batches; ++i) {
          const Time before = cluster.now(self);
          const auto gradient =
              cluster.compute_gradient(self, training.initial_state(), {self, 0, i}, {self, 0, i}, {});
          ASSERT_TRUE(gradient);
          EXPECT_GE(gradient->compute_time(),
                    factors[static_cast<std::size_t>(self.value)] * real + from_seconds(0.02 * i));
          EXPECT_GE(cluster.now(self) - before, gradient->compute_time());
        }
      },
      nullptr);
  if (session->rank() > 0) return;
  ASSERT_EQ(record.durations->size(), static_cast<std::size_t>(n * micro_batches));
  for (const MicroBatchTime& time : *record.durations) {
    SCOPED_TRACE(testing::Message() << "worker " << time.worker.value << ", micro-batch " << time.index);
    const Duration delay = from_seconds(0.02 * time.index);
    if (time.worker < Rank{n - 1}) {
      EXPECT_EQ(time.added, delay);
    } else {
      EXPECT_GE(time.added, delay + 2 * real);
      EXPECT_LE(time.added, delay + (time.duration - delay) * 2 / 3);
    }
    EXPECT_GE(time.duration, time.added + real);
  }
}

// The other workers wait longer than the detection of a deadlock takes: in a receive, a barrier and a partial
// all-reduce, and at the end of the run. In each case one slow worker is in a micro-batch.
TEST_P(MpiRanks, WhoWaitsForASlowWorkerIsNotSuspected) {
  const int n = participants();
  Executor executor{0};
  Training training{std::make_shared<KnownObjective>(), make_sgd({}), {}, executor};
  std::vector<std::shared_ptr<const DelayProcess>> none;
  const ComputeTime compute_time(7, 0.9, {}, none);
  const auto cluster = make_mpi({.workers = n, .compute_time = compute_time, .training = training});
  int received = 0;
  const RunTotals totals = cluster->run(
      [&](Rank self) {
        for (int slow = 0; slow < std::min(n, 2); ++slow) {
          const Rank next{(self.value + 1) % n}, before{(self.value + n - 1) % n};
          const auto compute_if_slow = [&] {
            if (self.value == slow)
              cluster->compute_gradient(self, training.initial_state(), {self, slow, 0}, {self, slow, 0}, {});
          };
          // A message goes around the ring: each worker sends after it has received from the one before.
          compute_if_slow();
          if (self.value != slow && cluster->receive(self, before, never, here())) ++received;
          cluster->send(self, next, {.step = slow}, here());
          if (self.value == slow && cluster->receive(self, before, never, here())) ++received;
          compute_if_slow();
          cluster->barrier(self, here());
          compute_if_slow();
          Gradient sum;
          cluster->partial_all_reduce(self, sum, {.quorum = n}, LateGradient::drop, {}, here());
        }
        if (self.value == 0)
          cluster->compute_gradient(self, training.initial_state(), {self, 9, 0}, {self, 9, 0}, {});  // the others wait
      },
      nullptr);
  EXPECT_EQ(received, 2);
  EXPECT_EQ(totals.messages, 2 * n);
}

// None of these programs can end, whatever the order of events.
int wait_for_ever(const std::string& way) {
  Executor executor{0};
  Training training{std::make_shared<KnownObjective>(), make_sgd({}), {}, executor};
  const ComputeTime compute_time(7, 0.1, {}, {});
  const int servers = way == "servers" ? 2 : 0;
  const auto cluster = make_mpi(
      {.workers = session->size() - servers, .servers = servers, .compute_time = compute_time, .training = training});
  const Place here{"test", SourceLine::current()};
  // A server also receives notices of workers that leave. After a notice it waits for the message again.
  const auto receive = [&](Rank self, int from) {
    while (!cluster->receive(self, Rank{from}, never, {"receive", here.at})) continue;
  };
  cluster->run(
      [&](Rank self) {
        Gradient none;
        ModelStatePtr state = training.initial_state();
        cluster->compute_gradient(self, state, {self, 0, 0}, {self, 0, 0}, {});
        const Rank next{(self.value + 1) % session->size()};
        if (way == "ring") receive(self, next.value);
        if (way == "two of three" && self.value < 2) receive(self, 1 - self.value);
        if (way == "letters that answer nothing") {
          cluster->send(self, next, {.step = 1}, here);
          receive(self, next.value);
        }
        if (way == "a message and a collective") {
          if (self.value == 1) receive(self, 0);
          cluster->all_reduce_sum(self, none, {}, {}, {"all_reduce_sum", here.at});
        }
        if (way == "a message and a group") {
          if (self.value == 1) receive(self, 0);
          cluster->average(self, state, {.policy = {}, .group_size = 3}, {}, {"average_model", here.at});
        }
        if (way == "a message and a partial all-reduce") {
          if (self.value == 1) receive(self, 0);
          cluster->partial_all_reduce(self, none, {.quorum = 3}, LateGradient::drop, {}, {"partial", here.at});
        }
      },
      servers == 0 ? Cluster::Program() : [&](Rank self) { receive(self, self.value == 1 ? 2 : 1); });
  return 0;
}

// Micro-batches take an hour, but worker 1's micro-batches of step 1 never end. If the way is "all endless", those of
// all workers never end.
int fail_as(const std::string& way) {
  Executor executor{0};
  Training training{std::make_shared<KnownObjective>(), make_sgd({}), {}, executor};
  std::vector<std::shared_ptr<const DelayProcess>> delays;
  for (int w = 0; w < session->size(); ++w)
    if (w == 1 || way == "all endless") delays.push_back(std::make_shared<EndlessStep>(Rank{w}, 1));
  const ComputeTime compute_time(7, 3600, {}, delays);
  const auto cluster = make_mpi({.workers = session->size(), .compute_time = compute_time, .training = training});
  cluster->run(
      [&](Rank self) {
        const Place here{"test", SourceLine::current()};
        const auto compute = [&](Step step) {
          cluster->compute_gradient(self, training.initial_state(), {self, step, 0}, {self, step, 0}, {});
        };
        Gradient none;
        ModelStatePtr state = training.initial_state();
        if (way == "exception on one rank" && self.value == 1) throw std::runtime_error("the milk has boiled over");
        if (way == "exception on all ranks") throw std::runtime_error("the milk has boiled over");
        if (way == "exception on one rank" && self.value == 0) compute(0);
        if (way == "all endless") compute(1);
        const bool is_odd_one_out = self.value == 1;
        if (is_odd_one_out && way.starts_with("early end")) return;
        if (is_odd_one_out && (way == "endless" || way == "endless in a partial all-reduce")) compute(1);
        if (is_odd_one_out && way == "mismatch")
          cluster->barrier(self, here);
        else if (way == "early end in a group")
          cluster->average(self, state, {.policy = {}, .group_size = 3}, {}, here);
        else if (way == "early end before a start") {
          auto first = cluster->start(self, Collective::all_reduce({}), {}, here);
          auto second = cluster->start(self, Collective::average(state, {}), {}, here);
          cluster->finish(self, std::move(second), {"the second", here.at});
          cluster->finish(self, std::move(first), here);
        } else if (way == "endless in a partial all-reduce")
          cluster->partial_all_reduce(self, none, {.quorum = 3}, LateGradient::drop, {}, here);
        else
          cluster->all_reduce_sum(self, none, {}, {}, here);
      },
      nullptr);
  return 0;
}

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  const syncopate::MpiSession session;
  syncopate::session = &session;
  if (const char* way = std::getenv("SYNCOPATE_MPI_FAILURE")) return syncopate::fail_as(way);
  if (const char* way = std::getenv("SYNCOPATE_MPI_STANDSTILL")) return syncopate::wait_for_ever(way);
  return syncopate::run_tests_under_mpi(argc, argv, session);
}
