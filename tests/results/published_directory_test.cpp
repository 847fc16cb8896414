// Of several processes that have computed the same run, one publishes it.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>

#include "results/found_runs.hpp"
#include "results/run_directory.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

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

// Another process that publishes below it.
TEST_F(PublishedDirectory, WaitsForWhoHasLockedTheDirectoryAbove) {
  fs::create_directories(above_);
  auto other = std::make_unique<Descriptor>(above_, O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(other->lock());
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
