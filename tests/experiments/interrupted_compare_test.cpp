// `compare` that is interrupted while ranks run: it takes its launcher and their processes with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/experiments/program.hpp"
#include "tests/experiments/program_processes.hpp"

namespace syncopate {
namespace {

// Simulated at once; under MPI three ranks sleep for an hour.
constexpr const char* experiment = R"(name = "long"
[cluster]
workers = 3
micro_batch_s = 3.6
pace = "emulate"
[network]
kind = "free"
[training]
model = "quadratic"
[training.learning_rate]
schedule = "constant"
peak = 0.1
[training.optimizer]
name = "sgd"
[budget]
steps = 1000
[evaluation]
every_steps = 1000
[[methods]]
algorithm = "sync-sgd"
)";

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

class InterruptedCompare : public ProgramTest {
 protected:
  void TearDown() override {
    for (const auto& left : {launchers_in(directory), processes_in(directory, SYNCOPATE_PROGRAM)})
      for (const pid_t process : left) kill(process, SIGKILL);
    ProgramTest::TearDown();
  }

  // In a process group of its own, as a shell starts it; returns once its ranks are there.
  pid_t start() const {
    const std::string file = write("e.toml", experiment);
    const pid_t process = fork();
    if (process == 0) {
      setpgid(0, 0);
      if (chdir(directory.c_str()) != 0 || !freopen("out.txt", "w", stdout) || !freopen("err.txt", "w", stderr))
        _exit(3);
      execl(SYNCOPATE_PROGRAM, SYNCOPATE_PROGRAM, "compare", file.c_str(), "--results", "results", nullptr);
      _exit(3);
    }
    EXPECT_TRUE(within(seconds(100), [&] { return processes_in(directory, SYNCOPATE_PROGRAM).size() == 4; }))
        << read("err.txt");
    return process;
  }

  template <typename Condition>
  static bool within(seconds limit, Condition condition) {
    const auto end = Clock::now() + limit;
    while (!condition() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(20));
    return condition();
  }

  std::size_t launchers() const { return launchers_in(directory).size(); }
  // Ranks see within a second or so that their launcher is gone.
  bool all_end_soon() const {
    return within(seconds(20),
                  [this] { return launchers() == 0 && processes_in(directory, SYNCOPATE_PROGRAM).empty(); });
  }
};

int status_of(pid_t process) {
  int status = 0;
  waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(InterruptedCompare, EndsAfterItsLauncherAndSaysItOnce) {
  const pid_t process = start();
  kill(-process, SIGINT);
  const auto begin = Clock::now();
  EXPECT_EQ(status_of(process), 130);
  EXPECT_EQ(launchers(), 0U);
  EXPECT_LT(Clock::now() - begin, seconds(15));
  EXPECT_TRUE(all_end_soon());
  EXPECT_THAT(without_launcher(read("err.txt")), testing::EndsWith("\ninterrupted; what is finished is kept\n"));
  EXPECT_EQ(read("err.txt").find("what is finished is kept"), read("err.txt").rfind("what is finished is kept"));
}

TEST_F(InterruptedCompare, TakesItsRanksWithItWhereASecondSignalEndsItAtOnce) {
  const pid_t process = start();
  kill(-process, SIGINT);
  kill(-process, SIGTERM);  // another one: two of a kind at once may be taken as one
  EXPECT_EQ(status_of(process), 130);
  EXPECT_TRUE(all_end_soon());
}

TEST_F(InterruptedCompare, TakesItsRanksWithItWhereItIsKilled) {
  const pid_t process = start();
  kill(process, SIGKILL);
  EXPECT_EQ(status_of(process), -1);
  EXPECT_TRUE(all_end_soon());
}

}  // namespace
}  // namespace syncopate
