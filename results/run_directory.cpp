#include "results/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <regex>
#include <set>
#include <tuple>

#include "results/summary.hpp"
#include "workers/base/files.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const char* what, const fs::path& path) {
  throw fs::filesystem_error(what, path, std::error_code(errno ? errno : EIO, std::generic_category()));
}

const char* what_helps(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "make room there, or name another directory with --results";
    case EFBIG:
      return "allow larger files (ulimit -f), or name another directory with --results";
    case EISDIR:
      return "remove the directory of that name";
    case EROFS:
    case EACCES:
    case EPERM:
      return "make it and the folders above readable and writable, or name another directory with --results";
    default:
      return "check the disk, or name another directory with --results";
  }
}

fs::path followed(const fs::path& named) {
  std::error_code none;
  const fs::path file = fs::canonical(named, none);
  return none ? named : file;
}

// The hidden name for a file's new contents. If a file still has this name at the end, it is removed.
class Aside {
 public:
  explicit Aside(const fs::path& file) : path(hidden_sibling(file, partial_kind)) { remove(); }
  ~Aside() { remove(); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  const fs::path path;

 private:
  void remove() const {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  const LastAct leaves_nothing_hidden_{[this] { remove(); }};
};

// Creates a hidden directory and removes it. Returns its time by the file system's clock, since hosts' clocks may
// differ. Sets `error` if the file system is full or read-only, which access() does not notice.
fs::file_time_type probe(const fs::path& directory, std::error_code& error) {
  const fs::path created = hidden_sibling(directory / "probe", partial_kind);
  if (!fs::create_directory(created, error) && error) return {};
  const auto now = fs::last_write_time(created, error);
  std::error_code ignored;
  fs::remove(created, ignored);
  return now;
}

// Files of an unknown process are leftovers after this time without a change: a living one changes them within seconds.
constexpr std::chrono::hours lost_after{24};

bool has_not_changed_lately(const fs::path& path) {
  std::error_code error;
  if (fs::is_symlink(path, error)) return false;
  const auto changed = fs::last_write_time(path, error);
  if (error) return false;
  const auto now = probe(path.parent_path(), error);
  return !error && now - changed > lost_after;
}

// The hidden name if no process works on the file or directory any more; otherwise nullopt.
std::optional<HiddenName> as_leftover(const fs::path& path) {
  auto hidden = read_hidden_name(path.filename().string());
  if (!hidden || hidden->state == ProcessState::gone) return hidden;
  return hidden->state == ProcessState::unknown && has_not_changed_lately(path) ? hidden : std::nullopt;
}

void sync_directory(const fs::path& directory) {
  Descriptor(directory.empty() ? fs::path(".") : directory, O_RDONLY | O_DIRECTORY).sync();
}

// Creates the file while the process's end is held off, so that the cleanup at the end (LastAct) finds every file.
Descriptor create_file(const fs::path& path) {
  const auto held = hold_off_end();
  return {path, O_WRONLY | O_CREAT | O_EXCL};
}

void write_file(const fs::path& path, std::string_view contents) {
  const Descriptor file = create_file(path);
  file.write(contents);
  file.sync();
}

// The cleanup at the process's end is held off: if two threads removed the directory at once, part of it would be left.
void remove_hidden(const fs::path& directory) {
  const auto held = hold_off_end();
  std::error_code ignored;  // remove_leftovers removes what remains
  fs::remove_all(directory, ignored);
}

// Renames an existing `directory` to `former`, and `written` to `directory`. Either both names change or none. If
// several processes write the same run (ranks that each simulate it, two terminals), the last one wins.
void give_name(const fs::path& written, const fs::path& directory, const fs::path& former) {
  const auto held = hold_off_end();
  std::error_code error, ignored;
  for (;;) {
    fs::rename(directory, former, error);
    const bool exists = !error;
    if (!exists && error != std::errc::no_such_file_or_directory)
      throw fs::filesystem_error("cannot replace", directory, former, error);
    fs::rename(written, directory, error);
    if (!error) return;
    const bool another_came_between = error == std::errc::directory_not_empty || error == std::errc::file_exists;
    if (!another_came_between) {
      if (exists) fs::rename(former, directory, ignored);
      throw fs::filesystem_error("cannot name", written, directory, error);
    }
    if (exists) fs::remove_all(former, ignored);
  }
}

// Returns false if a finished directory already has the name. A plain rename fails on an existing directory, so only
// one of several processes succeeds. An unfinished directory is renamed and then checked again, because without a lock
// another process may have published a finished run after the first check. Meanwhile a third process could publish,
// which only the lock prevents.
bool give_free_name(const fs::path& written, const fs::path& directory, const fs::path& former, const IsDone& is_done) {
  const Descriptor above(directory.parent_path(), O_RDONLY | O_DIRECTORY);
  above.lock();
  for (;;) {
    const auto held = hold_off_end();
    std::error_code error, ignored;
    fs::rename(written, directory, error);
    if (!error) return true;
    const bool is_link = error == std::errc::not_a_directory && fs::is_symlink(directory, ignored);
    if (!is_link && error != std::errc::directory_not_empty && error != std::errc::file_exists)
      throw fs::filesystem_error("cannot name", written, directory, error);
    if (is_done(directory)) return false;
    fs::remove_all(former, ignored);
    fs::rename(directory, former, error);
    if (error == std::errc::no_such_file_or_directory) continue;
    if (error) throw fs::filesystem_error("cannot replace", directory, former, error);
    if (is_done(former)) {
      fs::rename(former, directory, error);
      if (error) fs::remove_all(former, ignored);  // another process has published the run in between
      return false;
    }
    fs::remove_all(former, ignored);
  }
}

// Creates the directory and missing ones above it, and syncs the name of each.
void create_lasting(const fs::path& directory) {
  if (directory.empty() || fs::exists(directory)) return;
  create_lasting(directory.parent_path());
  if (fs::create_directory(directory)) sync_directory(directory.parent_path());
}

[[noreturn]] void fault(const fs::path& path, std::string_view what, const std::error_code& error) {
  throw ResultsDirectoryFault(fmt::format("{}: {}: {}", path.string(), what, error.message()));
}

// Creates the directory. The fault that it throws names the first part of the path that is no directory.
void create(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && fs::is_directory(path, error)) return;
  fs::path part;
  for (const fs::path& element : path) {
    part /= element;
    std::error_code ignored;
    const bool is_there = fs::symlink_status(part, ignored).type() != fs::file_type::not_found;
    const std::string why = is_there ? why_no_directory(part) : "";
    if (why.empty()) continue;
    throw ResultsDirectoryFault(
        fmt::format("{}: {}; the results directory {} cannot be created", part.string(), why, path.string()));
  }
  fault(path, "cannot create the results directory (--results names another one)", error);
}

void require_access(const fs::path& directory) {
  const auto is_missing = [&directory] {
    std::error_code error;
    return fs::symlink_status(directory, error).type() == fs::file_type::not_found;
  };
  if (is_missing()) return;
  if (const std::string why = why_no_directory(directory); !why.empty() && !is_missing())  // another process renamed it
    throw ResultsDirectoryFault(
        fmt::format("{}: {}; must be a directory, because results are written there", directory.string(), why));
  if (access(directory.c_str(), R_OK | W_OK | X_OK) != 0 && errno != ENOENT)
    fault(directory, "cannot read and write the results directory (--results names another one)",
          std::error_code(errno, std::generic_category()));
}

// The folders in which a start of these runs writes, parents first.
std::set<fs::path> folders_of(const fs::path& results, std::span<const Run> runs) {
  const fs::path experiment = experiment_directory(results, runs.front().experiment);
  const fs::path shared = experiment / share_folder;
  std::set<fs::path> folders{experiment, shared, shared / leases_folder, shared / failed_folder};
  for (const Run& run : runs) {
    folders.insert(run_directory(results, run, false).parent_path());
    if (run.common_phase) folders.insert(run_directory(results, *run.common_phase, false).parent_path());
  }
  return folders;
}

constexpr std::size_t longest_slug = 100;

std::string hash_at_the_end(std::string_view text) { return fmt::format("-{:.8}", content_hash(text)); }

std::string with_hash(std::string slug, std::string_view text) {
  const std::string hash = hash_at_the_end(text);
  if (slug.size() > longest_slug - hash.size()) slug.resize(longest_slug - hash.size());
  while (!slug.empty() && (slug.back() == '-' || slug.back() == '.')) slug.pop_back();
  return (slug.empty() ? "unnamed" : slug) + hash;
}

// give(written, former) names the new directory and returns true, or returns false. Afterwards `written` is gone.
template <class Give>
bool write_and_name(const fs::path& directory, const FileContents& files, const Give& give) {
  const fs::path written = hidden_sibling(directory, partial_kind), former = hidden_sibling(directory, replaced_kind);
  create_lasting(directory.parent_path());
  fs::remove_all(written);
  const LastAct leave_nothing_hidden([&] {
    std::error_code ignored;
    fs::remove_all(written, ignored);
    if (fs::exists(directory, ignored)) fs::remove_all(former, ignored);
  });
  try {
    {
      const auto held = hold_off_end();
      fs::create_directory(written);
    }
    for (const auto& [name, contents] : files) write_file(written / name, contents);
    sync_directory(written);
    const bool has_name = give(written, former);
    if (has_name) sync_directory(directory.parent_path());
    remove_hidden(has_name ? former : written);
    return has_name;
  } catch (...) {
    remove_hidden(written);
    throw;
  }
}

constexpr std::array files_of_every_run = {"config.toml", "metadata.json", "metrics.csv", "steps.csv", "summary.json"};
struct Digest {
  std::size_t bytes = 0;
  uLong crc = crc32_z(0, nullptr, 0);

