#include "workers/datasets/cifar.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>
#include <vector>

#include "workers/datasets/byte_images.hpp"
#include "workers/datasets/digest_cache.hpp"
#include "workers/files/content_hash.hpp"
#include "workers/files/directory_check.hpp"
#include "workers/files/whole_file.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

using std::filesystem::path;

constexpr SampleShape shape{.channels = 3, .height = 32, .width = 32};
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 34;  // beyond it a file is damaged, not a data set large

// How the records of a file begin.
struct Record {
  std::uint64_t label_bytes;
  std::uint64_t label_at;
  std::int64_t classes;
  std::uint64_t bytes() const { return label_bytes + static_cast<std::uint64_t>(shape.features()); }
};

Record record_of(CifarLabels labels) {
  switch (labels) {
    case CifarLabels::ten:
      return {.label_bytes = 1, .label_at = 0, .classes = 10};
    case CifarLabels::hundred:
      return {.label_bytes = 2, .label_at = 1, .classes = 100};
    case CifarLabels::twenty:
      return {.label_bytes = 2, .label_at = 0, .classes = 20};
  }
  return {};
}

std::vector<path> files_of(const path& directory, CifarLabels labels, Split split) {
  const bool ten = labels == CifarLabels::ten;
  if (const std::string why = why_no_directory(directory); !why.empty())
    throw DataFault(fmt::format("{}: {}; must be a directory with the binary files of {}", directory.string(), why,
                                ten ? "CIFAR-10" : "CIFAR-100"));
  std::vector<path> files;
  if (!ten)
    files = {directory / (split == Split::train ? "train.bin" : "test.bin")};
  else if (split == Split::test)
    files = {directory / "test_batch.bin"};
  else
    for (int batch = 1; batch <= 5; ++batch) files.push_back(directory / fmt::format("data_batch_{}.bin", batch));
  for (const path& file : files) {
    if (!std::filesystem::exists(file))
      throw DataFault(
          fmt::format("{}: no file {}; must be the binary version", directory.string(), file.filename().string()));
    if (!std::filesystem::is_regular_file(file))
      throw DataFault(fmt::format("{}: is not a regular file", file.string()));
  }
  return files;
}

std::int64_t records_in(const path& file, std::uint64_t bytes, const Record& record) {
  if (bytes == 0 || bytes % record.bytes() != 0)
    throw DataFault(fmt::format("{}: has {} bytes; must be whole records of {}", file.string(), bytes, record.bytes()));
  return static_cast<std::int64_t>(bytes / record.bytes());
}

std::int64_t samples_of(const path& directory, CifarLabels labels, Split split, CifarRecords records) {
  constexpr std::int64_t of_cifar_10 = 10'000, of_training = 50'000;
  const std::int64_t all = labels != CifarLabels::ten && split == Split::train ? of_training : of_cifar_10;
  std::int64_t samples = 0;
  for (const path& file : files_of(directory, labels, split)) {
    const std::int64_t found = records_in(file, std::filesystem::file_size(file), record_of(labels));
    if (records == CifarRecords::all && found != all)
      throw DataFault(
          fmt::format("{}: has {} records; must have {}, unless complete = false", file.string(), found, all));
    samples += found;
  }
  return samples;
}

std::string content_of(const path& file) {
  try {
    return whole_file(file, most_bytes);
  } catch (const std::system_error& problem) {
    throw DataFault(fmt::format("{}: {}", file.string(), problem.code().message()));
  }
}

ByteImages load_split(const path& directory, CifarLabels labels, Split split) {
  const Record record = record_of(labels);
  ByteImages images;
  for (const path& file : files_of(directory, labels, split)) {
    throw_if_interrupted();
    const std::string content = content_of(file);
    const std::int64_t samples = records_in(file, content.size(), record);
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const char* const begin = content.data() + static_cast<std::uint64_t>(sample) * record.bytes();
      const auto label = static_cast<std::uint8_t>(begin[record.label_at]);
      if (label >= record.classes)
        throw DataFault(fmt::format("{}: record {} has label {}; must be in 0 .. {}", file.string(), sample, label,
                                    record.classes - 1));
      images.labels.push_back(label);
      images.pixels.insert(images.pixels.end(), begin + record.label_bytes, begin + record.bytes());
    }
  }
  return images;
}

// Fractions of the largest pixel, 255.
std::vector<PixelScale> published_scales() {
  constexpr float means[] = {0.4914f, 0.4822f, 0.4465f}, deviations[] = {0.2023f, 0.1994f, 0.2010f};
  std::vector<PixelScale> scales;
  for (std::size_t channel = 0; channel < 3; ++channel)
    scales.push_back({.mean = 255 * means[channel], .factor = 1 / (255 * deviations[channel])});
  return scales;
}

}  // namespace

DatasetSize cifar_size(const path& directory, CifarLabels labels, CifarRecords records) {
  return {.train = samples_of(directory, labels, Split::train, records),
          .test = samples_of(directory, labels, Split::test, records),
          .shape = shape,
          .classes = record_of(labels).classes,
          .has_byte_images = true};
}

std::string cifar_hash(const path& directory, CifarLabels labels) {
  std::string digests;
  for (const Split split : {Split::train, Split::test})
    for (const path& file : files_of(directory, labels, split)) digests += digest_cache().digest(file);
  return content_hash(digests);
}

std::shared_ptr<const Dataset> load_cifar(const path& directory, CifarLabels labels, CifarScale scale,
                                          CifarRecords records) {
  const DatasetSize size = cifar_size(directory, labels, records);
  ByteImages train = load_split(directory, labels, Split::train);
  std::vector<PixelScale> scales =
      scale == CifarScale::published ? published_scales() : measured_scales(train.pixels, shape);
  return make_byte_images(size, std::move(train), load_split(directory, labels, Split::test), std::move(scales));
}

}  // namespace syncopate
