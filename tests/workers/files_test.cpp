#include "workers/base/files.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "results/run_directory.hpp"
#include "tests/workers/delay_files.hpp"
#include "tests/workers/idx_files.hpp"
#include "workers/base/process.hpp"
#include "workers/data/images.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using CsvFiles = DelayFiles;

// The text is read in pieces of about 250,000 bytes. A comment of varying length before the rows moves the end of each
// piece: into a number, between values, or between the two characters of a line end.
TEST(CsvRows, RowsAreTheSameWhereverAPieceOfTheTextEnds) {
  constexpr int rows = 40'000;
  std::string table;
  for (int i = 0; i < rows; ++i) table += fmt::format("{},{}.25\r\n", i, 7 * i % 1001);
  ASSERT_GT(table.size(), 500'000u);
  for (std::size_t length = 0; length < 20; ++length)
    for (const bool compressed : {false, true}) {
      const std::string text = "\xef\xbb\xbf#" + std::string(length, '-') + "\nrow,value\n" + table + "40000,5";
      const std::string content = compressed ? gzip(text) : text;
      CsvRows csv("t.csv", content, {"value", "row"});
      int wrong = 0;
      for (int i = 0; i < rows; ++i) {
        ASSERT_TRUE(csv.next());
        wrong += csv.number(0) != 7 * i % 1001 + 0.25 || csv.number(1) != i || csv.line() != i + 3;
      }
      EXPECT_EQ(wrong, 0);
      ASSERT_TRUE(csv.next());
      EXPECT_EQ(csv.number(0), 5);  // the last row has no line end
      EXPECT_FALSE(csv.next());
      csv.check();
    }
}

TEST(CsvRows, ALineOfManyPiecesIsOne) {
  const std::string text = "a,b\n1," + std::string(1'000'000, ' ') + "2\n3,4\n";
  CsvRows csv("t.csv", text, {"b"});
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.number(0), 2);
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.line(), 3);
  EXPECT_FALSE(csv.next());
}

// A row may lack unused columns at its end, but it must not have more values than there are columns.
TEST(CsvRows, RowsMayEndBehindTheLastColumnThatIsAskedFor) {
  const std::string text = "a,b,c\n1,2,3\n4,5\n6,7,\n";
  CsvRows csv("t.csv", text, {"b"});
  for (const double expected : {2.0, 5.0, 7.0}) {
    ASSERT_TRUE(csv.next());
    EXPECT_EQ(csv.number(0), expected);
  }
  EXPECT_FALSE(csv.next());
  EXPECT_NO_THROW(csv.check());
}

TEST(CsvRows, RowsThatAreFaultsArePassedOver) {
  const std::string text = "a,b\n1,2\n3,x\ninf,4\n5,6,7\n8,9\n";
  CsvRows csv("t.csv", text, {"a", "b"});
  for (const double expected : {1.0, 8.0}) {
    ASSERT_TRUE(csv.next());
    EXPECT_EQ(csv.number(0), expected);
  }
  EXPECT_FALSE(csv.next());
  const std::string faults = message_of<FileFault>([&] { csv.check(); });
  EXPECT_THAT(faults, HasSubstr("t.csv:3: b = x"));
  EXPECT_THAT(faults, HasSubstr("t.csv:4: a = inf"));
  EXPECT_THAT(faults, HasSubstr("t.csv:5: there are 3 values for 2 columns"));
}

TEST(CsvRows, WhatOnlyBeginsAsANumberIsNone) {
  for (const std::string cell : {"0.5x", "0.1s", "1;2", "1 2", "0x10", "1e", "-"}) {
    const std::string text = "a,b\n1," + cell + "\n";
    CsvRows csv("t.csv", text, {"b"});
    EXPECT_FALSE(csv.next());
    EXPECT_EQ(message_of<FileFault>([&] { csv.check(); }).substr(0, 13 + cell.size()), "t.csv:2: b = " + cell);
  }
}

