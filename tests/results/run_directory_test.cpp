#include "results/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "results/found_runs.hpp"
#include "workers/base/machine.hpp"
#include "workers/base/process.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    results_ = fs::path(testing::TempDir()) /
               fmt::format("syncopate-{}-{}", getpid(), testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(results_);
    syncopate::Run run;
    run.experiment = "Quick Start";
    run.method = "Local SGD (QSR)";
    run.sweep = {{"training.lr.peak", "0.1"}};
    run.seed = 3;
    run.hash = "0123456789abcdef";
    runs_ = {run};
    directory_ = run_directory(results_, run, false);
  }
  void TearDown() override { fs::remove_all(results_); }

  static std::string read(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static pid_t number_of_a_dead_process() {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    return child;
  }

  static ProcessIdentity dead_process() {
    ProcessIdentity process = this_process();
    process.number = number_of_a_dead_process();
    return process;
  }

  fs::path hidden(std::string_view kind, const ProcessIdentity& process) const {
    return hidden_sibling(directory_, kind, process);
  }

  std::vector<std::string> beside_directory() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.parent_path())) names.push_back(entry.path().filename());
    return names;
  }

  fs::path results_;
  fs::path directory_;
  std::vector<syncopate::Run> runs_;
};

TEST(Slug, IsAGoodFileNameEverywhere) {
  EXPECT_EQ(slug("Local SGD (QSR)"), "local-sgd-qsr");
  EXPECT_EQ(slug("threshold_s=0.070"), "threshold_s=0.070");
  EXPECT_EQ(slug("../../etc/passwd"), "etc-passwd");
  EXPECT_EQ(slug(".hidden"), "hidden");
  EXPECT_EQ(slug("a / b"), "a-b");
  EXPECT_THAT(slug("\xC3\xA9t\xC3\xA9"), testing::MatchesRegex("t-[0-9a-f]{8}"));
  for (const char* text : {"***", "", " ", "..."})
    EXPECT_THAT(slug(text), testing::MatchesRegex("unnamed-[0-9a-f]{8}")) << text;
  EXPECT_EQ(slug(std::string(100, 'x')), std::string(100, 'x'));
  EXPECT_EQ(slug(std::string(300, 'x')).size(), 100u);
}

TEST(Slug, TellsApartWhatItCannotSpell) {
  const std::vector<std::string> texts = {"",
                                          " ",
                                          "  ",
                                          "\u6570\u636E",
                                          "\u6A21\u578B",
                                          "\u03C4 = 2",
                                          "\u03BB = 2",
                                          "2",
                                          std::string(100, 'x') + "a",
                                          std::string(100, 'x') + "b"};
  std::set<std::string> slugs;
  for (const std::string& text : texts) slugs.insert(slug(text));
  EXPECT_EQ(slugs.size(), texts.size()) << testing::PrintToString(slugs);
}

TEST(ExperimentDirectory, IsNobodyElses) {
  const auto name_of = [](const std::string& name) { return experiment_directory("r", name).filename().string(); };
  for (const char* name : {"a-b", "quickstart", "threshold_s=0.070", "v1.2"})
    EXPECT_EQ(experiment_directory("r", name), fs::path("r") / name) << "needs no change";
  const std::vector<std::string> texts = {"a-b",
                                          "a:b",
                                          "a b",
                                          "A-b",
                                          "a--b",
                                          "-a-b",
                                          "a-b.",
                                          " a-b",
                                          "\u6570a-b",
                                          std::string(100, 'x') + ":",
                                          std::string(101, 'x')};
  std::set<std::string> names;
  for (const std::string& text : texts) names.insert(name_of(text));
  EXPECT_EQ(names.size(), texts.size()) << testing::PrintToString(names);
  for (const std::string& name : names) EXPECT_LE(name.size(), 100u);
  EXPECT_THAT(name_of("a:b"), testing::MatchesRegex("a-b-[0-9a-f]{8}"));
  EXPECT_EQ(name_of("a:b"), name_of("a:b"));
  EXPECT_EQ(name_of("\u6570"), slug("\u6570")) << "has its hash already";
}

TEST_F(RunDirectoryTest, IsNamedFromWhatVariesWithTheSeedLast) {
  const fs::path of_experiment = directory_.parent_path().parent_path();
  EXPECT_EQ(of_experiment, experiment_directory(results_, "Quick Start"));
  EXPECT_EQ(directory_, of_experiment / "local-sgd-qsr_training.lr.peak=0.1" / "seed=3-01234567");
  EXPECT_EQ(run_directory(results_, runs_[0], true).filename(), "seed=3-01234567-mpi");
}

