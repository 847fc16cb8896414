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
#include <set>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "workers/files/content_hash.hpp"
#include "workers/files/data_fault.hpp"
#include "workers/files/own_file.hpp"
#include "workers/files/users_cache.hpp"

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

// What cannot be read is read from the data once more.
std::string text_or_nothing(const fs::path& file) {
  try {
    return read_file(file).value_or("");
  } catch (const std::runtime_error&) {
    return "";
  }
}

fs::path users_cache_file() {
  const fs::path cache = users_cache();
  return cache.empty() ? cache : cache / "digests";
}

}  // namespace

DigestCache::DigestCache(fs::path file, std::chrono::nanoseconds margin, std::size_t most_kept)
    : file_(std::move(file)), margin_(margin), most_kept_(most_kept) {}

std::string DigestCache::digest(const fs::path& file) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_read_, true)) read();
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
    append(path, entry);
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

// Of a file that was read again after it had changed the last line counts.
void DigestCache::read() {
  std::vector<std::string> lines, paths;
  std::istringstream file(text_or_nothing(file_));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string check, path;
    Entry entry;
    FileState& state = entry.state;
    words >> check >> entry.digest >> state.device >> state.inode >> state.bytes >> state.changed_ns >>
        state.recorded_ns;
    words.get();
    if (!std::getline(words, path) || line_of(path, entry) != line + "\n") continue;
    lines.push_back(line + "\n");
    paths.push_back(path);
    entries_[path] = std::move(entry);
  }
  if (lines.size() <= 2 * most_kept_) return;
  std::vector<std::string> newest;  // first
  std::set<std::string> seen;
  for (std::size_t i = lines.size(); i-- > 0 && newest.size() < most_kept_;)
    if (seen.insert(paths[i]).second) newest.push_back(lines[i]);
  std::string text;
  for (auto line = newest.rbegin(); line != newest.rend(); ++line) text += *line;
  replace(text);
}

// In one write at the file's end, wherever that is by then: processes that append at once do not mix their lines.
void DigestCache::append(const std::string& path, const Entry& entry) const {
  if (file_.empty() || path.find('\n') != path.npos) return;
  std::error_code ignored;
  fs::create_directories(file_.parent_path(), ignored);
  constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;  // a pipe is not waited for
  const int number = open(file_.c_str(), flags, S_IRUSR | S_IWUSR);
  if (number < 0) return;
  const std::string line = line_of(path, entry);
  // What is written in part is no line to whoever reads it.
  [[maybe_unused]] const auto written = ::write(number, line.data(), line.size());
  close(number);
}

// Aside and then renamed: whoever reads meanwhile has the former lines or these. One that is appended meanwhile may be
// lost, which costs its reader time.
void DigestCache::replace(const std::string& text) const {
  std::string aside = file_.string() + ".XXXXXX";
  const int number = mkostemp(aside.data(), O_CLOEXEC);
  if (number < 0) return;
  close(number);
  std::ofstream out(aside, std::ios::binary);
  out << text;
  out.close();
  std::error_code ignored;
  if (out) fs::rename(aside, file_, ignored);
  if (!out || ignored) fs::remove(aside, ignored);
}

DigestCache& digest_cache() {
  static DigestCache cache(users_cache_file());
  return cache;
}

}  // namespace syncopate
