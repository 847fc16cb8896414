#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "workers/base/arrays.hpp"
#include "workers/base/files.hpp"
#include "workers/base/process.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/text_dataset.hpp"

namespace syncopate {

namespace {

using std::filesystem::path;

constexpr std::int64_t most_targets = 1 << 16, most_classes = 1 << 16;

bool holds_targets(const NpyArray& y) { return y.type() == "<f4"; }
bool holds_tokens(const NpyArray& x) { return x.type() == "<i4" || x.type() == "<i8"; }

std::string text_of(const std::vector<std::int64_t>& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

// Whether all values are finite. Multiplies by 0: the product is 0 for finite numbers and NaN for others.
bool are_finite(std::span<const float> values) {
  float sums[16] = {};
  std::size_t i = 0;
  for (; i + std::size(sums) <= values.size(); i += std::size(sums))
    for (std::size_t lane = 0; lane < std::size(sums); ++lane) sums[lane] += values[i + lane] * 0;
  for (; i < values.size(); ++i) sums[0] += values[i] * 0;
  return std::ranges::all_of(sums, [](float sum) { return sum == 0; });
}

// Throws DataFault for the first number that is not finite ("feature 2 of sample 7 is nan"): every model would be NaN
// after its first step. The array must be float32, with `per_sample` numbers per sample. A process checks each file's
// contents only once.
void check_finite(const path& file, const NpyArray& array, std::int64_t per_sample, std::string_view what) {
  static std::mutex mutex;
  static std::set<std::string> looked_at;  // digests of files that passed the check
  const std::string digest = digest_cache().digest(file);
  const std::lock_guard lock(mutex);
  if (looked_at.contains(digest)) return;
  const auto& shape = array.shape();
  const auto count = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  const std::span<const float> values(array.data<float>(), static_cast<std::size_t>(count));
  constexpr std::size_t piece = 1 << 20;
  for (std::size_t begin = 0; begin < values.size(); begin += piece) {
    throw_if_interrupted();
    const auto part = values.subspan(begin, std::min(piece, values.size() - begin));
    if (are_finite(part)) continue;
    const auto wrong = std::ranges::find_if(part, [](float value) { return !std::isfinite(value); });
    const std::int64_t at = static_cast<std::int64_t>(begin) + (wrong - part.begin());
    reject(file,
           fmt::format("{} {} of sample {} is {}; must be finite", what, at % per_sample, at / per_sample, *wrong));
  }
  looked_at.insert(digest);
}

// Returns the targets per sample of a float32 array y, (n,) or (n, targets). Throws DataFault for other shapes.
std::int64_t targets_of(const path& file, const NpyArray& y) {
  const auto dimensions = y.shape().size();
  const std::int64_t targets = dimensions == 2 ? y.shape()[1] : 1;
  if (dimensions < 1 || dimensions > 2 || targets < 1 || targets > most_targets)
    reject(file, fmt::format("has {} dimensions{}; a float32 array must be (n,), or (n, targets) with 1 to {} targets",
                             dimensions, dimensions == 2 ? fmt::format(", {} targets", targets) : "", most_targets));
  check_finite(file, y, targets, "target");
  return targets;
}

// Copies integers of an array of uint8, int32 or int64, from element `begin` on.
void copy_integers(const NpyArray& array, std::size_t begin, std::span<std::int64_t> out) {
  if (array.type() == "|u1")
    std::copy_n(array.data<std::uint8_t>() + begin, out.size(), out.begin());
  else if (array.type() == "<i4")
    std::copy_n(array.data<std::int32_t>() + begin, out.size(), out.begin());
  else
    std::copy_n(array.data<std::int64_t>() + begin, out.size(), out.begin());
}

// Returns the number of tokens in a row before the padding at its end.
std::size_t without_padding(std::span<const std::int64_t> row, std::int32_t padding) {
  std::size_t count = row.size();
  while (count > 0 && row[count - 1] == padding) --count;
  return count;
}

// Checks the labels of a row's tokens, of which the first `own` are not padding. They are classes from 0 on, or
// ignored_label for tokens without a label, such as padding. Each row must have a label. Throws DataFault.
void check_token_labels(const path& file, std::size_t row, std::span<const std::int64_t> labels, std::size_t own) {
  for (std::size_t place = 0; place < labels.size(); ++place) {
    const std::int64_t label = labels[place];
    if (label == ignored_label) continue;
    if (label < 0 || label > largest_token)
      reject(file, fmt::format("label ({}, {}) = {}; must be in 0 .. {}, or {} for tokens without a label", row, place,
                               label, largest_token, ignored_label));
    if (place >= own)
      reject(file, fmt::format("label ({}, {}) = {} belongs to padding; must be {}", row, place, label, ignored_label));
  }
  if (std::ranges::count(labels, ignored_label) == std::ssize(labels))
    reject(file, fmt::format("row {} contains only {}, which means no label; must have at least one label", row,
                             ignored_label));
}

struct ArrayFiles {
  path x, y;
};

ArrayFiles files_of(const path& directory, Split split) {
  require_directory(directory, "must be a directory with x_train.npy, y_train.npy, x_test.npy and y_test.npy");
  const char* const name = split == Split::train ? "train" : "test";
  ArrayFiles files{directory / fmt::format("x_{}.npy", name), directory / fmt::format("y_{}.npy", name)};
  for (const path& file : {files.x, files.y})
    if (!std::filesystem::exists(file))
      reject(directory,
             fmt::format("has no file {}; must have x and y of both train and test", file.filename().string()));
  return files;
}

NpyArray array_in(const path& file) {
  return read_or_reject(file, [&] { return NpyArray(file); });
}

// Returns the shape of one sample. Throws DataFault if the array has an invalid shape or type.
SampleShape shape_of(const path& file, const NpyArray& x) {
  const std::vector<std::int64_t>& shape = x.shape();
  if (!shape.empty() && shape.front() == 0)
    reject(file, fmt::format("has 0 samples (shape {}); must have at least one", text_of(shape)));
  if (shape.size() < 2 || shape.size() > 4 || std::ranges::find(shape, 0) != shape.end())
    reject(file, fmt::format("has shape {}; must be (n, features), (n, height, width) or (n, channels, height, width)",
                             text_of(shape)));
  if (holds_tokens(x)) {
    if (shape.size() != 2) reject(file, fmt::format("has shape {}; tokens must be (n, length)", text_of(shape)));
  } else if (x.type() != "<f4" && x.type() != "|u1") {
    const bool are_integers = x.type()[1] == 'i' || x.type()[1] == 'u';
    const std::string of_tokens =
        are_integers && shape.size() == 2 ? fmt::format(", or for tokens {}", way_to_save(file, "<i8")) : "";
    reject(file, fmt::format("has elements of type {}; must be float32 or uint8, or int32 or int64 for tokens: {}{}",
                             described_type(x.type()), way_to_save(file, "<f4"), of_tokens));
  }
  if (shape.size() == 2) return {.channels = 1, .height = 1, .width = shape[1]};
  return {.channels = shape.size() == 4 ? shape[1] : 1, .height = shape.end()[-2], .width = shape.end()[-1]};
}

std::vector<std::int64_t> labels_in(const path& file, const NpyArray& y) {
  if (y.shape().size() != 1) reject(file, fmt::format("has shape {}; must be (n,)", text_of(y.shape())));
  if (y.type() != "|u1" && !holds_tokens(y))
    reject(file,
           fmt::format(
               "has elements of type {}; must be uint8, int32 or int64 for classes, or float32 for numbers: {}, or {}",
               described_type(y.type()), way_to_save(file, "<i8"), way_to_save(file, "<f4")));
  std::vector<std::int64_t> labels(static_cast<std::size_t>(y.shape()[0]));
  copy_integers(y, 0, labels);
  const auto wrong = std::ranges::find_if(labels, [](auto label) { return label < 0 || label >= most_classes; });
  if (wrong != labels.end())
    reject(file, fmt::format("label {} = {}; must be in 0 .. {}", wrong - labels.begin(), *wrong, most_classes - 1));
  return labels;
}

struct SplitData {
  ArrayFiles files;
  NpyArray x, y;
  SampleShape shape;
  std::vector<std::int64_t> labels{};  // all 0 if there are targets or labels of tokens
  std::int64_t largest_label = 0;      // of samples or tokens
  std::int64_t targets = 0;
  bool has_token_labels = false;
  TokenSequences sequences{};  // the rows of x if they are tokens
};

// Reads the sequences of x, (n, length), without padding at ends, and their labels. Throws DataFault for empty rows,
// invalid tokens and invalid labels of tokens.
void read_rows(SplitData& data, std::int32_t padding) {
  const path& file = data.files.x;
  const auto length = static_cast<std::size_t>(data.x.shape()[1]);
  std::vector<std::int64_t> elements(length), labels(length);
  std::vector<std::int32_t> tokens(length), token_labels(length);
  const auto narrow = [](std::int64_t element) { return static_cast<std::int32_t>(element); };
  for (std::size_t row = 0; row < data.labels.size(); ++row) {
    copy_integers(data.x, row * length, elements);
    const auto wrong = std::ranges::find_if(elements, [](std::int64_t e) { return e < 0 || e > largest_token; });
    if (wrong != elements.end())
      reject(file, fmt::format("row {} has the token {}; must be in 0 .. {}", row, *wrong, largest_token));
    std::ranges::transform(elements, tokens.begin(), narrow);
    const std::size_t own = without_padding(elements, padding);
    if (own == 0)
      reject(file, fmt::format("row {} contains only padding ({}); must have at least one token", row, padding));
    if (!data.has_token_labels) {
      data.sequences.add(std::span(tokens).first(own), data.labels[row]);
      continue;
    }
    copy_integers(data.y, row * length, labels);
    check_token_labels(data.files.y, row, labels, own);
    data.largest_label = std::max(data.largest_label, std::ranges::max(labels));
    std::ranges::transform(labels, token_labels.begin(), narrow);
    data.sequences.add(std::span(tokens).first(own), std::span(token_labels).first(own));
  }
}

SplitData read_split(const path& directory, Split split, std::int32_t padding) {
  const ArrayFiles files = files_of(directory, split);
  NpyArray x = array_in(files.x);
  const SampleShape shape = shape_of(files.x, x);
  if (x.type() == "<f4") check_finite(files.x, x, shape.features(), "feature");
  SplitData data{.files = files, .x = std::move(x), .y = array_in(files.y), .shape = shape};
  if (holds_targets(data.y)) {
    if (holds_tokens(data.x))
      reject(files.y, fmt::format("has elements of type {}; must be uint8, int32 or int64: labels of tokens are "
                                  "numbers of classes; {}",
                                  described_type(data.y.type()), way_to_save(files.y, "<i8")));
    data.targets = targets_of(files.y, data.y);
  } else if (holds_tokens(data.x) && data.y.shape().size() == 2) {
    if (data.y.shape() != data.x.shape())
      reject(files.y, fmt::format("has shape {}; labels of tokens must have the shape of the tokens, {}",
                                  text_of(data.y.shape()), text_of(data.x.shape())));
    if (!holds_tokens(data.y))
      reject(files.y, fmt::format("has elements of type {}; labels of tokens must be int64 or int32: {}",
                                  described_type(data.y.type()), way_to_save(files.y, "<i8")));
    data.has_token_labels = true;
  } else {
    data.labels = labels_in(files.y, data.y);
  }
  data.labels.resize(static_cast<std::size_t>(data.y.shape()[0]));
  if (std::ssize(data.labels) != data.x.shape()[0])
    reject(files.y, fmt::format("has {} labels for {} samples of {}; the numbers must be equal", data.labels.size(),
                                data.x.shape()[0], files.x.filename().string()));
  data.largest_label = std::ranges::max(data.labels);
  if (holds_tokens(data.x)) read_rows(data, padding);
  return data;
}

Splits<SplitData> read_both(const path& directory, std::int32_t padding) {
  Splits<SplitData> splits{.train = read_split(directory, Split::train, padding),
                           .test = read_split(directory, Split::test, padding)};
  const auto& [train, test] = splits;
  if (test.shape != train.shape && !(holds_tokens(test.x) && holds_tokens(train.x)))
    reject(test.files.x, fmt::format("has shape {}; must match the training set's, {}", text_of(test.x.shape()),
                                     text_of(train.x.shape())));
  if (test.x.type() != train.x.type())
    reject(test.files.x, fmt::format("has elements of type {}; must have the training set's type, {}: {}",
                                     described_type(test.x.type()), described_type(train.x.type()),
                                     way_to_save(test.files.x, train.x.type())));
  if (test.targets != train.targets || test.has_token_labels != train.has_token_labels)
    reject(test.files.y,
           fmt::format("has shape {} and elements of type '{}'; must match the training set's, {} and '{}'",
                       text_of(test.y.shape()), test.y.type(), text_of(train.y.shape()), train.y.type()));
  return splits;
}

// Adds a note if rows begin with padding, because padding is removed only at the end of a row.
void note_padding(const SplitData& data, std::int32_t padding, std::vector<std::string>& notes) {
  const TokenSequences& rows = data.sequences;
  std::int64_t padded = 0;
  for (std::int64_t row = 0; row < rows.count(); ++row)
    padded += rows.tokens(static_cast<std::uint32_t>(row)).front() == padding ? 1 : 0;
  if (padded == 0) return;
  notes.push_back(fmt::format(
      "{}: {} of its {} rows begin{} with the padding token {}, which is kept there: only padding at a row's end is "
      "removed",
      data.files.x.string(), padded, rows.count(), padded == 1 ? "s" : "", padding));
}

DatasetSize size_of(const Splits<SplitData>& splits, const TokenMarks& marks) {
  const auto& [train, test] = splits;
  const std::int64_t classes = std::max<std::int64_t>(2, 1 + std::max(train.largest_label, test.largest_label));
  DatasetSize size{.train = std::ssize(train.labels),
                   .test = std::ssize(test.labels),
                   .shape = train.shape,
                   .classes = train.targets > 0 || train.has_token_labels ? 0 : classes,
                   .targets = train.targets,
                   .has_byte_images = train.x.type() == "|u1" && train.x.shape().size() > 2};
  if (!holds_tokens(train.x)) return size;
  const TokenSequences &rows = train.sequences, &test_rows = test.sequences;
  const std::int32_t largest = std::max({rows.largest(), test_rows.largest(), marks.mask, marks.padding});
  size.shape = {.width = std::max(rows.longest(), test_rows.longest()), .vocabulary = std::int64_t{largest} + 1};
  size.shortest = std::min(rows.shortest(), test_rows.shortest());
  if (train.has_token_labels) size.token_classes = classes;
  size.marks = marks;
  note_padding(train, marks.padding, size.notes);
  note_padding(test, marks.padding, size.notes);
  return size;
}

SampleRows rows_of(SplitData split) {
  const auto data = std::make_shared<const SplitData>(std::move(split));
  const bool are_bytes = data->x.type() == "|u1";
  return {.labels = data->labels,
          .floats = are_bytes ? nullptr : data->x.data<float>(),
          .bytes = are_bytes ? data->x.data<std::uint8_t>() : nullptr,
          .targets = data->targets > 0 ? data->y.data<float>() : nullptr,
          .owner = data};
}

DatasetSize size_in(const path& directory, const TokenMarks& marks) {
  const Splits<SplitData> splits = read_both(directory, marks.padding);
  if (!holds_tokens(splits.train.x) && (marks.padding >= 0 || marks.mask >= 0 || !marks.never_masked.empty()))
    reject(splits.train.files.x,
           "contains no tokens (int32 or int64), so padding, mask and never_masked must be left out");
  return size_of(splits, marks);
}

std::shared_ptr<const Dataset> load_from(const path& directory, const TokenMarks& marks) {
  Splits<SplitData> splits = read_both(directory, marks.padding);
  const DatasetSize size = size_of(splits, marks);
  if (!holds_tokens(splits.train.x))
    return make_dataset(size, rows_of(std::move(splits.train)), rows_of(std::move(splits.test)));
  return make_token_dataset(size, std::move(splits.train.sequences), std::move(splits.test.sequences));
}

}  // namespace

DirectoryFormat npy_arrays(const TokenMarks& marks) {
  DirectoryFormat format{
      .variant = fmt::format("npy {} {} {}", marks.padding, marks.mask, fmt::join(marks.never_masked, ","))};
  format.size = [marks](const path& directory) { return size_in(directory, marks); };
  format.hash = [](const path& directory) {
    const ArrayFiles train = files_of(directory, Split::train), test = files_of(directory, Split::test);
    return digest_of_files(std::vector{train.x, train.y, test.x, test.y});
  };
  format.load = [marks](const path& directory) { return load_from(directory, marks); };
  return format;
}

}  // namespace syncopate
