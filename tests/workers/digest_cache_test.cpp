#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "workers/base/files.hpp"
#include "workers/data/datasets.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class DigestCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    top_ = fs::path(testing::TempDir()) / fmt::format("syncopate-digests-{}-{}", getpid(), test->name());
    fs::remove_all(top_);
    fs::create_directories(top_);
    cache_file_ = top_ / "cache" / "digests";
  }
  void TearDown() override { fs::remove_all(top_); }

  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(top_ / name, std::ios::binary) << text;
    return top_ / name;
  }
  // Waits for more than a tick of the file system's clock, so that the times of all files are in the past.
  static void let_the_clock_go_on() { std::this_thread::sleep_for(50ms); }
  std::string kept() const {
    std::ifstream file(cache_file_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path top_;
  fs::path cache_file_;
};

TEST_F(DigestCacheTest, GivesTheProjectsHashOfTheContents) {
  // XXH3 (64 bits) of empty input, from the specification's reference implementation.
  EXPECT_EQ(DigestCache("").digest(write("empty", "")), "2d06800538d394c2");
  DigestCache cache(cache_file_);
  const std::string one = cache.digest(write("one", std::string(3'000'000, 'a')));
  EXPECT_EQ(cache.digest(write("same", std::string(3'000'000, 'a'))), one) << "wherever it lies";
  EXPECT_NE(cache.digest(write("other", std::string(2'999'999, 'a') + "b")), one);
}

TEST_F(DigestCacheTest, ReadsASettledFileOnce) {
  const fs::path file = write("a", "some data");
  let_the_clock_go_on();
  DigestCache first(cache_file_, 0ns);
  const std::string digest = first.digest(file);
  EXPECT_EQ(first.digest(file), digest);
  EXPECT_EQ(first.files_read(), 1);
  DigestCache later(cache_file_, 0ns);
  EXPECT_EQ(later.digest(file), digest);
  EXPECT_EQ(later.files_read(), 0) << "another process finds it in the file";
}

// Opening the pipe would block until another process opens its other end.
TEST_F(DigestCacheTest, DoesWithoutAFileWhereAPipeHasItsName) {
  const fs::path file = write("a", "some data");
  let_the_clock_go_on();
  fs::create_directories(cache_file_.parent_path());
  ASSERT_EQ(mkfifo(cache_file_.c_str(), 0600), 0);
  DigestCache cache(cache_file_, 0ns);
  EXPECT_EQ(cache.digest(file), DigestCache("").digest(file));
  EXPECT_TRUE(fs::is_fifo(cache_file_));
}

TEST_F(DigestCacheTest, SeesOtherContentsOfTheSameSizeAndTime) {
  const fs::path file = write("a", "some data");
  let_the_clock_go_on();
  DigestCache cache(cache_file_, 0ns);
  const std::string before = cache.digest(file);
  struct stat status {};
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  write("a", "same size");
  const timespec times[] = {status.st_atim, status.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  EXPECT_NE(cache.digest(file), before);
}

TEST_F(DigestCacheTest, SeesAnotherFileOfTheSameName) {
  const fs::path file = write("a", "some data");
  const fs::path other = write("b", "same size");
  let_the_clock_go_on();
  DigestCache cache(cache_file_, 0ns);
  const std::string before = cache.digest(file);
  fs::rename(other, file);
  EXPECT_NE(cache.digest(file), before);
}

TEST_F(DigestCacheTest, GivesATouchedFileTheSameDigest) {
  const fs::path file = write("a", "some data");
  DigestCache cache(cache_file_, 0ns);
  const std::string before = cache.digest(file);
  fs::last_write_time(file, fs::file_time_type::clock::now() - 1h);
  EXPECT_EQ(cache.digest(file), before);
}

// A file that is rewritten within the same tick of the clock may have the same size, inode number and times.
TEST_F(DigestCacheTest, KeepsNoDigestOfAFileThatHasJustChanged) {
  const fs::path file = write("a", "some data");
  DigestCache cache(cache_file_, 1h);
  cache.digest(file);
  cache.digest(file);
  EXPECT_EQ(cache.files_read(), 2);
  EXPECT_EQ(kept(), "");
}

// Any program may set a file's modification time, so an old one does not prove that the file is old.
TEST_F(DigestCacheTest, KeepsNoDigestOfAFileThatSaysItIsOld) {
  const fs::path file = write("a", "some data");
  fs::last_write_time(file, fs::file_time_type::clock::now() - 48h);
  DigestCache cache(cache_file_, 1h);
  cache.digest(file);
  cache.digest(file);
  EXPECT_EQ(cache.files_read(), 2);
  EXPECT_EQ(kept(), "");
}

TEST_F(DigestCacheTest, KeepsNoDigestOfAFileFromTheFuture) {
  const fs::path file = write("a", "some data");
  fs::last_write_time(file, fs::file_time_type::clock::now() + 24h);
  let_the_clock_go_on();
  DigestCache cache(cache_file_, 0ns);
  cache.digest(file);
  cache.digest(file);
  EXPECT_EQ(cache.files_read(), 2);
}

TEST_F(DigestCacheTest, IsNotMisledByADamagedFileOfItsOwn) {
  const fs::path a = write("a", "some data"), b = write("b", "other data");
  let_the_clock_go_on();
  const std::string digest_a = DigestCache(cache_file_, 0ns).digest(a);
  const std::string digest_b = DigestCache(cache_file_, 0ns).digest(b);
  const std::string whole = kept();
  ASSERT_EQ(std::count(whole.begin(), whole.end(), '\n'), 2);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = damaged[at] == '0' ? '1' : '0';
    std::ofstream(cache_file_, std::ios::binary) << damaged;
    DigestCache cache(cache_file_, 0ns);
    ASSERT_EQ(cache.digest(a), digest_a) << at;
    ASSERT_EQ(cache.digest(b), digest_b) << at;
    ASSERT_GT(cache.files_read(), 0) << at;
  }
  std::ofstream(cache_file_, std::ios::binary) << whole.substr(0, whole.size() / 2) << std::string(100, '\0');
  EXPECT_EQ(DigestCache(cache_file_, 0ns).digest(b), digest_b);
}

TEST_F(DigestCacheTest, WithoutAPlaceToKeepThemCostsTimeAlone) {
  const fs::path file = write("a", "some data");
  let_the_clock_go_on();
  const std::string digest = DigestCache("").digest(file);
  for (const fs::path& nowhere : {fs::path("/proc/syncopate/digests"), write("file", "") / "digests", top_}) {
    DigestCache cache(nowhere, 0ns);
    EXPECT_EQ(cache.digest(file), digest) << nowhere;
    cache.digest(file);
    EXPECT_EQ(cache.files_read(), 1) << "remembered at least here";
  }
}

TEST_F(DigestCacheTest, IsSafeBesideManyWriters) {
  constexpr int writers = 8, files_each = 20;
  std::vector<fs::path> files;
  for (int i = 0; i < writers * files_each; ++i)
    files.push_back(write(fmt::format("f{}", i), fmt::format("data {}", i)));
  let_the_clock_go_on();
  std::vector<std::thread> threads;
  for (int writer = 0; writer < writers; ++writer)
    threads.emplace_back([&, writer] {
      DigestCache own(cache_file_, 0ns);  // as in a separate process
      for (int i = 0; i < files_each; ++i) own.digest(files[static_cast<std::size_t>(writer * files_each + i)]);
    });
  for (std::thread& thread : threads) thread.join();
  DigestCache cache(cache_file_, 0ns), fresh("", 0ns);
  for (const fs::path& file : files) EXPECT_EQ(cache.digest(file), fresh.digest(file));
  EXPECT_EQ(cache.files_read(), 0) << "every line is there, and whole";
  EXPECT_EQ(std::distance(fs::directory_iterator(cache_file_.parent_path()), {}), 1) << "nothing is left aside";
}

TEST_F(DigestCacheTest, AddsALineAndLeavesTheOthersAlone) {
  const fs::path a = write("a", "some data"), b = write("b", "other data");
  let_the_clock_go_on();
  DigestCache cache(cache_file_, 0ns);
  cache.digest(a);
  const std::string before = kept();
  const fs::path same = cache_file_.parent_path() / "same";
  fs::create_hard_link(cache_file_, same);
  cache.digest(b);
  EXPECT_EQ(kept().substr(0, before.size()), before);
  EXPECT_TRUE(fs::equivalent(cache_file_, same)) << "the file is not written anew";
}

TEST_F(DigestCacheTest, KeepsTheNewestOfTooMany) {
  constexpr int count = 21;
  constexpr std::size_t most_kept = 10;
  std::vector<fs::path> files;
  for (int i = 0; i < count; ++i) files.push_back(write(fmt::format("f{}", i), fmt::format("data {}", i)));
  let_the_clock_go_on();
  DigestCache writer(cache_file_, 0ns, most_kept);
  for (const fs::path& file : files) writer.digest(file);
  const std::string all = kept();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), count) << "by one process they are all kept";
  DigestCache next(cache_file_, 0ns, most_kept);
  next.digest(files.back());
  const std::string newest = kept();
  EXPECT_EQ(newest, all.substr(all.size() - newest.size()));
  EXPECT_EQ(std::count(newest.begin(), newest.end(), '\n'), static_cast<std::ptrdiff_t>(most_kept));
  DigestCache last(cache_file_, 0ns, most_kept);
  for (const fs::path& file : files) last.digest(file);
  EXPECT_EQ(last.files_read(), count - static_cast<int>(most_kept));
}

