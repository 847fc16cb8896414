#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "results/run_directory.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
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
  EXPECT_EQ(damage_of(directory_), place("metrics.csv") + "has 0 bytes, where 9 were written");
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

}  // namespace
}  // namespace syncopate
