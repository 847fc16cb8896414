// The data sets that an experiment file can name, and functions for their files.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/data/dataset.hpp"

namespace syncopate {

// Throws DataFault with "FILE: what".
[[noreturn]] void reject(const std::filesystem::path& file, std::string_view what);

// Throws DataFault unless it is a directory. `needed`: "must be a directory with ...".
void require_directory(const std::filesystem::path& directory, std::string_view needed);

// Reads the whole file. Throws DataFault if it cannot be read or has more than `most_bytes`.
std::string content_of(const std::filesystem::path& file, std::uint64_t most_bytes);

// Reads a cache's file; empty if it cannot be read, so that its contents are computed again.
std::string text_or_nothing(const std::filesystem::path& file);

// Writes a temporary file and renames it, so that readers get either the old file or this one. On failure the old one
// stays.
void replace_file(const std::filesystem::path& file, const std::string& text);

// Everything that the system says about a file without reading it.
struct FileState {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t changed_ns = 0;   // mtime, which anyone may set
  std::int64_t recorded_ns = 0;  // ctime, which nobody can set
  bool operator==(const FileState&) const = default;
};

// Digests of files that may be large. Results depend on a file's contents, but reading gigabytes at each start would
// cost more than many runs. So a digest is stored with all that the system says about the file, and computed again if
// any of that differs. Thread-safe, and safe beside other processes that use the same file.
class DigestCache {
 public:
  // Stores digests in `file`, or only in this process if that is empty. A file that cannot be read or written costs
  // only time. `margin`: the digest of a file is stored only if the file was last changed at least this long before it
  // was read. (A later change within the same tick of the file system's clock would leave all times as they are.) If
  // the file has more than twice `most_kept` digests, it keeps the newest `most_kept`: the others belong to data sets
  // long gone.
  explicit DigestCache(std::filesystem::path file, std::chrono::nanoseconds margin = std::chrono::seconds(2),
                       std::size_t most_kept = 10'000)
      : file_(std::move(file)), margin_(margin), most_kept_(most_kept) {}

  // 16 hexadecimal digits that depend on the file's contents. Throws DataFault.
  std::string digest(const std::filesystem::path& file);

  // The number of files whose contents were read instead of looked up.
  int files_read() const { return files_read_; }

 private:
  struct Entry {
    std::string digest;
    FileState state;
  };

  static std::string line_of(const std::string& path, const Entry& entry);
  void read();
  void append(const std::string& path, const Entry& entry) const;

  std::filesystem::path file_;
  std::chrono::nanoseconds margin_;
  std::size_t most_kept_;
  std::mutex mutex_;
  bool is_read_ = false;
  std::map<std::string, Entry> entries_;  // by path
  int files_read_ = 0;
};

// The user's cache, in $XDG_CACHE_HOME/syncopate or ~/.cache/syncopate.
DigestCache& digest_cache();

// One digest of the contents of all files, 16 hexadecimal digits. Throws DataFault.
std::string digest_of_files(std::span<const std::filesystem::path> files);

// A data set whose size is known. `load` reads or generates it; it throws DataFault for faults that only the contents
// show.
struct DatasetPlan {
  DatasetSize size;
  std::function<std::shared_ptr<const Dataset>()> load;
};

// Plans a data set, with the seed for generated data. Reads headers of files, and their contents for a digest. Missing
// or wrong files are a fault, and there is no plan. The table's Settings must still live.
using DatasetPlanner = std::function<std::optional<DatasetPlan>(std::uint64_t seed)>;

struct DatasetRow {
  std::string_view name;                    // TOML name
  std::string_view sentence;                // one-sentence description
  std::string_view title;                   // describes its table [datasets.<name>]
  DatasetPlanner (*read)(Settings& table);  // reads its keys, and no files
};
std::span<const DatasetRow> datasets();

// Reads the tables [datasets.*] of the root, also those of data sets that are not chosen.
DatasetPlanner read_datasets(Settings& root, const DatasetRow& chosen);

// A generated data set: each class is a Gaussian of unit deviation around a centre in a random direction, on a sphere.
struct GaussianMixtureOptions {
  std::int64_t classes = 10;
  std::int64_t dimension = 32;
  std::int64_t train = 20000;
  std::int64_t test = 4000;
  double separation = 3;  // radius of the sphere, in deviations within a class
};

// Sample i has label i mod classes. Every number is a pure function of (seed, split, sample, feature).
std::shared_ptr<const Dataset> make_gaussian_mixture(const GaussianMixtureOptions& options, std::uint64_t seed);

// The user's own data set: NumPy arrays x_train.npy, y_train.npy, x_test.npy and y_test.npy, mapped into memory.
//
// x is (n, features), (n, height, width) or (n, channels, height, width), float32 or uint8. float32 is used unchanged;
// uint8 is normalised to mean 0 and deviation 1, channel by channel, over the training set. Alternatively x is (n,
// length), int32 or int64: tokens from 0, one sequence per row, followed by padding, which is removed.
// y is (n,), uint8, int32 or int64: classes from 0 to the largest label of both splits. For x with numbers it may be
// (n,) or (n, targets), float32: numbers instead of classes. For tokens it may be (n, length), int32 or int64: a label
// per token, or ignored_label.
inline constexpr std::int64_t largest_token = (1 << 24) - 1;

// Special tokens; -1: none.
struct NpyTokens {
  std::int32_t padding = -1;
  std::int32_t mask = -1;
  std::vector<std::int64_t> never_masked{};
};

// Reads the headers, the labels, and tokens. Throws DataFault with the file, what was found, and what would be right.
DatasetSize npy_dataset_size(const std::filesystem::path& directory, const NpyTokens& tokens = {});

// digest_of_files of the four files. Throws DataFault.
std::string npy_dataset_hash(const std::filesystem::path& directory);

// Throws DataFault.
std::shared_ptr<const Dataset> load_npy_dataset(const std::filesystem::path& directory, const NpyTokens& tokens = {});

// Training samples held out for choosing settings before the test set is used; and a subset of the rest.
struct ValidationOptions {
  std::int64_t samples = 0;              // fewer than the training set has
  std::optional<std::int64_t> subset{};  // train on this many of the others; contains each smaller subset; none: all
  // Selects these samples. Not the run's seed, so that all runs of an experiment have the same.
  std::uint64_t seed = 0;
};

DatasetSize with_validation(DatasetSize size, const ValidationOptions& options);

// `samples` different training samples become Split::validation. The others, or the subset of them, become
// Split::train, renumbered in their order. Constants for normalisation remain those of all training samples.
std::shared_ptr<const Dataset> with_validation(std::shared_ptr<const Dataset> inner, const ValidationOptions& options);

}  // namespace syncopate
