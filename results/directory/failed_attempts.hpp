// What several processes know of runs that have failed, or whose processes were lost, so that each is tried as often as
// was asked for and not once by every process.
//
// An attempt counts for a call: the processes of one launch (mpirun, a Slurm job or array, `--jobs`), which have the
// same `call`, or one that was started by itself. What was there when a call began is of an earlier one, and such a run
// is tried again.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace syncopate {

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

}  // namespace syncopate
