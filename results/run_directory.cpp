#include "results/directory/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <chrono>
#include <optional>
#include <set>
#include <system_error>

#include "results/directory/descriptor.hpp"
#include "results/directory/hidden_names.hpp"
#include "workers/files/content_hash.hpp"
#include "workers/files/directory_check.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace fs = std::filesystem;
namespace {

// By the clock of the file system that has it; none of a host is read.
std::optional<fs::file_time_type> time_of_file_system(const fs::path& directory) {
  std::error_code error, ignored;
  const fs::path probe = hidden_sibling(directory / "clock", partial_kind);
  if (!fs::create_directory(probe, error) && error) return {};
  const auto now = fs::last_write_time(probe, error);
  fs::remove(probe, ignored);
  return error ? std::nullopt : std::optional(now);
}

bool has_not_changed_lately(const fs::path& path) {
  std::error_code error;
  if (fs::is_symlink(path, error)) return false;
  const auto changed = fs::last_write_time(path, error);
  const auto now = time_of_file_system(path.parent_path());
  return !error && now && *now - changed > std::chrono::duration<double>(lost_after_s);
}

// What a hidden file or directory stands for, if no process is at it any more.
std::optional<HiddenName> as_leftover(const fs::path& path) {
  auto hidden = read_hidden_name(path.filename().string());
  if (!hidden || hidden->state == ProcessState::gone) return hidden;
  return hidden->state == ProcessState::unknown && has_not_changed_lately(path) ? hidden : std::nullopt;
}

void sync_directory(const fs::path& directory) {
  Descriptor(directory.empty() ? fs::path(".") : directory, O_RDONLY | O_DIRECTORY).sync();
}

// Names appear one at a time, so that none comes to a directory that a last act removes.
Descriptor create_file(const fs::path& path) {
  const auto held = hold_off_end();
  return {path, O_WRONLY | O_CREAT | O_EXCL};
}

void write_file(const fs::path& path, const std::string& contents) {
  const Descriptor file = create_file(path);
  file.write(contents);
  file.sync();
}

void create_hidden(const fs::path& directory) {
  const auto held = hold_off_end();
  fs::create_directory(directory);
}

// Two threads that remove the same directory get in each other's way, and then part of it stays.
void remove_hidden(const fs::path& directory) {
  const auto held = hold_off_end();
  std::error_code ignored;  // remove_leftovers takes what stays
  fs::remove_all(directory, ignored);
}

// Where `directory` was there, it is now `former`. Both names change, or none. Where several processes write the same
// run (ranks that simulate it apart, two terminals), each gives its directory the name and the last one's stays.
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

// False where a directory that is done has the name, which it keeps. A rename alone fails where there is a directory
// already, so of several processes one succeeds. What is moved away is looked at once more, since without a lock
// another process may have put a finished run there after the first look; while it is away, a third can publish, which
// only the lock prevents.
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
      if (error) fs::remove_all(former, ignored);  // there is another one again
      return false;
    }
    fs::remove_all(former, ignored);
  }
}

// With those above it; each one's name is on the disk.
void create_lasting(const fs::path& directory) {
  if (directory.empty() || fs::exists(directory)) return;
  create_lasting(directory.parent_path());
  if (fs::create_directory(directory)) sync_directory(directory.parent_path());
}

[[noreturn]] void fault(const fs::path& path, std::string_view what, const std::error_code& error) {
  throw ResultsDirectoryFault(fmt::format("{}: {}: {}", path.string(), what, error.message()));
}

// Names the first part of the path that is in the way, since "Not a directory" alone does not.
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
  if (const std::string why = why_no_directory(directory); !why.empty() && !is_missing())  // renamed by another process
    throw ResultsDirectoryFault(fmt::format("{}: {}; results belong there", directory.string(), why));
  if (access(directory.c_str(), R_OK | W_OK | X_OK) != 0 && errno != ENOENT) {
    fault(directory, "cannot read and write the results directory (--results names another one)",
          std::error_code(errno, std::generic_category()));
  }
}

std::string what_varies(const Run& run) {
  std::string text = slug(run.method);
  for (const auto& [key, value] : run.sweep) text += fmt::format("_{}={}", key, value);
  return slug(text);
}

constexpr std::size_t longest_slug = 100;

std::string hash_at_the_end(std::string_view text) { return fmt::format("-{:.8}", content_hash(text)); }

