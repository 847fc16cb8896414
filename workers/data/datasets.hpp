// The data sets one can name in an experiment file, and what their files have in common.
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

// "FILE: what".
[[noreturn]] void reject(const std::filesystem::path& file, std::string_view what);

// Throws DataFault unless it is one. `needed`: "must be a directory with ...".
void require_directory(const std::filesystem::path& directory, std::string_view needed);

// The whole file. Throws DataFault where it cannot be read or has more than `most_bytes`.
std::string content_of(const std::filesystem::path& file, std::uint64_t most_bytes);

// A cache's file; empty where it cannot be read, so that its contents are made once more.
std::string text_or_nothing(const std::filesystem::path& file);

// Writes the file aside and renames it, so that readers have the former one or this. On failure the former one stays.
void replace_file(const std::filesystem::path& file, const std::string& text);

// All that the system says about a file without reading it.
struct FileState {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t changed_ns = 0;   // mtime, which anybody may set
  std::int64_t recorded_ns = 0;  // ctime, which nobody may
  bool operator==(const FileState&) const = default;
};

// Digests of files that may be large. What a file holds decides what is computed from it, but reading gigabytes at each
// start would cost more than many runs. So a digest is kept with all that the system says about the file, and taken
// again where any of it differs. Thread-safe, and safe beside other processes with the same file.
class DigestCache {
 public:
  // Kept in `file`, and in this process alone where that is empty. A file that cannot be read or written costs time
  // and nothing else. `margin`: how long before it was read a file must have changed last for its digest to be kept.
  // A later change within the same tick of the file system's clock leaves all times as they are. Of more than twice
  // `most_kept` digests in the file the newest `most_kept` stay: others are of data sets long gone.
  explicit DigestCache(std::filesystem::path file, std::chrono::nanoseconds margin = std::chrono::seconds(2),
                       std::size_t most_kept = 10'000)
      : file_(std::move(file)), margin_(margin), most_kept_(most_kept) {}

  // 16 hexadecimal digits of what the file holds. Throws DataFault.
  std::string digest(const std::filesystem::path& file);

  // Files whose contents were read, rather than found here.
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

// The user's, in $XDG_CACHE_HOME/syncopate or ~/.cache/syncopate.
DigestCache& digest_cache();

// One digest of all their contents, 16 hexadecimal digits. Throws DataFault.
std::string digest_of_files(std::span<const std::filesystem::path> files);

// A data set whose size is known; `load` reads or generates it, and throws DataFault for what only the contents show.
struct DatasetPlan {
  DatasetSize size;
  std::function<std::shared_ptr<const Dataset>()> load;
};

// Plans it, with the seed of generated data. Reads headers of files, and their contents for a digest; what is missing
// or wrong is a fault, and there is no plan. The table's Settings must still live.
using DatasetPlanner = std::function<std::optional<DatasetPlan>(std::uint64_t seed)>;

struct DatasetRow {
  std::string_view name;                    // as written in TOML
  std::string_view sentence;                // what it is
  std::string_view title;                   // what its table [datasets.<name>] is of
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

// The user's own data set: NumPy's arrays x_train.npy, y_train.npy, x_test.npy and y_test.npy, mapped into memory.
//
// x is (n, features), (n, height, width) or (n, channels, height, width), float32 or uint8: float32 is taken as it is;
// uint8 is normalised to mean 0 and deviation 1, channel by channel, over the training set. Or it is (n, length), int32
// or int64: tokens from 0, a sequence a row, without the padding at its end.
// y is (n,), uint8, int32 or int64: classes from 0 to the largest label of both splits. Or, beside numbers, (n,) or
// (n, targets), float32: numbers instead of classes. Or, beside tokens, (n, length), int32 or int64: a label of each
// token, and ignored_label where there is none.
inline constexpr std::int64_t largest_token = (1 << 24) - 1;

// The tokens with a meaning of their own; -1: there is none.
struct NpyTokens {
  std::int32_t padding = -1;
  std::int32_t mask = -1;
  std::vector<std::int64_t> never_masked{};
};

// Reads the headers, the labels, and tokens. Throws DataFault: file, what was found, what would be right.
DatasetSize npy_dataset_size(const std::filesystem::path& directory, const NpyTokens& tokens = {});

// digest_of_files of the four. Throws DataFault.
std::string npy_dataset_hash(const std::filesystem::path& directory);

// Throws DataFault.
std::shared_ptr<const Dataset> load_npy_dataset(const std::filesystem::path& directory, const NpyTokens& tokens = {});

// Training samples that nothing is trained on, to choose by before the test set is looked at; and a subset of the rest.
struct ValidationOptions {
  std::int64_t samples = 0;              // less than the training set has
  std::optional<std::int64_t> subset{};  // so many of the others; contains each smaller subset; none: all
  std::uint64_t seed = 0;  // which samples these are; not the run's, so that all runs of an experiment have the same
};

DatasetSize with_validation(DatasetSize size, const ValidationOptions& options);

// `samples` different training samples are Split::validation; the others, or the subset of them, numbered anew in their
// order, are Split::train. What the data set normalises by stays that of all of them.
std::shared_ptr<const Dataset> with_validation(std::shared_ptr<const Dataset> inner, const ValidationOptions& options);

}  // namespace syncopate
