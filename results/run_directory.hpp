// Where a run's files are, and how they get there whole or not at all: everything is written into a
// hidden sibling directory, which is renamed when it is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "results/directory/run_files.hpp"
#include "results/run/run.hpp"

namespace syncopate {

// The results directory cannot be used: what() names the path and the reason. Exit status 2.
struct ResultsDirectoryFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Lower-case letters, digits, dots, equals signs and underscores; everything else becomes one hyphen. Never empty,
// never hidden, at most 100 characters, so that it is a good file name everywhere. A text that this leaves nothing of,
// letters of other scripts, and what is too long are told apart by 8 digits of a hash at the end.
std::string slug(std::string_view text);

// <results>/<experiment>: the slug of a name that is not one itself ends in 8 digits of a hash in any case, so that
// experiments do not share their directory.
std::filesystem::path experiment_directory(const std::filesystem::path& results, const std::string& name);

// <results>/<experiment>/<method and sweep>/seed=3-<8 digits of the hash>. Runs on a wall clock are
// kept apart from simulated ones of the same configuration by the suffix -mpi, trials from runs by one more folder.
inline constexpr const char* trials_folder = "Trials";  // no slug, which has small letters
// What processes that share an experiment's runs tell each other, beside these: <results>/<experiment>/.shared
inline constexpr const char* share_folder = ".shared";
inline constexpr const char* leases_folder = "leases";
inline constexpr const char* failed_folder = "failed";
std::filesystem::path run_directory(const std::filesystem::path& results, const Run& run, bool mpi);

// Throws ResultsDirectoryFault where the directory, which is below that of --results, is a link: it may lead to where
// somebody else's files are.
void require_no_link(const std::filesystem::path& directory);

// The last part of it, and what of the hash is in it.
std::string run_directory_name(std::uint64_t seed, const std::string& hash, bool mpi);
std::string begin_of_hash(const std::string& hash);

// Creates <results>/<experiment> and proves that it, and what is already there for these runs of one experiment, can be
// read and written, and that no link leads elsewhere. For runs that are to be made: a finished experiment's results
// may be read-only. Throws ResultsDirectoryFault.
void require_usable(const std::filesystem::path& results, std::span<const Run> runs);

// Removes what killed processes have left in the directories of an experiment's runs. What a process that still exists
// is writing stays, and so does that of a process that cannot be seen from here (on another host, in another
// container), until it has not changed for lost_after_s. Returns how many went.
int remove_leftovers(const std::filesystem::path& results, std::span<const Run> runs);

// The hidden name beside it under which a directory or a file is written before it has its own: what a killed process
// leaves under it is a leftover.
std::filesystem::path written_aside(const std::filesystem::path& path);

// Replaces `directory` by one with exactly these files, which are on the disk before they have their name. Throws
// std::filesystem::filesystem_error or std::system_error; then `directory` is as it was, unless it was its new name
// alone that could not be put on the disk.
void write_directory(const std::filesystem::path& directory, const FileContents& files);

// The same for one of several processes that may have computed the same run: a directory that `is_done` stays, and of
// all of them one alone publishes. False where another one has.
using IsDone = std::function<bool(const std::filesystem::path&)>;
bool publish_directory(const std::filesystem::path& directory, const FileContents& files, const IsDone& is_done);

}  // namespace syncopate
