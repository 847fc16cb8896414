// Checkpoint files. A reader gets a complete file that belongs to its run, or an error that gives the reason.
#include "results/checkpoint_file.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const CheckpointIdentity identity{{"run", "0123456789abcdef"}, {"program", "Syncopate 1"}};

class CheckpointFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("syncopate-checkpoint-file-{}", getpid());
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Writes contents that are longer than the pieces in which a file is written.
  void write() const {
    CheckpointWriter writer(file(), identity);
    writer.write("begin", 5);
    writer.write(values_.data(), values_.size() * sizeof(double));
    writer.write("end", 3);
    writer.finish();
    writer.publish();
  }
  std::string bytes() const {
    std::ifstream stream(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void put(const std::string& bytes) const { std::ofstream(file(), std::ios::binary) << bytes; }
  std::string refusal(const CheckpointIdentity& of = identity) const {
    try {
      CheckpointReader reader(file(), of);
    } catch (const CheckpointFault& fault) {
      return fault.what();
    }
    return "";
  }
  fs::path file() const { return folder_ / "method" / "seed=1-0123abcd.checkpoint"; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(file().parent_path()))
      names.push_back(entry.path().filename().string());
    return names;
  }

  fs::path folder_;
  std::vector<double> values_ = std::vector<double>(300'000, 1.5);
};

TEST_F(CheckpointFile, GivesBackWhatWasWritten) {
  write();
  CheckpointReader reader(file(), identity);
  std::string text(5, ' ');
  reader.read(text.data(), 5);
  EXPECT_EQ(text, "begin");
  std::vector<double> values(values_.size());
  reader.read(values.data(), values.size() * sizeof(double));
  EXPECT_EQ(values, values_);
  text.resize(3);
  reader.read(text.data(), 3);
  EXPECT_EQ(text, "end");
  EXPECT_THROW(reader.read(text.data(), 1), CheckpointFault);
}

TEST_F(CheckpointFile, HasItsNameOnceItIsWhole) {
  write();
  const std::string before = bytes();
  {
    CheckpointWriter second(file(), identity);
    second.write("other", 5);
    second.finish();
    EXPECT_EQ(bytes(), before);
    EXPECT_EQ(names().size(), 2U);
  }  // the writer is destroyed without publish()
  EXPECT_EQ(bytes(), before);
  EXPECT_THAT(names(), testing::ElementsAre("seed=1-0123abcd.checkpoint"));
  std::ofstream(part_of_checkpoint(file(), 12, 0)) << "part";
  std::ofstream(part_of_checkpoint(file(), 12, 1)) << "part";
  remove_checkpoint(file());
  EXPECT_TRUE(names().empty());
  remove_checkpoint(file());  // no error, although there is no checkpoint
}

TEST_F(CheckpointFile, IsRefusedWhereverItIsCutOff) {
  write();
  const std::string whole = bytes();
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, std::size_t{23}, std::size_t{40}, whole.size() / 2,
                                   whole.size() - 8, whole.size() - 1}) {
    put(whole.substr(0, length));
    EXPECT_THAT(refusal(), HasSubstr("cut off")) << length;
  }
  put(whole + "x");
  EXPECT_THAT(refusal(), HasSubstr("damaged"));
}

TEST_F(CheckpointFile, IsRefusedWithAnyByteChanged) {
  write();
  const std::string whole = bytes();
  for (std::size_t at = 8; at < whole.size(); at += at < 100 || at + 100 > whole.size() ? 1 : 99'991) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    put(changed);
    EXPECT_THAT(refusal(), HasSubstr("damaged")) << at;
  }
  put("another" + whole.substr(7));
  EXPECT_EQ(refusal(), "it is not a checkpoint of Syncopate");
}

TEST_F(CheckpointFile, IsRefusedToAnotherRunOrProgram) {
  write();
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(refusal({{"run", "0123456789abcdee"}, {"program", "Syncopate 1"}}),
            "its run is 0123456789abcdef, not 0123456789abcdee");
  EXPECT_EQ(refusal({{"run", "0123456789abcdef"}, {"program", "Syncopate 2"}}),
            "its program is Syncopate 1, not Syncopate 2");
  EXPECT_THAT(refusal({{"run", "0123456789abcdef"}}), HasSubstr("another version"));
  EXPECT_THAT(refusal({{"run", "0123456789abcdef"}, {"compiler", "Syncopate 1"}}), HasSubstr("another version"));
}

TEST_F(CheckpointFile, LiesBesideTheRunsDirectory) {
  EXPECT_EQ(checkpoint_of("results/e/sync/seed=1-0123abcd"), fs::path("results/e/sync/seed=1-0123abcd.checkpoint"));
}

}  // namespace
}  // namespace syncopate
