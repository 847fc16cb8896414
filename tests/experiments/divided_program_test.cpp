// The built program, started by mpirun with --cluster simulated. Its processes divide each simulation, leave the same
// files as one process, and end together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/program.hpp"
#include "tests/experiments/program_processes.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

const std::string experiment = R"(name = "e"
[cluster]
workers = 8
micro_batches = 2
micro_batch_s = 0.01
[network]
kind = "fixed"
latency_s = 0.001
[[delays]]
kind = "exponential"
mean = 0.005
[training]
model = "mlp"
dataset = "gaussian-mixture"
micro_batch_size = 8
learning_rate = { schedule = "cosine", peak = 0.1 }
optimizer = { name = "sgd", momentum = 0.9 }
[models.mlp]
hidden = [16]
[datasets.gaussian-mixture]
train = 1280
test = 200
[budget]
steps = 20
[evaluation]
every_steps = 5
train_samples = 100
[[methods]]
label = "synchronous"
algorithm = "sync-sgd"
[[methods]]
label = "local"
algorithm = "local-sgd"
period = { rule = "constant", steps = 4 }
[[methods]]
label = "asynchronous"
algorithm = "async-sgd"
[[methods]]
label = "gossip"
algorithm = "decentralized-sgd"
)";

// The second run takes days.
const std::string endless = experiment + "[sweep]\n\"budget.steps\" = [1, 100_000_000]\n";

struct DividedProgram : ProgramTest {
  void SetUp() override {
    ProgramTest::SetUp();
    write("e.toml", experiment);
    // By default Open MPI kills surviving processes one second after it has told them to end. On a busy machine they
    // need longer to report.
    kill_survivors_after_s("5");
  }

  static void kill_survivors_after_s(const char* seconds) {
    ::setenv("OMPI_MCA_odls_base_sigkill_timeout", seconds, 1);
  }

