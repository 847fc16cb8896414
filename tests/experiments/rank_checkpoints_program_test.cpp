// The built program under mpirun, killed in the middle of a run, as a whole or one rank of it: the same command goes on
// from the last checkpoint that all ranks have, which is no older than an interval, and comes to the same model. One
// that cannot be used is named, and the run begins anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
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
using Clock = std::chrono::steady_clock;

constexpr double interval_s = 0.2;
constexpr double slack_s = 2;  // of a busy machine: until all ranks stand still, and until it is on the disk

// Two seconds, nearly all of which ranks sleep.
constexpr const char* experiment = R"(name = "long"
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
    write("e.toml", experiment);
  }

  // Starts it on three ranks, and once it has written a checkpoint, and some time has passed, `disturb` gets their
  // processes. How old the newest checkpoint was then, in seconds.
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

  // The program may rename and remove them meanwhile.
  std::vector<fs::path> checkpoint_files() const {
    std::vector<fs::path> files;
    std::error_code gone;
    for (fs::recursive_directory_iterator at(directory / "results", gone), end; !gone && at != end; at.increment(gone))
      if (at->path().filename().string().find(".checkpoint") != std::string::npos) files.push_back(at->path());
    std::ranges::sort(files);
    return files;
  }
  // What names the parts.
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
  EXPECT_THAT(outcome_.err, HasSubstr("goes on from its checkpoint"));
  const auto last = syncopate("run e.toml --results results", 3);
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("goes on from its checkpoint"));
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
  EXPECT_THAT(last.err, HasSubstr("goes on from its checkpoint"));
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
  EXPECT_THAT(outcome.err, HasSubstr(": the part of rank 1: it is damaged or cut off; the run begins anew\n"));
  expect_undisturbed();
}

// What the others have written is of no use then.
TEST_F(RankCheckpointsProgram, WhereARankCannotWriteNoPartsPileUp) {
  const std::string run = std::string(SYNCOPATE_PROGRAM) + " run e.toml --results results";
  std::atomic<bool> has_ended = false;
  std::thread launcher([&] {
    // Not from the beginning: MPI makes large files of its own.
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
              HasSubstr("there is no newer one, and the run goes on: rank 2: File too large; allow larger"));
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
  const std::string word = "there is no newer one, and the run goes on: Is a directory; remove the directory";
  const auto at = outcome.err.find(word);
  ASSERT_NE(at, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find(word, at + 1), std::string::npos) << "once";
  EXPECT_THAT(checkpoint_files(), testing::ElementsAre(directory / "results" / place)) << "and no parts stay";
}

TEST_F(RankCheckpointsProgram, RepeatedFromTheBeginningItTakesNoneUp) {
  stop([](const std::vector<pid_t>& ranks) { kill(ranks[0], SIGKILL); }, std::chrono::milliseconds(0));
  EXPECT_THAT(syncopate("run e.toml --rerun --results results", 3).err, Not(HasSubstr("goes on")));
  EXPECT_THAT(checkpoint_files(), testing::IsEmpty());
}

}  // namespace
}  // namespace syncopate
