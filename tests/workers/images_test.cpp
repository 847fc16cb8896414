#include "workers/data/images.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/workers/idx_files.hpp"
#include "workers/base/files.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::size_t plane = 32 * 32;

// A record of the CIFAR format: labels, then three planes, each of one value.
FileBytes record(const FileBytes& labels, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  FileBytes bytes = labels;
  for (const std::uint8_t value : {red, green, blue}) bytes.insert(bytes.end(), plane, value);
  return bytes;
}

FileBytes operator+(FileBytes a, const FileBytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Sample {
  std::vector<float> pixels = std::vector<float>(3 * plane);
  std::int64_t label = -1;
};

Sample sample_of(const Dataset& dataset, Split split, std::uint32_t number) {
  Sample sample;
  dataset.gather(split, {&number, 1}, sample.pixels.data(), &sample.label);
  return sample;
}

class Cifar : public IdxFiles {
 protected:
  void SetUp() override {
    IdxFiles::SetUp();
    write("data_batch_1.bin", record({3}, 0, 100, 255) + record({9}, 10, 20, 30));
    for (const char* batch : {"2", "3", "4", "5"})
      write(std::string("data_batch_") + batch + ".bin", record({static_cast<std::uint8_t>(*batch - '0')}, 1, 2, 3));
    write("test_batch.bin", record({0}, 255, 0, 0));
    write("train.bin", record({19, 99}, 4, 4, 4) + record({0, 1}, 6, 8, 4));
    write("test.bin", record({7, 42}, 5, 6, 9));
  }
  std::string fault(CifarLabels labels = CifarLabels::ten) const {
    return message_of<DataFault>([&] { cifar(labels, CifarScale::published, CifarRecords::any).load(directory_); });
  }
};

TEST_F(Cifar, FilesFollowEachOtherAndChannelsLieOneByOne) {
  const auto dataset = cifar(CifarLabels::ten, CifarScale::published, CifarRecords::any).load(directory_);
  EXPECT_EQ(dataset->size().train, 6);
  EXPECT_EQ(dataset->size().test, 1);
  EXPECT_EQ(dataset->size().classes, 10);
  EXPECT_EQ(dataset->size().shape, (SampleShape{.channels = 3, .height = 32, .width = 32}));
  const Sample first = sample_of(*dataset, Split::train, 0);
  EXPECT_EQ(first.label, 3);
  // Normalised as in the reference codes: (pixel / 255 - mean) / deviation.
  EXPECT_NEAR(first.pixels[0], (0 - 0.4914) / 0.2023, 1e-5);
  EXPECT_NEAR(first.pixels[plane - 1], (0 - 0.4914) / 0.2023, 1e-5);
  EXPECT_NEAR(first.pixels[plane], (100.0 / 255 - 0.4822) / 0.1994, 1e-5);
  EXPECT_NEAR(first.pixels[3 * plane - 1], (1 - 0.4465) / 0.2010, 1e-5);
  EXPECT_EQ(sample_of(*dataset, Split::train, 2).label, 2) << "the second file's first";
  EXPECT_EQ(sample_of(*dataset, Split::train, 5).label, 5);
  EXPECT_EQ(sample_of(*dataset, Split::test, 0).label, 0);
}

TEST_F(Cifar, ACoarseAndAFineLabelStandBeforeAnImageOfCifar100) {
  const auto fine = cifar(CifarLabels::hundred, CifarScale::published, CifarRecords::any).load(directory_);
  EXPECT_EQ(fine->size().classes, 100);
  EXPECT_EQ(sample_of(*fine, Split::train, 0).label, 99);
  EXPECT_EQ(sample_of(*fine, Split::test, 0).label, 42);
  const auto coarse = cifar(CifarLabels::twenty, CifarScale::published, CifarRecords::any).load(directory_);
  EXPECT_EQ(coarse->size().classes, 20);
  EXPECT_EQ(sample_of(*coarse, Split::train, 0).label, 19);
}

TEST_F(Cifar, MeasuredScalesAreThoseOfEachChannelOfTheTrainingSet) {
  const auto dataset = cifar(CifarLabels::hundred, CifarScale::measured, CifarRecords::any).load(directory_);
  const Sample test = sample_of(*dataset, Split::test, 0);  // pixels 5, 6, 9 in the three channels
  EXPECT_NEAR(test.pixels[0], (5 - 5) / 1.0, 1e-6) << "4 and 6";
  EXPECT_NEAR(test.pixels[plane], (6 - 6) / 2.0, 1e-6) << "4 and 8";
  EXPECT_NEAR(test.pixels[2 * plane], 9 - 4, 1e-6) << "4 alone: no deviation";
}

TEST_F(Cifar, SizesAndDigestsFollowTheFiles) {
  const std::string before = cifar(CifarLabels::ten, CifarScale::published, CifarRecords::any).hash(directory_);
  EXPECT_EQ(cifar(CifarLabels::ten, CifarScale::published, CifarRecords::any).size(directory_).train, 6);
  write("data_batch_5.bin", record({5}, 1, 2, 3) + record({6}, 1, 2, 3));
  EXPECT_EQ(cifar(CifarLabels::ten, CifarScale::published, CifarRecords::any).size(directory_).train, 7);
  EXPECT_NE(cifar(CifarLabels::ten, CifarScale::published, CifarRecords::any).hash(directory_), before);
}

TEST_F(Cifar, AFileOfAWrongSizeIsNamed) {
  write("data_batch_2.bin", FileBytes(3072, 1));
  EXPECT_THAT(fault(), AllOf(HasSubstr("data_batch_2.bin"), HasSubstr("has 3072 bytes"), HasSubstr("records of 3073")));
  write("data_batch_2.bin", {});
  EXPECT_THAT(fault(), HasSubstr("has 0 bytes"));
  write("test.bin", FileBytes(3073, 1));
  EXPECT_THAT(fault(CifarLabels::hundred), AllOf(HasSubstr("test.bin"), HasSubstr("records of 3074")));
}

// Files get the sizes of the published ones. The test does not read their contents.
TEST_F(Cifar, AFileThatIsCutBetweenTwoRecordsIsNamed) {
  const auto resize = [&](const std::string& file, std::uintmax_t bytes) {
    std::filesystem::resize_file(directory_ / file, bytes);
  };
  for (const char* file : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                           "data_batch_5.bin", "test_batch.bin"})
    resize(file, 30'730'000);
  resize("train.bin", 153'700'000);
  resize("test.bin", 30'740'000);
  const auto found = [&](CifarLabels labels) {
    return message_of<DataFault>([&] { cifar(labels, CifarScale::published, CifarRecords::all).size(directory_); });
  };
  EXPECT_EQ(cifar(CifarLabels::ten, CifarScale::published, CifarRecords::all).size(directory_).train, 50'000);
  EXPECT_EQ(cifar(CifarLabels::twenty, CifarScale::published, CifarRecords::all).size(directory_).train, 50'000);
  resize("data_batch_3.bin", 9'999 * 3'073);
  EXPECT_THAT(found(CifarLabels::ten),
              AllOf(HasSubstr("data_batch_3.bin"), HasSubstr("has 9999 records; must have 10000")));
  EXPECT_EQ(cifar(CifarLabels::ten, CifarScale::published, CifarRecords::any).size(directory_).train, 49'999);
  resize("data_batch_3.bin", 10'001 * 3'073);
  EXPECT_THAT(found(CifarLabels::ten), HasSubstr("has 10001 records"));
  resize("test.bin", 100 * 3'074);
  EXPECT_THAT(found(CifarLabels::hundred), AllOf(HasSubstr("test.bin"), HasSubstr("has 100 records")));
  resize("train.bin", 10'000 * 3'074);
  EXPECT_THAT(found(CifarLabels::hundred), AllOf(HasSubstr("train.bin"), HasSubstr("must have 50000")));
}

TEST_F(Cifar, ALabelOutOfRangeIsNamed) {
  write("data_batch_1.bin", record({3}, 0, 0, 0) + record({10}, 0, 0, 0));
  EXPECT_THAT(fault(), AllOf(HasSubstr("data_batch_1.bin"), HasSubstr("record 1 has label 10"), HasSubstr("0 .. 9")));
  write("train.bin", record({20, 100}, 0, 0, 0));
  EXPECT_THAT(fault(CifarLabels::hundred), HasSubstr("has label 100"));
  EXPECT_THAT(fault(CifarLabels::twenty), HasSubstr("has label 20"));
}

TEST_F(Cifar, AMissingFileOrDirectoryIsNamed) {
  std::filesystem::remove(directory_ / "data_batch_4.bin");
  EXPECT_THAT(fault(), AllOf(HasSubstr(directory_.string()), HasSubstr("data_batch_4.bin")));
  std::filesystem::create_directory(directory_ / "data_batch_4.bin");
  EXPECT_THAT(fault(), AllOf(HasSubstr("data_batch_4.bin"), HasSubstr("not a regular file")));
  std::filesystem::remove_all(directory_);
  EXPECT_THAT(fault(), AllOf(HasSubstr("no such directory"), HasSubstr("CIFAR-10")));
}

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
  EXPECT_THAT(fault_of(directory_ / "absent", 1), AllOf(HasSubstr("absent"), HasSubstr("is not there")));
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
              AllOf(HasSubstr("contains labels"), HasSubstr("must contain images")));
}

TEST_F(Idx, ImagesInPlaceOfLabelsAreTold) {
  EXPECT_THAT(fault_of(write("labels", idx_file({1, 1, 1}, {0})), 1),
              AllOf(HasSubstr("contains images"), HasSubstr("must contain labels")));
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
              AllOf(HasSubstr("continues"), HasSubstr("2 = 2 elements")));
}

// Noise is incompressible, so cutting the compressed file cuts the data.
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
