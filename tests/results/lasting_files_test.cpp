// The order in which a run's directory reaches the disk before it gets its name. The test replaces system calls and
// logs them.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "results/run_directory.hpp"

namespace {

std::vector<std::string> calls;  // "sync <path>", "rename <from> <to>"
std::string failing;             // a sync fails if its path ends with this text

}  // namespace

// These replace the C library's functions in this program and in all its libraries.
extern "C" int fsync(int descriptor) {
  const auto path = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor)).string();
  calls.push_back(fmt::format("sync {}", path));
  if (!failing.empty() && path.ends_with(failing)) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  calls.push_back(fmt::format("rename {} {}", from, to));
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace syncopate {
namespace {

namespace fs = std::filesystem;

class LastingFiles : public testing::Test {
 protected:
  void SetUp() override {
    top_ = fs::canonical(testing::TempDir()) / fmt::format("syncopate-lasting-{}", getpid());
    fs::remove_all(top_);
    fs::create_directory(top_);
    directory_ = top_ / "experiment" / "method" / "seed=1-01234567";
    calls.clear();
    failing.clear();
  }
  void TearDown() override { fs::remove_all(top_); }

  // Returns the index of the only call that equals `call`; -1 if there is none.
  static std::ptrdiff_t place(const std::string& call) {
    const auto found = std::ranges::find(calls, call);
    EXPECT_EQ(std::ranges::count(calls, call), 1) << call << " among\n" << testing::PrintToString(calls);
    return found == calls.end() ? -1 : found - calls.begin();
  }
  static std::string sync_of(const fs::path& path) { return fmt::format("sync {}", path.string()); }
  static std::string call_with_end(const std::string& end) {
    const auto found = std::ranges::find_if(calls, [&](const std::string& call) { return call.ends_with(end); });
    return found == calls.end() ? "" : *found;
  }

  fs::path top_;
  fs::path directory_;
};

TEST_F(LastingFiles, AreOnTheDiskBeforeTheirDirectoryHasItsNameAndThenTheNameIs) {
  write_directory(directory_, {{"a", "one"}, {"b", "two"}});
  const std::string named = call_with_end(fmt::format(" {}", directory_.string()));
  ASSERT_TRUE(named.starts_with("rename ")) << testing::PrintToString(calls);
  const std::string aside = named.substr(7, named.find(' ', 7) - 7);
  const auto naming = place(named);
  for (const char* part : {"/a", "/b", ""}) EXPECT_LT(place(sync_of(aside + part)), naming) << part;
  EXPECT_LT(place(sync_of(aside + "/a")), place(sync_of(aside))) << "the directory holds what is already there";
  EXPECT_GT(place(sync_of(directory_.parent_path())), naming);
  EXPECT_LT(place(sync_of(top_)), naming) << "the name of a directory that was made for it";
  EXPECT_LT(place(sync_of(top_ / "experiment")), naming);
}

TEST_F(LastingFiles, ThatTheDiskDoesNotTakeLeaveTheDirectoryAsItWas) {
  write_directory(directory_, {{"a", "one"}});
  failing = "/a";
  EXPECT_THROW(write_directory(directory_, {{"a", "two"}}), std::system_error);
  std::ifstream file(directory_ / "a");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "one");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.parent_path()), {}), 1) << "nothing beside it";
}

}  // namespace
}  // namespace syncopate
