// Image data sets: the binary version of CIFAR, and IDX files, the format of MNIST.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "workers/data/dataset.hpp"
#include "workers/data/datasets.hpp"

namespace syncopate {

// CIFAR-10 and CIFAR-100 in their binary version: files of records. A record is a label (in CIFAR-100 a coarse and a
// fine label), followed by 3 x 32 x 32 bytes, channel by channel.
// Source: Krizhevsky 2009; the format is that of https://www.cs.toronto.edu/~kriz/cifar.html.
enum class CifarLabels { ten, hundred, twenty };  // twenty: CIFAR-100's coarse labels

enum class CifarScale {
  published,  // constants of reference codes: means .4914, .4822, .4465; deviations .2023, .1994, .2010
  measured,   // measured per channel over the training set, which gives larger deviations
};

// The number of records that a file must have.
enum class CifarRecords {
  // As published: 10,000 in each file of CIFAR-10; 50,000 and 10,000 in those of CIFAR-100. Detects downloads that were
  // cut between two records.
  all,
  any,  // any number of whole records
};

// The files are data_batch_[1-5].bin and test_batch.bin (CIFAR-10), or train.bin and test.bin (CIFAR-100). They have no
// default directory, so the experiment must name one.
DirectoryFormat cifar(CifarLabels labels, CifarScale scale, CifarRecords records);

// IDX files, the format of MNIST: bytes 0 0, element type, number of dimensions, each dimension as a big-endian 32-bit
// integer, then the elements in row-major order. Only unsigned bytes (type 8) are supported. Whether a file is
// compressed with gzip is recognised by its first bytes, not by its name.
// Source: http://yann.lecun.com/exdb/mnist/ (section on file formats).
struct IdxArray {
  std::vector<std::int64_t> dimensions;
  std::vector<std::uint8_t> values{};  // in row-major order
};

// Returns the dimensions and reads only the file's first bytes. Throws DataFault unless there are exactly `rank`
// dimensions, each at least 1.
std::vector<std::int64_t> read_idx_dimensions(const std::filesystem::path& file, int rank);

// Reads the whole file. Also throws DataFault if the file cannot be decompressed, or if its length does not match its
// dimensions.
IdxArray read_idx(const std::filesystem::path& file, int rank);

// A data set in four IDX files named like MNIST's (Fashion-MNIST, MNIST, KMNIST, ...): {train,t10k}-images-idx3-ubyte
// and {train,t10k}-labels-idx1-ubyte, each with or without .gz. `size` reads only the headers, which must agree.
// Labels must be below 10. Gathered pixels are (pixel - mean) / deviation; both constants are measured over all pixels
// of the training set. The default directory is found_directory("fashion-mnist"), which looks in $SYNCOPATE_DATA
// and in share/datasets.
DirectoryFormat idx_images();

}  // namespace syncopate
