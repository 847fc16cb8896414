// Files that appear whole or not at all.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "results/run_directory.hpp"
#include "workers/base/process.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

class WholeFile : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  static std::string read(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory_)) found.push_back(entry.path().filename());
    return found;
  }

  const fs::path directory_ = fs::temp_directory_path() / fmt::format("syncopate_whole_file_{}", getpid());
};

TEST_F(WholeFile, IsReplaced) {
  for (const char* contents : {"long contents", "short"}) {
    replace_file(directory_ / "file", contents);
    EXPECT_EQ(read(directory_ / "file"), contents);
  }
  EXPECT_THAT(names(), testing::ElementsAre("file"));
}

TEST_F(WholeFile, IsKnownBeforehandToBeReplaceableOrNot) {
  replace_file(directory_ / "file", "x");
  fs::create_symlink("file", directory_ / "link");
  for (const char* name : {"file", "link", "new", "/dev/null"}) EXPECT_EQ(why_not_replaceable(directory_ / name), "");
  EXPECT_EQ(why_not_replaceable(directory_), "is a directory");
  EXPECT_EQ(why_not_replaceable(directory_ / "file/x"), (directory_ / "file").string() + ": is a file");
  EXPECT_EQ(why_not_replaceable(directory_ / "no/x"), (directory_ / "no").string() + ": no such directory");
}

// As if the device were full: the contents are longer than a file may be.
TEST_F(WholeFile, StaysAsItWasWhereItCannotBeWritten) {
  replace_file(directory_ / "file", "old");
  const pid_t writer = fork();
  if (writer == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 1000, .rlim_max = 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      replace_file(directory_ / "file", std::string(2000, 'n'));
    } catch (const std::system_error& error) {
      _exit(std::string(error.what()).find("file") != std::string::npos ? 0 : 2);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(writer, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read(directory_ / "file"), "old");
  EXPECT_THAT(names(), testing::ElementsAre("file"));
}

// Eight at once, each of which is somewhere else in its work.
TEST_F(WholeFile, IsWholeAndAloneWhereTheUserInterruptsItsWriter) {
  std::map<pid_t, fs::path> writers;
  for (int i = 0; i < 8; ++i) {
    const fs::path file = directory_ / fmt::format("file-{}", i);
    const pid_t writer = fork();
    if (writer == 0) {
      install_interrupt_handlers();
      raise(SIGINT);
      while (true)
        for (const char letter : {'o', 'n'}) replace_file(file, std::string(20'000'000, letter));
    }
    writers[writer] = file;
  }
  for (const auto& [writer, file] : writers) {
    int status = 0;
    waitpid(writer, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 130);
    const std::string text = read(file);
    EXPECT_TRUE(text.empty() || text == std::string(20'000'000, text.front())) << text.size();
  }
  EXPECT_THAT(names(), testing::Each(testing::StartsWith("file-")));
}

// Else who may write in a results directory could have others write over their files.
TEST_F(WholeFile, TakesThePlaceOfALinkOrAPipe) {
  replace_file(directory_ / "file", "old");
  fs::create_symlink("file", directory_ / "link");
  fs::create_symlink("nowhere", directory_ / "dangling");
  ASSERT_EQ(mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  for (const char* const name : {"link", "dangling", "pipe"}) {
    replace_file(directory_ / name, "new");
    EXPECT_EQ(fs::symlink_status(directory_ / name).type(), fs::file_type::regular) << name;
    EXPECT_EQ(read(directory_ / name), "new") << name;
  }
  EXPECT_EQ(read(directory_ / "file"), "old");
  EXPECT_FALSE(fs::exists(directory_ / "nowhere"));
}

TEST_F(WholeFile, ThatIsNamedIsWhatALinkLeadsTo) {
  replace_file(directory_ / "file", "old");
  fs::create_symlink("file", directory_ / "link");
  replace_named_file(directory_ / "link", "new");
  EXPECT_EQ(read(directory_ / "file"), "new");
  EXPECT_TRUE(fs::is_symlink(directory_ / "link"));
}

TEST_F(WholeFile, ThatIsNamedIsNotMadeOfAPipe) {
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  auto received = std::async(std::launch::async, [&] { return read(pipe); });
  replace_named_file(pipe, "text");
  EXPECT_EQ(received.get(), "text");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

}  // namespace
}  // namespace syncopate
