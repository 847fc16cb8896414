// A data set of one's own: a directory with NumPy's arrays x_train.npy, y_train.npy, x_test.npy and y_test.npy, mapped
// into memory.
//
// x: (n, features), (n, height, width) or (n, channels, height, width); float32, which is taken as it is, or uint8,
// which is normalised to mean 0 and deviation 1, channel by channel, over the training set. Or (n, length), int32 or
// int64: tokens from 0, a sequence a row, of which padding at the end is no part. y: (n,), uint8, int32 or int64;
// classes are numbered from 0, and there are as many as the largest label of both splits says; so with tokens. Or of
// what is no tokens (n,) or (n, targets), float32: numbers, and no classes. Or of tokens (n, length), int32 or int64,
// as x: a label of each token, and ignored_label where there is none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "workers/data/dataset.hpp"

namespace syncopate {

inline constexpr std::int64_t largest_token = (1 << 24) - 1;

// What tokens do not say themselves; -1: there is none.
struct NpyTokens {
  std::int32_t padding = -1;
  std::int32_t mask = -1;
  std::vector<std::int64_t> never_masked{};
};

// Reads the headers, the labels, and tokens. Throws DataFault: file, what was found, what would be right.
DatasetSize npy_dataset_size(const std::filesystem::path& directory, const NpyTokens& tokens = {});

// What the four files hold, in 16 hexadecimal digits. Throws DataFault.
std::string npy_dataset_hash(const std::filesystem::path& directory);

// Throws DataFault.
std::shared_ptr<const Dataset> load_npy_dataset(const std::filesystem::path& directory, const NpyTokens& tokens = {});

}  // namespace syncopate
