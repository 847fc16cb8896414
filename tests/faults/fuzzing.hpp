// Common parts of the fuzzed parsers. Each takes any bytes, parses them, calls what a run would call, and checks the
// answers against the promises of the headers. A parser may always refuse its input. Any other exception, a broken
// promise, or a report of a sanitizer ends the process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace syncopate {

// A promise was broken.
struct BrokenPromise : std::logic_error {
  using std::logic_error::logic_error;
};
void must(bool holds, const char* promise);

// An input of several files is one text, which is cut at `between_files` into at most this many; the last keeps the
// rest.
inline constexpr std::string_view between_files = "|FILE|";
std::vector<std::string_view> files_in(std::string_view input, std::size_t most);

// A directory, in memory if possible, that belongs to this process alone. It is removed at the end.
class FuzzFolder {
 public:
  FuzzFolder();
  ~FuzzFolder();
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Writes a file with this content, and replaces an earlier one.
  std::filesystem::path write(const std::string& name, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

// The parsers, each in fuzz_<name>.cpp.
void fuzz_toml(std::string_view input);        // an experiment file as TOML, and its written form
void fuzz_overrides(std::string_view input);   // lines of key=value and ~key, on an experiment file
void fuzz_experiment(std::string_view input);  // an experiment file with the meaning of all its tables
void fuzz_trace(std::string_view input);       // a recorded run, plain or compressed
void fuzz_histogram(std::string_view input);   // a histogram of durations
void fuzz_npy(std::string_view input);         // x_train, y_train, x_test, y_test
void fuzz_idx(std::string_view input);         // images and labels for training and test
void fuzz_cifar(std::string_view input);       // a byte that selects the format, then batches and the test's
void fuzz_records(std::string_view input);     // records that programs write as JSON, read back
void fuzz_results(std::string_view input);     // directories of runs, and tables of them

using FuzzedParser = void (*)(std::string_view input);

}  // namespace syncopate
