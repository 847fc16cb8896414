// Whether a process is still there, without mistaking another one for it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workers/base/process.hpp"

namespace syncopate {
namespace {

TEST(ProcessIdentity, ThisOneIsRunning) {
  EXPECT_EQ(this_process().number, getpid());
  EXPECT_GT(this_process().start, 0u);
  EXPECT_EQ(state_of(this_process()), ProcessState::running);
}

TEST(ProcessIdentity, AnotherStartIsAnotherProcess) {
  ProcessIdentity earlier = this_process();
  --earlier.start;
  EXPECT_EQ(state_of(earlier), ProcessState::gone);
}

TEST(ProcessIdentity, OfAnotherMachineNothingIsKnown) {
  ProcessIdentity other = this_process();
  other.machine = "elsewhere";
  EXPECT_EQ(state_of(other), ProcessState::unknown);
  EXPECT_EQ(state_of({}), ProcessState::unknown);
}

// Its number is taken until it has been waited for, but it does no more.
TEST(ProcessIdentity, OneThatHasEndedIsGoneAndOneThatIsStoppedIsNot) {
  int identified[2];
  ASSERT_EQ(pipe(identified), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::uint64_t start = this_process().start;
    (void)!write(identified[1], &start, sizeof start);
    for (;;) pause();
  }
  ProcessIdentity process = this_process();
  process.number = child;
  ASSERT_EQ(read(identified[0], &process.start, sizeof process.start), static_cast<ssize_t>(sizeof process.start));
  EXPECT_EQ(state_of(process), ProcessState::running);
  kill(child, SIGSTOP);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED);
  EXPECT_EQ(state_of(process), ProcessState::running);
  kill(child, SIGKILL);
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(state_of(process), ProcessState::gone);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(state_of(process), ProcessState::gone);
}

}  // namespace
}  // namespace syncopate