  void add(std::string_view part) {
    bytes += part.size();
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
  }
  std::string text() const { return fmt::format("{:08x}", crc); }
};

// The difference between the file and its entry in the list of files; empty if they agree.
std::string wrong_with(const fs::path& path, const Json& entry) {
  const auto bytes = entry.at("bytes").get<std::uint64_t>();
  const auto crc = entry.at("crc32").get<std::string>();
  try {
    OwnFile file(path);
    if (file.size() != bytes) return fmt::format("has {} bytes, but {} were written", file.size(), bytes);
    Digest digest;
    std::vector<char> piece(1 << 18);  // in pieces, because durations and traces may be large
    while (const std::size_t got = file.read(piece.data(), piece.size())) digest.add({piece.data(), got});
    return digest.text() == crc ? "" : "has changed since it was written: its digest differs";
  } catch (const std::runtime_error& problem) {
    return problem.what();
  }
}

constexpr int process = 1;  // viewers show process 0 and thread 0 as idle

// Names of colours for chrome://tracing. Other viewers choose a colour by an event's name, so that is the activity.
constexpr std::array<const char*, activities> colours = {"thread_state_running", "terrible", "grey",
                                                         "thread_state_runnable", "black"};

// The time as a double from which a reader gets the exact nanosecond, even if it truncates.
double microseconds(Time time) {
  const auto exact_ns = static_cast<double>(time.time_since_epoch().count());
  double us = exact_ns / 1e3;
  while (us * 1e3 < exact_ns) us = std::nextafter(us, std::numeric_limits<double>::infinity());
  return us;
}

// The duration of an event. In doubles, begin + duration does not exceed the next event's begin.
double microseconds(Time from, Time to) {
  const double begin = microseconds(from), end = microseconds(to);
  double us = static_cast<double>((to - from).count()) / 1e3;
  while (begin + us > end) us = std::nextafter(us, 0);
  return us;
}

// A metadata event. It has a time, because some readers require one in every event.
std::string naming(const char* what, int thread, const Json& arguments) {
  const Json event{{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"ts", 0}, {"args", arguments}};
  return event.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string participant(const Timeline& timeline, std::size_t rank) {
  const auto workers = static_cast<std::size_t>(timeline.workers);
  if (rank < workers) return fmt::format("worker {}", rank);
  return timeline.tracks.size() == workers + 1 ? "server" : fmt::format("server {}", rank - workers);
}

// `more`: further arguments of the event, as JSON.
void append(std::string& text, Activity of, const char* category, int thread, Time begin, Time end,
            std::string_view what, std::string_view more) {
  const auto activity = static_cast<std::size_t>(of);
  fmt::format_to(std::back_inserter(text),
                 R"(,
{{"name":"{}","cat":"{}","cname":"{}","ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"args":{{"what":"{}"{}}}}})",
                 activity_names[activity], category, colours[activity], process, thread, microseconds(begin),
                 microseconds(begin, end), what, more);
}

void append(std::string& text, const Span& span, int thread) {
  std::string more;
  if (span.step >= Step{0}) more += fmt::format(R"(,"step":{})", span.step.value());
  if (span.micro_batch >= 0) more += fmt::format(R"(,"micro_batch":{})", span.micro_batch);
  if (span.completed && span.activity == Activity::discarded) more += R"(,"completed":true)";
  const char* const category = activity_names[static_cast<std::size_t>(span.activity)];
  append(text, span.activity, category, thread, span.begin, span.end, span.what, more);
}

// Appends the transfers of a server's link as events of communication.
void append(std::string& text, const Timeline& timeline, const std::vector<LinkUse>& transfers, bool is_in,
            int thread) {
  for (const LinkUse& transfer : transfers) {
    const std::string what = transfer.other
                                 ? fmt::format("{} {}", is_in ? "from" : "to",
                                               participant(timeline, static_cast<std::size_t>(transfer.other->value)))
                                 : "collective";
    append(text, Activity::communicate, "link", thread, transfer.begin, transfer.end, what, "");
  }
}

Json other_data(const Timeline& timeline, const RunName& run, const std::string& cluster) {
  return {{"experiment", run.experiment},
          {"method", run.method},
          {"seed", run.seed},
          {"hash", run.hash},
          {"cluster", cluster},
          {"workers", timeline.workers},
          {"servers", timeline.tracks.size() - static_cast<std::size_t>(timeline.workers)},
          {"end_s", exact_seconds(timeline.end)},
          {"until_s", exact_seconds(timeline.until)},
          {"capped", timeline.capped}};
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
  if (fsync(number_) != 0 && errno != EINVAL) fail("cannot sync", path_);
}

void Descriptor::lock() const {
  while (flock(number_, LOCK_EX) != 0 && errno == EINTR) continue;
}

std::vector<fs::path> paths_in(const fs::path& directory, std::error_code& error) {
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    paths.push_back(entry->path());
  return paths;
}

std::string disk_fault(const fs::path& directory, const fs::filesystem_error& problem) {
  std::error_code unknown;  // set if a folder above is unreadable
  if (problem.code() == std::errc::no_such_file_or_directory ||
      fs::status(directory, unknown).type() == fs::file_type::not_found)
    return fmt::format(
        "{}: the results directory was removed while runs were made; the next start repeats the missing runs",
        directory.string());
  return fmt::format(
      "{}: results cannot be written there: {}; {}; finished runs are kept, and the next start executes the rest",
      directory.string(), problem.code().message(), what_helps(problem.code().value()));
}

std::string disk_problem(const std::exception& problem) {
  const auto* const of_disk = dynamic_cast<const fs::filesystem_error*>(&problem);
  if (!of_disk) return problem.what();
  if (of_disk->code() == std::errc::no_such_file_or_directory) return "the results directory was removed";
  return fmt::format("{}; {}", of_disk->code().message(), what_helps(of_disk->code().value()));
}

void require_there(const fs::path& directory) {
  if (!fs::exists(directory)) throw fs::filesystem_error("is gone", directory, {ENOENT, std::generic_category()});
}

std::string durations_csv(std::vector<MicroBatchTime> durations) {
  std::ranges::stable_sort(durations, {},
                           [](const MicroBatchTime& time) { return std::tuple(time.worker, time.step, time.index); });
  constexpr std::int64_t ns_per_s = 1'000'000'000;
  std::string text = "worker,step,micro_batch,duration_s,added_s\n";
  for (const MicroBatchTime& time : durations) {
    const std::int64_t duration_ns = time.duration.count(), added_ns = time.added.count();
    fmt::format_to(std::back_inserter(text), "{},{},{},{}.{:09},{}.{:09}\n", time.worker.value, time.step.value(),
                   time.index, duration_ns / ns_per_s, duration_ns % ns_per_s, added_ns / ns_per_s,
                   added_ns % ns_per_s);
  }
  return text;
}

std::string why_not_replaceable(const fs::path& named) {
  std::error_code none;
  const fs::path file = followed(named);
  if (fs::is_directory(file, none)) return "is a directory";
  if (fs::exists(file, none) && !fs::is_regular_file(file, none))  // to open a pipe would wait
    return access(file.c_str(), W_OK) == 0 ? "" : std::generic_category().message(errno);
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (const std::string why = why_no_directory(folder); !why.empty())
    return fmt::format("{}: {}", folder.string(), why);
  const Aside aside(file);
  try {
    create_file(aside.path);
  } catch (const std::system_error& problem) {
    return problem.code().message();
  }
  return {};
}

void replace_file(const fs::path& file, std::string_view contents) {
  const Aside aside(file);
  write_file(aside.path, contents);
  const auto held = hold_off_end();
  fs::rename(aside.path, file);
}

void replace_named_file(const fs::path& named, std::string_view contents) {
  std::error_code none;
  const fs::path file = followed(named);
  if (fs::exists(file, none) && !fs::is_regular_file(file, none)) return Descriptor(file, O_WRONLY).write(contents);
  replace_file(file, contents);
}

std::string slug(std::string_view text) {
  std::string result;
  bool lost_letters = false;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    const bool kept = byte < 128 && (std::isalnum(byte) || character == '.' || character == '=' || character == '_');
    lost_letters |= byte >= 128;
    if (kept) {
      result += static_cast<char>(std::tolower(byte));
    } else if (!result.empty() && result.back() != '-') {
      result += '-';
    }
  }
  result.erase(0, result.find_first_not_of("-."));
  const bool looks_like_a_run = result.starts_with("seed=");  // otherwise searches for runs would take it for a run
  const bool needs_hash =
      lost_letters || looks_like_a_run || result.find_first_not_of("-.") == result.npos || result.size() > longest_slug;
  if (needs_hash) return with_hash(std::move(result), text);
  while (result.back() == '-' || result.back() == '.') result.pop_back();
  return result;
}

fs::path experiment_directory(const fs::path& results, const std::string& name) {
  std::string directory = slug(name);
  const bool told_apart = directory == name || directory.ends_with(hash_at_the_end(name));
  return results / (told_apart ? directory : with_hash(std::move(directory), name));
}

std::string begin_of_hash(const std::string& hash) { return hash.substr(0, 8); }

std::string run_directory_name(std::uint64_t seed, const std::string& hash, bool mpi) {
  return fmt::format("seed={}-{}{}", seed, begin_of_hash(hash), mpi ? "-mpi" : "");
}

fs::path run_directory(const fs::path& results, const Run& run, bool mpi) {
  std::string method = slug(run.method);
  for (const auto& [key, value] : run.sweep) method += fmt::format("_{}={}", key, value);
  const fs::path experiment = experiment_directory(results, run.experiment);
  return (run.is_trial ? experiment / trials_folder : experiment) / slug(method) /
         run_directory_name(run.seed, run.hash, mpi);
}

void require_no_link(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_symlink(directory, error)) return;
  throw ResultsDirectoryFault(
      fmt::format("{}: is a link to {}; results are not written through links below the directory of --results: put a "
                  "directory there, or name another one with --results",
                  directory.string(), fs::read_symlink(directory, error).string()));
}

void require_usable(const fs::path& results, std::span<const Run> runs) {
  const fs::path directory = experiment_directory(results, runs.front().experiment);
  const std::set<fs::path> folders = folders_of(results, runs);
  for (const fs::path& folder : folders) require_no_link(folder);
  require_no_link(directory / trials_folder);
  create(directory);
  for (const fs::path& folder : folders) require_access(folder);
  for (const Run& run : runs) require_access(run_directory(results, run, false));
  std::error_code error;
  probe(directory, error);
  if (error) fault(directory, "cannot write into the results directory (--results names another one)", error);
}

int remove_leftovers(const fs::path& results, std::span<const Run> runs) {
  int removed = 0;
  for (const fs::path& folder : folders_of(results, runs)) {
    std::error_code error;
    for (const fs::path& entry : paths_in(folder, error)) {
      const auto leftover = as_leftover(entry);
      if (!leftover) continue;
      // If the process was killed between the two renames of write_directory, give the former results their name back.
      const fs::path directory = folder / leftover->name;
      if (leftover->is_replaced && !fs::exists(directory, error))
        fs::rename(entry, directory, error);
      else
        fs::remove_all(entry, error);
      ++removed;
    }
  }
  return removed;
}

void write_directory(const fs::path& directory, const FileContents& files) {
  write_and_name(directory, files, [&](const fs::path& written, const fs::path& former) {
    give_name(written, directory, former);
    return true;
  });
}

bool publish_directory(const fs::path& directory, const FileContents& files, const IsDone& is_done) {
  return write_and_name(directory, files, [&](const fs::path& written, const fs::path& former) {
    return give_free_name(written, directory, former, is_done);
  });
}

std::string listed(const FileContents& files) {
  Json json{{"schema_version", results_schema_version}, {"files", Json::object()}};
  for (const auto& [name, contents] : files) {
    Digest digest;
    digest.add(contents);
    json["files"][name] = {{"bytes", digest.bytes}, {"crc32", digest.text()}};
  }
  return json.dump(2) + "\n";
}

std::string damage_of(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return {};
  const fs::path list = directory / list_of_files;
  try {
    const auto text = read_file(list);
    if (!text) return fmt::format("{}: is not there", list.string());
    if (const auto other = other_schema_version(*text))
      return fmt::format("{}: is {}", list.string(), of_other_schema(*other));
    const Json json = Json::parse(*text);
    json.at("schema_version").get<int>();
    for (const char* name : files_of_every_run)
      if (!json.at("files").contains(name)) return fmt::format("{}: does not list {}", list.string(), name);
    for (const auto& [name, entry] : json.at("files").items()) {
      const fs::path path = directory / name;
      if (name.empty() || path.filename() != name || name == "..")
        return fmt::format("{}: lists {}, which is outside the run's directory", list.string(), printable(name));
      if (const std::string wrong = wrong_with(path, entry); !wrong.empty())
        return fmt::format("{}: {}", path.string(), wrong);
    }
    return {};
  } catch (const std::exception&) {  // a directory, not JSON, a missing key, a wrong type
    return fmt::format("{}: is not a list of files with their sizes and digests", list.string());
  }
}

std::optional<std::string> other_schema_version(const std::string& text) {
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("schema_version")) return {};
  const auto& version = json["schema_version"];
  if (!version.is_number_integer() || version == results_schema_version) return {};
  return version.dump();
}

std::string of_other_schema(const std::string& version) {
  return fmt::format("of schema version {}, and this program knows {}", version, results_schema_version);
}

std::string trace_events(const Timeline& timeline, const RunName& run, const std::string& cluster) {
  std::string text = R"({"displayTimeUnit":"ms","otherData":)";
  text += other_data(timeline, run, cluster).dump(-1, ' ', false, Json::error_handler_t::replace);
  text += ",\"traceEvents\":[\n";
  const std::string name = fmt::format("{}: {}, seed {}", run.experiment, run.method, run.seed);
  text += naming("process_name", 0, {{"name", name}});
  // One thread per worker and server. A server's thread is followed by the threads of its link.
  const auto workers = static_cast<std::size_t>(timeline.workers);
  const auto thread_of = [&](std::size_t rank) {
    return static_cast<int>(rank + 1 + (rank > workers && !timeline.links.empty() ? 2 * (rank - workers) : 0));
  };
  const auto name_thread = [&](int thread, const std::string& of) {
    text += ",\n" + naming("thread_name", thread, {{"name", of}});
    text += ",\n" + naming("thread_sort_index", thread, {{"sort_index", thread}});
  };
  for (std::size_t rank = 0; rank < timeline.tracks.size(); ++rank) {
    name_thread(thread_of(rank), participant(timeline, rank));
    if (rank < workers || timeline.links.empty()) continue;
    name_thread(thread_of(rank) + 1, participant(timeline, rank) + ", in");
    name_thread(thread_of(rank) + 2, participant(timeline, rank) + ", out");
  }
  for (std::size_t rank = 0; rank < timeline.tracks.size(); ++rank) {
    for (const Span& span : timeline.tracks[rank]) append(text, span, thread_of(rank));
    if (rank < workers || timeline.links.empty()) continue;
    append(text, timeline, timeline.links[rank - workers].in, true, thread_of(rank) + 1);
    append(text, timeline, timeline.links[rank - workers].out, false, thread_of(rank) + 2);
  }
  return text + "\n]}\n";
}

std::filesystem::path hidden_sibling(const std::filesystem::path& path, std::string_view kind,
                                     const ProcessIdentity& process) {
  return path.parent_path() / fmt::format(".{}.{}.{}.{}.{}", path.filename().string(), kind, process.number,
                                          process.start, content_hash(process.machine));
}

std::optional<HiddenName> read_hidden_name(const std::string& file_name) {
  static const std::regex hidden(R"(\.(.+)\.(partial|replaced)\.([1-9][0-9]{0,8})\.(?:([0-9]{1,19})\.)?(.*))");
  std::smatch parts;
  if (!std::regex_match(file_name, parts, hidden)) return {};
  HiddenName found{.name = parts[1], .is_replaced = parts[2].str() == replaced_kind};
  if (const std::string here = this_process().machine; parts[4].matched && parts[5] == content_hash(here))
    found.state = state_of({.machine = here, .number = std::stoi(parts[3]), .start = std::stoull(parts[4])});
  return found;
}

}  // namespace syncopate
