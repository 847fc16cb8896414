// A run's directory and its files. A file appears complete or not at all: it is written under a hidden name beside its
// place, and renamed once it is complete.
#pragma once

#include <exception>
#include <filesystem>
#include <map>
#include <span>
#include <stdexcept>
#include <system_error>

#include "results/run.hpp"
#include "workers/base/process.hpp"
#include "workers/cluster/accounting.hpp"

namespace syncopate {

// An open file or directory, for operations that streams lack: exclusive creation, sync, lock. All functions throw
// std::filesystem::filesystem_error.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags);  // flags as for open()
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void write(std::string_view contents) const;
  // Ignores EINVAL: some file systems cannot sync directories, and need no sync.
  void sync() const;
  // Waits until no other process and no other Descriptor of this process holds the lock. The lock is released when this
  // object is destroyed or the process ends. There is no lock if the file system cannot lock directories (NFS).
  void lock() const;

 private:
  std::filesystem::path path_;
  int number_;
};

// Paths in a directory, unsorted. At the first error it stops and sets `error`.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& directory, std::error_code& error);

// A message of one line about a failed write below the experiment's directory: the path, the reason and a remedy.
std::string disk_fault(const std::filesystem::path& directory, const std::filesystem::filesystem_error& problem);

// Why a run's file could not be written, and a remedy. If the disk is not the problem, only what().
std::string disk_problem(const std::exception& problem);

// Throws std::filesystem::filesystem_error if the directory is gone, because part of it would be created again.
void require_there(const std::filesystem::path& directory);

// durations.csv: the duration of each completed micro-batch, for replay. Stopped micro-batches have no row. The columns
// are worker,step,micro_batch,duration_s,added_s. Rows are sorted by the first three; rows of a repeated micro-batch
// are in the order of their ends. Seconds have nine decimals, which give the exact nanoseconds.
std::string durations_csv(std::vector<MicroBatchTime> durations);

// Replaces the file: writes and syncs a hidden file beside it, which is then renamed. Also replaces links and pipes of
// that name, because in a shared folder they may lead to another user's file. The folder must exist. If it throws
// std::system_error, which names the file, the file is unchanged.
void replace_file(const std::filesystem::path& file, std::string_view contents);

// Like replace_file, but for a file that the user named: follows links, and writes into pipes and devices.
void replace_named_file(const std::filesystem::path& file, std::string_view contents);

// Why replace_named_file would fail, to check before work begins; empty if it would succeed.
std::string why_not_replaceable(const std::filesystem::path& file);

using FileContents = std::map<std::string, std::string>;  // contents by name

// files.json: the files of a run's directory with sizes and CRC-32s, which reveal damage, but no forgery. CRC-32 is
// used because both zlib and Python's standard library have it.
inline constexpr const char* list_of_files = "files.json";

// Contents of files.json for these files.
std::string listed(const FileContents& files);

// A line about the first damaged file, "<path>: <damage>". Empty if no file is damaged or there is no directory.
std::string damage_of(const std::filesystem::path& directory);

// The results directory cannot be used. what() names the path and the reason; the program exits with status 2.
struct ResultsDirectoryFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A portable file name for the text, of at most 100 characters, neither empty nor hidden. It contains lower-case
// letters, digits, dots, equals signs and underscores; each sequence of other characters becomes one hyphen. If the
// text is too long or has letters of other scripts, the name ends in 8 digits of a hash, so that names stay distinct.
std::string slug(std::string_view text);

// <results>/<experiment>. If an experiment's name is not its own slug, 8 digits of a hash are always appended, so that
// two experiments never share a directory.
std::filesystem::path experiment_directory(const std::filesystem::path& results, const std::string& name);

inline constexpr const char* trials_folder = "Trials";  // no method's folder, since slugs have no capital letters
// Folder for files of processes that share an experiment's runs: <results>/<experiment>/.shared/
inline constexpr const char* share_folder = ".shared";
inline constexpr const char* leases_folder = "leases";
inline constexpr const char* failed_folder = "failed";