TEST_F(DigestCacheTest, KeepsUpToTwiceAsManyAsItWouldLeave) {
  constexpr int count = 20;
  std::vector<fs::path> files;
  for (int i = 0; i < count; ++i) files.push_back(write(fmt::format("f{}", i), fmt::format("data {}", i)));
  let_the_clock_go_on();
  DigestCache writer(cache_file_, 0ns, count / 2);
  for (const fs::path& file : files) writer.digest(file);
  const std::string all = kept();
  DigestCache next(cache_file_, 0ns, count / 2);
  for (const fs::path& file : files) next.digest(file);
  EXPECT_EQ(next.files_read(), 0);
  EXPECT_EQ(kept(), all);
}

TEST_F(DigestCacheTest, OfAFileThatChangesTheLastDigestCounts) {
  const fs::path file = write("a", "some data");
  let_the_clock_go_on();
  DigestCache(cache_file_, 0ns).digest(file);
  write("a", "same size");
  let_the_clock_go_on();
  const std::string digest = DigestCache(cache_file_, 0ns).digest(file);
  DigestCache later(cache_file_, 0ns);
  EXPECT_EQ(later.digest(file), digest);
  EXPECT_EQ(later.files_read(), 0);
}

TEST_F(DigestCacheTest, TakesPathsWithBlanksAndLineEnds) {
  for (const char* name : {"with blanks  in it", "with\nline end", " "}) {
    const fs::path file = write(name, name);
    let_the_clock_go_on();
    EXPECT_EQ(DigestCache(cache_file_, 0ns).digest(file), DigestCache("").digest(file));
  }
  DigestCache cache(cache_file_, 0ns);
  cache.digest(top_ / "with blanks  in it");
  EXPECT_EQ(cache.files_read(), 0);
}

TEST_F(DigestCacheTest, NamesAFileThatCannotBeRead) {
  DigestCache cache("");
  EXPECT_THROW(
      {
        try {
          cache.digest(top_ / "nowhere");
        } catch (const DataFault& fault) {
          EXPECT_EQ(fault.what(), (top_ / "nowhere").string() + ": cannot be opened: No such file or directory");
          throw;
        }
      },
      DataFault);
  EXPECT_THROW(cache.digest(top_), DataFault) << "a directory";
}

}  // namespace
}  // namespace syncopate
