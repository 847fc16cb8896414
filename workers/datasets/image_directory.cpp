#include "workers/datasets/image_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "workers/datasets/digest_cache.hpp"
#include "workers/datasets/idx.hpp"
#include "workers/files/content_hash.hpp"
#include "workers/files/directory_check.hpp"
#include "workers/training/vector_clones.hpp"

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

struct SplitData {
  std::vector<std::uint8_t> pixels;  // (n, height * width)
  std::vector<std::uint8_t> labels;  // (n,)
};

SplitData load_split(const SplitFiles& files, std::int64_t classes) {
  SplitData data{.pixels = read_idx(files.images, 3).values, .labels = read_idx(files.labels, 1).values};
  const auto bad = std::find_if(data.labels.begin(), data.labels.end(), [&](auto label) { return label >= classes; });
  if (bad != data.labels.end())
    throw DataFault(fmt::format("{}: label {} = {}; must be in 0 .. {}", files.labels.string(),
                                bad - data.labels.begin(), *bad, classes - 1));
  return data;
}

// Subtraction first, so that there is no multiply-add that only some of the clones would fuse.
SYNCOPATE_VECTOR_CLONES
void normalise(std::span<const std::uint8_t> pixels, float mean, float scale, float* out) {
  for (std::size_t p = 0; p < pixels.size(); ++p) out[p] = (static_cast<float>(pixels[p]) - mean) * scale;
}

class ImageDataset : public Dataset {
 public:
  ImageDataset(const DatasetSize& size, SplitData train, SplitData test)
      : size_(size), splits_{std::move(train), std::move(test)} {
    normalise_by(splits_[0].pixels);
  }

  const DatasetSize& size() const override { return size_; }

  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    const SplitData& data = splits_[split == Split::train ? 0 : 1];
    const auto features = static_cast<std::size_t>(size_.shape.features());
    // Rows lie anywhere in memory: asking for them early halves the time of a gather.
    constexpr std::size_t ahead = 2;
    constexpr std::size_t cache_line = 64;
    const auto fetch = [&](std::uint32_t sample) {
      const std::uint8_t* row = data.pixels.data() + sample * features;
      for (std::size_t p = 0; p < features; p += cache_line) __builtin_prefetch(row + p);
    };
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (i + ahead < samples.size()) fetch(samples[i + ahead]);
      normalise({data.pixels.data() + samples[i] * features, features}, mean_, scale_, inputs + i * features);
      labels[i] = data.labels[samples[i]];
    }
  }

 private:
  // Sums over bytes are exact in integers: a histogram gives the same constants in any order.
  void normalise_by(std::span<const std::uint8_t> pixels) {
    std::array<std::int64_t, 256> count{};
    for (const auto pixel : pixels) ++count[pixel];
    const auto n = static_cast<double>(pixels.size());
    double mean = 0;
    for (int value = 0; value < 256; ++value) mean += value * static_cast<double>(count[value]) / n;
    double variance = 0;
    for (int value = 0; value < 256; ++value)
      variance += (value - mean) * (value - mean) * static_cast<double>(count[value]) / n;
    const double deviation = variance > 0 ? std::sqrt(variance) : 1;
    mean_ = static_cast<float>(mean);
    scale_ = static_cast<float>(1 / deviation);
  }

  DatasetSize size_;
  std::array<SplitData, 2> splits_;
  float mean_ = 0;
  float scale_ = 1;  // 1 / deviation
};

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
          .classes = classes};
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
  return std::make_shared<ImageDataset>(size, load_split(find_split(directory, "train"), classes),
                                        load_split(find_split(directory, "t10k"), classes));
}

path find_fashion_mnist() {
  std::vector<std::string> places;
  if (const char* data = std::getenv("SYNCOPATE_DATA")) places.push_back((path(data) / "fashion-mnist").string());
  places.emplace_back("/usr/local/share/datasets/fashion-mnist");
  places.emplace_back("/usr/share/datasets/fashion-mnist");
  std::string missing;
  for (const auto& place : places) {
    if (std::filesystem::is_directory(place)) return place;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", place);
  }
  throw DataFault(fmt::format(
      "found none of {}; install the package dataset-fashion-mnist, or name a directory with MNIST's four IDX files",
      missing));
}

}  // namespace syncopate
