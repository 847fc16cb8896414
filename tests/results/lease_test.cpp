// Leases: a run has one owner at a time. Others take the run over if its owner has ended or become silent. Only files
// are used.
#include "results/lease.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <latch>
#include <thread>

#include "results/run_directory.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto time_out = 300ms;

class LeaseTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    directory = fs::path(testing::TempDir()) / fmt::format("syncopate-lease-{}-{}", getpid(), name);
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override { fs::remove_all(directory); }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory)) found.push_back(entry.path().filename().string());
    return found;
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(directory / name) << text; }
  std::string read(const std::string& name) const {
    std::ifstream file(directory / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Returns a note by a process of another machine. No process here can find out whether that process exists.
  LeaseNote foreign(double time_out_s) const {
    return {.what = "run",
            .token = "far away",
            .host = "node3",
            .process = {.machine = "another start of another machine", .number = 17, .start = 5},
            .since = "2024-05-01T12:00:00Z",
            .time_out_s = time_out_s};
  }

  fs::path directory;
};

TEST_F(LeaseTest, OneAloneHasIt) {
  Leases here(directory, time_out), there(directory, time_out);
  auto lease = here.take("run");
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lease->is_mine());
  EXPECT_EQ(lease->taken_from(), nullptr);
  EXPECT_EQ(there.take("run"), nullptr);
  EXPECT_EQ(here.take("run"), nullptr);
  EXPECT_TRUE(there.take("another"));
  lease.reset();
  EXPECT_TRUE(there.take("run"));
  EXPECT_THAT(names(), testing::IsEmpty());
}

TEST_F(LeaseTest, SaysWhoHasItAndHowFar) {
  Leases leases(directory, 50ms);
  const auto lease = leases.take("run");
  lease->report_progress(0.25);
  auto held = leases.held();
  for (int waits = 0; waits < 500 && (held.size() != 1 || held[0].beat <= 2); ++waits) {
    std::this_thread::sleep_for(10ms);
    held = leases.held();
  }
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].what, "run");
  EXPECT_EQ(held[0].process, this_process());
  EXPECT_EQ(held[0].share_done, 0.25);
  EXPECT_GT(held[0].beat, 2);
  EXPECT_EQ(held[0].time_out_s, 0.05);
}

