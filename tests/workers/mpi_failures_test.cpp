// If a rank fails, all ranks end with status 1 and one message, which contains the reason and the rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "workers/mpi/mpi_session.hpp"
#include "workers/mpi/mpi_waiting.hpp"

namespace syncopate {
namespace {

struct Outcome {
  std::string output;
  int status = -1;  // 124: five minutes have passed
};

// Runs three ranks of the contract's program, which fail in this way, or deadlock.
Outcome fail(const std::string& way, const char* variable = "SYNCOPATE_MPI_FAILURE") {
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  ::unsetenv("SYNCOPATE_MPI_FAILURE");
  ::setenv(variable, way.c_str(), 1);
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
  EXPECT_EQ(count(outcome.output, "worker 1 has left, but the others wait in a collective that needs every worker"), 1)
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

// The other workers have started two collectives, and request the result of the second one.
TEST(MpiFailures, AWorkerThatEndsBeforeItStartsWhatOthersHaveStartedIsNamed) {
  const Outcome outcome = fail("early end before a start");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "worker 1 has left, but the others wait in a collective that needs every worker"), 1)
      << outcome.output;
  EXPECT_EQ(count(outcome.output, "worker 0 waits in all_reduce_sum at cluster_contract_mpi_test.cpp:"), 1)
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
  EXPECT_EQ(count(outcome.output, "no worker can continue: all are in a micro-batch that never ends"), 1)
      << outcome.output;
}

Outcome stand_still(const std::string& way) { return fail(way, "SYNCOPATE_MPI_STANDSTILL"); }

// Every line occurs once and ends with its place: "  worker 1: waiting in receive for worker 0 (workers/file.cpp:3)".
void expect_explained(const Outcome& outcome, const std::vector<std::string>& lines) {
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, "no participant can continue"), 1) << outcome.output;
  for (const std::string& line : lines) EXPECT_EQ(count(outcome.output, "\n  " + line), 1) << line << outcome.output;
  EXPECT_EQ(count(outcome.output, "workers/cluster_contract_mpi_test.cpp:"),
            std::ranges::count_if(lines, [](const std::string& line) { return line.find(" (") != line.npos; }))
      << outcome.output;
}

TEST(MpiDeadlock, WorkersThatWaitForEachOthersMessagesAreExplained) {
  expect_explained(stand_still("ring"),
                   {"worker 0: waiting in receive for worker 1 (", "worker 1: waiting in receive for worker 2 (",
                    "worker 2: waiting in receive for worker 0 ("});
}

TEST(MpiDeadlock, TwoThatWaitForEachOtherAreFoundOnceTheThirdHasEnded) {
  expect_explained(stand_still("two of three"), {"worker 0: waiting in receive for worker 1 (",
                                                 "worker 1: waiting in receive for worker 0 (", "worker 2: ended"});
}

TEST(MpiDeadlock, MessagesThatNobodyWaitsForAreNoHelp) {
  expect_explained(stand_still("letters that answer nothing"),
                   {"worker 0: waiting in receive for worker 1 (", "worker 1: waiting in receive for worker 2 (",
                    "worker 2: waiting in receive for worker 0 ("});
}

TEST(MpiDeadlock, WhoWaitsForAMessageIsMissingInACollectiveOfEveryKind) {
  expect_explained(stand_still("a message and a collective"),
                   {"workers 0, 2: waiting in all_reduce_sum (", "worker 1: waiting in receive for worker 0 ("});
  expect_explained(stand_still("a message and a group"),
                   {"workers 0, 2: waiting in average_model (", "worker 1: waiting in receive for worker 0 ("});
  expect_explained(stand_still("a message and a partial all-reduce"),
                   {"workers 0, 2: waiting in partial (", "worker 1: waiting in receive for worker 0 ("});
}

TEST(MpiDeadlock, ServersThatWaitForEachOtherAreFoundAfterTheWorkersEnd) {
  expect_explained(stand_still("servers"), {"worker 0: ended", "server 0: waiting in receive for server 1 (",
                                            "server 1: waiting in receive for server 0 ("});
}

// The reports of two ranks in two consecutive rounds of deadlock detection.
TEST(MpiDeadlock, IsOneOnlyIfNothingHasChangedAndNothingIsUnderWay) {
  const std::vector<WaitReport> both_wait = {{.wait = 4, .frames_sent = 7, .frames_received = 5},
                                             {.wait = 9, .frames_sent = 5, .frames_received = 7}};
  EXPECT_TRUE(nobody_can_continue(both_wait, both_wait));
  EXPECT_FALSE(nobody_can_continue({}, both_wait)) << "the first round";
  for (const auto& change : std::vector<void (*)(WaitReport&)>{[](WaitReport& report) { ++report.wait; },
                                                               [](WaitReport& report) { ++report.frames_sent; },
                                                               [](WaitReport& report) { ++report.frames_received; }}) {
    auto other = both_wait;
    change(other[1]);
    EXPECT_FALSE(nobody_can_continue(other, both_wait)) << "it has gone on between them";
  }
  auto one_under_way = both_wait;
  --one_under_way[0].frames_received;
  EXPECT_FALSE(nobody_can_continue(one_under_way, one_under_way));

  auto at_the_end = both_wait;
  at_the_end[0].at_the_end = true;
  EXPECT_TRUE(nobody_can_continue(at_the_end, at_the_end));
  at_the_end[1].at_the_end = true;
  EXPECT_FALSE(nobody_can_continue(at_the_end, at_the_end)) << "the run is over";
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
  EXPECT_THAT(wrong_number_of_ranks(1, 4, 0), testing::HasSubstr("`./dev mpirun FILE` chooses the number"));
}

TEST(MpiSession, WithoutALauncherStaysOff) {
  const MpiSession session;
  EXPECT_FALSE(session.active());
  EXPECT_EQ(session.rank(), 0);
  EXPECT_EQ(session.size(), 1);
}

}  // namespace
}  // namespace syncopate
