// A directory with four IDX files in the manner of MNIST (Fashion-MNIST, MNIST, KMNIST, ...):
// {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, each with or without .gz.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "workers/datasets/dataset.hpp"

namespace syncopate {

// Checks that the four files are there and that their headers agree; reads no more of them.
// `classes` is what the labels must stay below. Throws DataFault for the first fault found.
DatasetSize image_directory_size(const std::filesystem::path& directory, std::int64_t classes = 10);

// What the four files hold, in 16 hexadecimal digits; as they are stored, so compressed files are other ones. Read once
// and then kept (digest_cache.hpp). Throws DataFault.
std::string image_directory_hash(const std::filesystem::path& directory);

// Reads the files. Pixels stay bytes in memory and become (pixel - mean) / deviation when gathered,
// with mean and deviation over all pixels of the training set. Throws DataFault.
std::shared_ptr<const Dataset> load_image_directory(const std::filesystem::path& directory, std::int64_t classes = 10);

// The first directory that exists: fashion-mnist in the directory that the environment variable
// SYNCOPATE_DATA names, then in share/datasets of /usr/local and /usr. Throws DataFault if there is none.
std::filesystem::path find_fashion_mnist();

}  // namespace syncopate