TEST(CsvRows, DamageBehindTheFirstRowsIsAFault) {
  std::string table = "a\n";
  for (int i = 0; i < 500'000; ++i) table += fmt::format("{}\n", i * 37 % 100'003);
  const std::string content = gzip(table);
  CsvRows csv("t.csv.gz", std::string_view(content).substr(0, content.size() / 2), {"a"});
  EXPECT_TRUE(csv.next());
  EXPECT_EQ(message_of<FileFault>([&] {
              while (csv.next()) continue;
            }),
            "t.csv.gz: ends in the middle of its compressed data; the file is truncated");
}

// /proc/self/mem is a regular file whose first bytes cannot be read, because no memory is mapped at address 0.
TEST_F(CsvFiles, ATableThatCannotBeReadToItsEndIsNoShorterOne) {
  EXPECT_THAT(read("kind = \"trace\"\nend = \"wrap\"\nfile = \"/proc/self/mem\"").faults,
              HasSubstr("/proc/self/mem: cannot be read: Input/output error"));
}

// RFC 4180: any value may be quoted; it may then contain commas, and doubled quotation marks.
TEST(CsvRows, ValuesMayStandBetweenQuotationMarks) {
  const std::string text =
      "\"name\",\"a\" , b,\"a \"\"third\"\"\"\r\n"
      "\"Smith, J.\",\"1\",2,3\n"
      "\"said \"\"a, b\"\"\", \"-4.5e1\" ,\"5\",\"\"\n"
      "\"\",\" 6 \",7\n"
      "plain,8,9,\"\"\"\"\n";
  CsvRows csv("t.csv", text, {"b", "a"});
  for (const auto& [b, a] : {std::pair{2.0, 1.0}, {5.0, -45.0}, {7.0, 6.0}, {9.0, 8.0}}) {
    ASSERT_TRUE(csv.next());
    EXPECT_EQ(csv.number(0), b);
    EXPECT_EQ(csv.number(1), a);
  }
  EXPECT_FALSE(csv.next());
  csv.check();
}

TEST(CsvRows, AMarkThatIsLeftOpenIsAFaultOfItsLineAlone) {
  const std::string text = "a,b,size\n\"1,2\n3,4,5\" disk\n\"5\"\"\",6\n";
  CsvRows csv("t.csv", text, {"a"});
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.number(0), 3);
  EXPECT_FALSE(csv.next());
  const std::string faults = message_of<FileFault>([&] { csv.check(); });
  EXPECT_THAT(faults, HasSubstr("t.csv:2: a quotation mark is not closed; must be closed in the same line"));
  EXPECT_THAT(faults, HasSubstr("t.csv:4: a = 5\"\"; must be a finite number"));
}

TEST(CsvRows, AColumnMayBeMissingThatHasAValueThen) {
  const std::string without = "a\n1\n2\n", with = "b,a\n7,1\n8,2\n", twice = "b,a,b\n7,1,1\n";
  CsvRows missing("t.csv", without, {"a", {"b", 5}}), there("t.csv", with, {"a", {"b", 5}});
  for (const double a : {1.0, 2.0}) {
    ASSERT_TRUE(missing.next() && there.next());
    EXPECT_EQ(missing.number(0), a);
    EXPECT_EQ(missing.number(1), 5);
    EXPECT_EQ(there.number(0), a);
    EXPECT_EQ(there.number(1), a + 6);
  }
  EXPECT_THAT(message_of<FileFault>([&] {
                CsvRows("t.csv", twice, {"a", {"b", 5}});
              }),
              HasSubstr("the column b occurs twice"));
}

