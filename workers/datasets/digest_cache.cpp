#include "workers/datasets/digest_cache.hpp"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "workers/datasets/dataset.hpp"
#include "workers/delays/csv_rows.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

std::int64_t nanoseconds(const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return nanoseconds(time);
}

class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : path_(path), number_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (number_ < 0) fail("cannot be opened");
  }
  ~OpenFile() { close(number_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  FileState state() const {
    struct stat status {};
    if (fstat(number_, &status) != 0) fail("cannot be examined");
    return {.device = status.st_dev,
            .inode = status.st_ino,
            .bytes = static_cast<std::uint64_t>(status.st_size),
            .changed_ns = nanoseconds(status.st_mtim),
            .recorded_ns = nanoseconds(status.st_ctim)};
  }

  std::string digest() const {
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
    XXH3_64bits_reset(state.get());
    std::vector<char> piece(1 << 20);
    while (const auto got = ::read(number_, piece.data(), piece.size())) {
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("cannot be read");
      XXH3_64bits_update(state.get(), piece.data(), static_cast<std::size_t>(got));
    }
    return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw DataFault(fmt::format("{}: {}: {}", path_.string(), what, std::strerror(errno)));
  }

  fs::path path_;
  int number_;
};

// As the XDG base directory specification has it: a relative path is as if there were none.
fs::path users_cache_file() {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value == '/' ? fs::path(value) : fs::path();
  };
  fs::path caches = absolute("XDG_CACHE_HOME");
  if (caches.empty() && !absolute("HOME").empty()) caches = absolute("HOME") / ".cache";
  return caches.empty() ? caches : caches / "syncopate" / "digests";
}

}  // namespace

DigestCache::DigestCache(fs::path file, std::chrono::nanoseconds margin) : file_(std::move(file)), margin_(margin) {}

std::string DigestCache::digest(const fs::path& file) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_read_, true)) entries_ = read();
  const std::string path = fs::absolute(file).lexically_normal();
  const OpenFile opened(file);
  const FileState state = opened.state();
  if (const auto found = entries_.find(path); found != entries_.end() && found->second.state == state)
    return found->second.digest;

  const std::int64_t begin_ns = now_ns();
  const Entry entry{opened.digest(), state};
  ++files_read_;
  const bool settled = std::max(state.changed_ns, state.recorded_ns) < begin_ns - margin_.count();
  if (settled && opened.state() == state) {
    entries_[path] = entry;
    Entries all = read();  // others may have added theirs since
    all[path] = entry;
    write(all);
  }
  return entry.digest;
}

// Each line begins with a digest of the rest, so that a damaged one is none.
std::string DigestCache::line_of(const std::string& path, const Entry& entry) {
  const FileState& state = entry.state;
  const std::string rest = fmt::format("{} {} {} {} {} {} {}", entry.digest, state.device, state.inode, state.bytes,
                                       state.changed_ns, state.recorded_ns, path);
  return fmt::format("{} {}\n", content_hash(rest), rest);
}

DigestCache::Entries DigestCache::read() const {
  Entries entries;
  std::ifstream file(file_);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string check, path;
    Entry entry;
    FileState& state = entry.state;
    words >> check >> entry.digest >> state.device >> state.inode >> state.bytes >> state.changed_ns >>
        state.recorded_ns;
    words.get();
    if (std::getline(words, path) && line_of(path, entry) == line + "\n") entries[path] = std::move(entry);
  }
  return entries;
}

// Aside and then renamed: whoever reads meanwhile has the former entries or the new ones.
void DigestCache::write(const Entries& entries) const {
  constexpr std::size_t most = 10'000;  // beyond, they are of data sets long gone
  if (file_.empty()) return;
  std::error_code ignored;
  fs::create_directories(file_.parent_path(), ignored);
  std::string aside = file_.string() + ".XXXXXX";
  const int number = mkostemp(aside.data(), O_CLOEXEC);
  if (number < 0) return;
  close(number);
  std::ofstream out(aside, std::ios::binary);
  if (entries.size() <= most)
    for (const auto& [path, entry] : entries)
      if (path.find('\n') == path.npos) out << line_of(path, entry);
  out.close();
  if (out) fs::rename(aside, file_, ignored);
  if (!out || ignored) fs::remove(aside, ignored);
}

DigestCache& digest_cache() {
  static DigestCache cache(users_cache_file());
  return cache;
}

}  // namespace syncopate
