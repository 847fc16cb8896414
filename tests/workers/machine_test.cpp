// Limits of control groups, read from a test's folder in place of the system's.
#include "workers/base/machine.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <string>

#include "tests/workers/quiet_machine.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

class ControlGroups : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << "\n";
  }
  void of_process(const std::string& lines) const { write("proc/self/cgroup", lines); }
  // Writes the files of a control group of version 2.
  void group(const std::string& path, const std::string& most, std::int64_t used, std::int64_t cached = 0) const {
    write("sys/fs/cgroup" + path + "/memory.max", most);
    write("sys/fs/cgroup" + path + "/memory.current", std::to_string(used));
    write("sys/fs/cgroup" + path + "/memory.stat",
          fmt::format("anon 77\nactive_file 5\ninactive_file {}\nslab 3", cached));
  }
  void group_1(const std::string& path, std::int64_t most, std::int64_t used) const {
    write("sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes", std::to_string(most));
    write("sys/fs/cgroup/memory" + path + "/memory.usage_in_bytes", std::to_string(used));
  }
  std::int64_t left() const { return left_by_control_groups(root_); }

  const fs::path root_ = fs::path(testing::TempDir()) / fmt::format("syncopate-control-groups-{}", getpid());
};

TEST_F(ControlGroups, WithoutAnyEverythingIsLeft) {
  EXPECT_EQ(left(), unlimited);
  of_process("0::/\n4:cpu:/a");
  EXPECT_EQ(left(), unlimited);
}

// The service has a limit. The job within it has none of its own.
TEST_F(ControlGroups, ThoseAboveCountToo) {
  of_process("0::/system.slice/service/job");
  group("/system.slice", "max", 9000);
  group("/system.slice/service", "1000", 300);
  group("/system.slice/service/job", "max", 200);
  EXPECT_EQ(left(), 700);
  group("/system.slice/service/job", "600", 200);
  EXPECT_EQ(left(), 400);
  group("/system.slice", "1050", 900);
  EXPECT_EQ(left(), 150);
  group("/system.slice/another", "10", 10);
  EXPECT_EQ(left(), 150) << "another's";
}

TEST_F(ControlGroups, WhereItIsSlowedDownIsALimitToo) {
  of_process("0::/job");
  group("/job", "max", 100);
  write("sys/fs/cgroup/job/memory.high", "500");
  EXPECT_EQ(left(), 400);
}

TEST_F(ControlGroups, WhatFilesTakeIsFreeWhereItCanGo) {
  of_process("0::/job");
  group("/job", "1000", 900, 850);
  EXPECT_EQ(left(), 950);
}

// Groups as Slurm makes them, on a system with version 1 whose systemd has its own hierarchy.
TEST_F(ControlGroups, OfVersion1AreFoundByTheirControllers) {
  of_process("9:name=systemd:/\n4:hugetlb,memory:/slurm/uid_0/job_7/step_0\n2:cpu:/other\n0::/");
  group_1("", 9223372036854771712, 5000);
  group_1("/slurm/uid_0", 9223372036854771712, 4000);
  group_1("/slurm/uid_0/job_7", 2000, 500);
  group_1("/slurm/uid_0/job_7/step_0", 9223372036854771712, 500);
  EXPECT_EQ(left(), 1500);
  group_1("/other", 10, 0);
  EXPECT_EQ(left(), 1500);
}

// A container without its own cgroup namespace sees its group's files at the top, but the group's outer name.
TEST_F(ControlGroups, OfAContainerLieAtTheTop) {
  of_process("4:memory:/docker/0123\n0::/");
  group_1("", 3000, 1000);
  EXPECT_EQ(left(), 2000);
  of_process("0::/../../docker/0123:with:colons");
  fs::remove_all(root_ / "sys");
  group("", "800", 100);
  EXPECT_EQ(left(), 700);
}

TEST_F(ControlGroups, OfVersion2MayLieBesideThoseOfVersion1) {
  of_process("4:memory:/\n0::/job");
  group_1("", 9223372036854771712, 1000);
  write("sys/fs/cgroup/unified/job/memory.max", "500");
  write("sys/fs/cgroup/unified/job/memory.current", "200");
  EXPECT_EQ(left(), 300);
}

// A load must be detected. Otherwise tests that need a quiet machine would fail instead of being skipped.

// Threads that each try to keep a core busy for the object's lifetime.
class Load {
 public:
  explicit Load(int threads) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this] {
        while (!stop_) continue;
      });
  }
  ~Load() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

TEST(QuietMachine, AThreadGetsItsShareOfTheCoresAtMost) {
  const Load load(3 * cores_here());
  EXPECT_LT(share_of_the_cores(std::chrono::milliseconds(200)), 0.6);  // with four threads for each core: a quarter
}

TEST(QuietMachine, ALoadBeforeOrAfterIsADisturbance) {
  using testing::StartsWith;
  auto load = std::make_unique<Load>(4 * cores_here());
  QuietWatch before;
  load.reset();
  EXPECT_THAT(before.disturbance(), StartsWith("machine is not quiet: a thread gets"));
  QuietWatch after;
  load = std::make_unique<Load>(4 * cores_here());
  EXPECT_THAT(after.disturbance(), StartsWith("machine is not quiet: a thread gets"));
}

}  // namespace
}  // namespace syncopate
