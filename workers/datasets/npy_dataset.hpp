// A data set of one's own: a directory with NumPy's arrays x_train.npy, y_train.npy, x_test.npy and y_test.npy, mapped
// into memory.
//
// x: (n, features), (n, height, width) or (n, channels, height, width); float32, which is taken as it is, or uint8,
// which is normalised to mean 0 and deviation 1, channel by channel, over the training set. y: (n,), uint8, int32 or
// int64; classes are numbered from 0, and there are as many as the largest label of both splits says.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "workers/datasets/dataset.hpp"

namespace syncopate {

// Reads the headers and the labels. Throws DataFault: file, what was found, what would be right.
DatasetSize npy_dataset_size(const std::filesystem::path& directory);

// What the four files hold, in 16 hexadecimal digits. Throws DataFault.
std::string npy_dataset_hash(const std::filesystem::path& directory);

// Throws DataFault.
std::shared_ptr<const Dataset> load_npy_dataset(const std::filesystem::path& directory);

}  // namespace syncopate
