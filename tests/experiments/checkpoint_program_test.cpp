// The built program is killed in the middle of a run. The same command resumes at the checkpoint and produces the same
// files. If a checkpoint cannot be used, the program says why, and the run starts from the beginning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/program.hpp"
#include "tests/experiments/program_processes.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* experiment = R"(name = "long"
[cluster]
workers = 4
micro_batch_s = 0.01
[[delays]]
kind = "exponential"
mean = 0.01
[network]
kind = "free"
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 16
learning_rate = { schedule = "cosine", peak = 0.1 }
optimizer = { name = "sgd", momentum = 0.9 }
[datasets.gaussian-mixture]
train = 2000
test = 200
[evaluation]
every_steps = 500
train_samples = 200
[recording]
parameters = true
[budget]
steps = 5000
[checkpoint]
every_s = 0.15
[[methods]]
algorithm = "local-sgd"
period = { rule = "constant", steps = 8 }
)";

class CheckpointProgram : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("e.toml", experiment);
  }

  // Starts the program, and sends it the signal once it has written a checkpoint. Returns false if the program ended
  // earlier.
  bool stop(int signal) const {
    const pid_t process = fork();
    if (process == 0) {
      if (chdir(directory.c_str()) != 0 || !freopen("out.txt", "w", stdout) || !freopen("err.txt", "w", stderr))
        _exit(3);
      execl(SYNCOPATE_PROGRAM, SYNCOPATE_PROGRAM, "run", "e.toml", "--threads", "1", nullptr);
      _exit(3);
    }
    const auto before = checkpoint();
    const auto time = before.empty() ? fs::file_time_type{} : fs::last_write_time(before);
    int status = 0;
    while (true) {
      if (waitpid(process, &status, WNOHANG) == process) return false;
      std::error_code gone;
      const auto now = checkpoint();
      if (!now.empty() && fs::last_write_time(now, gone) != time && !gone) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    kill(process, signal);
    waitpid(process, &status, 0);
    return true;
  }

  fs::path checkpoint(const char* results = "results") const {
    for (const fs::path& path : paths_below(results))
      if (path.extension() == ".checkpoint" && path.filename().string().front() != '.') return path;
    return {};
  }

  // Returns all files of the run, without times of the host's clock.
  std::map<std::string, std::string> files(const fs::path& results) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(directory / results)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_regular_file() || name == "metadata.json" || name == "files.json" || name == "config.toml")
        continue;
      const std::string place = fs::relative(entry.path(), directory / results).string();
      files[place] = read(entry.path());
      if (name != "summary.json") continue;
      auto json = nlohmann::json::parse(files[place]);
      for (const char* const of_host : {"host_s", "samples_per_host_s"}) json.erase(of_host);
      files[place] = json.dump(1);
    }
    return files;
  }

  void expect_undisturbed(const fs::path& results) const {
    const auto plain = syncopate("run e.toml checkpoint.write=false --threads 2 --quiet --results plain");
    ASSERT_EQ(plain.status, 0) << plain.err;
    auto expected = files("plain"), found = files(results);
    ASSERT_GT(expected.size(), 3U);
    for (auto* const all : {&expected, &found})
      std::erase_if(*all, [](const auto& file) { return file.first.find("/seed=") == std::string::npos; });
    EXPECT_EQ(found.size(), expected.size());
    for (const auto& [name, contents] : expected) EXPECT_TRUE(found[name] == contents) << name;
  }
};

TEST_F(CheckpointProgram, KilledGoesOnAndLeavesTheSameFilesAndNoCheckpoint) {
  ASSERT_TRUE(stop(SIGKILL)) << "it had ended";
  ASSERT_TRUE(stop(SIGKILL)) << "it had ended";
  EXPECT_THAT(read("err.txt"), HasSubstr("resumes from its checkpoint"));
  const auto last = syncopate("run e.toml --threads 2");
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("resumes from its checkpoint"));
  EXPECT_EQ(checkpoint(), fs::path());
  expect_undisturbed("results/runs");
}

TEST_F(CheckpointProgram, InterruptedKeepsTheNewest) {
  ASSERT_TRUE(stop(SIGINT)) << "it had ended";
  EXPECT_THAT(read("err.txt"), HasSubstr("interrupted"));
  ASSERT_NE(checkpoint(), fs::path());
  EXPECT_THAT(syncopate("run e.toml").err, HasSubstr("resumes from its checkpoint"));
  EXPECT_EQ(checkpoint(), fs::path());
}

TEST_F(CheckpointProgram, OfADamagedOneItBeginsAnew) {
  ASSERT_TRUE(stop(SIGKILL)) << "it had ended";
  const fs::path file = checkpoint();
  std::string bytes = read(file);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  const auto outcome = syncopate("run e.toml --quiet");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr(": it is damaged or cut off; the run starts from the beginning\n"));
  EXPECT_THAT(outcome.err, HasSubstr(file.filename().string()));
  expect_undisturbed("results/runs");
}

