// Digests of files that may be large. What a file holds decides what is computed from it, but reading gigabytes at each
// start would cost more than many a run: a digest is kept with all that the system says about the file, and taken
// again where any of it differs.
#pragma once

#include <chrono>
#include <cstddef>
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

#include "workers/config/settings.hpp"
#include "workers/data/dataset.hpp"

namespace syncopate {

// All that the system says about a file without reading it.
struct FileState {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t changed_ns = 0;   // mtime, which anybody may set
  std::int64_t recorded_ns = 0;  // ctime, which nobody may
  bool operator==(const FileState&) const = default;
};

// Thread-safe, and safe beside other processes with the same file.
class DigestCache {
 public:
  // Kept in `file`, and in this process alone where that is empty. A file that cannot be read or written costs time
  // and nothing else. `margin`: how long before it was read a file must have changed last for its digest to be kept.
  // A later change within the same tick of the file system's clock leaves all times as they are. Of more than twice
  // `most_kept` digests in the file the newest `most_kept` stay: others are of data sets long gone.
  explicit DigestCache(std::filesystem::path file, std::chrono::nanoseconds margin = std::chrono::seconds(2),
                       std::size_t most_kept = 10'000);

  // 16 hexadecimal digits of what the file holds. Throws DataFault.
  std::string digest(const std::filesystem::path& file);

  // Files whose contents were read, rather than found here.
  int files_read() const { return files_read_; }

 private:
  struct Entry {
    std::string digest;
    FileState state;
  };
  using Entries = std::map<std::string, Entry>;  // by path

  static std::string line_of(const std::string& path, const Entry& entry);
  void read();
  void append(const std::string& path, const Entry& entry) const;
  void replace(const std::string& text) const;

  std::filesystem::path file_;
  std::chrono::nanoseconds margin_;
  std::size_t most_kept_;
  std::mutex mutex_;
  bool is_read_ = false;
  Entries entries_;
  int files_read_ = 0;
};

// The user's, in $XDG_CACHE_HOME/syncopate or ~/.cache/syncopate.
DigestCache& digest_cache();

// The data sets one can name in an experiment file.
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

// A generated data set with known statistics: each class is a Gaussian of unit deviation around a
// centre; the centres lie on a sphere in random directions.
struct GaussianMixtureOptions {
  std::int64_t classes = 10;
  std::int64_t dimension = 32;
  std::int64_t train = 20000;
  std::int64_t test = 4000;
  double separation = 3;  // radius of the sphere, in deviations within a class
};

DatasetSize gaussian_mixture_size(const GaussianMixtureOptions& options);

// Sample i has label i mod classes. Every number is a pure function of (seed, split, sample, feature):
// a larger data set begins with the smaller one's samples.
std::shared_ptr<const Dataset> make_gaussian_mixture(const GaussianMixtureOptions& options, std::uint64_t seed);

// A part of the training set that nothing is trained on, to choose by: the test set is looked at once, at the end. And
// a subset of the rest that alone is trained on.
struct ValidationOptions {
  std::int64_t samples = 0;  // less than the training set has
  std::optional<std::int64_t>
      subset{};            // of the others, so many are trained on, all those of a smaller subset; none: all
  std::uint64_t seed = 0;  // which samples these are; not the run's, so that all runs of an experiment have the same
};

DatasetSize with_validation(DatasetSize size, const ValidationOptions& options);

// `samples` different training samples are Split::validation; the others, or the subset of them, numbered anew in their
// order, are Split::train. What the data set normalises by stays that of all of them.
std::shared_ptr<const Dataset> with_validation(std::shared_ptr<const Dataset> inner, const ValidationOptions& options);

}  // namespace syncopate
