// Leases divide runs among processes on one or many machines that share a directory. Each lease is a file for one run.
//
// A lease is the file <what>.<generation>. link() creates it, which succeeds for only one process, also on shared file
// systems. Its owner changes it in place every few seconds (`beat`). Others watch it by their monotonic clocks. They
// may take the next generation, which again only one gets, in two cases: the content has not changed for the owner's
// time-out, or the owner was a process of this machine and is gone. No process changes another owner's file. Files are
// removed only after their run is published, or given up by the owner of a later generation. So an owner that returns
// late finds that its lease is no longer the last. Clocks of other hosts are never read.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <span>

#include "results/run.hpp"
#include "workers/base/process.hpp"

namespace syncopate {

// Attempts at a run that failed or lost their process. Processes share these records, so that each run is tried as
// often as requested in total, and not that often by every process.
//
// Attempts count for one call: all processes of one launch (mpirun, a Slurm job or array, `--jobs`), or a single
// process. Attempts recorded before the call's start do not count, so that the run is tried again.
struct FailedAttempts {
  std::string call{};     // attempts that failed
  int failures = 0;       // attempts whose process was killed or crashed
  int lost = 0;           // attempts whose process was killed or crashed
  bool is_final = false;  // another attempt would fail in the same way: the run diverged
  std::string reason{};   // reason of the last attempt

  bool operator==(const FailedAttempts&) const = default;
};

class AttemptRecords {
 public:
  // Reads existing records. The directory must exist. `retries`: how often a failed run is tried again.
  AttemptRecords(std::filesystem::path directory, std::string call, int retries);

  std::optional<FailedAttempts> of(const std::string& what) const;
  // The recorded attempts of any call. An unreadable record counts as none.
  std::optional<FailedAttempts> last(const std::string& what) const;
  // Whether the run must not be tried again. A lost process is replaced at least once.
  bool are_used_up(const std::optional<FailedAttempts>& attempts) const;
  // Only for the owner of the lease. Both throw std::system_error.
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
  double time_out_s = 0;    // an owner that is silent for longer counts as lost
  double share_done = 0;    // share of the run's budget
  std::int64_t beat = 0;    // a counter
  std::string file_name{};  // not written into the file

  std::string owner() const;  // "node3, process 4711"
};

std::string to_text(const LeaseNote& note);
// nullopt for other texts.
std::optional<LeaseNote> lease_note_from_text(const std::string& text);

class Lease {
 public:
  ~Lease();  // gives it back: removes its file and those of earlier generations
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // False if another process has taken it over, or the directory is gone.
  bool is_mine() const;
  // Sets the run's progress for the next beat. Any thread may call it.
  void report_progress(double share_done);
  // The note of the lost owner from whom it was taken over; empty if unreadable. Null without such an owner.
  const LeaseNote* taken_from() const { return former_ ? &*former_ : nullptr; }
  // Whether the former owner was a process of this machine that ended without giving the lease back. Otherwise it was
  // silent.
  bool former_is_gone() const { return former_is_gone_; }

 private:
  friend class Leases;
  class Heart;
  Lease(std::filesystem::path directory, LeaseNote note, int generation, std::optional<LeaseNote> former);

  std::filesystem::path directory_;
  LeaseNote note_;
  int generation_;
  std::optional<LeaseNote> former_;
  bool former_is_gone_ = false;
  std::unique_ptr<Heart> heart_;
};

class Leases {
 public:
  // The directory must exist. Owners beat ten times within their time-out, and at least every ten seconds.
  Leases(std::filesystem::path directory, std::chrono::milliseconds time_out);

  // Null: another process has it. An unreadable file, or a dangling link or pipe with a lease's name, counts as lost if
  // it has not changed for this process's time-out. Throws std::filesystem::filesystem_error if the lease cannot be
  // written. Throws ResultsDirectoryFault, which names the file, if generations are used up.
  std::unique_ptr<Lease> take(const std::string& what);
  // The last generation of each lease.
  std::vector<LeaseNote> held() const;
  // For a finished run: nobody needs its lease any longer, and a late owner finds the run published.
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

// A run that processes share, for readers without the experiment's file.
struct PlannedRun {
  std::string hash{};
  std::string label{};  // method and swept values
  std::uint64_t seed = 0;
  std::filesystem::path directory{};  // the run's directory
};

std::vector<PlannedRun> planned_runs(const std::filesystem::path& results, std::span<const Run> runs);

// Writes <folder>/runs.json or trials.json. Throws std::system_error.
void save_plan(const std::filesystem::path& folder, std::span<const Run> runs);
// Trials and runs of an experiment's directory; nullopt if it was never shared. A damaged file adds a line to `faults`.
std::optional<std::vector<PlannedRun>> saved_plan(const std::filesystem::path& experiment_directory,
                                                  std::vector<std::string>* faults = nullptr);

}  // namespace syncopate
