#include "workers/data/images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "workers/base/files.hpp"
#include "workers/base/process.hpp"

namespace syncopate {

namespace {

using std::filesystem::path;

constexpr std::int64_t most_bytes = std::int64_t{1} << 34;  // a larger file is considered damaged

constexpr SampleShape shape{.channels = 3, .height = 32, .width = 32};

struct Record {
  std::uint64_t label_bytes;
  std::uint64_t label_at;
  std::int64_t classes;
  std::uint64_t bytes() const { return label_bytes + static_cast<std::uint64_t>(shape.features()); }
};

constexpr std::array forms_of_records = {Record{.label_bytes = 1, .label_at = 0, .classes = 10},
                                         Record{.label_bytes = 2, .label_at = 1, .classes = 100},
                                         Record{.label_bytes = 2, .label_at = 0, .classes = 20}};
const Record& record_of(CifarLabels labels) { return forms_of_records[static_cast<std::size_t>(labels)]; }

std::vector<path> files_of(const path& directory, CifarLabels labels, Split split) {
  const bool ten = labels == CifarLabels::ten;
  require_directory(directory,
                    fmt::format("must be a directory with the binary files of {}", ten ? "CIFAR-10" : "CIFAR-100"));
  std::vector<path> files;
  if (!ten)
    files = {directory / (split == Split::train ? "train.bin" : "test.bin")};
  else if (split == Split::test)
    files = {directory / "test_batch.bin"};
  else
    for (int batch = 1; batch <= 5; ++batch) files.push_back(directory / fmt::format("data_batch_{}.bin", batch));
  for (const path& file : files) {
    if (!std::filesystem::exists(file))
      reject(directory,
             fmt::format("has no file {}; must contain the binary version of the data", file.filename().string()));
    if (!std::filesystem::is_regular_file(file)) reject(file, "is not a regular file");
  }
  return files;
}

std::int64_t records_in(const path& file, std::uint64_t bytes, const Record& record) {
  if (bytes == 0 || bytes % record.bytes() != 0)
    reject(file, fmt::format("has {} bytes; must consist of whole records of {} bytes", bytes, record.bytes()));
  return static_cast<std::int64_t>(bytes / record.bytes());
}

std::int64_t samples_of(const path& directory, CifarLabels labels, Split split, CifarRecords records) {
  constexpr std::int64_t of_cifar_10 = 10'000, of_training = 50'000;
  const std::int64_t all = labels != CifarLabels::ten && split == Split::train ? of_training : of_cifar_10;
  std::int64_t samples = 0;
  for (const path& file : files_of(directory, labels, split)) {
    const std::int64_t found = records_in(file, std::filesystem::file_size(file), record_of(labels));
    if (records == CifarRecords::all && found != all)
      reject(file, fmt::format("has {} records; must have {}, unless complete = false", found, all));
    samples += found;
  }
  return samples;
}

SampleRows load_split(const path& directory, CifarLabels labels, Split split) {
  const Record record = record_of(labels);
  const auto pixels = std::make_shared<std::vector<std::uint8_t>>();
  SampleRows rows{.owner = pixels};
  for (const path& file : files_of(directory, labels, split)) {
    throw_if_interrupted();
    const std::string content = content_of(file, most_bytes);
    const std::int64_t samples = records_in(file, content.size(), record);
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const char* const begin = content.data() + static_cast<std::uint64_t>(sample) * record.bytes();
      const auto label = static_cast<std::uint8_t>(begin[record.label_at]);
      if (label >= record.classes)
        reject(file, fmt::format("record {} has label {}; must be in 0 .. {}", sample, label, record.classes - 1));
      rows.labels.push_back(label);
      pixels->insert(pixels->end(), begin + record.label_bytes, begin + record.bytes());
    }
  }
  rows.bytes = pixels->data();
  return rows;
}

// The published constants are fractions of the largest pixel value, 255.
std::vector<PixelScale> published_scales() {
  constexpr float means[] = {0.4914f, 0.4822f, 0.4465f}, deviations[] = {0.2023f, 0.1994f, 0.2010f};
  std::vector<PixelScale> scales;
  for (std::size_t channel = 0; channel < 3; ++channel)
    scales.push_back({.mean = 255 * means[channel], .factor = 1 / (255 * deviations[channel])});
  return scales;
}

constexpr int unsigned_byte = 0x08;

std::string_view name_of_type(int type) {
  constexpr std::pair<int, std::string_view> names[] = {{0x08, "uint8"}, {0x09, "int8"},    {0x0b, "int16"},
                                                        {0x0c, "int32"}, {0x0d, "float32"}, {0x0e, "float64"}};
  const auto found = std::ranges::find(names, type, &std::pair<int, std::string_view>::first);
  return found == std::end(names) ? "unknown" : found->second;
}

// Describes the content of an array with this many dimensions in an MNIST-style directory.
std::string kind(int rank) {
  if (rank == 1) return "labels (1 dimension)";
  if (rank == 3) return "images (3 dimensions)";
  return fmt::format("an array of {} dimensions", rank);
}

std::string product(const std::vector<std::int64_t>& dimensions) {
  return fmt::format("{}", fmt::join(dimensions, " x "));
}

class Stream {
 public:
  explicit Stream(const path& file) try
      : name_(file),
        file_(file),
        buffer_(1 << 17),
        stream_([this] { return std::string_view(buffer_.data(), file_.read(buffer_.data(), buffer_.size())); }) {
  } catch (const std::runtime_error& problem) {
    reject(file, fmt::format("{}; must be an IDX file", problem.what()));
  }

