// What a launcher has started: ranks that do not see each other, and more of them than a machine's cores can serve.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <string>

#include "tests/experiments/program.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class LaunchedRanks : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("e.toml", time_only);
  }
  // As one of several tasks, without what would let it find the others.
  ProgramOutcome task(const std::string& environment, const std::string& options) const {
    return shell("env -u OMPI_COMM_WORLD_SIZE " + environment +
                 " timeout 100 '" SYNCOPATE_PROGRAM "' run e.toml --quiet --results results " + options);
  }
};

TEST_F(LaunchedRanks, ThatDoNotSeeEachOtherRunNothing) {
  const ProgramOutcome by_srun = task("SLURM_STEP_NUM_TASKS=3", "--cluster simulated");
  EXPECT_EQ(by_srun.status, 2);
  EXPECT_EQ(by_srun.out, "");
  EXPECT_EQ(by_srun.err, "srun started 3 tasks that do not see each other: try `srun --mpi=pmix`\n");
  EXPECT_EQ(task("SLURM_STEP_NUM_TASKS=3", "cluster.workers=1").status, 2) << "as many ranks as it needs";
  const ProgramOutcome by_another = task("PMI_SIZE=4", "--cluster simulated");
  EXPECT_EQ(by_another.status, 2);
  EXPECT_THAT(by_another.err, StartsWith("the launcher started 4 processes that do not see each other: "));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  EXPECT_EQ(task("SLURM_STEP_NUM_TASKS=3", "--share").status, 0) << "it needs no MPI";
  EXPECT_EQ(task("SLURM_STEP_NUM_TASKS=1", "").status, 0) << "a task alone";
}

TEST(RanksForCores, AreFourForEachAndSixteenInAnyCase) {
  for (const auto& [cores, most] :
       {std::pair(1, 16), std::pair(2, 16), std::pair(4, 16), std::pair(8, 32), std::pair(64, 256)}) {
    EXPECT_EQ(too_many_ranks(most, cores), "") << cores;
    EXPECT_THAT(too_many_ranks(most + 1, cores), HasSubstr("must be at most " + std::to_string(most))) << cores;
  }
  EXPECT_THAT(too_many_ranks(200, 2), StartsWith("200 ranks on one machine, which has 2 cores for them; "));
}

// All on one core, so that the number is that of any machine.
TEST_F(LaunchedRanks, ThatAreTooManyForTheCoresAreRefused) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  int first = 0;
  while (!CPU_ISSET(first, &cores)) ++first;
  const auto launch = [&](const std::string& options) {
    return shell(SYNCOPATE_QUIET_MPI " taskset -c " + std::to_string(first) +
                 " timeout 110 " SYNCOPATE_MPIEXEC " --oversubscribe --bind-to none -n 17 '" SYNCOPATE_PROGRAM
                 "' run e.toml --quiet --results results cluster.workers=17 " +
                 options);
  };
  const ProgramOutcome refused = launch("");
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_THAT(refused.err, StartsWith("17 ranks on one machine, which has 1 core for them; must be at most 16, or "));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  const ProgramOutcome made = launch("--oversubscribe");
  EXPECT_EQ(made.status, 0) << made.err;
}

}  // namespace
}  // namespace syncopate