TEST_F(LeaseTest, AnOwnerThatBeatsKeepsItForEver) {
  Leases here(directory, 100ms), there(directory, 100ms);
  const auto lease = here.take("run");
  const auto until = std::chrono::steady_clock::now() + 500ms;
  while (std::chrono::steady_clock::now() < until) {
    ASSERT_EQ(there.take("run"), nullptr);
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_TRUE(lease->is_mine());
}

TEST_F(LeaseTest, OfAProcessThatIsGoneIsTakenAtOnce) {
  Leases here(directory, 1h);
  const pid_t child = fork();
  if (child == 0) {
    Leases leases(directory, 1h);
    const auto lease = leases.take("run");
    _exit(lease ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(here.held().size(), 1u);
  auto lease = here.take("run");
  ASSERT_TRUE(lease);
  ASSERT_NE(lease->taken_from(), nullptr);
  EXPECT_EQ(lease->taken_from()->process.number, child);
  EXPECT_TRUE(lease->former_is_gone());
  lease.reset();
  EXPECT_THAT(names(), testing::IsEmpty()) << "also what the one before has left";
}

// The number of the earlier owner's process is now this process's number.
TEST_F(LeaseTest, OfAnEarlierProcessWithTheSameNumberIsTakenAtOnce) {
  LeaseNote note = foreign(3600);
  note.process = this_process();
  note.process.start -= 1;
  write("run.1", to_text(note));
  EXPECT_TRUE(Leases(directory, 1h).take("run"));
}

TEST_F(LeaseTest, OfAnotherMachineIsTakenOnceItHasBeenSilentForItsTimeOut) {
  write("run.1", to_text(foreign(0.3)));
  Leases leases(directory, 1h);
  const auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<Lease> lease;
  while (!lease && std::chrono::steady_clock::now() - begin < 10s) {
    lease = leases.take("run");
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 300ms);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->taken_from()->owner(), "node3, process 17");
  EXPECT_FALSE(lease->former_is_gone());
  EXPECT_EQ(read("run.1"), to_text(foreign(0.3))) << "no file of another owner is changed";
  EXPECT_TRUE(fs::exists(directory / "run.2"));
}

TEST_F(LeaseTest, OfAnotherMachineIsKeptAsLongAsItsFileChanges) {
  Leases leases(directory, 1h);
  LeaseNote note = foreign(0.2);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < 600ms) {
    ++note.beat;
    write("run.1", to_text(note));
    ASSERT_EQ(leases.take("run"), nullptr);
    std::this_thread::sleep_for(20ms);
  }
}

// An old file may belong to an owner with a wrong clock. So only the time counts in which this process has seen no
// change.
TEST_F(LeaseTest, NoClockOfAFileCounts) {
  write("run.1", to_text(foreign(3600)));
  fs::last_write_time(directory / "run.1", fs::file_time_type::clock::now() - 24h * 365);
  EXPECT_EQ(Leases(directory, 1ms).take("run"), nullptr);
}

TEST_F(LeaseTest, WhatIsNoLeaseIsTakenAfterTheObserversTimeOut) {
  for (const std::string text : {"", "garbage", "{}", "{\"what\": 3}", "[1, 2]"}) {
    write("run.1", text);
    Leases leases(directory, 100ms);
    EXPECT_EQ(leases.take("run"), nullptr) << text;
    std::this_thread::sleep_for(120ms);
    const auto lease = leases.take("run");
    ASSERT_TRUE(lease) << text;
    EXPECT_EQ(lease->taken_from()->owner(), "a process that left no name");
  }
}

TEST_F(LeaseTest, ALateOwnerFindsOutAndLeavesTheOtherAlone) {
  Leases leases(directory, time_out);
  auto late = leases.take("run");
  write("run.2", to_text(foreign(3600)));
  EXPECT_FALSE(late->is_mine());
  late.reset();
  EXPECT_TRUE(fs::exists(directory / "run.2"));
}

TEST_F(LeaseTest, ALateOwnerFindsOutWhereTheRunIsPublishedAlready) {
  Leases leases(directory, time_out);
  auto late = leases.take("run");
  leases.remove("run");
  EXPECT_FALSE(late->is_mine());
  write("run.1", to_text(foreign(3600)));  // another owner's lease, so the time of silence starts again
  EXPECT_FALSE(late->is_mine());
  late.reset();
  EXPECT_TRUE(fs::exists(directory / "run.1"));
}

TEST_F(LeaseTest, OneOfManyTakesItOver) {
  for (int round = 0; round < 100; ++round) {
    LeaseNote note = foreign(3600);
    note.process = this_process();
    note.process.start -= 1;
    write("run.1", to_text(note));
    constexpr int takers = 6;
    std::latch all(takers);
    std::atomic<int> owners = 0;
    std::latch done(takers);
    std::vector<std::thread> threads;
    for (int i = 0; i < takers; ++i)
      threads.emplace_back([&] {
        Leases leases(directory, 1h);
        all.arrive_and_wait();
        const auto lease = leases.take("run");
        owners += lease ? 1 : 0;
        done.arrive_and_wait();
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(owners, 1) << round;
    ASSERT_THAT(names(), testing::IsEmpty()) << round;
  }
}

TEST_F(LeaseTest, IsRefusedWithThePathWhereTheDirectoryIsGone) {
  Leases leases(directory, time_out);
  fs::remove_all(directory);
  try {
    leases.take("run");
    FAIL();
  } catch (const fs::filesystem_error& problem) {
    EXPECT_THAT(problem.what(), testing::HasSubstr(directory.string()));
  }
}

// Whatever is in place of the lease's file, the observer waits no longer than for a lease that does not change.
TEST_F(LeaseTest, WhatIsNoFileIsTakenAfterTheObserversTimeOut) {
  const auto put = [&](int kind) {
    const fs::path file = directory / "run.1";
    if (kind == 0) fs::create_symlink("nowhere", file);
    if (kind == 1) fs::create_symlink("/dev/zero", file);
    if (kind == 2) mkfifo(file.c_str(), 0600);
    if (kind == 3) fs::create_directory(file);
    if (kind == 4) write("run.1", ""), fs::resize_file(file, 3'000'000'000);
  };
  for (int kind = 0; kind < 5; ++kind) {
    put(kind);
    Leases leases(directory, 100ms);
    EXPECT_EQ(leases.held().size(), 1u) << kind;
    EXPECT_EQ(leases.take("run"), nullptr) << kind;
    std::this_thread::sleep_for(120ms);
    auto lease = leases.take("run");
    ASSERT_TRUE(lease) << kind;
    EXPECT_TRUE(lease->is_mine()) << kind;
    EXPECT_EQ(lease->taken_from()->owner(), "a process that left no name") << kind;
    lease.reset();
    EXPECT_THAT(names(), testing::IsEmpty()) << kind;
  }
}

// The file belongs to another user with umask 077, so it cannot be read, but its changes are visible.
TEST_F(LeaseTest, ThatCannotBeReadIsTakenOnceItHasNotChangedForTheTimeOut) {
  write("run.1", to_text(foreign(0.3)));
  fs::permissions(directory, fs::perms::all);
  fs::permissions(directory / "run.1", fs::perms::none);
  const auto look = [&] {
    if (getuid() == 0 && setuid(65534) != 0) return 3;  // root may read every file
    Leases leases(directory, 300ms);
    for (int i = 0; i < 30; ++i) {
      if (leases.take("run")) return 4;
      fs::last_write_time(directory / "run.1", fs::file_time_type::clock::now() + std::chrono::seconds(i));
      std::this_thread::sleep_for(20ms);
    }
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < 10s) {
      if (leases.take("run")) return std::chrono::steady_clock::now() - begin < 250ms ? 5 : 0;
      std::this_thread::sleep_for(5ms);
    }
    return 6;
  };
  // Only the owner may change a file's times.
  const bool is_theirs = getuid() != 0 || chown((directory / "run.1").c_str(), 65534, 65534) == 0;
  ASSERT_TRUE(is_theirs);
  const pid_t child = fork();
  if (child == 0) _exit(look());
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(LeaseTest, ATimeOutThatNobodyCanHaveSetIsTheObservers) {
  write("run.1", to_text(foreign(1e300)));
  Leases leases(directory, 50ms);
  EXPECT_EQ(leases.take("run"), nullptr);
  std::this_thread::sleep_for(70ms);
  EXPECT_TRUE(leases.take("run"));
}

TEST_F(LeaseTest, ItsNumberEndsWithAFaultThatNamesTheFile) {
  write("run.999999999", "");
  Leases leases(directory, 50ms);
  EXPECT_EQ(leases.take("run"), nullptr);
  std::this_thread::sleep_for(70ms);
  try {
    leases.take("run");
    FAIL();
  } catch (const ResultsDirectoryFault& fault) {
    EXPECT_THAT(fault.what(),
                testing::StartsWith((directory / "run.999999999").string() + ": no process uses this lease"));
  }
}

TEST_F(LeaseTest, NamesThatAreNoLeasesAreLeftAlone) {
  for (const char* name :
       {"run", "run.0", "run.x", "run.-1", ".run.1.partial", "run.1x", "run.2147483647", "run.99999999999"})
    write(name, "");
  Leases leases(directory, time_out);
  EXPECT_THAT(leases.held(), testing::IsEmpty());
  EXPECT_TRUE(leases.take("run"));
  EXPECT_EQ(names().size(), 8u);
}

// How often a run is tried if several processes record its failures.

class FailedAttemptsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    directory = fs::path(testing::TempDir()) / fmt::format("syncopate-attempts-{}-{}", getpid(), name);
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override { fs::remove_all(directory); }

  AttemptRecords of_call(const std::string& call, int retries = 0) const { return {directory, call, retries}; }
  static bool is_used_up(const AttemptRecords& records) { return records.are_used_up(records.of("run")); }

  fs::path directory;
};

TEST_F(FailedAttemptsTest, OneIsEnoughWithoutRetries) {
  const AttemptRecords records = of_call("a");
  EXPECT_FALSE(is_used_up(records));
  records.add_failure("run", "it has failed", false);
  EXPECT_TRUE(is_used_up(records));
  EXPECT_EQ(records.of("run")->reason, "it has failed");
  EXPECT_FALSE(records.of("another"));
  records.remove("run");
  EXPECT_FALSE(is_used_up(records));
}

TEST_F(FailedAttemptsTest, ARecordThatIsNotAsItWasWrittenIsNone) {
  const AttemptRecords records = of_call("a");
  records.add_failure("run", "it has failed", false);
  const fs::path file = directory / "run.json";
  std::string text;
  std::getline(std::ifstream(file), text, '\0');
  const auto at = text.find("\"failures\": 1");
  ASSERT_NE(at, text.npos);
  text[at + 12] = '3';
  std::ofstream(file) << text;
  EXPECT_FALSE(is_used_up(records));
  // This record by an earlier program has no digest.
  std::ofstream(file) << R"({"call": "a", "failures": 1, "lost": 0, "is_final": false, "reason": "it has failed"})";
  EXPECT_TRUE(is_used_up(records));
}

TEST_F(FailedAttemptsTest, EachRetryIsOneMore) {
  const AttemptRecords records = of_call("a", 2);
  for (int failures = 1; failures <= 3; ++failures) {
    EXPECT_FALSE(is_used_up(records));
    records.add_failure("run", "again", false);
  }
  EXPECT_TRUE(is_used_up(records));
}

TEST_F(FailedAttemptsTest, WhatWouldComeAgainIsNotRepeated) {
  const AttemptRecords records = of_call("a", 9);
  records.add_failure("run", "diverged", true);
  EXPECT_TRUE(is_used_up(records));
}

TEST_F(FailedAttemptsTest, OfOthersWhoAreAtWorkCount) {
  const AttemptRecords records = of_call("a");
  of_call("b").add_failure("run", "theirs", false);
  EXPECT_TRUE(is_used_up(records));
}

TEST_F(FailedAttemptsTest, OfAnEarlierCallDoNotCountAndOfTheSameDo) {
  of_call("a").add_failure("run", "earlier", false);
  EXPECT_FALSE(is_used_up(of_call("b")));
  EXPECT_TRUE(is_used_up(of_call("a"))) << "another process of the same launch, that began later";
  const AttemptRecords later = of_call("b", 1);
  later.add_failure("run", "later", false);
  EXPECT_FALSE(is_used_up(later)) << "it counts from the beginning";
  EXPECT_EQ(later.of("run")->failures, 1);
}

TEST_F(FailedAttemptsTest, ALostProcessIsMadeUpForOnceAtLeast) {
  const AttemptRecords records = of_call("a");
  records.add_lost("run", "node3, process 17");
  EXPECT_FALSE(is_used_up(records));
  records.add_lost("run", "node4, process 18");
  EXPECT_TRUE(is_used_up(records));
  EXPECT_THAT(records.of("run")->reason, testing::HasSubstr("node4, process 18"));
}

TEST_F(FailedAttemptsTest, WhatIsNoRecordIsNone) {
  for (const char* text : {"", "garbage", "{}", "{\"call\": 1}"}) {
    std::ofstream(directory / "run.json") << text;
    const AttemptRecords records = of_call("a");
    EXPECT_FALSE(records.of("run")) << text;
    EXPECT_FALSE(is_used_up(records));
  }
}

// The hidden name of a leftover file contains the identity of its process, not a host name.

std::string named(const ProcessIdentity& process, std::string_view kind = partial_kind) {
  return hidden_sibling("folder/seed=1-0123abcd", kind, process).filename().string();
}

ProcessState state(const ProcessIdentity& process) { return read_hidden_name(named(process))->state; }

TEST(HiddenNames, SayWhatTheyStandFor) {
  const auto partial = read_hidden_name(named(this_process()));
  ASSERT_TRUE(partial);
  EXPECT_EQ(partial->name, "seed=1-0123abcd");
  EXPECT_FALSE(partial->is_replaced);
  EXPECT_TRUE(read_hidden_name(named(this_process(), replaced_kind))->is_replaced);
  EXPECT_EQ(hidden_sibling("folder/file.txt", partial_kind).parent_path(), "folder");
  // Here the file's own name looks like a hidden name.
  EXPECT_EQ(read_hidden_name(hidden_sibling(".a.partial.1.2.b", partial_kind).string())->name, ".a.partial.1.2.b");
}

TEST(HiddenNames, SayWhetherTheirProcessIsThere) {
  ProcessIdentity process = this_process();
  EXPECT_EQ(state(process), ProcessState::running);
  process.start -= 1;  // the process number has been assigned again
  EXPECT_EQ(state(process), ProcessState::gone);
  process = this_process();
  process.number = 999'999'999;
  EXPECT_EQ(state(process), ProcessState::gone);
}

// Process 1 of a container is not process 1 of another container with the same name. Processes from before the
// machine's last start are unknown, too.
TEST(HiddenNames, OfAnotherMachineOrContainerAreUnknown) {
  ProcessIdentity process = this_process();
  process.number = 999'999'999;
  process.machine += " another";
  EXPECT_EQ(state(process), ProcessState::unknown);
  EXPECT_EQ(read_hidden_name(".run.partial.999999999." + host_name())->state, ProcessState::unknown)
      << "an earlier program's name";
}

TEST(HiddenNames, OtherFilesHaveNone) {
  for (const char* name : {"", ".", "..", ".hidden", "run.partial.1.2.3", ".partial.1.2.3", ".run.partial.x.2.3",
                           ".run.partial.0.1.2", ".run.partial.-1.1.2", ".run.partial.7", ".run.part.1.2.3"})
    EXPECT_FALSE(read_hidden_name(name)) << name;
}

}  // namespace
}  // namespace syncopate
