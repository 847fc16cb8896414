// Who of several processes, on one machine or on many, computes what: a file for each run that is taken, in a directory
// that all of them see.
//
// A lease is the file <what>.<generation>, made by link(), which one process alone succeeds with, on shared file
// systems too. Its owner changes it in place every few seconds (`beat`). Others look at that file with their own
// monotonic clock: where its content has not changed for the owner's time-out, or where the owner was a process of
// this machine and is gone, the next generation may be taken, which again one alone succeeds with. No file of another
// owner is ever changed, and none is removed before its run is published or given up by who has a later generation. So
// an owner that comes back late finds that its own is no longer the last. No clock of another host is read.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/run.hpp"
#include "workers/base/process.hpp"

namespace syncopate {

// What several processes know of runs that have failed, or whose processes were lost, so that each is tried as often as
// was asked for and not once by every process.
//
// An attempt counts for a call: the processes of one launch (mpirun, a Slurm job or array, `--jobs`), which have the
// same `call`, or one that was started by itself. What was there when a call began is of an earlier one, and such a run
// is tried again.
struct FailedAttempts {
  std::string call{};     // that began to count
  int failures = 0;       // attempts that came to a failure
  int lost = 0;           // attempts whose process was killed, or has crashed
  bool is_final = false;  // the same would come of another attempt: it has diverged
  std::string reason{};   // of the last one

  bool operator==(const FailedAttempts&) const = default;
};

class AttemptRecords {
 public:
  // Reads what is there. The directory is there too; `retries`: how often a failed run is tried again.
  AttemptRecords(std::filesystem::path directory, std::string call, int retries);

  // Of this call; nothing where there is none, or an earlier call's alone.
  std::optional<FailedAttempts> of(const std::string& what) const;
  // Whosever call it was.
  std::optional<FailedAttempts> last(const std::string& what) const;
  // Whether it is to be left alone. A lost process is made up for once at least.
  bool are_used_up(const std::optional<FailedAttempts>& attempts) const;
  // By who has the lease. Throw std::system_error.
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

// What a lease's file says.
struct LeaseNote {
  std::string what{};   // the hash of a run
  std::string token{};  // of this lease alone
  std::string host{};
  ProcessIdentity process{};
  std::string since{};      // ISO 8601, by the owner's clock: for readers alone
  double time_out_s = 0;    // silent for longer, it counts as lost
  double share_done = 0;    // of the run's budget
  std::int64_t beat = 0;    // grows
  std::string file_name{};  // not in the file

  std::string owner() const;  // "node3, process 4711"
};

std::string to_text(const LeaseNote& note);
// Nothing for what is no such file's content.
std::optional<LeaseNote> lease_note_from_text(const std::string& text);

class Lease {
 public:
  ~Lease();  // gives it back: its file is gone, and those of the generations before
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // False if somebody else has taken it over, or the directory is gone.
  bool is_mine() const;
  // How far the run is, for the next beat. Any thread.
  void tell(double share_done);
  // The owner that it was taken over from, who is gone or silent; what it wrote may not be readable. Null: there was
  // none.
  const LeaseNote* taken_from() const { return former_ ? &*former_ : nullptr; }
  // Of that owner: a process of this machine that has ended without giving it back. Else it was silent.
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
  // The directory is there. An owner beats ten times within its time-out, and every ten seconds at least.
  Leases(std::filesystem::path directory, std::chrono::milliseconds time_out);

  // Null: another process has it. A file that cannot be read, or what is none of ours under a lease's name (a dangling
  // link, a pipe), counts as lost where it has not changed for this process's time-out. Throws
  // std::filesystem::filesystem_error where it cannot be written, and ResultsDirectoryFault, which names the file,
  // where no further number is left.
  std::unique_ptr<Lease> take(const std::string& what);
  // The last of each that is taken.
  std::vector<LeaseNote> held() const;
  // For what is finished: nobody needs its leases any longer, and a late owner finds its run published.
  void remove(const std::string& what) const;

 private:
  struct Seen {
    std::string text;
    std::chrono::steady_clock::time_point since;
  };
  bool is_lost(const std::string& file, const std::string& text, const std::optional<LeaseNote>& note);

  std::filesystem::path directory_;
  std::chrono::milliseconds time_out_;
  std::map<std::string, Seen> seen_;  // by the names of files
};

// Which runs processes share, beside what they tell each other, for who looks at it without the experiment's file.
struct PlannedRun {
  std::string hash{};
  std::string label{};  // method and what varies
  std::uint64_t seed = 0;
  std::filesystem::path directory{};  // of the run
};

std::vector<PlannedRun> planned_runs(const std::filesystem::path& results, std::span<const Run> runs);

// <folder>/runs.json or trials.json, whichever they are. Throws std::system_error.
void save_plan(const std::filesystem::path& folder, std::span<const Run> runs);
// Trials and runs, of an experiment's directory; nothing where it was never shared, or what stands there is no plan,
// which is added to the faults, a line for each file.
std::optional<std::vector<PlannedRun>> saved_plan(const std::filesystem::path& experiment_directory,
                                                  std::vector<std::string>* faults = nullptr);

}  // namespace syncopate
