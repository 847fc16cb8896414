// The data sets that an experiment file can name, and functions for their files.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workers/base/files.hpp"
#include "workers/config/settings.hpp"
#include "workers/data/dataset.hpp"

namespace syncopate {

// Throws DataFault with the message "FILE: what".
[[noreturn]] void reject(const std::filesystem::path& file, std::string_view what);

// A fault that is reported at this key of the data set's table, instead of the key of its directory.
struct KeyFault : DataFault {
  KeyFault(std::string_view key, const std::string& message) : DataFault(message), key(key) {}
  std::string key;
};

// Throws KeyFault with the message "FILE: what".
[[noreturn]] void reject(const std::filesystem::path& file, std::string_view key, std::string_view what);

// Returns the result of `read`. If it throws std::runtime_error, throws DataFault with the message "FILE: what".
template <typename Read>
auto read_or_reject(const std::filesystem::path& file, const Read& read) try {
  return read();
} catch (const std::runtime_error& problem) {
  reject(file, problem.what());
}

// Throws DataFault if `directory` is not a directory. The message ends with `needed`: "must be a directory with ...".
void require_directory(const std::filesystem::path& directory, std::string_view needed);

// Reads the whole file. Throws DataFault if it cannot be read or has more than `most_bytes`.
std::string content_of(const std::filesystem::path& file, std::uint64_t most_bytes);

// Reads a file of a cache. Returns an empty text if it cannot be read; the cache then computes the contents again.
std::string text_or_nothing(const std::filesystem::path& file);

// Writes a temporary file and renames it, so that readers get old or new contents. A failure leaves the old file.
void write_to_cache(const std::filesystem::path& file, const std::string& text);

// The properties by which a changed file is recognised without reading it.
struct FileState {
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t changed_ns = 0;   // mtime, which the owner can set
  std::int64_t recorded_ns = 0;  // ctime, which no program can set
  bool operator==(const FileState&) const = default;
};

// A cache of digests of files that may be large. Results depend on a file's contents, but reading gigabytes at each
// start would take longer than many runs. Therefore a digest is stored together with the file's FileState, and computed
// again if the state has changed. Thread-safe; several processes may use the same cache file.
class DigestCache {
 public:
  // Stores digests in `file`, or only in memory if `file` is empty. If `file` cannot be read or written, digests are
  // computed again.
  // `margin`: a digest is stored only if the file was last changed at least this long before it was read. (A later
  // change within the same tick of the file system's clock would not change its times.)
  // `most_kept`: if `file` has more than twice this number of digests, only the newest `most_kept` are kept.
  explicit DigestCache(std::filesystem::path file, std::chrono::nanoseconds margin = std::chrono::seconds(2),
                       std::size_t most_kept = 10'000)
      : file_(std::move(file)), margin_(margin), most_kept_(most_kept) {}

  // Returns the digest of the file's contents, 16 hexadecimal digits. Throws DataFault.
  std::string digest(const std::filesystem::path& file);

  // The number of files that were read because the cache did not have their digests.
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
  std::map<std::string, Entry> entries_;  // latest digests, by path
  int files_read_ = 0;
};

// The user's cache of digests, in $XDG_CACHE_HOME/syncopate or ~/.cache/syncopate.
DigestCache& digest_cache();

// Returns one digest of the contents of all these files, 16 hexadecimal digits. Throws DataFault.
std::string digest_of_files(std::span<const std::filesystem::path> files);

// A data set of files in a directory, or of one file. All functions throw DataFault. The message names the file, the
// fault, and the requirement.
struct DirectoryFormat {
  std::string variant{};                           // distinguishes settings with different samples from the same files
  std::function<std::filesystem::path()> usual{};  // returns the default directory; null: a directory is required
  std::function<DatasetSize(const std::filesystem::path&)> size{};
  std::function<std::string(const std::filesystem::path&)> hash{};  // of the files as stored, 16 hexadecimal digits
  std::function<std::shared_ptr<const Dataset>(const std::filesystem::path&)> load{};
  std::string place = "directory";  // the key with the data set's path: "directory" or "file"
};

// A data set whose size is known and which can be loaded. `load` reads or generates it, and throws DataFault for faults
// that are found only in the contents.
struct DatasetPlan {
  DatasetSize size;
  std::function<std::shared_ptr<const Dataset>()> load;
};

// Plans a data set; the seed is for generated data. Reads headers of files, and their contents for a digest. For
// missing or wrong files, reports a fault and returns nullopt. The Settings of the data set's table must still exist.
using DatasetPlanner = std::function<std::optional<DatasetPlan>(std::uint64_t seed)>;

// A row of a registry. Each row has its own table, [datasets.<name>] or [models.<name>].
template <typename Value>
struct TableRow {
  std::string_view name;           // TOML name
  std::string_view sentence;       // one-sentence description
  std::string_view title;          // describes its table; empty: no keys
  Value (*read)(Settings& table);  // reads its keys, but no files
  // Whether the table's defaults are in the resolved configuration, and so in the hash, of runs that choose other rows.
  // Leave it false for a new row, so that other runs keep their hashes.
  bool in_every_configuration = false;
};

// Reads the tables of all rows, [<kind>s.*]. Returns the value of the row `chosen`; an empty value if it is null.
template <typename Value>
Value read_tables(Settings& root, const std::string& kind, std::span<const TableRow<Value>> rows,
                  const TableRow<Value>* chosen) {
  Settings tables = root.section(kind + "s");
  Value value;
  for (const TableRow<Value>& row : rows) {
    const std::string sentence =
        row.title.empty() ? "" : fmt::format("{}, training.{} = \"{}\".", row.title, kind, row.name);
    Settings table = tables.section({row.name, sentence});
    Value read = row.read(table);
    if (&row == chosen)
      value = std::move(read);
    else if (!row.in_every_configuration)
      tables.leave_out_unwritten_table(row.name);
  }
  return value;
}

using DatasetRow = TableRow<DatasetPlanner>;
std::span<const DatasetRow> datasets();

// A generated data set. Each class is a Gaussian of unit deviation; the classes' centres are in random directions on a
// sphere around the origin.
struct GaussianMixtureOptions {
  std::int64_t classes = 10;
  std::int64_t dimension = 32;
  std::int64_t train = 20000;
  std::int64_t test = 4000;
  double separation = 3;  // radius of the sphere, in standard deviations of a class
};

// Sample i has label i mod classes. Every number is a pure function of (seed, split, sample, feature).
std::shared_ptr<const Dataset> make_gaussian_mixture(const GaussianMixtureOptions& options, std::uint64_t seed);

inline constexpr std::int64_t largest_token = (1 << 24) - 1;

// `marks`: the special tokens, if x contains tokens. The function `size` reads headers, labels and tokens.
DirectoryFormat npy_arrays(const TokenMarks& marks = {});

// Training samples that are held out for validation, to choose settings without the test set. Training can also be
// restricted to a subset of the other samples.
struct ValidationOptions {
  std::int64_t samples = 0;              // less than the training set's size
  std::optional<std::int64_t> subset{};  // train on this many of the other samples; nullopt: on all of them
  // Selects the validation samples and the subset: the same for all seeds of an experiment or, with subset_by_seed,
  // each seed's own. A larger subset contains each smaller one.
  std::uint64_t seed = 0;
};

// Moves `samples` random training samples to Split::validation. The others, or a subset of them, become Split::train
// and are renumbered in their order. Normalisation still uses the constants of all training samples.
std::shared_ptr<const Dataset> with_validation(std::shared_ptr<const Dataset> inner, const ValidationOptions& options);

}  // namespace syncopate
