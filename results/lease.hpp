// Leases divide runs among processes on one or many machines that share a directory. A process makes a run only while
// it owns the run's lease.
//
// - A lease is the file <what>.<generation>, where <what> is the run's hash. link() creates it, which succeeds for only
//   one process, even on shared file systems.
// - The owner changes the file in place every few seconds (`beat`). Other processes watch these changes by their own
//   monotonic clocks, and never read clocks of other hosts.
// - If the content does not change for the owner's time-out, another process may create the file of the next
//   generation. It need not wait if the owner was a process of its machine and no longer exists. One process succeeds.
// - No process changes another owner's file. A lease's files are removed only after the run is published, or when the
//   owner of the last generation gives the lease back. So an owner that continues late notices the later generation.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <span>
#include <thread>

#include "results/run.hpp"
#include "workers/base/process.hpp"

namespace syncopate {

// Attempts at a run that failed or lost their process. Processes share these records, so the limit on retries applies
// to the total over all processes. Attempts count only for one call, that is, for all processes of one launch (mpirun,
// a Slurm job or array, `--jobs`). A new call tries the run again.
struct FailedAttempts {
  std::string call{};     // the call to which the attempts belong
  int failures = 0;       // attempts that failed
  int lost = 0;           // attempts whose process was killed or crashed
  bool is_final = false;  // the run diverged, so another attempt would fail in the same way
  std::string reason{};   // reason of the last attempt

  bool operator==(const FailedAttempts&) const = default;
};

class AttemptRecords {
 public:
  // Reads existing records. The directory must exist. `retries`: how often a failed run is tried again.
  AttemptRecords(std::filesystem::path directory, std::string call, int retries);

  std::optional<FailedAttempts> of(const std::string& what) const;
  // The recorded attempts, even of an earlier call; nullopt if the record is missing or unreadable.
  std::optional<FailedAttempts> last(const std::string& what) const;
  // Whether the run must not be tried again. After a lost process it is tried again at least once.
  bool are_used_up(const std::optional<FailedAttempts>& attempts) const;
  // Only the owner of the run's lease may call these. Both `add` functions throw std::system_error.
  void add_failure(const std::string& what, const std::string& reason, bool is_final) const;
  void add_lost(const std::string& what, const std::string& owner) const;
  void remove(const std::string& what) const;

 private:
  std::filesystem::path file(const std::string& what) const;
  void write(const std::string& what, const FailedAttempts& attempts) const;

  std::filesystem::path directory_;
  std::string call_;
  int retries_;
  std::map<std::string, FailedAttempts> earlier_{};  // by `what`
};

struct LeaseNote {
  std::string what{};   // the hash of a run
  std::string token{};  // unique to this lease
  std::string host{};
  ProcessIdentity process{};
  std::string since{};      // ISO 8601, by the owner's clock; only for readers
  double time_out_s = 0;    // if the owner is silent for longer, the lease counts as lost
  double share_done = 0;    // used share of the run's budget
  std::int64_t beat = 0;    // counter that the owner increments
  std::string file_name{};  // not written into the file

  std::string owner() const;  // "node3, process 4711"
};

std::string to_text(const LeaseNote& note);
// nullopt for other texts.
std::optional<LeaseNote> lease_note_from_text(const std::string& text);

class Lease {
 public:
  ~Lease();  // gives the lease back: removes its file and those of earlier generations
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // False if another process has taken the lease over, or the directory is gone.
  bool is_mine() const;
  // Sets the run's progress for the next beat. Any thread may call it.
  void report_progress(double share_done) { share_done_ = share_done; }
  // The note of the owner that lost the lease to this one (an empty note if it was unreadable); null if there was none.
  const LeaseNote* taken_from() const { return former_ ? &*former_ : nullptr; }
  // Whether that owner was a process of this machine that ended and left the lease. False if its time-out passed.
  bool former_is_gone() const { return former_is_gone_; }

 private:
  friend class Leases;
  Lease(std::filesystem::path directory, LeaseNote note, int generation, std::optional<LeaseNote> former);
  void give_back() const;

  const std::filesystem::path directory_;
  const LeaseNote note_;
  const int generation_;
  const std::optional<LeaseNote> former_;
  const bool former_is_gone_;
  int file_ = -1;  // descriptor of the lease's file
  std::atomic<double> share_done_ = 0;
  const LastAct gives_back_{[this] { give_back(); }};
  std::jthread beats_;  // changes the lease's file every few seconds, even if the file was removed
};

class Leases {
 public:
  // The directory must exist. An owner changes its lease's file ten times per time-out, and at least every ten seconds.
  Leases(std::filesystem::path directory, std::chrono::milliseconds time_out);

  // Returns null if another process has the lease. An unreadable file, or a dangling link or pipe that is named like
  // the lease, counts as lost if it has not changed for this process's time-out. Throws
  // std::filesystem::filesystem_error if the lease cannot be written. Throws ResultsDirectoryFault, which names the
  // file, if generations are used up.
  std::unique_ptr<Lease> take(const std::string& what);
  // The note of the last generation of each lease.
  std::vector<LeaseNote> held() const;
  // Removes the lease of a finished run. A process that still makes the run later finds the run published.
  void remove(const std::string& what) const;

 private:
  struct Seen {
    std::string text;
    std::chrono::steady_clock::time_point since;
  };
  bool is_lost(const std::string& file, const std::string& text, const std::optional<LeaseNote>& note);

  std::filesystem::path directory_;
  std::chrono::milliseconds time_out_;
  std::map<std::string, Seen> seen_;  // by file name
};

// An entry of the list of shared runs, for programs that do not have the experiment file.
struct PlannedRun {
  std::string hash{};
  std::string label{};  // method and swept values
  std::uint64_t seed = 0;
  std::filesystem::path directory{};
};

std::vector<PlannedRun> planned_runs(const std::filesystem::path& results, std::span<const Run> runs);

// Writes runs.json or trials.json into the folder. Throws std::system_error.
void save_plan(const std::filesystem::path& folder, std::span<const Run> runs);
// Returns the entries of trials.json and runs.json; nullopt if both files are missing or damaged. Adds a line to
// `faults` for each damaged file.
std::optional<std::vector<PlannedRun>> saved_plan(const std::filesystem::path& experiment_directory,
                                                  std::vector<std::string>* faults = nullptr);

}  // namespace syncopate