// Tables as spreadsheets write them in other countries, and files that are not comma-separated values.
TEST(CsvRows, OtherFormsOfTablesAreNamed) {
  const auto fault = [](const std::string& text) {
    return message_of<FileFault>([&] {
      CsvRows csv("t.csv", text, {"a", "b"});
      while (csv.next()) continue;
      csv.check();
    });
  };
  EXPECT_THAT(fault("a;b\n1,5;2\n"), HasSubstr("t.csv:1: the column a is missing; the header separates columns by "
                                               "semicolons; must use commas, and decimal points in numbers"));
  EXPECT_THAT(fault("\"a\";\"b\"\n1;2\n"), HasSubstr("the header separates columns by semicolons"));
  EXPECT_THAT(fault("a\tb\n1\t2\n"), HasSubstr("the header separates columns by tabs"));
  EXPECT_THAT(fault("a,c\n1,2\n"), HasSubstr("the column b is missing; the header is a,c"));
  EXPECT_THAT(fault("a,b\n\"1,5\",2\n"), HasSubstr("t.csv:2: a = 1,5; must be a finite number, with a decimal point"));
  EXPECT_THAT(fault("a,b\n1,5,2\n"),
              HasSubstr("t.csv:2: there are 3 values for 2 columns; a number must not contain a comma"));
  const std::string plain = "a,b\n1,2\n3,4\n";
  std::string wide;
  for (const char letter : plain) wide += std::string{letter, '\0'};
  for (const std::string& mark : {std::string(), std::string("\xff\xfe")})
    EXPECT_THAT(fault(mark + wide), HasSubstr("t.csv:1: the file is UTF-16 (little-endian), which iconv -f UTF-16LE -t "
                                              "UTF-8 converts; must be comma-separated values in UTF-8"));
  EXPECT_THAT(fault("PK\x03\x04 and more"), HasSubstr("the file is a zip archive, as spreadsheets (.xlsx, .ods)"));
}

using testing::HasSubstr;

// Provides the file in pieces of `piece` bytes, and reads up to `turn` bytes at a time.
std::string read_all(const std::string& file, std::size_t piece, std::size_t turn) {
  GzipStream stream([rest = std::string_view(file), piece]() mutable {
    const std::string_view next = rest.substr(0, piece);
    rest.remove_prefix(next.size());
    return next;
  });
  std::string text;
  std::string buffer(turn, '\0');
  for (std::size_t got = turn; got == turn;) {
    got = stream.read(buffer.data(), turn);
    text += buffer.substr(0, got);
  }
  return text;
}

std::string fault_of(const std::string& file, std::size_t piece) {
  return message_of<GzipFault>([&] { read_all(file, piece, 7); });
}

TEST(GzipStream, ReadsOneOrSeveralMembersAndPlainFiles) {
  const std::string text = "worker,step\n0,1\n";
  for (const std::size_t piece : {2, 3, 1000})
    for (const std::size_t turn : {1, 16, 17, 1000}) {
      EXPECT_EQ(read_all(gzip(text), piece, turn), text);
      EXPECT_EQ(read_all(gzip(text) + gzip("") + gzip("0,2\n"), piece, turn), text + "0,2\n");
      EXPECT_EQ(read_all(text, piece, turn), text);
    }
  EXPECT_EQ(read_all("", 10, 10), "");
}

// Files may be padded with zeros to whole blocks. Like gzip, the reader skips them silently.
TEST(GzipStream, PassesOverZerosAfterTheLastMember) {
  for (const std::size_t piece : {2, 3, 1000})
    for (const std::size_t zeros : {1, 512, 2000})
      EXPECT_EQ(read_all(gzip("a") + gzip("b") + std::string(zeros, '\0'), piece, 7), "ab");
}

TEST(GzipStream, RefusesWhatFollowsTheLastMember) {
  for (const std::size_t piece : {2, 1000}) {
    EXPECT_THAT(fault_of(gzip("text") + "garbage", piece),
                HasSubstr("bytes after its compressed data that are not gzip"));
    const std::string zeros(512, '\0');
    EXPECT_THAT(fault_of(gzip("text") + zeros + "x", piece),
                HasSubstr("bytes after its compressed data that are not gzip"));
    EXPECT_THAT(fault_of(gzip("text") + zeros + gzip("text"), piece),
                HasSubstr("bytes after its compressed data that are not gzip"));
    EXPECT_THAT(fault_of(gzip("text") + "\x1f\x8a more", piece), HasSubstr("does not decompress"));
  }
}

TEST(GzipStream, RefusesDamagedAndTruncatedFiles) {
  const std::string file = gzip(std::string(1000, 'a') + std::string(1000, 'b'));
  for (std::size_t size = 2; size < file.size(); ++size)
    EXPECT_THAT(fault_of(file.substr(0, size), 1000), HasSubstr("truncated")) << size;
  std::string damaged = file;
  damaged[file.size() - 6] ^= 1;  // the checksum
  EXPECT_THAT(fault_of(damaged, 1000), HasSubstr("does not decompress"));
}

