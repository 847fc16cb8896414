// CIFAR-10 and CIFAR-100 in their binary version: files of records, each a label (CIFAR-100: the coarse and the fine
// one), and then 3 x 32 x 32 bytes, channel by channel.
// Source: Krizhevsky 2009; the format is that of https://www.cs.toronto.edu/~kriz/cifar.html.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "workers/data/dataset.hpp"

namespace syncopate {

// One image of bytes that is being changed.
struct ByteImage {
  std::span<std::uint8_t> pixels;  // (channels, height, width)
  SampleShape shape;

  std::size_t plane_size() const { return static_cast<std::size_t>(shape.height * shape.width); }
  std::span<std::uint8_t> plane(std::int64_t channel) const {
    return pixels.subspan(static_cast<std::size_t>(channel) * plane_size(), plane_size());
  }
};

// Labelled images whose pixels are bytes in memory.
struct ByteImages {
  std::vector<std::uint8_t> pixels;  // (n, channels, height, width)
  std::vector<std::uint8_t> labels;  // (n,), each below the number of classes
};

// `scales`: (channels,), for both splits.
std::shared_ptr<const Dataset> make_byte_images(const DatasetSize& size, ByteImages train, ByteImages test,
                                                std::vector<PixelScale> scales);

enum class CifarLabels { ten, hundred, twenty };  // twenty: CIFAR-100's coarse labels

enum class CifarScale {
  published,  // the constants of the reference codes: means .4914, .4822, .4465, deviations .2023, .1994, .2010
  measured,   // of each channel over the training set, whose true deviations are larger
};

// How many records a file has.
enum class CifarRecords {
  all,  // as many as the original: 10,000; of CIFAR-100 50,000 and 10,000. A download may be cut between two records.
  any,  // whole ones
};

// CIFAR-10: data_batch_1.bin to data_batch_5.bin and test_batch.bin; CIFAR-100: train.bin and test.bin. Known from the
// files' sizes alone. Throws DataFault.
DatasetSize cifar_size(const std::filesystem::path& directory, CifarLabels labels, CifarRecords records);

// What the files hold, in 16 hexadecimal digits. Throws DataFault.
std::string cifar_hash(const std::filesystem::path& directory, CifarLabels labels);

// Throws DataFault, also for labels that are out of range.
std::shared_ptr<const Dataset> load_cifar(const std::filesystem::path& directory, CifarLabels labels, CifarScale scale,
                                          CifarRecords records);

// IDX files, the format of MNIST: bytes 0 0, element type, number of dimensions, each dimension as a
// big-endian 32-bit integer, then the elements in row-major order. Only unsigned bytes (type 8) here.
// Whether a file is gzip-compressed is told from its first bytes, not from its name.
// Source: http://yann.lecun.com/exdb/mnist/ (section on file formats).
struct IdxArray {
  std::vector<std::int64_t> dimensions;
  std::vector<std::uint8_t> values;  // product of the dimensions
};

// The dimensions, from the file's first bytes alone; exactly `rank` of them, each at least 1.
// Throws DataFault: file, what was found, what would be right.
std::vector<std::int64_t> read_idx_dimensions(const std::filesystem::path& file, int rank);

// The whole file. Also throws DataFault if it is shorter or longer than its dimensions say, or does
// not decompress.
IdxArray read_idx(const std::filesystem::path& file, int rank);

// A directory with four IDX files in the manner of MNIST (Fashion-MNIST, MNIST, KMNIST, ...):
// {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, each with or without .gz.
// Checks that the four files are there and that their headers agree; reads no more of them.
// `classes` is what the labels must stay below. Throws DataFault for the first fault found.
DatasetSize image_directory_size(const std::filesystem::path& directory, std::int64_t classes = 10);

// What the four files hold, in 16 hexadecimal digits; as they are stored, so compressed files are other ones. Read once
// and then kept (datasets.hpp). Throws DataFault.
std::string image_directory_hash(const std::filesystem::path& directory);

// Reads the files. Pixels stay bytes in memory and become (pixel - mean) / deviation when gathered,
// with mean and deviation over all pixels of the training set. Throws DataFault.
std::shared_ptr<const Dataset> load_image_directory(const std::filesystem::path& directory, std::int64_t classes = 10);

// The first directory that exists: fashion-mnist in the directory that the environment variable
// SYNCOPATE_DATA names, then in share/datasets of /usr/local and /usr. Throws DataFault if there is none.
std::filesystem::path find_fashion_mnist();

}  // namespace syncopate