// LibTorch's kernels without vector instructions round differently from the kernels that it chooses by default.
TEST_F(CheckpointProgram, OfOtherKernelsOfLibTorchItBeginsAnew) {
  setenv("ATEN_CPU_CAPABILITY", "default", 1);
  const bool was_stopped = stop(SIGKILL);
  unsetenv("ATEN_CPU_CAPABILITY");
  ASSERT_TRUE(was_stopped) << "it had ended";
  const auto usual = syncopate("--version").out,
             least = shell("ATEN_CPU_CAPABILITY=default '" SYNCOPATE_PROGRAM "' --version").out;
  if (usual == least) GTEST_SKIP() << "this processor has one kind of kernels that LibTorch would use";
  const auto outcome = syncopate("run e.toml --quiet");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr("LibTorch's kernels"));
  EXPECT_THAT(outcome.err, HasSubstr("; the run starts from the beginning\n"));
  expect_undisturbed("results/runs");
  const auto metadata = [this] {
    for (const auto& entry : fs::recursive_directory_iterator(directory / "results"))
      if (entry.path().filename() == "metadata.json")
        return nlohmann::json::parse(read(entry.path()))["torch_kernels"].get<std::string>();
    return std::string();
  };
  EXPECT_THAT(usual, HasSubstr(metadata()));
}

TEST_F(CheckpointProgram, RepeatedFromTheBeginningItTakesNoneUp) {
  ASSERT_TRUE(stop(SIGKILL)) << "it had ended";
  EXPECT_THAT(syncopate("run e.toml --rerun").err, Not(HasSubstr("resumes")));
  EXPECT_EQ(checkpoint(), fs::path());
}

TEST_F(CheckpointProgram, WritesNoneWhereItIsToldSoOrTrainsNothing) {
  const auto none = syncopate("run e.toml checkpoint.write=false budget.steps=3000");
  EXPECT_EQ(none.status, 0) << none.err;
  EXPECT_THAT(syncopate("check e.toml checkpoint.every_s=0").err, HasSubstr("checkpoint.every_s = 0"));
}

// If a directory is deleted during a run, the program does not create parts of it again.
TEST_F(CheckpointProgram, ResultsThatAreRemovedMeanwhileAreSaid) {
  const auto run_and_remove = [&](const std::string& removed) {
    shell("{ ('" SYNCOPATE_PROGRAM
          "' run e.toml --quiet --threads 1 checkpoint.every_s=0.05 'seeds=[1,2]' "
          ">out.txt 2>err.txt; echo $? >status.txt) & made=$!; "
          "until ls results/runs/long/*/seed=1-*/summary.json results/runs/long/*/seed=2-*.checkpoint; do "
          "kill -0 $made || break; sleep 0.01; done >ls.txt 2>&1; mv " +
          removed + " gone; wait; }");
    EXPECT_EQ(read("status.txt"), "1\n") << read("err.txt") << read("out.txt");
    EXPECT_EQ(read("out.txt"), "");
    fs::remove_all(directory / "gone");
  };
  run_and_remove("results/runs/long");
  EXPECT_THAT(read("err.txt"),
              HasSubstr("long: the results directory was removed while runs were made; the next start"));
  EXPECT_FALSE(fs::exists(directory / "results/runs/long"));
  run_and_remove("results/runs/long/local-sgd");
  EXPECT_THAT(read("err.txt"), HasSubstr("long: 1 of 2 runs was removed while others were running; the next"));
}

TEST_F(CheckpointProgram, APipeInItsPlaceIsNotWaitedFor) {
  ASSERT_TRUE(stop(SIGKILL)) << "it had ended";
  const fs::path file = checkpoint();
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  const auto outcome = syncopate("run e.toml --quiet");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, HasSubstr(": it is not a regular file; the run starts from the beginning\n"));
}

// Several processes that divide a run leave parts of their first checkpoint if they end before it is complete.
TEST_F(CheckpointProgram, PartsThatNothingNamesDoNotStayBesideAFinishedRun) {
  const std::string run = "run e.toml budget.steps=50 --quiet ";
  ASSERT_EQ(syncopate(run + "--results first").status, 0);
  fs::path part;
  for (const auto& entry : fs::recursive_directory_iterator(directory / "first"))
    if (entry.path().filename() == "summary.json") part = entry.path().parent_path();
  part = fs::relative(part, directory / "first").string() + ".checkpoint.12.1";
  for (const std::string how : {"", "--share ", "--jobs 2 "}) {
    const fs::path left = directory / "results" / part;
    for (const bool is_finished : {false, true}) {
      fs::create_directories(left.parent_path());
      std::ofstream(left) << "part";
      const auto outcome = syncopate(run + how + "--results results");
      EXPECT_EQ(outcome.status, 0) << outcome.err;
      EXPECT_FALSE(fs::exists(left)) << how << is_finished;
    }
    fs::remove_all(directory / "results");
  }
}