// <results>/<experiment>/<method and sweep>/seed=3-<8 digits of the hash>. A run on a wall clock has the suffix -mpi. A
// trial is in an additional folder, trials_folder.
std::filesystem::path run_directory(const std::filesystem::path& results, const Run& run, bool mpi);

// Throws ResultsDirectoryFault if a directory below --results is a link, because it may lead to another user's files.
void require_no_link(const std::filesystem::path& directory);

// The last part of a run directory's path, and the digits of the hash that it contains.
std::string run_directory_name(std::uint64_t seed, const std::string& hash, bool mpi);
std::string begin_of_hash(const std::string& hash);

// Creates <results>/<experiment>, for runs of one experiment. Throws ResultsDirectoryFault if this directory, or an
// existing directory of the runs, cannot be read and written or is a link. Call it only for runs that are still to be
// made, because results of a finished experiment may be read-only.
void require_usable(const std::filesystem::path& results, std::span<const Run> runs);

// Removes leftovers of killed processes in the directories of an experiment's runs, and returns their number. Keeps
// files of living processes. Keeps files of processes that are invisible from here (on other hosts, in other
// containers) until they have not changed for a day.
int remove_leftovers(const std::filesystem::path& results, std::span<const Run> runs);

// Replaces `directory` by a directory with exactly these files, which are synced before it gets its name. If it throws
// std::filesystem::filesystem_error or std::system_error, `directory` is unchanged, except if only the sync of its new
// name failed.
void write_directory(const std::filesystem::path& directory, const FileContents& files);

// Like write_directory, if several processes may have computed the same run. Keeps an existing directory for which
// `is_done` is true. Returns true for exactly one process, whose files are published, and false for the others.
using IsDone = std::function<bool(const std::filesystem::path&)>;
bool publish_directory(const std::filesystem::path& directory, const FileContents& files, const IsDone& is_done);

// The schema version of a JSON text if it differs from results_schema_version; otherwise nullopt.
std::optional<std::string> other_schema_version(const std::string& text);

// "of schema version 3, and this program knows 2"
std::string of_other_schema(const std::string& version);

// The timeline of a run in Chrome trace events, which ui.perfetto.dev, speedscope and chrome://tracing open: a JSON
// object with one complete event per span. Each worker and server has a named thread. A server with a shared
// link has two more threads, for its incoming and outgoing transfers. Times are in microseconds with nanosecond digits;
// events of a thread never overlap, even after a viewer has rounded them. `otherData` contains the end of the timeline,
// and whether a limit ended it. `cluster`: "simulated" or "mpi", whose clock the times are from.
std::string trace_events(const Timeline& timeline, const RunName& run, const std::string& cluster);

// Hidden names of files and directories. They contain the process's identity, as leases do. A host's name and a process
// number are not enough: containers may share both a host's name and a file system, and each has a process 1.
inline constexpr std::string_view partial_kind = "partial";    // a file or directory that is not completely written yet
inline constexpr std::string_view replaced_kind = "replaced";  // the former contents, until the new ones are in place

// ".<name>.<kind>.<process number>.<its start>.<digest of its machine>", beside `path`.
std::filesystem::path hidden_sibling(const std::filesystem::path& path, std::string_view kind,
                                     const ProcessIdentity& process = this_process());

struct HiddenName {
  std::string name{};        // the name without the hidden parts
  bool is_replaced = false;  // true: replaced_kind; false: partial_kind
  // State of the process that created the file. Unknown for processes of other machines and containers, and for
  // names of earlier versions, which contain only the host's name.
  ProcessState state = ProcessState::unknown;
};
// nullopt if the name is not a hidden name.
std::optional<HiddenName> read_hidden_name(const std::string& file_name);

}  // namespace syncopate
