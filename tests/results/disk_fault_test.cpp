// What is said of a disk that does not take results is what is wrong with it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "results/run_directory.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class DiskFault : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(directory_); }
  void TearDown() override {
    fs::permissions(above_, fs::perms::owner_all);
    fs::remove_all(above_);
  }
  std::string said(int error) const {
    return disk_fault(directory_,
                      fs::filesystem_error("cannot open", directory_ / "file", {error, std::generic_category()}));
  }

  const fs::path above_ = fs::path(testing::TempDir()) / fmt::format("syncopate-disk-fault-{}", getpid());
  const fs::path directory_ = above_ / "runs" / "experiment";
};

TEST_F(DiskFault, ThatIsGoneWasRemoved) {
  fs::remove_all(directory_);
  EXPECT_THAT(said(ENOENT), HasSubstr(directory_.string() + ": the results directory was removed"));
  EXPECT_THAT(said(EIO), HasSubstr("was removed"));
}

TEST_F(DiskFault, BelowAFolderThatCannotBeLookedIntoWasNotRemoved) {
  fs::permissions(above_, fs::perms::none);
  // Root may do everything, so the look is nobody's.
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setuid(65534) != 0) _exit(3);
    const std::string text = said(EACCES);
    _exit(text.find("removed") == text.npos && text.find("Permission denied; make it readable") != text.npos ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace syncopate
