// A rank that fails ends all ranks with one message that says what and which rank, and status 1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "workers/mpi/mpi_session.hpp"

namespace syncopate {
namespace {

struct Outcome {
  std::string output;
  int status = -1;  // 124: it had not ended after five minutes
};

// Three ranks of the contract's program, failing in the given way.
Outcome fail(const std::string& way) {
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  ::setenv("SYNCOPATE_MPI_FAILURE", way.c_str(), 1);
  Outcome outcome;
  FILE* pipe = ::popen("timeout 300 " SYNCOPATE_MPIEXEC " --oversubscribe -n 3 " SYNCOPATE_MPI_PROGRAM " 2>&1", "r");
  if (!pipe) return outcome;
  char block[4096];
  while (const auto n = std::fread(block, 1, sizeof(block), pipe)) outcome.output.append(block, n);
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(MpiFailures, AnExceptionOnOneRankEndsAllEvenOneThatSleepsForAnHour) {
  const Outcome outcome = fail("exception on one rank");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "the milk has boiled over"), 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "syncopate: rank 1: worker 1 after "), 1) << outcome.output;
}

TEST(MpiFailures, WhenAllRanksFailTogetherOneOfThemSpeaks) {
  const Outcome outcome = fail("exception on all ranks");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "the milk has boiled over"), 1) << outcome.output;
}

TEST(MpiFailures, DifferentCollectivesAreExplainedWorkerByWorker) {
  const Outcome outcome = fail("mismatch");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  for (const char* line : {"worker 0 waits in all_reduce_sum at cluster_contract_mpi_test.cpp:",
                           "worker 1 waits in barrier at cluster_contract_mpi_test.cpp:",
                           "worker 2 waits in all_reduce_sum at cluster_contract_mpi_test.cpp:"})
    EXPECT_EQ(count(outcome.output, line), 1) << outcome.output;
}

TEST(MpiFailures, AWorkerThatEndsWhileOthersWaitForItIsNamed) {
  const Outcome outcome = fail("early end");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "worker 1 has left, and the others wait for what needs every worker"), 1)
      << outcome.output;
  EXPECT_EQ(count(outcome.output, "worker 2 waits in all_reduce_sum at cluster_contract_mpi_test.cpp:"), 1)
      << outcome.output;
}

TEST(MpiFailures, AWorkerThatEndsWhileItsGroupWaitsForItIsNamed) {
  const Outcome outcome = fail("early end in a group");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "worker 1 has left, and average_model at cluster_contract_mpi_test.cpp:"), 1)
      << outcome.output;
}

TEST(MpiFailures, ACollectiveDoesNotWaitForAMicroBatchThatNeverEnds) {
  const Outcome outcome = fail("endless");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "worker 1 is in a micro-batch that never ends, and all_reduce_sum at"), 1)
      << outcome.output;
}

TEST(MpiFailures, APartialAllReduceThatCannotTakePlaceIsExplained) {
  const Outcome outcome = fail("endless in a partial all-reduce");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "partial all-reduce 1 waits for workers in a micro-batch that never ends: 1"), 1)
      << outcome.output;
}

TEST(MpiFailures, MicroBatchesThatNeverEndOnAllWorkersAreAFailure) {
  const Outcome outcome = fail("all endless");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "no worker can go on: all are in a micro-batch that never ends"), 1)
      << outcome.output;
}

TEST(MpiRanksNeeded, OnePerWorkerAndServer) {
  EXPECT_EQ(ranks_needed(4, 0), 4);
  EXPECT_EQ(ranks_needed(4, 2), 6);
  EXPECT_EQ(wrong_number_of_ranks(4, 4, 0), "");
  EXPECT_EQ(wrong_number_of_ranks(6, 4, 2), "");
  EXPECT_THAT(wrong_number_of_ranks(3, 4, 1), testing::StartsWith("fewer ranks than the experiment needs: found 3"));
  EXPECT_THAT(wrong_number_of_ranks(3, 4, 1), testing::HasSubstr("must be 5 (4 workers and 1 server)"));
  EXPECT_THAT(wrong_number_of_ranks(3, 4, 1), testing::HasSubstr("mpirun -n 5"));
  EXPECT_THAT(wrong_number_of_ranks(3, 4, 2), testing::HasSubstr("must be 6 (4 workers and 2 servers)"));
  EXPECT_THAT(wrong_number_of_ranks(8, 4, 0), testing::StartsWith("more ranks than the experiment needs: found 8"));
  EXPECT_THAT(wrong_number_of_ranks(8, 4, 0), testing::HasSubstr("cluster.workers=8"));
}

TEST(MpiSession, WithoutALauncherStaysOff) {
  const MpiSession session;
  EXPECT_FALSE(session.active());
  EXPECT_EQ(session.rank(), 0);
  EXPECT_EQ(session.size(), 1);
}

}  // namespace
}  // namespace syncopate
