#include "workers/interrupt.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace syncopate {
namespace {

// Status of a process that installs the handlers and then sends itself the signals.
int status_after(std::initializer_list<int> signals) {
  const pid_t child = fork();
  if (child == 0) {
    install_interrupt_handlers();
    for (const int signal : signals) raise(signal);
    _exit(interrupted() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Interrupt, IsNotThereWithoutASignal) { EXPECT_EQ(status_after({}), 0); }

TEST(Interrupt, TheFirstSignalOnlyRaisesTheFlag) {
  EXPECT_EQ(status_after({SIGINT}), 1);
  EXPECT_EQ(status_after({SIGTERM}), 1);
}

TEST(Interrupt, TheSecondSignalEndsTheProcessAtOnce) { EXPECT_EQ(status_after({SIGINT, SIGINT}), 130); }

TEST(Interrupt, TheFlagCanBeLowered) {
  set_interrupted(true);
  EXPECT_TRUE(interrupted());
  set_interrupted(false);
  EXPECT_FALSE(interrupted());
}

}  // namespace
}  // namespace syncopate
