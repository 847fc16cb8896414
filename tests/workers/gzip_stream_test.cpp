#include "workers/gzip_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "results/gzip.hpp"
#include "tests/workers/idx_files.hpp"
#include "workers/datasets/dataset.hpp"
#include "workers/datasets/idx.hpp"
#include "workers/delays/csv_rows.hpp"

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

TEST(GzipStream, RefusesWhatFollowsTheLastMember) {
  for (const std::size_t piece : {2, 1000}) {
    EXPECT_THAT(fault_of(gzip("text") + "garbage", piece), HasSubstr("bytes that are no gzip"));
    EXPECT_THAT(fault_of(gzip("text") + std::string(512, '\0'), piece), HasSubstr("bytes that are no gzip"));
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

TEST(GzipStream, ATableThatUnpacksToMoreThanTheLimitIsRefused) {
  EXPECT_EQ(most_text_bytes, 4'000'000'000u);
  const std::string text(1000, 'x');
  EXPECT_EQ(uncompressed(gzip(text), "t.csv.gz", 1000), text);
  EXPECT_EQ(message_of<FileFault>([&] { uncompressed(gzip(text), "t.csv.gz", 999); }),
            "t.csv.gz: holds more than 999 bytes; must be at most so many");
  EXPECT_EQ(message_of<FileFault>([&] { uncompressed(gzip(text) + "x", "t.csv.gz"); }),
            "t.csv.gz: goes on after its compressed data with bytes that are no gzip");
}

TEST_F(IdxFiles, BytesAfterTheCompressedDataAreAFault) {
  const auto file = write_gzip("labels.gz", idx_file({3}, {1, 2, 3}));
  EXPECT_EQ(read_idx(file, 1).values, (FileBytes{1, 2, 3}));
  std::ofstream(file, std::ios::binary | std::ios::app) << "garbage";
  EXPECT_THAT(message_of<DataFault>([&] { read_idx(file, 1); }),
              HasSubstr("labels.gz: goes on after its compressed data with bytes that are no gzip"));
}

}  // namespace
}  // namespace syncopate