  // Returns the number of bytes read, which is less than requested only at the end of the file.
  std::int64_t read(std::uint8_t* out, std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    return static_cast<std::int64_t>(
        read_or_reject(name_, [&] { return stream_.read(reinterpret_cast<char*>(out), size); }));
  }

 private:
  path name_;
  OwnFile file_;
  std::vector<char> buffer_;
  GzipStream stream_;
};

std::vector<std::int64_t> read_dimensions(Stream& stream, const path& file, int rank) {
  std::array<std::uint8_t, 4> magic{};
  if (const auto got = stream.read(magic.data(), 4); got < 4)
    reject(file, fmt::format("has {} bytes; an IDX file begins with 4 bytes of type and 4 per dimension", got));
  if (magic[0] != 0 || magic[1] != 0)
    reject(file, fmt::format("begins with bytes {:02x} {:02x}; an IDX file begins with 00 00", magic[0], magic[1]));
  if (magic[2] != unsigned_byte)
    reject(file,
           fmt::format(
               "contains elements of type 0x{:02x} ({}); must be 0x08 (uint8); for other types use dataset = \"npy\"",
               magic[2], name_of_type(magic[2])));
  if (magic[3] != rank) reject(file, fmt::format("contains {}; must contain {}", kind(magic[3]), kind(rank)));

  std::vector<std::int64_t> dimensions;
  std::int64_t bytes = 1;
  for (int axis = 0; axis < rank; ++axis) {
    std::array<std::uint8_t, 4> big_endian{};
    if (stream.read(big_endian.data(), 4) < 4)
      reject(file, fmt::format("ends within its header, at dimension {} of {}", axis + 1, rank));
    std::int64_t dimension = 0;
    for (const auto byte : big_endian) dimension = dimension << 8 | byte;
    if (dimension == 0) reject(file, fmt::format("has dimension {} = 0; must be at least 1", axis + 1));
    dimensions.push_back(dimension);
    if (dimension > most_bytes / bytes)
      reject(file, fmt::format("declares dimensions {}; too large for a data set", product(dimensions)));
    bytes *= dimension;
  }
  return dimensions;
}

struct SplitFiles {
  path images;
  path labels;
};

path find_file(const path& directory, std::string_view name) {
  for (const auto* suffix : {"", ".gz"}) {
    const path file = directory / fmt::format("{}{}", name, suffix);
    if (std::filesystem::exists(file)) return file;
  }
  reject(directory, fmt::format("has no file {0} or {0}.gz; must have images and labels of both train and t10k", name));
}

SplitFiles find_split(const path& directory, std::string_view prefix) {
  require_directory(directory, "must be a directory with four IDX files named like MNIST's");
  return {.images = find_file(directory, fmt::format("{}-images-idx3-ubyte", prefix)),
          .labels = find_file(directory, fmt::format("{}-labels-idx1-ubyte", prefix))};
}

// Returns the dimensions of the images, (n, height, width). Throws DataFault if the number of labels differs from n.
std::vector<std::int64_t> agreed_dimensions(const SplitFiles& files) {
  const auto images = read_idx_dimensions(files.images, 3);
  const auto labels = read_idx_dimensions(files.labels, 1);
  if (images[0] != labels[0])
    reject(files.labels, fmt::format("has {} labels for {} images of {}; the numbers must be equal", labels[0],
                                     images[0], files.images.string()));
  return images;
}

constexpr std::int64_t idx_classes = 10;

SampleRows load_split(const SplitFiles& files) {
  const auto images = std::make_shared<const IdxArray>(read_idx(files.images, 3));
  const std::vector<std::uint8_t> labels = read_idx(files.labels, 1).values;
  const auto bad = std::ranges::find_if(labels, [](auto label) { return label >= idx_classes; });
  if (bad != labels.end())
    reject(files.labels, fmt::format("label {} = {}; must be in 0 .. {}", bad - labels.begin(), *bad, idx_classes - 1));
  return {.labels = {labels.begin(), labels.end()}, .bytes = images->values.data(), .owner = images};
}

DatasetSize idx_size(const path& directory) {
  const auto train = agreed_dimensions(find_split(directory, "train"));
  const auto test_files = find_split(directory, "t10k");
  const auto test = agreed_dimensions(test_files);
  if (train[1] != test[1] || train[2] != test[2])
    reject(test_files.images, fmt::format("has images of {} x {}; must match the training set's, {} x {}", test[1],
                                          test[2], train[1], train[2]));
  return {.train = train[0],
          .test = test[0],
          .shape = {.channels = 1, .height = train[1], .width = train[2]},
          .classes = idx_classes,
          .has_byte_images = true};
}

}  // namespace

