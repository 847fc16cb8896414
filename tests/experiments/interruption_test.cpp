// A first Ctrl-C ends the program within a second, whatever it is doing. Tests measure the processor time that the
// program still takes, because other load does not affect it. With one computing thread, processor time cannot exceed
// wall time. A process that sleeps or waits takes no processor time. So wall time also has a bound, which allows for a
// busy machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/program.hpp"
#include "tests/experiments/program_processes.hpp"

namespace syncopate {
namespace {

constexpr double begun_s = 1.5;  // processor time, in seconds, after which the program is in its first step
#if defined(__SANITIZE_THREAD__)
constexpr int slowdown = 20;  // ThreadSanitizer slows down the generation of data by this factor
#else
constexpr int slowdown = 1;
#endif
constexpr std::chrono::seconds longest_on_a_busy_machine{15 * slowdown};

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double processor_time_s(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return seconds_of(time);
}

struct Interruption {
  int status = -1;
  double begun_s = 0;
  double still_s = 0;  // processor time from the signal to the end, in seconds
  std::chrono::steady_clock::duration waited{};
};

class InterruptionTest : public ProgramTest {
 protected:
  // Executes the command with these arguments, followed by the file, and with one computing thread. Sends the signal
  // once the program has used begun_s of processor time since `place` exists.
  Interruption interrupt(std::vector<std::string> arguments, const std::string& experiment,
                         const std::string& place = "") const {
    if (arguments.front() == "run") arguments.insert(arguments.end(), {"--threads", "1"});
    arguments.insert(arguments.begin(), SYNCOPATE_PROGRAM);
    arguments.push_back(write("e.toml", experiment));
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    const pid_t process = fork();
    if (process == 0) {
      setenv("OPENBLAS_NUM_THREADS", "1", 1);
      if (chdir(directory.c_str()) != 0 || !freopen("out.txt", "w", stdout) || !freopen("err.txt", "w", stderr))
        _exit(3);
      execv(SYNCOPATE_PROGRAM, words.data());
      _exit(3);
    }
    Interruption result;
    int status = 0;
    rusage usage{};
    bool ended = false;
    double counted_from_s = 0;
    while (!ended && processor_time_s(process) - counted_from_s < begun_s) {
      if (!place.empty() && !is_there(place)) counted_from_s = processor_time_s(process);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended = wait4(process, &status, WNOHANG, &usage) == process;
    }
    result.begun_s = processor_time_s(process);
    const auto signalled = std::chrono::steady_clock::now();
    if (!ended) {
      kill(process, SIGINT);
      wait4(process, &status, 0, &usage);
    }
    result.still_s = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime) - result.begun_s;
    result.waited = std::chrono::steady_clock::now() - signalled;
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return result;
  }

  bool is_there(const std::string& name) const { return has_file_below("results", name); }

