// A first Ctrl-C ends the program within a second, whatever it is doing: measured in the processor's time that it still
// takes, which does not depend on what else the machine does. (More of it than in wall time cannot go by: one thread
// computes.) Who sleeps or waits takes none, so that wall time has a bound too, for a machine that has much else to do.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

constexpr double begun_s = 1.5;  // of the processor's time: then it is in its first step
#if defined(__SANITIZE_THREAD__)
constexpr int slowdown = 20;  // by ThreadSanitizer, where data are generated
#else
constexpr int slowdown = 1;
#endif
constexpr std::chrono::seconds longest_on_a_busy_machine{15 * slowdown};

double seconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double processor_time_s(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return seconds(time);
}

struct Interruption {
  int status = -1;
  double begun_s = 0;
  double still_s = 0;  // the processor's time from the signal to the end
  std::chrono::steady_clock::duration waited{};
};

class InterruptionTest : public ProgramTest {
 protected:
  // The arguments go before the file. One thread computes. The signal comes once the program has taken begun_s, from
  // when `place` is there.
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
    result.still_s = seconds(usage.ru_utime) + seconds(usage.ru_stime) - result.begun_s;
    result.waited = std::chrono::steady_clock::now() - signalled;
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return result;
  }

  bool is_there(const std::string& name) const {
    std::error_code none;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results", none))
      if (entry.path().filename() == name) return true;
    return false;
  }

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

// Some 1e12 operations, which nobody can leave in the middle, after a run of which each step takes milliseconds.
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

// 80,000 runs, which take five times begun_s or more to read.
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
    EXPECT_EQ(read("err.txt"), "interrupted; nothing was begun\n") << command;
    EXPECT_EQ(read("out.txt"), "");
    EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  }
}

}  // namespace
}  // namespace syncopate