DirectoryFormat cifar(CifarLabels labels, CifarScale scale, CifarRecords records) {
  const auto size_of = [labels, records](const path& directory) {
    return DatasetSize{.train = samples_of(directory, labels, Split::train, records),
                       .test = samples_of(directory, labels, Split::test, records),
                       .shape = shape,
                       .classes = record_of(labels).classes,
                       .has_byte_images = true};
  };
  DirectoryFormat format{.variant = fmt::format("cifar {} {}", static_cast<int>(labels), static_cast<int>(scale))};
  format.size = size_of;
  format.hash = [labels](const path& directory) {
    std::vector<path> files = files_of(directory, labels, Split::train);
    std::ranges::copy(files_of(directory, labels, Split::test), std::back_inserter(files));
    return digest_of_files(files);
  };
  format.load = [labels, scale, size_of](const path& directory) {
    const DatasetSize size = size_of(directory);
    SampleRows train = load_split(directory, labels, Split::train);
    return make_dataset(size, std::move(train), load_split(directory, labels, Split::test),
                        scale == CifarScale::published ? published_scales() : std::vector<PixelScale>());
  };
  return format;
}

std::vector<std::int64_t> read_idx_dimensions(const path& file, int rank) {
  Stream stream(file);
  return read_dimensions(stream, file, rank);
}

IdxArray read_idx(const path& file, int rank) {
  Stream stream(file);
  IdxArray array{.dimensions = read_dimensions(stream, file, rank)};
  std::int64_t expected = 1;
  for (const auto dimension : array.dimensions) expected *= dimension;
  const auto declared = fmt::format("{} = {} elements", product(array.dimensions), expected);

  // Reads in pieces, so that a damaged header cannot cause an allocation much larger than the file.
  constexpr std::int64_t piece = 1 << 24;
  while (std::ssize(array.values) < expected) {
    throw_if_interrupted();
    const auto done = std::ssize(array.values);
    const auto wanted = std::min(piece, expected - done);
    array.values.resize(static_cast<std::size_t>(done + wanted));
    if (const auto got = stream.read(array.values.data() + done, wanted); got < wanted)
      reject(file, fmt::format("ends after {} elements; its header declares {}; the file is truncated", done + got,
                               declared));
  }
  std::uint8_t extra = 0;
  if (stream.read(&extra, 1) != 0)
    reject(file, fmt::format("continues after its last element; its header declares {}", declared));
  return array;
}

DirectoryFormat idx_images() {
  DirectoryFormat format{.variant = "idx", .size = idx_size};
  format.usual = [] {
    return found_directory("fashion-mnist", "datasets/fashion-mnist",
                           "install the package dataset-fashion-mnist, or set `directory` to a folder with four IDX "
                           "files named like MNIST's");
  };
  format.hash = [](const path& directory) {
    const SplitFiles train = find_split(directory, "train"), test = find_split(directory, "t10k");
    return digest_of_files(std::vector{train.images, train.labels, test.images, test.labels});
  };
  format.load = [](const path& directory) {
    const DatasetSize size = idx_size(directory);
    SampleRows train = load_split(find_split(directory, "train"));
    return make_dataset(size, std::move(train), load_split(find_split(directory, "t10k")));
  };
  return format;
}

}  // namespace syncopate
