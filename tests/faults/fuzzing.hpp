// What the fuzzed parsers have in common. Each takes any bytes: it reads them as its parser does, asks for what a run
// would ask for, and holds the answers to what the headers promise. What the parser says no to is right; any other
// exception, a broken promise, or a report of a sanitizer ends the process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace syncopate {

// A promise that was not kept.
struct BrokenPromise : std::logic_error {
  using std::logic_error::logic_error;
};
void must(bool holds, const char* promise);

// An input of several files is one text, cut where `between_files` stands. At most so many; the last keeps the rest.
inline constexpr std::string_view between_files = "|FILE|";
std::vector<std::string_view> files_in(std::string_view input, std::size_t most);

// A directory in memory where there is one, of this process alone; it is gone at the end.
class FuzzFolder {
 public:
  FuzzFolder();
  ~FuzzFolder();
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // The file with this content, whatever was there before.
  std::filesystem::path write(const std::string& name, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

// The parsers, each in fuzz_<name>.cpp.
void fuzz_toml(std::string_view input);        // an experiment file as TOML, and what it is written as
void fuzz_overrides(std::string_view input);   // lines of key=value and ~key, on an experiment file
void fuzz_experiment(std::string_view input);  // an experiment file with all that its tables mean
void fuzz_trace(std::string_view input);       // a recorded run, plain or compressed
void fuzz_histogram(std::string_view input);   // likewise
void fuzz_npy(std::string_view input);         // x_train, y_train, x_test, y_test
void fuzz_idx(std::string_view input);         // images and labels of training, and of the test
void fuzz_cifar(std::string_view input);       // a byte that chooses what is read, then batches and the test's
void fuzz_records(std::string_view input);     // what programs leave as JSON, read back
void fuzz_results(std::string_view input);     // directories of runs, and tables of them

using FuzzedParser = void (*)(std::string_view input);

}  // namespace syncopate