  // Returns the contents of files with this name, by their paths below the results.
  std::map<std::string, std::string> files(const std::string& results, const std::string& name) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(directory / results))
      if (entry.path().filename() == name)
        found[entry.path().parent_path().lexically_relative(directory / results)] = read(entry.path());
    return found;
  }

  static std::vector<std::vector<std::string>> cells(const std::string& csv) {
    std::vector<std::vector<std::string>> rows;
    std::istringstream lines(csv);
    for (std::string line, cell; std::getline(lines, line);) {
      std::istringstream of_line(line);
      for (rows.emplace_back(); std::getline(of_line, cell, ',');) rows.back().push_back(cell);
    }
    return rows;
  }

  // Losses and accuracies may differ by rounding. All other numbers must be equal.
  void expect_same_metrics(const std::string& results, const std::string& others) const {
    const auto one = files(results, "metrics.csv"), other = files(others, "metrics.csv");
    ASSERT_EQ(one.size(), 4u);
    ASSERT_EQ(other.size(), 4u);
    for (const auto& [run, text] : one) {
      SCOPED_TRACE(run);
      ASSERT_TRUE(other.contains(run)) << "the same directories";
      const auto found = cells(other.at(run)), expected = cells(text);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t row = 1; row < found.size(); ++row)
        for (std::size_t column = 0; column < found[row].size(); ++column) {
          const std::string& name = expected[0][column];
          if (name.find("loss") == name.npos && name.find("accuracy") == name.npos) {
            EXPECT_EQ(found[row][column], expected[row][column]) << name;
          } else if (!expected[row][column].empty()) {
            const double value = std::stod(expected[row][column]);
            EXPECT_NEAR(std::stod(found[row][column]), value, 1e-3 * std::max(1.0, std::abs(value))) << name;
          }
        }
    }
    EXPECT_EQ(files(results, "steps.csv"), files(others, "steps.csv"));
  }

  std::vector<fs::path> checkpoints(const std::string& results) const {
    std::vector<fs::path> found = paths_below(results);
    std::erase_if(
        found, [](const fs::path& path) { return path.filename().string().find(".checkpoint") == std::string::npos; });
    return found;
  }

  // Starts a run on two processes, and kills these once all parts of a checkpoint exist.
  void kill_at_checkpoint(const std::string& run, const std::string& results) {
    kill_survivors_after_s("0");  // Open MPI kills surviving processes at once
    ProgramOutcome outcome;
    std::thread launcher([&] { outcome = syncopate(run + " checkpoint.every_s=0.05 --results " + results, 2); });
    const auto is_whole = [](const fs::path& file) { return file.extension() == ".checkpoint"; };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (!std::ranges::any_of(checkpoints(results), is_whole) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const std::vector<pid_t> processes = processes_in(directory, SYNCOPATE_PROGRAM);
    for (const pid_t process : processes) kill(process, SIGKILL);
    launcher.join();
    EXPECT_EQ(processes.size(), 2u) << "it had ended";
    EXPECT_NE(outcome.status, 0) << outcome.err;
    for (int i = 0; i < 100 && !processes_in(directory, SYNCOPATE_PROGRAM).empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }

  bool a_run_is_there() const { return has_file_below("results", "summary.json"); }
  // Starts the endless experiment. Once a run has finished and the next one has begun, passes the processes to
  // `disturb`.
  template <typename Disturb>
  ProgramOutcome launch(int processes, Disturb disturb) {
    write("endless.toml", endless);
    ProgramOutcome outcome;
    std::thread launcher([&] {
      outcome = syncopate("run endless.toml --quiet --cluster simulated --threads 1 --results results --only local",
                          processes);
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (!a_run_is_there() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const std::vector<pid_t> ranks = processes_in(directory, SYNCOPATE_PROGRAM);
    EXPECT_EQ(ranks.size(), static_cast<std::size_t>(processes));
    if (!ranks.empty()) disturb(ranks);
    launcher.join();
    for (int i = 0; i < 100 && !processes_in(directory, SYNCOPATE_PROGRAM).empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE(processes_in(directory, SYNCOPATE_PROGRAM).empty()) << "all have ended";
    return outcome;
  }
};

pid_t launcher_of(pid_t rank) {
  std::ifstream status("/proc/" + std::to_string(rank) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:")) return std::stoi(line.substr(5));
  return 0;
}

std::size_t times(const std::string& what, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST_F(DividedProgram, LeavesWhatOneProcessLeaves) {
  const auto one = syncopate("run e.toml --quiet --threads 2 --results one");
  ASSERT_EQ(one.status, 0) << one.err;
  const auto single = syncopate("run e.toml --quiet --cluster simulated --threads 2 --results single", 1);
  ASSERT_EQ(single.status, 0) << single.err;
  EXPECT_EQ(files("one", "metrics.csv"), files("single", "metrics.csv")) << "one process, to the byte";
  for (const int processes : {2, 4}) {
    const std::string results = fmt::format("by{}", processes);
    const auto outcome =
        syncopate("run e.toml --quiet --cluster simulated --threads 1 --results " + results, processes);
    ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    expect_same_metrics("one", results);
    for (const auto& [run, text] : files(results, "metadata.json")) {
      const auto metadata = nlohmann::json::parse(text);
      EXPECT_EQ(metadata["processes"], processes);
      EXPECT_EQ(metadata["cluster"], "simulated");
    }
  }
  // The divided runs count as those of one process, so nothing remains to be done.
  const auto again = syncopate("run e.toml --results by2");
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.err, HasSubstr("4 of 4 runs already exist"));
  EXPECT_EQ(times("s/step", syncopate("run e.toml --cluster simulated --results by2", 2).out), 1u)
      << "one table, by process 0";
}

TEST_F(DividedProgram, HasCommonPhasesAndTrialsLikeOneProcess) {
  write("e.toml", experiment + R"([training.common]
steps = 5
[tune]
seeds = [11]
"training.learning_rate.peak" = [0.05, 0.1]
measure = "final_validation_loss"
)");
  // The two learning rates differ by a factor of 1.5, so rounding cannot change the choice.
  const std::string run = "run e.toml --quiet training.validation_samples=200 --only synchronous --only local ";
  const auto one = syncopate(run + "--threads 2 --results one");
  const auto two = syncopate(run + "--threads 1 --cluster simulated --results two", 2);
  ASSERT_EQ(one.status, 0) << one.err;
  ASSERT_EQ(two.status, 0) << two.err;
  std::vector<std::string> runs, others;
  for (const auto& [run, text] : files("one", "metrics.csv")) runs.push_back(run);
  for (const auto& [run, text] : files("two", "metrics.csv")) others.push_back(run);
  EXPECT_EQ(runs, others);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers take more addresses than the limit
TEST_F(DividedProgram, AFailureOfOneProcessFailsTheRunAndTheNextOnesAreMade) {
  write("e.toml", experiment + "[sweep]\n\"models.mlp.hidden\" = [[40000, 2000], [16]]\n");
  const std::string run = "run e.toml --cluster simulated --threads 1 --results results --only synchronous";
  const std::string command = "'" SYNCOPATE_PROGRAM "' " + run;
  const auto outcome = mpirun({{1, command}, {1, "sh -c \"ulimit -v 1500000 && exec " + command + "\""}});
  EXPECT_EQ(outcome.status, 1) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, testing::AnyOf(HasSubstr("process 1: not enough memory"),
                                          HasSubstr("process 1: the memory does not suffice")));
  const auto summaries = files("results", "summary.json");
  std::size_t finished = 0;
  for (const auto& [name, text] : summaries) finished += nlohmann::json::parse(text)["status"] == "finished" ? 1 : 0;
  EXPECT_EQ(finished, 1u) << outcome.out;
}
#endif

TEST_F(DividedProgram, EndsOnAllProcessesWhenItIsInterrupted) {
  const auto outcome = launch(2, [](const std::vector<pid_t>& ranks) { kill(launcher_of(ranks.front()), SIGINT); });
  if (launcher_shows_all) {
    EXPECT_EQ(times("interrupted; finished runs stay", outcome.err), 1u) << outcome.err;
  }
  EXPECT_THAT(outcome.err, Not(HasSubstr("lost")));
}

TEST_F(DividedProgram, EndsWhenAProcessIsKilledAndSaysWhich) {
  const auto outcome = launch(3, [](const std::vector<pid_t>& ranks) { kill(ranks[1], SIGKILL); });
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, testing::ContainsRegex(a_rank_was_lost()));
  EXPECT_THAT(outcome.err, Not(HasSubstr("interrupted;")));
}

TEST_F(DividedProgram, KilledGoesOnFromTheLastCheckpointOfAll) {
  const std::string run = "run e.toml --cluster simulated --threads 1 budget.steps=2000 evaluation.every_steps=500 ";
  for (const std::string only : {"local", "asynchronous"}) {
    SCOPED_TRACE(only);
    const auto whole = syncopate(run + "checkpoint.write=false --quiet --results whole --only " + only, 2);
    ASSERT_EQ(whole.status, 0) << whole.err;
    kill_at_checkpoint(run + "--only " + only, "killed");
    const auto last = syncopate(run + "--results killed --only " + only, 2);
    EXPECT_EQ(last.status, 0) << last.err;
    EXPECT_EQ(times("resumes from its checkpoint", last.err), 1u) << last.err;
    EXPECT_THAT(last.err, Not(HasSubstr("starts from the beginning")));
  }
  EXPECT_EQ(files("killed", "metrics.csv"), files("whole", "metrics.csv"));
  EXPECT_EQ(files("killed", "steps.csv"), files("whole", "steps.csv"));
  EXPECT_THAT(checkpoints("killed"), testing::IsEmpty());
}

TEST_F(DividedProgram, WithoutAPartOfItsCheckpointItBeginsAnew) {
  const std::string run =
      "run e.toml --cluster simulated --threads 1 budget.steps=2000 evaluation.every_steps=500 --only local ";
  ASSERT_EQ(syncopate(run + "checkpoint.write=false --quiet --results whole", 2).status, 0);
  kill_at_checkpoint(run, "killed");
  for (const auto& file : checkpoints("killed"))
    if (file.extension() == ".1") fs::remove(file);
  const auto last = syncopate(run + "--results killed", 2);
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_EQ(times("process 1: its part is missing; the run starts from the beginning", last.err), 1u) << last.err;
  kill_at_checkpoint(run, "other");
  const auto other = syncopate(run + "--results other", 3);
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(times("its number of processes is 2, not 3; the run starts from the beginning", other.err), 1u)
      << other.err;
  EXPECT_EQ(files("killed", "metrics.csv"), files("whole", "metrics.csv"));
  kill_at_checkpoint(run, "alone");
  EXPECT_THAT(syncopate(run + "--results alone").err, HasSubstr("its number of processes is 2, not 1; the run starts"));
  EXPECT_THAT(checkpoints("alone"), testing::IsEmpty());
}

TEST_F(DividedProgram, WhereWhatNamesThePartsCannotBeWrittenTheRunGoesOn) {
  const std::string run =
      "run e.toml --cluster simulated --threads 1 budget.steps=1000 --only local checkpoint.every_s=0.05 ";
  ASSERT_EQ(syncopate(run + "--quiet --results whole", 2).status, 0);
  const std::string place = files("whole", "metrics.csv").begin()->first + ".checkpoint";
  fs::create_directories(directory / "results" / place / "in-its-place");
  const auto outcome = syncopate(run + "--results results", 2);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::string word = "no new one was written, and the run continues: Is a directory; remove the directory";
  EXPECT_EQ(times(word, outcome.err), 1u) << outcome.err;
  EXPECT_THAT(checkpoints("results"), testing::ElementsAre(directory / "results" / place)) << "and no parts stay";
  EXPECT_EQ(files("results", "metrics.csv"), files("whole", "metrics.csv"));
}

// After a start with the wrong number of processes, the command with the right number still resumes at the checkpoint.
TEST_F(DividedProgram, ACheckpointOfOtherProcessesStaysUntilThereIsANewOne) {
  const std::string run = "run e.toml --cluster simulated --threads 1 budget.steps=2000 --only local --results killed ";
  kill_at_checkpoint("run e.toml --cluster simulated --threads 1 budget.steps=2000 --only local", "killed");
  const auto there = checkpoints("killed");
  std::thread launcher([&] { syncopate(run, 3); });  // writes no checkpoint within a minute
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::vector<pid_t> processes;
  while (processes.size() < 3 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    processes = processes_in(directory, SYNCOPATE_PROGRAM);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (const pid_t process : processes) kill(process, SIGKILL);
  launcher.join();
  EXPECT_THAT(checkpoints("killed"), testing::UnorderedElementsAreArray(there));
  const auto last = syncopate(run, 2);
  EXPECT_EQ(times("resumes from its checkpoint", last.err), 1u) << last.err;
  EXPECT_THAT(checkpoints("killed"), testing::IsEmpty());
}

TEST_F(DividedProgram, CheckSaysWhatEachNeeds) {
  const auto need_of = [&](const std::string& options, int processes, const std::string& whose) {
    const auto outcome = syncopate("check e.toml models.mlp.hidden=[2000,2000] " + options, processes);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const std::string begin = "# memory of " + whose + ": about ";
    const auto at = outcome.out.find(begin);
    EXPECT_NE(at, std::string::npos) << outcome.out;
    return at == std::string::npos ? 0.0 : std::stod(outcome.out.substr(at + begin.size()));
  };
  const double one = need_of("", 0, "a process");
  const double two = need_of("--cluster simulated", 2, "each of 2 processes that divide a run");
  const double four = need_of("--cluster simulated", 4, "each of 4 processes that divide a run");
  EXPECT_LT(two, one);
  EXPECT_LT(four, two);
}

TEST_F(DividedProgram, WhatDoesNotGoTogetherIsRefused) {
  const auto refused = [&](const std::string& options, const std::string& why) {
    const auto outcome = syncopate("run e.toml --cluster simulated " + options, 2);
    EXPECT_EQ(outcome.status, 2) << options << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(why)) << options;
    EXPECT_EQ(times(why, outcome.err), 1u);
    EXPECT_FALSE(fs::exists(directory / "results")) << options;
  };
  refused("--jobs 2", "--jobs cannot be used under mpirun");
  refused("--retry 1", "--retry cannot be used if processes divide each run");
  refused("--no-wait", "--no-wait needs --share");
}

}  // namespace
}  // namespace syncopate