// All pieces of the table in a file's content.
std::string uncompressed(std::string_view content, const std::string& file,
                         std::uint64_t most_bytes = most_text_bytes) {
  TableText text(content, file, most_bytes);
  std::string whole;
  std::vector<char> piece(1 << 18);
  while (const std::streamsize got = text.sgetn(piece.data(), std::ssize(piece)))
    whole.append(piece.data(), static_cast<std::size_t>(got));
  return whole;
}

TEST(GzipStream, ATableThatUnpacksToMoreThanTheLimitIsRefused) {
  EXPECT_EQ(most_text_bytes, 4'000'000'000u);
  const std::string text(1000, 'x');
  EXPECT_EQ(uncompressed(gzip(text), "t.csv.gz", 1000), text);
  EXPECT_EQ(message_of<FileFault>([&] { uncompressed(gzip(text), "t.csv.gz", 999); }),
            "t.csv.gz: unpacks to more than 999 bytes, the maximum for a table");
  EXPECT_EQ(message_of<FileFault>([&] { uncompressed(gzip(text) + "x", "t.csv.gz"); }),
            "t.csv.gz: has bytes after its compressed data that are not gzip");
}

// The reader refuses the file before it has unpacked all of it.
TEST(GzipStream, AFileThatUnpacksToAHundredTimesItsSizeIsRefused) {
  std::string rows;
  for (int i = 0; i < 13'000'000; ++i) rows += "0,0,0,0.01\n";
  for (const std::string& text : {std::string(150'000'000, '\0'), rows}) {
    const std::string whole = gzip(text);
    for (const std::string& file : {whole, whole.substr(0, whole.size() / 2)})
      EXPECT_EQ(message_of<FileFault>([&] { uncompressed(file, "t.csv.gz"); }),
                "t.csv.gz: unpacks to more than 100 times its size; a table of numbers does not");
  }
  // The rule does not apply to files that stay small, nor to uncompressed ones.
  const std::string small(60'000'000, '0'), plain(70'000'000, '0');
  EXPECT_EQ(uncompressed(gzip(small), "t.csv.gz").size(), small.size());
  EXPECT_EQ(uncompressed(plain, "t.csv").size(), plain.size());
}

TEST_F(IdxFiles, BytesAfterTheCompressedDataAreAFault) {
  const auto file = write_gzip("labels.gz", idx_file({3}, {1, 2, 3}));
  EXPECT_EQ(read_idx(file, 1).values, (FileBytes{1, 2, 3}));
  std::ofstream(file, std::ios::binary | std::ios::app) << "garbage";
  EXPECT_THAT(message_of<DataFault>([&] { read_idx(file, 1); }),
              HasSubstr("labels.gz: has bytes after its compressed data that are not gzip"));
}

// Files that the program wrote are read completely or refused, even if something else is in their place.

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

// The large file is sparse and uses no disk space.
TEST_F(OwnFileTest, ThatIsTooLargeIsNotRead) {
  std::ofstream(folder_ / "file") << "0123456789";
  EXPECT_EQ(fault("file", 10), "");
  EXPECT_EQ(fault("file", 9), (folder_ / "file").string() + ": has 10 bytes; must have at most 9");
  std::ofstream(folder_ / "large") << "";
  fs::resize_file(folder_ / "large", 3'000'000'000);
  EXPECT_EQ(fault("large"), (folder_ / "large").string() + ": has 3000000000 bytes; must have at most 268435456");
}

// WholeFile: files that appear complete or not at all.

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

// A limit on file sizes, which the new contents exceed, simulates a full device.
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

// Eight processes write files at the same time, and each is interrupted at another point of its work.
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

// If writing followed a link, a user with write access to a results directory could make others overwrite their own
// files.
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

// A message about a disk that refuses results names the actual problem.

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
  // Root may write everywhere, so the check runs as user `nobody`.
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setuid(65534) != 0) _exit(3);
    const std::string text = said(EACCES);
    _exit(text.find("removed") == text.npos &&
                  text.find("Permission denied; make it and the folders above readable") != text.npos
              ? 0
              : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace syncopate