// Folders that cannot be written are reported before anything runs. Here the folder disappears during the run.
TEST_F(CheckpointProgram, WhatCannotBeWrittenIsSaidOnceAndTheRunGoesOn) {
  const auto first = syncopate("run e.toml budget.steps=200");
  ASSERT_EQ(first.status, 0) << first.err;
  const std::string limited = "ulimit -f 8; trap '' XFSZ; '" SYNCOPATE_PROGRAM "' run e.toml --threads 1 2>&1";
  const auto outcome = shell("bash -c \"" + limited + "\"");
  const std::string word = "no new one was written, and the run continues";
  const auto at = outcome.out.find(word);
  ASSERT_NE(at, std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find(word, at + 1), std::string::npos);
}

// The built program under mpirun is killed in the middle of a run: all its processes, or one rank. The same command
// resumes at the last checkpoint that all ranks have, which is no older than an interval, and produces the same model.
// If a checkpoint cannot be used, the program says why, and the run starts from the beginning.

using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;

constexpr double interval_s = 0.2;
constexpr double slack_s = 2;  // allowance for a busy machine: ranks must stop, and the checkpoint must reach the disk

// Takes two seconds, which ranks spend almost entirely sleeping.
constexpr const char* rank_experiment = R"(name = "long"
[cluster]
workers = 3
micro_batch_s = 0.005
pace = "emulate"
[[delays]]
kind = "exponential"
mean = 0.002
[network]
kind = "free"
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 16
learning_rate = { schedule = "cosine", peak = 0.1 }
optimizer = { name = "sgd", momentum = 0.9 }
[datasets.gaussian-mixture]
train = 2000
test = 200
[evaluation]
every_steps = 100
train_samples = 200
[recording]
parameters = true
[budget]
steps = 240
[checkpoint]
every_s = 0.2
[[methods]]
algorithm = "local-sgd"
period = { rule = "constant", steps = 4 }
)";

class RankCheckpointsProgram : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    write("e.toml", rank_experiment);
  }

  // Starts the run on three ranks. Waits for a new checkpoint, then for the time `after`, and passes the ranks'
  // processes to `disturb`. Returns the age of the newest checkpoint at that moment, in seconds.
  template <typename Disturb>
  double stop(Disturb disturb, std::chrono::milliseconds after) {
    const auto before = time_of_checkpoint();
    std::thread launcher([&] { outcome_ = syncopate("run e.toml --results results", 3); });
    const auto end = Clock::now() + std::chrono::seconds(100);
    while (time_of_checkpoint() == before && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::this_thread::sleep_for(after);
    const std::vector<pid_t> ranks = processes_in(directory, SYNCOPATE_PROGRAM);
    const auto age = fs::file_time_type::clock::now() - time_of_checkpoint();
    EXPECT_EQ(ranks.size(), 3U);
    if (!ranks.empty()) disturb(ranks);
    launcher.join();
    return std::chrono::duration<double>(age).count();
  }

  std::vector<fs::path> checkpoint_files() const {
    std::vector<fs::path> files = paths_below("results");
    std::erase_if(
        files, [](const fs::path& path) { return path.filename().string().find(".checkpoint") == std::string::npos; });
    std::ranges::sort(files);
    return files;
  }
  // Returns the file that names the parts of the checkpoint.
  fs::path checkpoint() const {
    for (const fs::path& file : checkpoint_files())
      if (file.extension() == ".checkpoint") return file;
    return {};
  }
  fs::file_time_type time_of_checkpoint() const {
    std::error_code none;
    const fs::path file = checkpoint();
    return file.empty() ? fs::file_time_type{} : fs::last_write_time(file, none);
  }

  fs::path run_directory(const char* results) const {
    for (const auto& entry : fs::recursive_directory_iterator(directory / results))
      if (entry.path().filename() == "summary.json") return entry.path().parent_path();
    return {};
  }

  void expect_undisturbed() const {
    const auto plain = syncopate("run e.toml checkpoint.write=false --quiet --results plain", 3);
    ASSERT_EQ(plain.status, 0) << plain.err;
    const fs::path expected = run_directory("plain"), found = run_directory("results");
    EXPECT_TRUE(read(found / "parameters.npy") == read(expected / "parameters.npy"));
    const auto one = nlohmann::json::parse(read(expected / "summary.json")),
               other = nlohmann::json::parse(read(found / "summary.json"));
    for (const char* const counted : {"kept_micro_batches_per_worker", "final_test_loss", "communicated_bytes"})
      EXPECT_EQ(one.value(counted, nlohmann::json()), other.value(counted, nlohmann::json())) << counted;
    EXPECT_THAT(checkpoint_files(), testing::IsEmpty());
  }

  ProgramOutcome outcome_;
};

