// If injected delays dominate, simulated time equals wall time. Other programs on the machine lengthen wall time. So
// this test runs alone, and skips checks that are impossible on a busy machine.
#include "algorithms/asynchronous/sliding_window.hpp"
#include "algorithms/gossip/decentralized_sgd.hpp"
#include "algorithms/quorum/backup_all_reduce.hpp"
#include "algorithms/quorum/backup_workers.hpp"
#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/workers/mpi_test_main.hpp"
#include "tests/workers/parity.hpp"
#include "tests/workers/quiet_machine.hpp"

namespace syncopate {
namespace {

// Returns rank 0's text on all ranks. While the other ranks wait, they leave the cores to rank 0.
std::string told_by_rank_0(const std::string& text) {
  std::vector<char> letter(200);
  if (session->rank() == 0) std::copy_n(text.begin(), std::min(text.size(), letter.size() - 1), letter.begin());
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(letter.data(), static_cast<int>(letter.size()), MPI_CHAR, 0, session->communicator(), &request);
  for (int done = 0; !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE))
    std::this_thread::sleep_for(std::chrono::milliseconds(session->rank() > 0 ? 5 : 0));
  return letter.data();
}

// Delays of 20 ms on average, beside which the times of messages and of the scheduler are small.
Parity parity_with_long_delays() { return Parity(1e-6, 50e-6, make_sgd({.momentum = 0.9}), 0, 0.020); }

class ParityOfTime : public testing::Test {
 protected:
  // Fails if the wall time is too long in every try although the machine was quiet. If the machine was not quiet,
  // returns what disturbed it.
  static std::string compare(const Algorithm& algorithm) {
    constexpr double tolerance = 0.05;
    constexpr int tries = 3;
    const double simulated_s = to_seconds(parity_with_long_delays().simulated(algorithm).totals.end);
    std::string disturbance;
    double wall_s = 0;
    for (int i = 0; i < tries; ++i) {
      std::optional<QuietWatch> watch;
      if (session->rank() == 0) watch.emplace();
      told_by_rank_0("watching");
      wall_s = to_seconds(parity_with_long_delays().mpi(algorithm).totals.end);
      if (wall_s <= (1 + tolerance) * simulated_s) return "";
      const std::string found = told_by_rank_0(watch ? watch->disturbance() : "");
      if (!found.empty()) disturbance = found;
    }
    if (disturbance.empty()) {
      EXPECT_LE(wall_s, (1 + tolerance) * simulated_s);
    }
    return disturbance;
  }
  void SetUp() override {
    ASSERT_EQ(session->size(), workers + 1) << "start this test with mpirun -n 5: one rank serves, or is idle";
  }
};

#define EXPECT_WALL_TIME_IS_SIMULATED_TIME(algorithm) \
  if (const std::string disturbance = compare(algorithm); !disturbance.empty()) GTEST_SKIP() << disturbance

TEST_F(ParityOfTime, SynchronousSgd) { EXPECT_WALL_TIME_IS_SIMULATED_TIME(SyncSgd()); }

TEST_F(ParityOfTime, LocalSgd) { EXPECT_WALL_TIME_IS_SIMULATED_TIME(LocalSgd(make_constant_period(Step{5}), {})); }

TEST_F(ParityOfTime, HierarchicalSgd) {
  EXPECT_WALL_TIME_IS_SIMULATED_TIME(HierarchicalSgd({2, Step{2}}, make_constant_period(Step{8})));
}

TEST_F(ParityOfTime, DecentralizedSgd) { EXPECT_WALL_TIME_IS_SIMULATED_TIME(DecentralizedSgd()); }

TEST_F(ParityOfTime, BackupWorkersWithoutBackups) { EXPECT_WALL_TIME_IS_SIMULATED_TIME(BackupWorkers(workers)); }

TEST_F(ParityOfTime, BackupAllReduceWithoutBackups) { EXPECT_WALL_TIME_IS_SIMULATED_TIME(BackupAllReduce(workers)); }

TEST_F(ParityOfTime, ASlidingWindowInWhichTheWorkersTakeTurns) { EXPECT_WALL_TIME_IS_SIMULATED_TIME(SlidingWindow(0)); }

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  const syncopate::MpiSession session;
  syncopate::session = &session;
  return syncopate::run_tests_under_mpi(argc, argv, session);
}
