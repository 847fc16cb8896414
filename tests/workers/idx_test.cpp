#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/workers/idx_files.hpp"
#include "workers/base/files.hpp"
#include "workers/data/images.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string fault_of(const std::filesystem::path& file, int rank) {
  return message_of<DataFault>([&] { read_idx(file, rank); });
}

using Idx = IdxFiles;

TEST_F(Idx, ReadsDimensionsAndElementsInRowMajorOrder) {
  const auto file = write("images", idx_file({2, 1, 3}, {1, 2, 3, 4, 5, 255}));
  const auto array = read_idx(file, 3);
  EXPECT_THAT(array.dimensions, ElementsAre(2, 1, 3));
  EXPECT_THAT(array.values, ElementsAre(1, 2, 3, 4, 5, 255));
  EXPECT_THAT(read_idx_dimensions(file, 3), ElementsAre(2, 1, 3));
}

TEST_F(Idx, DimensionsAreBigEndian) {
  const auto file = write("labels", idx_header(0x08, {0x010203}));
  EXPECT_THAT(read_idx_dimensions(file, 1), ElementsAre(0x010203));
}

TEST_F(Idx, TellsCompressionFromTheContentNotFromTheName) {
  EXPECT_THAT(read_idx(write_gzip("compressed", idx_file({3}, {7, 8, 9})), 1).values, ElementsAre(7, 8, 9));
  EXPECT_THAT(read_idx(write("plain.gz", idx_file({3}, {7, 8, 9})), 1).values, ElementsAre(7, 8, 9));
}

TEST_F(Idx, AMissingFileIsNamed) {
  EXPECT_THAT(fault_of(directory_ / "absent", 1), AllOf(HasSubstr("absent"), HasSubstr("cannot be opened")));
}

TEST_F(Idx, ADirectoryIsNotAFile) { EXPECT_THAT(fault_of(directory_, 1), HasSubstr("is a directory")); }

TEST_F(Idx, AnEmptyFileHasNoHeader) {
  EXPECT_THAT(fault_of(write("empty", {}), 1), AllOf(HasSubstr("empty"), HasSubstr("has 0 bytes")));
}

TEST_F(Idx, AFileOfAnotherFormatIsToldFromItsFirstBytes) {
  EXPECT_THAT(fault_of(write("picture", {0x89, 'P', 'N', 'G', 0, 0, 0, 1}), 1),
              AllOf(HasSubstr("89 50"), HasSubstr("begins with 00 00")));
  EXPECT_THAT(fault_of(write("first", {1, 0, 8, 1, 0, 0, 0, 1, 7}), 1), HasSubstr("begins with bytes 01 00"));
  EXPECT_THAT(fault_of(write("second", {0, 1, 8, 1, 0, 0, 0, 1, 7}), 1), HasSubstr("begins with bytes 00 01"));
}

TEST_F(Idx, ElementsMustBeUnsignedBytes) {
  EXPECT_THAT(fault_of(write("floats", idx_header(0x0d, {1})), 1),
              AllOf(HasSubstr("0x0d (float32)"), HasSubstr("must be 0x08 (uint8)")));
}

TEST_F(Idx, LabelsInPlaceOfImagesAreTold) {
  EXPECT_THAT(fault_of(write("images", idx_file({2}, {0, 1})), 3),
              AllOf(HasSubstr("holds labels"), HasSubstr("must hold images")));
}

TEST_F(Idx, ImagesInPlaceOfLabelsAreTold) {
  EXPECT_THAT(fault_of(write("labels", idx_file({1, 1, 1}, {0})), 1),
              AllOf(HasSubstr("holds images"), HasSubstr("must hold labels")));
}

TEST_F(Idx, AHeaderThatEndsEarlyIsTold) {
  EXPECT_THAT(fault_of(write("short", {0, 0, 8, 3, 0, 0, 0, 2, 0, 0}), 3), HasSubstr("dimension 2 of 3"));
}

TEST_F(Idx, AnEmptyDimensionIsTold) {
  EXPECT_THAT(fault_of(write("none", idx_header(0x08, {0})), 1), HasSubstr("dimension 1 = 0"));
}

TEST_F(Idx, ADamagedHeaderDoesNotAskForItsMemory) {
  EXPECT_THAT(fault_of(write("huge", idx_header(0x08, {0xffffffff, 0xffffffff, 0xffffffff})), 3),
              HasSubstr("too large"));
  EXPECT_THAT(fault_of(write("large", idx_header(0x08, {0xf0000000})), 1), HasSubstr("truncated"));
}

TEST_F(Idx, ATruncatedFileIsToldWithBothCounts) {
  EXPECT_THAT(fault_of(write("short", idx_file({2, 1, 2}, {1, 2, 3})), 3),
              AllOf(HasSubstr("after 3 elements"), HasSubstr("2 x 1 x 2 = 4"), HasSubstr("truncated")));
}

TEST_F(Idx, TrailingBytesAreTold) {
  EXPECT_THAT(fault_of(write("long", idx_file({2}, {1, 2, 3})), 1),
              AllOf(HasSubstr("goes on"), HasSubstr("2 = 2 elements")));
}

// Compressed noise stays incompressible, so that cutting the file cuts into the data.
FileBytes noise(std::size_t size) {
  FileBytes bytes(size);
  std::uint32_t state = 1;
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

TEST_F(Idx, ATruncatedCompressedFileIsTold) {
  const auto file = write_gzip("cut.gz", idx_file({100000}, noise(100000)));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  EXPECT_THAT(fault_of(file, 1), AllOf(HasSubstr("cut.gz"), HasSubstr("truncated")));
}

TEST_F(Idx, ADamagedCompressedFileIsTold) {
  const auto file = write_gzip("damaged.gz", idx_file({100000}, noise(100000)));
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  bytes.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file)) - 6);
  bytes.write("\x55\xaa", 2);  // within the checksum
  bytes.close();
  EXPECT_THAT(fault_of(file, 1), AllOf(HasSubstr("damaged.gz"), HasSubstr("does not decompress")));
}

}  // namespace
}  // namespace syncopate
