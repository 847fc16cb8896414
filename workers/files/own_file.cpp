#include "workers/files/own_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace syncopate {
namespace {

struct NotThere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(int error) {
  if (error == ENOENT || error == ENOTDIR) throw NotThere("is not there");
  if (error == ENXIO || error == ENODEV) throw std::runtime_error("is not a regular file");  // a socket
  throw std::runtime_error(fmt::format("cannot be read: {}", std::strerror(error)));
}

}  // namespace

OwnFile::OwnFile(const std::filesystem::path& path)
    : number_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {  // a pipe is not waited for
  if (number_ < 0) fail(errno);
  struct stat found {};
  const int error = fstat(number_, &found) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(found.st_mode)) {
    size_ = static_cast<std::uint64_t>(found.st_size);
    return;
  }
  close(number_);
  if (error != 0) fail(error);
  throw std::runtime_error(S_ISDIR(found.st_mode) ? "is a directory" : "is not a regular file");
}

OwnFile::~OwnFile() { close(number_); }

std::size_t OwnFile::read(char* out, std::size_t bytes) {
  std::size_t got = 0;
  while (got < bytes) {
    const auto now = ::read(number_, out + got, bytes - got);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) fail(errno);
    if (now == 0) break;
    got += static_cast<std::size_t>(now);
  }
  return got;
}

std::optional<std::string> read_file(const std::filesystem::path& path, std::uint64_t most_bytes) {
  try {
    OwnFile file(path);
    const auto too_large = [&](std::uint64_t bytes) {
      return std::runtime_error(fmt::format("has {} bytes; must have at most {}", bytes, most_bytes));
    };
    if (file.size() > most_bytes) throw too_large(file.size());
    constexpr std::size_t piece = 1 << 16;
    std::string text;
    for (std::size_t room = file.size() + 1;; room = piece) {  // one byte more than it had: it may have grown
      const std::size_t before = text.size();
      text.resize(before + room);
      const std::size_t got = file.read(text.data() + before, room);
      text.resize(before + got);
      if (text.size() > most_bytes) throw too_large(text.size());
      if (got < room) return text;
    }
  } catch (const NotThere&) {
    return {};
  } catch (const std::runtime_error& problem) {
    throw std::runtime_error(fmt::format("{}: {}", path.string(), problem.what()));
  }
}

}  // namespace syncopate