std::string with_hash(std::string slug, std::string_view text) {
  const std::string hash = hash_at_the_end(text);
  if (slug.size() > longest_slug - hash.size()) slug.resize(longest_slug - hash.size());
  while (!slug.empty() && (slug.back() == '-' || slug.back() == '.')) slug.pop_back();
  return (slug.empty() ? "unnamed" : slug) + hash;
}

}  // namespace

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
  const bool looks_like_a_run = result.starts_with("seed=");  // whose directory would be looked for in vain
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
  const std::string name = run_directory_name(run.seed, run.hash, mpi);
  const fs::path experiment = experiment_directory(results, run.experiment);
  return (run.is_trial ? experiment / trials_folder : experiment) / what_varies(run) / name;
}

void require_no_link(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_symlink(directory, error)) return;
  throw ResultsDirectoryFault(fmt::format(
      "{}: is a link to {}; below the directory that --results names, results are not written through links: put a "
      "directory there, or name another one with --results",
      directory.string(), fs::read_symlink(directory, error).string()));
}

void require_usable(const fs::path& results, std::span<const Run> runs) {
  const fs::path directory = experiment_directory(results, runs.front().experiment);
  const fs::path shared = directory / share_folder;
  for (const fs::path& place :
       {directory, directory / trials_folder, shared, shared / leases_folder, shared / failed_folder})
    require_no_link(place);
  create(directory);
  require_access(directory);
  for (const fs::path& place : {shared / leases_folder, shared / failed_folder}) require_access(place);
  for (const Run& run : runs) {
    const fs::path place = run_directory(results, run, false);
    require_no_link(place.parent_path());
    if (run.common_phase) require_no_link(run_directory(results, *run.common_phase, false).parent_path());
    require_access(place.parent_path());
    require_access(place);
  }
  // access() knows neither full nor read-only file systems, so something is really written.
  const fs::path probe = hidden_sibling(directory / "probe", partial_kind);
  std::error_code error;
  if (!fs::create_directory(probe, error) && error)
    fault(directory, "cannot write into the results directory (--results names another one)", error);
  fs::remove(probe, error);
}

int remove_leftovers(const fs::path& results, std::span<const Run> runs) {
  const fs::path experiment = experiment_directory(results, runs.front().experiment);
  std::set<fs::path> places{experiment, experiment / share_folder, experiment / share_folder / leases_folder,
                            experiment / share_folder / failed_folder};
  for (const Run& run : runs) {
    places.insert(run_directory(results, run, false).parent_path());
    if (run.common_phase) places.insert(run_directory(results, *run.common_phase, false).parent_path());
  }
  int removed = 0;
  for (const fs::path& place : places) {
    std::error_code error;
    std::vector<fs::path> entries;
    for (fs::directory_iterator entry(place, error), end; !error && entry != end; entry.increment(error)) {
      entries.push_back(entry->path());
    }
    for (const fs::path& entry : entries) {
      const auto leftover = as_leftover(entry);
      if (!leftover) continue;
      // Killed between the two renames of write_directory: the former results get their name back.
      const fs::path directory = place / leftover->name;
      if (leftover->is_replaced && !fs::exists(directory, error)) {
        fs::rename(entry, directory, error);
      } else {
        fs::remove_all(entry, error);
      }
      ++removed;
    }
  }
  return removed;
}

fs::path written_aside(const fs::path& path) { return hidden_sibling(path, partial_kind); }

namespace {

// `give`: the new directory its name; true if it has it. `written` is gone afterwards in any case.
template <class Give>
bool write_and_name(const fs::path& directory, const FileContents& files, const fs::path& former, const Give& give) {
  const fs::path written = hidden_sibling(directory, partial_kind);
  create_lasting(directory.parent_path());
  fs::remove_all(written);
  const LastAct leave_nothing_hidden([&] {
    std::error_code ignored;
    fs::remove_all(written, ignored);
    if (fs::exists(directory, ignored)) fs::remove_all(former, ignored);
  });
  try {
    create_hidden(written);
    for (const auto& [name, contents] : files) write_file(written / name, contents);
    sync_directory(written);
    const bool has_name = give(written);
    if (has_name) sync_directory(directory.parent_path());
    remove_hidden(has_name ? former : written);
    return has_name;
  } catch (...) {
    remove_hidden(written);
    throw;
  }
}

}  // namespace

void write_directory(const fs::path& directory, const FileContents& files) {
  const fs::path former = hidden_sibling(directory, replaced_kind);
  write_and_name(directory, files, former, [&](const fs::path& written) {
    give_name(written, directory, former);
    return true;
  });
}

bool publish_directory(const fs::path& directory, const FileContents& files, const IsDone& is_done) {
  const fs::path former = hidden_sibling(directory, replaced_kind);
  return write_and_name(directory, files, former,
                        [&](const fs::path& written) { return give_free_name(written, directory, former, is_done); });
}

}  // namespace syncopate
