// Shared by all fuzz targets. Each one parses arbitrary bytes, calls the functions that a run would call with the
// result, and checks what the headers promise about them. A parser may always refuse its input. Any other exception, a
// broken promise, or a report of a sanitizer ends the process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace syncopate {

// Thrown if a promise of a header is broken.
struct BrokenPromise : std::logic_error {
  using std::logic_error::logic_error;
};
void must(bool holds, const char* promise);

// An input of several files is one text, which is split at `between_files` into at most this many files. The last file
// gets the rest of the text.
inline constexpr std::string_view between_files = "|FILE|";
std::vector<std::string_view> files_in(std::string_view input, std::size_t most);

// A directory for this process only, in memory if possible. The destructor removes it.
class FuzzFolder {
 public:
  FuzzFolder();
  ~FuzzFolder();
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Writes a file with this content; replaces an existing file.
  std::filesystem::path write(const std::string& name, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

// The fuzz targets, each in fuzz_<name>.cpp.
void fuzz_toml(std::string_view input);        // an experiment file as TOML, and its written form
void fuzz_overrides(std::string_view input);   // lines of key=value and ~key, on an experiment file
void fuzz_experiment(std::string_view input);  // an experiment file with all its sections
void fuzz_trace(std::string_view input);       // a recorded run, plain or compressed
void fuzz_histogram(std::string_view input);   // a histogram of durations
void fuzz_npy(std::string_view input);         // x_train, y_train, x_test, y_test
void fuzz_tokens(std::string_view input);      // token files for training and test, and options
void fuzz_idx(std::string_view input);         // images and labels for training and test
void fuzz_cifar(std::string_view input);       // a byte that selects the format, then batches and the test set
void fuzz_records(std::string_view input);     // records that programs write as JSON, read back
void fuzz_results(std::string_view input);     // directories of runs, and tables of them

using FuzzedParser = void (*)(std::string_view input);

}  // namespace syncopate
