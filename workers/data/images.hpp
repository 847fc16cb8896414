// Image data sets: CIFAR's binary version, and IDX files like MNIST's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "workers/data/dataset.hpp"

namespace syncopate {

// One byte image that is being changed.
struct ByteImage {
  std::span<std::uint8_t> pixels;  // (channels, height, width)
  SampleShape shape;

  std::size_t plane_size() const { return static_cast<std::size_t>(shape.height * shape.width); }
  std::span<std::uint8_t> plane(std::int64_t channel) const {
    return pixels.subspan(static_cast<std::size_t>(channel) * plane_size(), plane_size());
  }
};

// Labelled images with pixels stored as bytes.
struct ByteImages {
  std::vector<std::uint8_t> pixels;  // (n, channels, height, width)
  std::vector<std::uint8_t> labels;  // (n,), each below the number of classes
};

// `scales`: (channels,), for both splits.
std::shared_ptr<const Dataset> make_byte_images(const DatasetSize& size, ByteImages train, ByteImages test,
                                                std::vector<PixelScale> scales);

// CIFAR-10 and CIFAR-100 in their binary version: files of records. A record is a label (in CIFAR-100 the coarse and
// the fine one), followed by 3 x 32 x 32 bytes, channel by channel.
// Source: Krizhevsky 2009; the format is that of https://www.cs.toronto.edu/~kriz/cifar.html.
enum class CifarLabels { ten, hundred, twenty };  // twenty: CIFAR-100's coarse labels

enum class CifarScale {
  published,  // constants of the reference codes: means .4914, .4822, .4465, deviations .2023, .1994, .2010
  measured,   // measured per channel over the training set; its deviations are larger than the published ones
};

// The number of records that a file must have.
enum class CifarRecords {
  // As in the original: 10,000, or 50,000 and 10,000 for CIFAR-100. A download may have been cut between two records.
  all,
  any,  // any number of whole records
};

// The size, from the sizes of data_batch_[1-5].bin and test_batch.bin, or of train.bin and test.bin. Throws DataFault.
DatasetSize cifar_size(const std::filesystem::path& directory, CifarLabels labels, CifarRecords records);

// digest_of_files. Throws DataFault.
std::string cifar_hash(const std::filesystem::path& directory, CifarLabels labels);

// Throws DataFault, also for labels that are out of range.
std::shared_ptr<const Dataset> load_cifar(const std::filesystem::path& directory, CifarLabels labels, CifarScale scale,
                                          CifarRecords records);

// IDX files, the format of MNIST: bytes 0 0, element type, number of dimensions, each dimension as a big-endian 32-bit
// integer, then the elements in row-major order. Only unsigned bytes (type 8) are supported. The first bytes, not the
// name, determine whether a file is gzip-compressed.
// Source: http://yann.lecun.com/exdb/mnist/ (section on file formats).
struct IdxArray {
  std::vector<std::int64_t> dimensions;
  std::vector<std::uint8_t> values{};  // product of the dimensions
};

// The dimensions, from the file's first bytes only; exactly `rank` of them, each at least 1. Throws DataFault.
std::vector<std::int64_t> read_idx_dimensions(const std::filesystem::path& file, int rank);

// The whole file. Throws DataFault also if it is shorter or longer than its dimensions say, or does not decompress.
IdxArray read_idx(const std::filesystem::path& file, int rank);

// A directory with four IDX files like MNIST's (Fashion-MNIST, MNIST, KMNIST, ...): {train,t10k}-images-idx3-ubyte and
// {train,t10k}-labels-idx1-ubyte, each with or without .gz. Reads only the headers, which must agree. Labels must be
// below `classes`. Throws DataFault for the first fault found.
DatasetSize image_directory_size(const std::filesystem::path& directory, std::int64_t classes = 10);

// digest_of_files of the four files as stored, so compressed files have another digest. Throws DataFault.
std::string image_directory_hash(const std::filesystem::path& directory);

// Gathered pixels are (pixel - mean) / deviation, measured over all pixels of the training set. Throws DataFault.
std::shared_ptr<const Dataset> load_image_directory(const std::filesystem::path& directory, std::int64_t classes = 10);

// found_directory of fashion-mnist in $SYNCOPATE_DATA, or in share/datasets. Throws DataFault if there is none.
std::filesystem::path find_fashion_mnist();

}  // namespace syncopate
