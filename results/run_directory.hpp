// Where a run's files are, and how they get there whole or not at all: everything is written into a
// hidden sibling directory, which is renamed when it is complete.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "results/run.hpp"
#include "workers/base/process.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/theory/sampled_times.hpp"

namespace syncopate {

// What to say where the disk does not take results: which place, why, and what helps.
// On one line. `directory`: that of the experiment, below which something could not be written or put on the disk.
std::string disk_fault(const std::filesystem::path& directory, const std::filesystem::filesystem_error& problem);

// Of one file of a run: why, and what helps; of what is not the disk's, what() alone.
std::string disk_problem(const std::exception& problem);

// Throws std::filesystem::filesystem_error where the directory is gone: what was removed is not made anew in part.
void require_there(const std::filesystem::path& directory);

// durations.csv: how long each micro-batch took that came to its end, so that it can be replayed.
// worker,step,micro_batch,duration_s,added_s: sorted by the first three (by end where one was computed more than once).
// Seconds have all nine decimals, so that the nanoseconds read back exactly. A micro-batch that was stopped has no row.
std::string durations_csv(std::vector<MicroBatchTime> durations);

// metadata.json: the machine, the program and the time of a run. It alone of a run's files has times of the host.
struct RunMetadata {
  std::string cluster;  // "simulated" or "mpi"
  int threads = 1;      // of the executor, per process
  int processes = 1;
  std::string blas_kernel;
  std::string libtorch_version;
  std::string torch_kernels{};  // that LibTorch has chosen for the processor
  std::chrono::system_clock::time_point start;
  std::chrono::system_clock::time_point end;
  std::string exit;                                // status of the run: finished, diverged, failed
  std::string hash;                                // of the resolved configuration
  std::string course{};                            // of what it computes (Run)
  std::string call{};                              // of processes that shared it; empty: one alone made it
  std::optional<double> measured_micro_batch_s{};  // cluster.micro_batch_s, where it was measured
  std::optional<LengthFit> measured_fit{};         // by lengths: how well they explain the times
};

// Adds what the build and the machine say about themselves.
std::string to_json(const RunMetadata& metadata);

// Single files that a reader finds whole or not at all, whenever the program ends.
// Replaces the file: written beside it under a hidden name, on the disk, and then renamed. What stands under the name
// is replaced whatever it is, a link or a pipe too: where others may write, it may lead to a file of somebody else. The
// folder must be there. Throws std::system_error, whose what() names the file; then it is as it was.
void replace_file(const std::filesystem::path& file, std::string_view contents);

// The same for a file that the user has named. Where a link stands, the file that it leads to is replaced. A pipe or a
// device is written to.
void replace_named_file(const std::filesystem::path& file, std::string_view contents);

// Why a named one could not be replaced as things are, said before there is anything to write; empty if it could.
std::string why_not_replaceable(const std::filesystem::path& file);

// files.json: the files of a run's directory with their sizes and digests, so that a damaged file is noticed. CRC-32,
// because the libraries at hand have it on both sides (zlib here, zlib in Python's standard library): it is there to
// find accidents, not forgeries.
using FileContents = std::map<std::string, std::string>;  // name -> contents

inline constexpr const char* list_of_files = "files.json";

// The contents of files.json beside these files.
std::string listed(const FileContents& files);

// What is wrong with the first file that is not as it was written, "<path>: <what>". Empty if there is none, or no
// directory.
std::string damage_of(const std::filesystem::path& directory);

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

// By which version of the files' schema a file of a run was written.
// As the JSON text says it, where that is another one than results_schema_version; nothing where it says none.
std::optional<std::string> other_schema_version(const std::string& text);

// "of schema version 3, and this program knows 2"
std::string of_other_schema(const std::string& version);

// A timeline as Chrome trace events, which ui.perfetto.dev, speedscope and chrome://tracing open.
struct TraceTitle {
  std::string experiment;
  std::string method;
  std::uint64_t seed = 0;
  std::string hash;
  std::string cluster;  // "simulated" or "mpi": whose clock it is
};

// A JSON object with a complete event per span, and names for the process and for a thread per participant. A server
// whose link is shared has two more threads, for what comes in over its link and what goes out. Times are in
// microseconds with their nanoseconds; no two events of a thread overlap, also after a viewer has rounded them.
// `otherData` says how far the timeline goes and whether a limit cut it.
std::string trace_events(const Timeline& timeline, const TraceTitle& title);

// Hidden names under which files and directories are written before they have their own, and under which former ones
// stand until the new ones have it. A name says which process made it, by the identity that leases use too: containers
// may share the name of a host and a file system, and each has a process 1.
inline constexpr std::string_view partial_kind = "partial";  // being written
inline constexpr std::string_view replaced_kind =
    "replaced";  // the former contents, until the new ones have their name

// ".<name>.<kind>.<process number>.<its start>.<digest of its machine>", beside `path`.
std::filesystem::path hidden_sibling(const std::filesystem::path& path, std::string_view kind,
                                     const ProcessIdentity& process = this_process());

struct HiddenName {
  std::string name{};        // of what it stands for
  bool is_replaced = false;  // else it is being written
  // Of the process that made it. Unknown: of another machine or container, or a name that an earlier Syncopate gave,
  // which knew only the host's name.
  ProcessState state = ProcessState::unknown;
};
// Nothing for what is no such name.
std::optional<HiddenName> read_hidden_name(const std::string& file_name);

// How long what an unknown process has left may stay unchanged before it counts as a leftover. Whoever writes changes
// what it writes, or gives it its name, within seconds.
inline constexpr double lost_after_s = 24 * 3600;

}  // namespace syncopate
