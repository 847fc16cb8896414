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
#include <string>
#include <vector>

#include "workers/process/process_identity.hpp"

namespace syncopate {

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

}  // namespace syncopate
