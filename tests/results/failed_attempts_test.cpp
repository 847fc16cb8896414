// How often a run is tried where several processes know of its failures.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "results/lease.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

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
  // An earlier program's, without a digest.
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

}  // namespace
}  // namespace syncopate
