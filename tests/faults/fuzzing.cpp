#include "tests/faults/fuzzing.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>

namespace syncopate {
namespace fs = std::filesystem;

void must(bool holds, const char* promise) {
  if (!holds) throw BrokenPromise(promise);
}

std::vector<std::string_view> files_in(std::string_view input, std::size_t most) {
  std::vector<std::string_view> files;
  while (files.size() + 1 < most) {
    const auto end = input.find(between_files);
    if (end == input.npos) break;
    files.push_back(input.substr(0, end));
    input.remove_prefix(end + between_files.size());
  }
  files.push_back(input);
  return files;
}

FuzzFolder::FuzzFolder() {
  std::error_code none;
  const fs::path memory = "/dev/shm";
  std::string name = (fs::is_directory(memory, none) ? memory : fs::temp_directory_path()) / "syncopate-fuzz-XXXXXX";
  if (!mkdtemp(name.data())) throw std::system_error(errno, std::generic_category(), name);
  path_ = name;
}

FuzzFolder::~FuzzFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path FuzzFolder::write(const std::string& name, std::string_view content) const {
  fs::path file = path_ / name;
  const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (opened < 0) throw std::system_error(errno, std::generic_category(), file.string());
  const auto written = ::write(opened, content.data(), content.size());
  close(opened);
  if (written != static_cast<ssize_t>(content.size())) throw std::runtime_error(file.string() + ": not written");
  return file;
}

}  // namespace syncopate
