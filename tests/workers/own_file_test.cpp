// Files of ours are read whole or refused, whatever somebody has put in their place.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <string>

#include "workers/base/files.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

class OwnFileTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string fault(const std::string& name, std::uint64_t most_bytes = most_own_bytes) const {
    try {
      read_file(folder_ / name, most_bytes);
    } catch (const std::runtime_error& problem) {
      return problem.what();
    }
    return "";
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / fmt::format("syncopate-own-file-{}", getpid());
};

TEST_F(OwnFileTest, IsReadWhole) {
  for (const std::size_t bytes : {0, 1, 65536, 1'000'003}) {
    const std::string text(bytes, 'x');
    std::ofstream(folder_ / "file") << text;
    EXPECT_EQ(read_file(folder_ / "file"), text) << bytes;
    EXPECT_EQ(read_file(folder_ / "file", bytes), text) << bytes;
  }
  EXPECT_NE(read_file("/proc/self/status"), "") << "whose size the system gives as 0";
}

TEST_F(OwnFileTest, ThatIsNotThereIsNone) {
  EXPECT_EQ(read_file(folder_ / "none"), std::nullopt);
  EXPECT_EQ(read_file(folder_ / "none/file"), std::nullopt);
  std::ofstream(folder_ / "file") << "";
  EXPECT_EQ(read_file(folder_ / "file/below"), std::nullopt);
  fs::create_symlink("nowhere", folder_ / "link");
  EXPECT_EQ(read_file(folder_ / "link"), std::nullopt);
}

TEST_F(OwnFileTest, IsNoDirectoryPipeOrDevice) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", folder_ / "device");
  EXPECT_EQ(fault("pipe"), (folder_ / "pipe").string() + ": is not a regular file");
  EXPECT_EQ(fault("device"), (folder_ / "device").string() + ": is not a regular file");
  EXPECT_EQ(fault(""), (folder_ / "").string() + ": is a directory");
}

// It takes no room on the disk.
TEST_F(OwnFileTest, ThatIsTooLargeIsNotRead) {
  std::ofstream(folder_ / "file") << "0123456789";
  EXPECT_EQ(fault("file", 10), "");
  EXPECT_EQ(fault("file", 9), (folder_ / "file").string() + ": has 10 bytes; must have at most 9");
  std::ofstream(folder_ / "large") << "";
  fs::resize_file(folder_ / "large", 3'000'000'000);
  EXPECT_EQ(fault("large"), (folder_ / "large").string() + ": has 3000000000 bytes; must have at most 268435456");
}

}  // namespace
}  // namespace syncopate
