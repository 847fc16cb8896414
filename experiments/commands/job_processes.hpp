// The children of `run --jobs`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "workers/process/shared_token.hpp"

namespace syncopate {

class JobProcesses {
 public:
  struct Options {
    std::vector<std::string> command;  // of this program; --token and --memory-part are added
    int number = 1;
    std::int64_t memory_bytes = 0;               // the most that each may take
    std::filesystem::path experiment_directory;  // where they take runs
  };
  explicit JobProcesses(Options options);
  // Tells those that are there to end, and waits for it, for some seconds at most.
  ~JobProcesses();
  JobProcesses(const JobProcesses&) = delete;
  JobProcesses& operator=(const JobProcesses&) = delete;

  // Once; from the main thread. Throws std::runtime_error where they cannot be started.
  void start();
  // Whether any is; one that was killed, or has crashed, while it made a run, is followed by another one.
  bool are_there();
  // True for the first of this process and its children that asks for it.
  bool take_token() { return token_.take(); }

 private:
  bool was_making_a_run(pid_t job) const;
  pid_t started() const;

  Options options_;
  SharedToken token_{};
  bool has_started_ = false;
  std::vector<pid_t> jobs_;
};

}  // namespace syncopate
