#include "workers/datasets/image_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "workers/datasets/byte_images.hpp"
#include "workers/datasets/digest_cache.hpp"
#include "workers/datasets/idx.hpp"
#include "workers/files/content_hash.hpp"
#include "workers/files/directory_check.hpp"
#include "workers/files/found_directory.hpp"

namespace syncopate {
namespace {

using std::filesystem::path;

struct SplitFiles {
  path images;
  path labels;
};

path find_file(const path& directory, std::string_view name) {
  for (const auto* suffix : {"", ".gz"}) {
    const path file = directory / fmt::format("{}{}", name, suffix);
    if (!std::filesystem::exists(file)) continue;
    // A pipe, to which nobody writes, would be waited for without end.
    if (!std::filesystem::is_regular_file(file) && !std::filesystem::is_directory(file))
      throw DataFault(fmt::format("{}: is not a regular file; must be an IDX file", file.string()));
    return file;
  }
  throw DataFault(fmt::format("{}: no file {} or {}.gz", directory.string(), name, name));
}

SplitFiles find_split(const path& directory, std::string_view prefix) {
  if (const std::string why = why_no_directory(directory); !why.empty())
    throw DataFault(
        fmt::format("{}: {}; must be a directory with four IDX files in the manner of MNIST", directory.string(), why));
  return {.images = find_file(directory, fmt::format("{}-images-idx3-ubyte", prefix)),
          .labels = find_file(directory, fmt::format("{}-labels-idx1-ubyte", prefix))};
}

// Dimensions of the images (n, height, width), checked against the labels' (n,).
std::vector<std::int64_t> agreed_dimensions(const SplitFiles& files) {
  const auto images = read_idx_dimensions(files.images, 3);
  const auto labels = read_idx_dimensions(files.labels, 1);
  if (images[0] != labels[0])
    throw DataFault(fmt::format("{}: {} labels for the {} images of {}; must be as many", files.labels.string(),
                                labels[0], images[0], files.images.string()));
  return images;
}

ByteImages load_split(const SplitFiles& files, std::int64_t classes) {
  ByteImages data{.pixels = read_idx(files.images, 3).values, .labels = read_idx(files.labels, 1).values};
  const auto bad = std::find_if(data.labels.begin(), data.labels.end(), [&](auto label) { return label >= classes; });
  if (bad != data.labels.end())
    throw DataFault(fmt::format("{}: label {} = {}; must be in 0 .. {}", files.labels.string(),
                                bad - data.labels.begin(), *bad, classes - 1));
  return data;
}

}  // namespace

DatasetSize image_directory_size(const path& directory, std::int64_t classes) {
  const auto train = agreed_dimensions(find_split(directory, "train"));
  const auto test_files = find_split(directory, "t10k");
  const auto test = agreed_dimensions(test_files);
  if (train[1] != test[1] || train[2] != test[2])
    throw DataFault(fmt::format("{}: images of {} x {}; the training set's are {} x {}", test_files.images.string(),
                                test[1], test[2], train[1], train[2]));
  return {.train = train[0],
          .test = test[0],
          .shape = {.channels = 1, .height = train[1], .width = train[2]},
          .classes = classes,
          .has_byte_images = true};
}

std::string image_directory_hash(const path& directory) {
  std::string digests;
  for (const auto* prefix : {"train", "t10k"}) {
    const SplitFiles files = find_split(directory, prefix);
    for (const path& file : {files.images, files.labels}) digests += digest_cache().digest(file);
  }
  return content_hash(digests);
}

std::shared_ptr<const Dataset> load_image_directory(const path& directory, std::int64_t classes) {
  const auto size = image_directory_size(directory, classes);
  ByteImages train = load_split(find_split(directory, "train"), classes);
  std::vector<PixelScale> scales = measured_scales(train.pixels, size.shape);
  return make_byte_images(size, std::move(train), load_split(find_split(directory, "t10k"), classes),
                          std::move(scales));
}

path find_fashion_mnist() {
  return found_directory("fashion-mnist", "datasets/fashion-mnist",
                         "install the package dataset-fashion-mnist, or name a directory with MNIST's four IDX files");
}

}  // namespace syncopate