  void expect_soon(const Interruption& outcome) const {
    EXPECT_EQ(outcome.status, 130) << read("out.txt") << read("err.txt");
    EXPECT_LT(outcome.still_s, slowdown);
    EXPECT_LT(outcome.waited, longest_on_a_busy_machine);
  }
  void expect_soon(const char* command, const std::string& experiment) const {
    expect_soon(interrupt({command}, experiment));
  }
};

std::string experiment(const std::string& cluster, const std::string& training, const std::string& method) {
  return "[cluster]\nmicro_batch_s = 0.01\n" + cluster + "[network]\nkind = \"free\"\n[training]\n" + training +
         "[budget]\nsteps = 100\n[[methods]]\n" + method + "[[delays]]\nkind = \"lognormal\"\nmu = -5\nsigma = 1\n";
}

const std::string no_model = "model = \"none\"\nparameters = 10\n";
const std::string sync = "algorithm = \"sync-sgd\"\n";

TEST_F(InterruptionTest, InAStepOfAMillionMicroBatchesThatAreComputed) {
  expect_soon("run", experiment("workers = 2\nmicro_batches = 1000000\n",
                                "model = \"quadratic\"\noptimizer.name = \"sgd\"\nlearning_rate = { schedule = "
                                "\"constant\", peak = 0.1 }\n",
                                sync) +
                         "[models.quadratic]\ndimension = 1000\n");
}

TEST_F(InterruptionTest, InATimeOnlyStepOfMillionsOfMicroBatches) {
  expect_soon("run", experiment("workers = 64\nmicro_batches = 16000000\n", no_model, sync));
}

// A micro-batch of the second run has about 1e12 operations and cannot be interrupted. Steps of the first run take
// milliseconds.
TEST_F(InterruptionTest, InOneMicroBatchOfALargeModel) {
  const auto outcome =
      interrupt({"run"},
                experiment("workers = 2\n",
                           "model = \"mlp\"\ndataset = \"gaussian-mixture\"\noptimizer.name = "
                           "\"sgd\"\nlearning_rate = { schedule = \"constant\", peak = 0.1 }\n",
                           sync) +
                    "[models.mlp]\nhidden = [4000, 4000]\n"
                    "[datasets.gaussian-mixture]\ntrain = 20000\ntest = 10\n[evaluation]\ntrain_samples = 10\n"
                    "[sweep]\n\"training.micro_batch_size\" = [1, 10000]\n\"budget.steps\" = [1]\n",
                "summary.json");
  expect_soon(outcome);
  EXPECT_THAT(read("err.txt"),
              testing::EndsWith("interrupted; finished runs stay, and the same command continues with the others, "
                                "from their newest checkpoints if they have any (1 of 2 runs are finished)\n"));
  EXPECT_EQ(read("out.txt"), "");
}

TEST_F(InterruptionTest, OnFibersToo) {
  expect_soon("run", experiment("workers = 64\nmicro_batches = 16000000\n", no_model, "algorithm = \"async-sgd\"\n"));
}

TEST_F(InterruptionTest, WhereDropComputeSearchesItsThreshold) {
  expect_soon("run", experiment("workers = 16\nmicro_batches = 1000000\n", no_model,
                                "algorithm = \"dropcompute\"\nthreshold = { rule = \"automatic\", warmup_steps = 0, "
                                "calibration_steps = 1 }\n"));
}

TEST_F(InterruptionTest, InAPrediction) {
  expect_soon("predict", experiment("workers = 64\nmicro_batches = 16000000\n", no_model, sync));
}

TEST_F(InterruptionTest, AmongOutages) {
  expect_soon("run", experiment("workers = 64\nmicro_batches = 100000\n", no_model, sync) +
                         "[[outages]]\nmean_time_between_s = 3e-5\nmean_duration_s = 1e-5\n");
}

TEST_F(InterruptionTest, WhileDataAreGenerated) {
  expect_soon("run", experiment("workers = 2\n",
                                "model = \"linear\"\ndataset = \"gaussian-mixture\"\noptimizer.name = "
                                "\"sgd\"\nlearning_rate = { schedule = \"constant\", peak = 0.1 }\n",
                                sync) +
                         "[datasets.gaussian-mixture]\ntrain = 16000000\ndimension = 20\n");
}

TEST_F(InterruptionTest, WhileATextBecomesTokens) {
  std::string text;
  for (int word = 0; word < 60'000'000; ++word) text += "ab ";  // takes at least three times begun_s
  expect_soon(interrupt({"data", "tokens", "--tokenizer", "words", "--to", "out"}, text));
  EXPECT_FALSE(std::filesystem::exists(directory / "out"));
}

// Reading 80,000 runs takes at least five times begun_s.
TEST_F(InterruptionTest, WhileASweepIsRead) {
  const auto list_of_a_hundred = [] {
    std::string list = "[1";
    for (int value = 2; value <= 100; ++value) list += ", " + std::to_string(value);
    return list + "]";
  };
  const std::string sweep = "seeds = [1, 2, 3, 4, 5, 6, 7, 8]\n" + experiment("workers = 2\n", no_model, sync) +
                            "[sweep]\n\"cluster.workers\" = " + list_of_a_hundred() +
                            "\n\"budget.steps\" = " + list_of_a_hundred() + "\n";
  for (const char* command : {"run", "check", "predict"}) {
    expect_soon(interrupt({command, "--limit", "1000000"}, sweep));
    EXPECT_EQ(read("err.txt"), "interrupted; nothing was run\n") << command;
    EXPECT_EQ(read("out.txt"), "");
    EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  }
}

// If `compare` is interrupted while ranks run, it also ends the launcher and the ranks.

// The simulation takes no time. Under MPI, three ranks sleep for an hour.
constexpr const char* compared_experiment = R"(name = "long"
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

