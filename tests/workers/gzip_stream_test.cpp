#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/workers/idx_files.hpp"
#include "workers/base/files.hpp"
#include "workers/data/images.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

// The file comes in pieces of `piece` bytes and is read in turns of `turn`.
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

// As gzip does, which passes over zeros without a word: blocks that are filled up.
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

// All pieces of the table that a file's content is.
std::string uncompressed(std::string_view content, const std::string& file,
                         std::uint64_t most_bytes = most_text_bytes) {
  TableText text(content, file, most_bytes);
  std::string whole;
  for (std::string_view piece = text.next(); !piece.empty(); piece = text.next()) whole += piece;
  return whole;
}

TEST(GzipStream, ATableThatUnpacksToMoreThanTheLimitIsRefused) {
  EXPECT_EQ(most_text_bytes, 4'000'000'000u);
  const std::string text(1000, 'x');
  EXPECT_EQ(uncompressed(gzip(text), "t.csv.gz", 1000), text);
  EXPECT_EQ(message_of<FileFault>([&] { uncompressed(gzip(text), "t.csv.gz", 999); }),
            "t.csv.gz: unpacks to more than 999 bytes, the most that a table may have");
  EXPECT_EQ(message_of<FileFault>([&] { uncompressed(gzip(text) + "x", "t.csv.gz"); }),
            "t.csv.gz: has bytes after its compressed data that are not gzip");
}

// Half of the file would do: it is refused before it has been unpacked.
TEST(GzipStream, AFileThatUnpacksToAHundredTimesItsSizeIsRefused) {
  std::string rows;
  for (int i = 0; i < 13'000'000; ++i) rows += "0,0,0,0.01\n";
  for (const std::string& text : {std::string(150'000'000, '\0'), rows}) {
    const std::string whole = gzip(text);
    for (const std::string& file : {whole, whole.substr(0, whole.size() / 2)})
      EXPECT_EQ(message_of<FileFault>([&] { uncompressed(file, "t.csv.gz"); }),
                "t.csv.gz: unpacks to more than 100 times its size, as no table of numbers does");
  }
  // So it does not concern files that are small all the same, nor those that are not compressed.
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

}  // namespace
}  // namespace syncopate
