// How much memory the built program takes. Not for builds with sanitizers, which take memory of their own.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace syncopate {

// Resident at most, in the whole life of a command, or of the largest process that it starts.
inline std::int64_t peak_bytes_of(const std::filesystem::path& directory, const std::string& what) {
  const std::string command = "cd '" + directory.string() + "' && exec " + what + " >out.txt 2>err.txt";
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  int status = -1;
  rusage usage{};
  EXPECT_EQ(wait4(child, &status, 0, &usage), child);
  EXPECT_EQ(status, 0);
  return 1024 * usage.ru_maxrss;
}

// Of the program itself.
inline std::int64_t peak_bytes(const std::filesystem::path& directory, const std::string& arguments) {
  return peak_bytes_of(directory, "'" SYNCOPATE_PROGRAM "' " + arguments);
}

}  // namespace syncopate
