// Finds processes of this machine that a test of the built program has started.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace syncopate {

// Returns the processes that execute the program and work in the directory, which must belong to one test.
inline std::vector<pid_t> processes_in(const std::filesystem::path& directory, const std::filesystem::path& program) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::error_code error;
    const auto place = std::filesystem::read_symlink(entry.path() / "cwd", error);
    const auto executed = std::filesystem::read_symlink(entry.path() / "exe", error);
    if (!error && place == directory && executed == std::filesystem::canonical(program))
      found.push_back(std::stoi(entry.path().filename().string()));
  }
  return found;
}

// Returns the launchers that work in the directory. The mpirun of Open MPI 5 executes prterun, which is in its folder.
inline std::vector<pid_t> launchers_in(const std::filesystem::path& directory) {
  const std::filesystem::path mpiexec = SYNCOPATE_MPIEXEC, prterun = mpiexec.parent_path() / "prterun";
  std::vector<pid_t> found = processes_in(directory, mpiexec);
  if (found.empty() && std::filesystem::exists(prterun)) found = processes_in(directory, prterun);
  return found;
}

}  // namespace syncopate
