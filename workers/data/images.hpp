// CIFAR-10 and CIFAR-100 in their binary version: files of records, each a label (CIFAR-100: the coarse and the fine
// one), and then 3 x 32 x 32 bytes, channel by channel.
// Source: Krizhevsky 2009; the format is that of https://www.cs.toronto.edu/~kriz/cifar.html.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "workers/datasets/dataset.hpp"

namespace syncopate {

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

}  // namespace syncopate
