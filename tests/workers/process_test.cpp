#include "workers/base/process.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace syncopate {
namespace {

struct Ended {
  int status = -1;
  std::string text;
};

// Runs a child process that installs the signal handlers and calls `work`, which gets a function to write text.
template <typename BookedTime>
Ended process(BookedTime work) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    install_interrupt_handlers();
    work([&](const char* text) { return write(ends[1], text, std::strlen(text)); });
    _exit(0);
  }
  close(ends[1]);
  Ended ended;
  for (char letter; read(ends[0], &letter, 1) == 1;) ended.text += letter;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  return ended;
}

// A step that never looks at the flag that interrupt handlers set.
[[noreturn]] void a_very_long_step() {
  while (true) pause();
}

// The exit status of a process that installs the handlers and then sends these signals to itself.
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

TEST(Interrupt, AProcessThatDoesNotLookAtTheFlagIsEnded) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Ended ended = process([&](auto) {
      raise(signal);
      a_very_long_step();
    });
    EXPECT_EQ(ended.status, 130);
  }
}

TEST(Interrupt, OfTheLastActsThatAreThereTheOneMadeLastComesFirst) {
  const Ended ended = process([](auto say) {
    const LastAct first([&] { say("first "); });
    {
      const LastAct gone([&] { say("gone "); });
    }
    const LastAct second([&] { say("second "); });
    raise(SIGINT);
    a_very_long_step();
  });
  EXPECT_EQ(ended.status, 130);
  EXPECT_EQ(ended.text, "second first ");
}

TEST(Interrupt, TheEndIsHeldOffForWhatMustBeDoneWholly) {
  const Ended ended = process([](auto say) {
    const LastAct act([&] { say("end"); });
    {
      const auto held = hold_off_end();
      raise(SIGINT);
      say("begun ");
      std::this_thread::sleep_for(2 * time_to_end);
      say("done ");
    }
    a_very_long_step();
  });
  EXPECT_EQ(ended.status, 130);
  EXPECT_EQ(ended.text, "begun done end");
}

TEST(Interrupt, NobodyGoesOnAfterLastActsHaveBegun) {
  const Ended ended = process([](auto say) {
    std::atomic<bool> begun = false;
    {
      const LastAct act([&] {
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        say("end");
      });
      raise(SIGINT);
      while (!begun) std::this_thread::yield();
    }
    say("went on");
  });
  EXPECT_EQ(ended.status, 130);
  EXPECT_EQ(ended.text, "end");
}

// The thread that sees the flag begins the last act shortly before the process ends. The thread that ends the process
// waits until the act is done.
TEST(Interrupt, WhatIsDoneBeforeTheEndIsDoneWhollyAndOnce) {
  const Ended ended = process([](auto say) {
    const LastAct other([&] { say("other"); });
    LastAct act([&] {
      say("begun ");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      say("done ");
    });
    raise(SIGINT);
    std::this_thread::sleep_for(time_to_end - std::chrono::milliseconds(50));
    act.do_now();
    a_very_long_step();
  });
  EXPECT_EQ(ended.status, 130);
  EXPECT_EQ(ended.text, "begun done other");
}

TEST(Interrupt, WhatIsDoneBeforeTheEndDoesNotKeepTheProcess) {
  EXPECT_EQ(process([](auto) {
              LastAct act([] { a_very_long_step(); });
              raise(SIGINT);
              act.do_now();
            }).status,
            130);
}

// After the act, no timer remains that would end the process.
TEST(Interrupt, WhatIsDoneInTimeEndsNothing) {
  const Ended ended = process([](auto say) {
    LastAct act([&] { say("done "); });
    set_interrupted(true);  // not by a signal, so no thread ends the process
    act.do_now();
    std::this_thread::sleep_for(2 * time_for_last_acts);
    say("went on");
  });
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.text, "done went on");
}

TEST(Interrupt, LastActsThatFailOrTakeTooLongDoNotKeepTheProcess) {
  EXPECT_EQ(process([](auto) {
              const LastAct act([] { throw std::bad_alloc(); });
              raise(SIGINT);
              a_very_long_step();
            }).status,
            130);
  EXPECT_EQ(process([](auto) {
              const LastAct act([] { a_very_long_step(); });
              raise(SIGINT);
              a_very_long_step();
            }).status,
            130);
}

TEST(Interrupt, TheFlagCanBeLowered) {
  set_interrupted(true);
  EXPECT_TRUE(interrupted());
  set_interrupted(false);
  EXPECT_FALSE(interrupted());
}

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

// A process that has ended keeps its number until its parent has waited for it, but counts as gone. A stopped process
// still exists.
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

// SharedToken: the first one to take a token, among a process and its children, gets it.

// Whether a child process that has the token's descriptor gets the token.
bool child_takes(const SharedToken& token) {
  const pid_t child = fork();
  if (child == 0) _exit(SharedToken(token.descriptor()).take() ? 1 : 0);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

TEST(SharedToken, IsTakenOnce) {
  SharedToken token;
  EXPECT_TRUE(token.take());
  EXPECT_FALSE(token.take());
  EXPECT_FALSE(child_takes(token));
}

TEST(SharedToken, WhoIsFirstOfSeveralChildrenHasIt) {
  SharedToken token;
  EXPECT_TRUE(child_takes(token));
  EXPECT_FALSE(child_takes(token));
  EXPECT_FALSE(token.take());
}

TEST(SharedToken, EachIsOfItsOwn) {
  SharedToken one, other;
  EXPECT_TRUE(one.take());
  EXPECT_TRUE(other.take());
}

// If the token's process has ended, nobody waits for the token.
TEST(SharedToken, OfNobodyIsNotThere) {
  std::optional<SharedToken> gone(std::in_place);
  const int descriptor = gone->descriptor();
  gone.reset();
  EXPECT_FALSE(SharedToken(descriptor).take());
}

}  // namespace
}  // namespace syncopate