  // Starts `compare` in a separate process group, as a shell does. Returns once its ranks exist.
  pid_t start() const {
    const std::string file = write("e.toml", compared_experiment);
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
  // Ranks notice within about a second that their launcher has ended.
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
  EXPECT_THAT(without_launcher(read("err.txt")), testing::EndsWith("\ninterrupted; finished runs are kept\n"));
  EXPECT_EQ(read("err.txt").find("finished runs are kept"), read("err.txt").rfind("finished runs are kept"));
}

TEST_F(InterruptedCompare, TakesItsRanksWithItWhereASecondSignalEndsItAtOnce) {
  const pid_t process = start();
  kill(-process, SIGINT);
  kill(-process, SIGTERM);  // two equal signals at once may be merged, so this is a different one
  EXPECT_EQ(status_of(process), 130);
  EXPECT_TRUE(all_end_soon());
}

TEST_F(InterruptedCompare, TakesItsRanksWithItWhereItIsKilled) {
  const pid_t process = start();
  kill(process, SIGKILL);
  EXPECT_EQ(status_of(process), -1);
  EXPECT_TRUE(all_end_soon());
}

// If ranks on two nodes without shared memory are interrupted, one rank reports the interruption. Both nodes are this
// machine: each of the launcher's daemons considers itself alone on a node.

// The second run takes days, which ranks spend almost entirely sleeping.
constexpr const char* nodes_experiment = R"(name = "nodes"
[cluster]
workers = 4
micro_batch_s = 0.05
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
steps = 10
[evaluation]
every_steps = 5
[[methods]]
algorithm = "sync-sgd"
[sweep]
"budget.steps" = [10, 10_000_000]
)";

class InterruptedNodes : public ProgramTest {
 protected:
  // Open MPI starts the daemon of a node by a command like ssh's. Ranks of one node share files whose names contain the
  // host's. Here both hosts are the same, so each daemon gets its own directory for these files.
  std::string launch_command() const {
    const std::string ssh = write("ssh.sh",
                                  "#!/bin/bash\n"
                                  "while [[ $1 == -* ]]; do shift; done\n"
                                  "export OMPI_MCA_osc_sm_backing_directory='" +
                                      directory.string() +
                                      "'/$1\n"
                                      "mkdir -p \"$OMPI_MCA_osc_sm_backing_directory\"\n"
                                      "shift\n"
                                      "exec bash -c \"$*\"\n");
    std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
    // Settings for Open MPI 4, and for Open MPI 5, whose launcher is PRRTE.
    return SYNCOPATE_QUIET_MPI
           " OMPI_MCA_odls_base_sigkill_timeout=5 PRTE_MCA_odls_base_sigkill_timeout=5"
           " OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1 OMPI_MCA_plm_rsh_agent='" +
           ssh + "' PRTE_MCA_plm_ssh_agent='" + ssh +
           "' OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo timeout 300 " SYNCOPATE_MPIEXEC
           " --oversubscribe --host node-a:2,node-b:2 -n 4 '" SYNCOPATE_PROGRAM
           "' run e.toml --quiet --results results";
  }

  bool a_run_is_there() const { return has_file_below("results", "summary.json"); }
};

// Returns the program's lines of the output, without the launcher's.
std::string lines_of_the_program(const std::string& text) {
  std::string lines, line;
  for (std::istringstream all(text); std::getline(all, line);)
    if (line.starts_with("syncopate:")) lines += line + "\n";
  return lines;
}

// Two daemons on one machine sometimes fail to start their ranks, which then print nothing. So the test tries again.
TEST_F(InterruptedNodes, SayItOnce) {
  write("e.toml", nodes_experiment);
  ProgramOutcome outcome;
  for (int tries = 0; tries < 4 && !a_run_is_there(); ++tries) {
    std::thread launcher([&] { outcome = shell(launch_command()); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!a_run_is_there() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::vector<pid_t> launchers = launchers_in(directory);
    EXPECT_EQ(launchers.size(), 1U);
    for (const pid_t process : launchers) kill(process, SIGINT);
    launcher.join();
  }
  EXPECT_TRUE(a_run_is_there());
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(processes_in(directory, SYNCOPATE_PROGRAM).size(), 0U);
  if (launcher_shows_all) {
    EXPECT_THAT(lines_of_the_program(outcome.err),
                testing::MatchesRegex("syncopate: rank [01]: ended by the launcher: either interrupted, or a rank on "
                                      "another host was lost; finished runs stay[^\n]*\n"));
  }
}

}  // namespace
}  // namespace syncopate
