#include "results/directory/descriptor.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace syncopate {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const char* what, const fs::path& path) {
  throw fs::filesystem_error(what, path, std::error_code(errno ? errno : EIO, std::generic_category()));
}

}  // namespace

Descriptor::Descriptor(const fs::path& path, int flags)
    : path_(path), number_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (number_ < 0) fail("cannot open", path_);
}

Descriptor::~Descriptor() { close(number_); }

void Descriptor::write(std::string_view contents) const {
  while (!contents.empty()) {
    const auto written = ::write(number_, contents.data(), contents.size());
    if (written < 0 && errno != EINTR) fail("cannot write", path_);
    if (written > 0) contents.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Descriptor::sync() const {
  if (fsync(number_) != 0 && errno != EINVAL) fail("cannot put on the disk", path_);
}

bool Descriptor::lock() const {
  int result = 0;
  do result = flock(number_, LOCK_EX);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace syncopate
