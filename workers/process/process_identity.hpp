// Which process of which machine this is, so that another one can tell whether it is still there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace syncopate {

struct ProcessIdentity {
  std::string machine;      // the system's start and the space that process numbers belong to; empty: not known
  pid_t number = 0;         // within that space
  std::uint64_t start = 0;  // in ticks since the system's start, so that a number that is used again is another process

  bool operator==(const ProcessIdentity&) const = default;
};

ProcessIdentity this_process();

enum class ProcessState {
  running,  // also one that is stopped
  gone,     // also one that has ended and has not been waited for
  unknown,  // of another machine, or of another container
};

ProcessState state_of(const ProcessIdentity& process);

}  // namespace syncopate