TEST_F(RunDirectoryTest, HoldsExactlyTheFilesOfTheLastWrite) {
  write_directory(directory_, {{"a", "one\n"}, {"b", "two"}});
  EXPECT_EQ(read(directory_ / "a"), "one\n");
  write_directory(directory_, {{"a", "three"}});
  EXPECT_EQ(read(directory_ / "a"), "three");
  EXPECT_FALSE(fs::exists(directory_ / "b"));
  EXPECT_THAT(beside_directory(), testing::ElementsAre("seed=3-01234567"));
}

TEST_F(RunDirectoryTest, StaysAsItWasWhenAWriteFails) {
  write_directory(directory_, {{"a", "one"}});
  EXPECT_THROW(write_directory(directory_, {{"a", "two"}, {"no/such/place", ""}}), std::system_error);
  EXPECT_EQ(read(directory_ / "a"), "one");
  EXPECT_THAT(beside_directory(), testing::ElementsAre("seed=3-01234567"));
}

TEST_F(RunDirectoryTest, IsWholeWheneverItsWriterIsKilled) {
  const std::string old_text(200'000, 'o');
  const std::string new_text(200'000, 'n');
  for (int attempt = 0; attempt < 20; ++attempt) {
    write_directory(directory_, {{"a", old_text}, {"b", old_text}});
    const pid_t writer = fork();
    if (writer == 0) {
      while (true) {
        write_directory(directory_, {{"a", new_text}, {"b", new_text}});
        write_directory(directory_, {{"a", old_text}, {"b", old_text}});
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(1000 + 373 * attempt));
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);

    remove_leftovers(results_, runs_);
    ASSERT_THAT(beside_directory(), testing::ElementsAre("seed=3-01234567"));
    const std::string a = read(directory_ / "a");
    ASSERT_TRUE(a == old_text || a == new_text);
    ASSERT_EQ(a, read(directory_ / "b"));
  }
}

// Ranks that each simulate the whole experiment write the same directories.
TEST_F(RunDirectoryTest, IsOneOfItsWritersWhenSeveralProcessesWriteIt) {
  std::vector<pid_t> writers;
  for (const char letter : {'a', 'b', 'c'}) {
    const pid_t writer = fork();
    if (writer == 0) {
      int status = 0;
      for (int i = 0; i < 100 && status == 0; ++i) {
        try {
          write_directory(directory_, {{"one", {letter}}, {"two", {letter}}});
        } catch (const std::exception&) {
          status = 1;
        }
      }
      _exit(status);
    }
    writers.push_back(writer);
  }
  for (const pid_t writer : writers) {
    int status = 0;
    waitpid(writer, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  EXPECT_THAT(beside_directory(), testing::ElementsAre("seed=3-01234567"));
  EXPECT_EQ(read(directory_ / "one"), read(directory_ / "two"));
}

// Eight processes write at the same time and are interrupted at different points.
TEST_F(RunDirectoryTest, IsWholeAndAloneWhenTheUserInterruptsItsWriter) {
  const std::string old_text(200'000, 'o');
  const std::string new_text(200'000, 'n');
  std::map<pid_t, fs::path> writers;
  for (int i = 0; i < 8; ++i) {
    const fs::path directory = directory_.parent_path() / fmt::format("run-{}", i);
    const pid_t writer = fork();
    if (writer == 0) {
      install_interrupt_handlers();
      raise(SIGINT);
      while (true) {
        write_directory(directory, {{"a", old_text}, {"b", old_text}});
        write_directory(directory, {{"a", new_text}, {"b", new_text}});
      }
    }
    writers[writer] = directory;
  }
  for (const auto& [writer, directory] : writers) {
    int status = 0;
    waitpid(writer, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 130);
  }
  for (const auto& [writer, directory] : writers) {
    const std::string a = read(directory / "a");
    EXPECT_TRUE(a == old_text || a == new_text);
    EXPECT_EQ(a, read(directory / "b"));
  }
  EXPECT_THAT(beside_directory(), testing::Each(testing::StartsWith("run-")));
}

TEST_F(RunDirectoryTest, LosesWhatDeadProcessesLeft) {
  const ProcessIdentity dead = dead_process();
  fs::create_directories(hidden("partial", dead));
  fs::create_directories(hidden("partial", this_process()));
  fs::create_directories(directory_.parent_path() / ".somebody.else");
  EXPECT_EQ(remove_leftovers(results_, runs_), 1);
  EXPECT_FALSE(fs::exists(hidden("partial", dead)));
  EXPECT_TRUE(fs::exists(hidden("partial", this_process()))) << "that process is still writing";
  EXPECT_TRUE(fs::exists(directory_.parent_path() / ".somebody.else"));
}

// The process with this number belongs to another container with this host's name. It may still be writing, whether or
// not a process here has the same number. But no process is writing files that have not changed for a day.
TEST_F(RunDirectoryTest, LeavesWhatProcessesThatItCannotSeeWroteLately) {
  ProcessIdentity elsewhere = dead_process();
  elsewhere.machine += " in another container";
  const fs::path by_host = directory_.parent_path() / fmt::format(".{}.partial.{}.{}", directory_.filename().string(),
                                                                  elsewhere.number, host_name());  // an old name
  for (const fs::path& left : {hidden("partial", elsewhere), by_host}) fs::create_directories(left);
  EXPECT_EQ(remove_leftovers(results_, runs_), 0);
  for (const fs::path& left : {hidden("partial", elsewhere), by_host}) {
    EXPECT_TRUE(fs::exists(left)) << left;
    fs::last_write_time(left, fs::last_write_time(left) - std::chrono::hours(23));
  }
  EXPECT_EQ(remove_leftovers(results_, runs_), 0);
  fs::last_write_time(by_host, fs::last_write_time(by_host) - std::chrono::hours(2));
  EXPECT_EQ(remove_leftovers(results_, runs_), 1);
  EXPECT_EQ(beside_directory(), std::vector{hidden("partial", elsewhere).filename().string()});
}

TEST_F(RunDirectoryTest, LosesWhatDeadProcessesLeftOfACommonPhase) {
  auto phase = std::make_shared<syncopate::Run>(runs_[0]);
  phase->method = "common phase";
  runs_[0].common_phase = phase;
  const fs::path directory = run_directory(results_, *phase, false);
  const fs::path left = hidden_sibling(directory, partial_kind, dead_process());
  fs::create_directories(left);
  EXPECT_EQ(remove_leftovers(results_, runs_), 1);
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(RunDirectoryTest, GetsItsFormerFilesBackWhenKilledBetweenTheRenames) {
  const ProcessIdentity dead = dead_process();
  write_directory(directory_, {{"a", "former"}});
  fs::rename(directory_, hidden("replaced", dead));
  fs::create_directories(hidden("partial", dead));
  EXPECT_EQ(remove_leftovers(results_, runs_), 2);
  EXPECT_EQ(read(directory_ / "a"), "former");
}

TEST_F(RunDirectoryTest, OfAWritableFilesystemIsUsable) {
  EXPECT_NO_THROW(require_usable(results_, runs_));
  EXPECT_TRUE(fs::is_empty(experiment_directory(results_, "Quick Start"))) << "nothing is left by the trial";
}

TEST_F(RunDirectoryTest, NamesTheFileInItsWay) {
  fs::create_directories(results_);
  std::ofstream(experiment_directory(results_, "Quick Start")) << "not a directory";
  try {
    require_usable(results_, runs_);
    FAIL() << "a file is no results directory";
  } catch (const ResultsDirectoryFault& fault) {
    EXPECT_THAT(fault.what(), HasSubstr((experiment_directory(results_, "Quick Start")).string() + ": is a file"));
  }
}

TEST_F(RunDirectoryTest, NamesTheFileInTheWayOfOneMethod) {
  fs::create_directories(directory_.parent_path());
  std::ofstream(directory_) << "not a directory";
  EXPECT_THROW(require_usable(results_, runs_), ResultsDirectoryFault);
}

TEST_F(RunDirectoryTest, CannotBeWhereNobodyMayWrite) {
  // In the proc file system, not even root may create directories.
  EXPECT_THROW(require_usable("/proc/syncopate", runs_), ResultsDirectoryFault);
}

// The directory of --results may be a link, and directories below it must not be.
TEST_F(RunDirectoryTest, IsNotUsableWhereALinkLeadsElsewhere) {
  const fs::path elsewhere = results_.string() + "-elsewhere",
                 experiment = experiment_directory(results_, "Quick Start");
  fs::remove_all(elsewhere);
  fs::create_directories(elsewhere);
  fs::create_directory_symlink(elsewhere, results_);
  EXPECT_NO_THROW(require_usable(results_, runs_));
  fs::remove(results_);
  for (const fs::path& place : {experiment, directory_.parent_path(), experiment / share_folder,
                                experiment / share_folder / leases_folder, experiment / share_folder / failed_folder}) {
    fs::remove_all(results_);
    fs::create_directories(place.parent_path());
    fs::create_directory_symlink(elsewhere, place);
    try {
      require_usable(results_, runs_);
      ADD_FAILURE() << place;
    } catch (const ResultsDirectoryFault& fault) {
      EXPECT_THAT(fault.what(), HasSubstr(fmt::format("{}: is a link to {}; ", place.string(), elsewhere.string())));
    }
  }
  fs::remove_all(elsewhere);
}

// A link in place of the run's directory is replaced, and the directory to which it leads stays.
TEST_F(RunDirectoryTest, TakesThePlaceOfALink) {
  const fs::path elsewhere = results_ / "elsewhere";
  fs::create_directories(elsewhere);
  std::ofstream(elsewhere / "a") << "theirs";
  fs::create_directories(directory_.parent_path());
  const auto link = [&] {
    fs::remove_all(directory_);
    fs::create_directory_symlink(elsewhere, directory_);
  };
  link();
  write_directory(directory_, {{"a", "ours"}});
  EXPECT_EQ(read(directory_ / "a"), "ours");
  link();
  EXPECT_TRUE(publish_directory(directory_, {{"a", "ours"}}, [](const fs::path&) { return false; }));
  EXPECT_EQ(read(directory_ / "a"), "ours");
  EXPECT_FALSE(fs::is_symlink(directory_));
  EXPECT_EQ(read(elsewhere / "a"), "theirs");
  EXPECT_THAT(beside_directory(), testing::ElementsAre("seed=3-01234567"));
}

TEST_F(RunDirectoryTest, WithoutPermissionIsNotUsable) {
  fs::create_directories(experiment_directory(results_, "Quick Start"));
  fs::permissions(experiment_directory(results_, "Quick Start"), fs::perms::none);
  const auto check = [this] {
    try {
      require_usable(results_, runs_);
      return 0;
    } catch (const ResultsDirectoryFault&) {
      return 2;
    }
  };
  // Root may write everywhere, so the check runs as nobody.
  const pid_t child = fork();
  if (child == 0) _exit(getuid() == 0 && setuid(65534) != 0 ? 3 : check());
  int status = 0;
  waitpid(child, &status, 0);
  fs::permissions(experiment_directory(results_, "Quick Start"), fs::perms::owner_all);
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

using testing::StartsWith;

class RunFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    top_ = fs::path(testing::TempDir()) / fmt::format("syncopate-run-files-{}-{}", getpid(), test->name());
    fs::remove_all(top_);
    directory_ = top_ / "seed=1-01234567";
    FileContents files{{"config.toml", "a = 1"},
                       {"metadata.json", "{}"},
                       {"metrics.csv", "123456789"},
                       {"steps.csv", std::string(1'000'000, 's')},
                       {"summary.json", "{}"}};
    files[list_of_files] = listed(files);
    write_directory(directory_, files);
  }
  void TearDown() override { fs::remove_all(top_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(directory_ / name) << text; }
  std::string place(const std::string& name) const { return (directory_ / name).string() + ": "; }

  fs::path top_;
  fs::path directory_;
};

TEST_F(RunFiles, AreListedWithSizeAndDigest) {
  const auto list = nlohmann::json::parse(listed({{"a", "123456789"}, {"empty", ""}}));
  EXPECT_EQ(list["files"]["a"]["bytes"], 9);
  EXPECT_EQ(list["files"]["a"]["crc32"], "cbf43926") << "the check value of CRC-32's definition";
  EXPECT_EQ(list["files"]["empty"]["crc32"], "00000000");
}

TEST_F(RunFiles, AsTheyWereWrittenAreWhole) {
  EXPECT_EQ(damage_of(directory_), "");
  write("notes.txt", "somebody's own");
  EXPECT_EQ(damage_of(directory_), "");
  EXPECT_EQ(damage_of(top_ / "nowhere"), "") << "no run, no damage";
}

TEST_F(RunFiles, ThatAreEmptiedAreNamed) {
  write("metrics.csv", "");
  EXPECT_EQ(damage_of(directory_), place("metrics.csv") + "has 0 bytes, but 9 were written");
}

TEST_F(RunFiles, WithAnotherDigitAreNamed) {
  write("metrics.csv", "123456788");
  EXPECT_THAT(damage_of(directory_), StartsWith(place("metrics.csv")));
  std::string far(1'000'000, 's');
  far[999'999] = 't';
  write("metrics.csv", "123456789");
  EXPECT_EQ(damage_of(directory_), "");
  write("steps.csv", far);
  EXPECT_THAT(damage_of(directory_), StartsWith(place("steps.csv")));
}

TEST_F(RunFiles, ThatAreGoneOrDirectoriesAreNamed) {
  fs::remove(directory_ / "steps.csv");
  EXPECT_EQ(damage_of(directory_), place("steps.csv") + "is not there");
  fs::create_directory(directory_ / "steps.csv");
  EXPECT_THAT(damage_of(directory_), StartsWith(place("steps.csv")));
}

TEST_F(RunFiles, WithoutAReadableListAreNotWhole) {
  for (const char* text :
       {"", "[]", "{}", R"({"files": {}})", R"({"files": {"metrics.csv": {}}})", R"({"files": {"metrics.csv": 3}})"}) {
    write(list_of_files, text);
    EXPECT_THAT(damage_of(directory_), StartsWith(place(list_of_files))) << text;
  }
  write(list_of_files, R"({"schema_version": 2, "files": {}})");
  EXPECT_EQ(damage_of(directory_), place(list_of_files) + "does not list config.toml");
  write(list_of_files, R"({"schema_version": 9, "files": {}})");
  EXPECT_EQ(damage_of(directory_), place(list_of_files) + "is of schema version 9, and this program knows 2");
  fs::remove(directory_ / list_of_files);
  EXPECT_THAT(damage_of(directory_), StartsWith(place(list_of_files)));
  fs::create_directory(directory_ / list_of_files);
  EXPECT_THAT(damage_of(directory_), StartsWith(place(list_of_files)));
}

// Several processes have computed the same run, and one of them publishes it.

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_done(const fs::path& directory) { return read(directory / "end") == "finished"; }

class PublishedDirectory : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    above_ = fs::path(testing::TempDir()) / fmt::format("syncopate-published-{}-{}", getpid(), name);
    fs::remove_all(above_);
    directory_ = above_ / "seed=1-00000000";
  }
  void TearDown() override { fs::remove_all(above_); }

  bool publish(const std::string& who, const std::string& end = "finished") const {
    return publish_directory(directory_, {{"who", who}, {"end", end}}, is_done);
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(above_), fs::directory_iterator()));
  }

  fs::path above_, directory_;
};

TEST_F(PublishedDirectory, TheFirstOneStays) {
  EXPECT_TRUE(publish("first"));
  EXPECT_FALSE(publish("second"));
  EXPECT_EQ(read(directory_ / "who"), "first");
  EXPECT_EQ(entries(), 1u) << "nothing hidden beside it";
}

TEST_F(PublishedDirectory, WhatIsNotDoneIsReplaced) {
  EXPECT_TRUE(publish("first", "failed"));
  EXPECT_TRUE(publish("second", "failed"));
  EXPECT_TRUE(publish("third"));
  EXPECT_FALSE(publish("fourth", "failed"));
  EXPECT_EQ(read(directory_ / "who"), "third");
  EXPECT_EQ(entries(), 1u);
}

// The lock is held by a process that publishes another run below the same directory.
TEST_F(PublishedDirectory, WaitsForWhoHasLockedTheDirectoryAbove) {
  fs::create_directories(above_);
  auto other = std::make_unique<Descriptor>(above_, O_RDONLY | O_DIRECTORY);
  other->lock();
  auto published = std::async(std::launch::async, [this] { return publish("this"); });
  EXPECT_EQ(published.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  EXPECT_FALSE(fs::exists(directory_));
  other.reset();
  EXPECT_TRUE(published.get());
  EXPECT_EQ(read(directory_ / "who"), "this");
}

TEST_F(PublishedDirectory, OneOfManyProcessesDoesIt) {
  for (int round = 0; round < 30; ++round) {
    fs::remove_all(directory_);
    if (round % 2 == 1) publish("before", "failed");
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = fork();
      if (child == 0) _exit(publish(std::to_string(i)) ? 1 : 0);
      children.push_back(child);
    }
    int published = 0;
    int winner = -1;
    for (int i = 0; i < 4; ++i) {
      int status = -1;
      waitpid(children[static_cast<std::size_t>(i)], &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      published += WEXITSTATUS(status);
      if (WEXITSTATUS(status) == 1) winner = i;
    }
    ASSERT_EQ(published, 1) << round;
    ASSERT_EQ(read(directory_ / "who"), std::to_string(winner)) << round;
    ASSERT_EQ(entries(), 1u) << round;
  }
}

}  // namespace
}  // namespace syncopate