TEST_F(RankCheckpointsProgram, KilledAsAWholeItGoesOnFromTheLastCommonCheckpoint) {
  const auto kill_all = [](const std::vector<pid_t>& ranks) {
    for (const pid_t rank : ranks) kill(rank, SIGKILL);
  };
  EXPECT_LT(stop(kill_all, std::chrono::milliseconds(150)), interval_s + slack_s);
  EXPECT_LT(stop(kill_all, std::chrono::milliseconds(300)), interval_s + slack_s);
  EXPECT_THAT(outcome_.err, HasSubstr("resumes from its checkpoint"));
  const auto last = syncopate("run e.toml --results results", 3);
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("resumes from its checkpoint"));
  expect_undisturbed();
}

TEST_F(RankCheckpointsProgram, WhereARankIsKilledAllGoOnFromTheLastCommonCheckpoint) {
  for (const std::size_t victim : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_LT(
        stop([&](const std::vector<pid_t>& ranks) { kill(ranks[victim], SIGKILL); }, std::chrono::milliseconds(100)),
        interval_s + slack_s);
    EXPECT_NE(outcome_.status, 0);
  }
  const auto last = syncopate("run e.toml --results results", 3);
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("resumes from its checkpoint"));
  expect_undisturbed();
}

TEST_F(RankCheckpointsProgram, OfADamagedPartItBeginsAnew) {
  stop([](const std::vector<pid_t>& ranks) { kill(ranks[1], SIGKILL); }, std::chrono::milliseconds(0));
  fs::path part;
  for (const fs::path& file : checkpoint_files())
    if (file.extension() == ".1" && file.filename().string().front() != '.') part = part.empty() ? file : part;
  ASSERT_FALSE(part.empty());
  std::string bytes = read(part);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(part, std::ios::binary) << bytes;
  const auto outcome = syncopate("run e.toml --quiet --results results", 3);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err,
              HasSubstr(": the part of rank 1: it is damaged or cut off; the run starts from the beginning\n"));
  expect_undisturbed();
}

// If one rank cannot write its part of a checkpoint, the other ranks' parts are useless and must be removed.
TEST_F(RankCheckpointsProgram, WhereARankCannotWriteNoPartsPileUp) {
  const std::string run = std::string(SYNCOPATE_PROGRAM) + " run e.toml --results results";
  std::atomic<bool> has_ended = false;
  std::thread launcher([&] {
    // The limit is set only after results exist, because MPI itself creates large files at the start.
    const std::string limit = "(until [ -e results ]; do sleep 0.01; done; prlimit --fsize=512 --pid $$) & ";
    outcome_ = mpirun({{2, run}, {1, "sh -c '" + limit + "exec " + run + "'"}});
    has_ended = true;
  });
  std::size_t most = 0;
  while (!has_ended) {
    most = std::max(most, checkpoint_files().size());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  launcher.join();
  EXPECT_EQ(outcome_.status, 0) << outcome_.err;
  EXPECT_THAT(outcome_.err,
              HasSubstr("no new one was written, and the run continues: rank 2: File too large; allow larger"));
  EXPECT_GT(most, 0U);
  EXPECT_LE(most, 6U) << "of each rank the last one and the one before, or what they have not got their names yet";
  expect_undisturbed();
}

TEST_F(RankCheckpointsProgram, WhereWhatNamesThePartsCannotBeWrittenTheRunGoesOn) {
  ASSERT_EQ(syncopate("run e.toml budget.steps=240 checkpoint.write=false --quiet --results plain", 3).status, 0);
  const std::string place = fs::relative(run_directory("plain"), directory / "plain").string() + ".checkpoint";
  fs::create_directories(directory / "results" / place / "in-its-place");
  const auto outcome = syncopate("run e.toml --results results", 3);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::string word = "no new one was written, and the run continues: Is a directory; remove the directory";
  const auto at = outcome.err.find(word);
  ASSERT_NE(at, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find(word, at + 1), std::string::npos) << "once";
  EXPECT_THAT(checkpoint_files(), testing::ElementsAre(directory / "results" / place)) << "and no parts stay";
}

TEST_F(RankCheckpointsProgram, RepeatedFromTheBeginningItTakesNoneUp) {
  stop([](const std::vector<pid_t>& ranks) { kill(ranks[0], SIGKILL); }, std::chrono::milliseconds(0));
  EXPECT_THAT(syncopate("run e.toml --rerun --results results", 3).err, Not(HasSubstr("resumes")));
  EXPECT_THAT(checkpoint_files(), testing::IsEmpty());
}

}  // namespace
}  // namespace syncopate
