// How a process takes part where several make an experiment's runs together.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace syncopate {

struct Sharing {
  std::chrono::milliseconds time_out = std::chrono::seconds(120);  // of leases; see results/directory/lease.hpp
  std::string call{};  // of all processes that were started together; see results/directory/failed_attempts.hpp
  bool waits = true;   // for what others have taken, so that the tables are whole; else it ends when all is taken
  bool takes = true;   // false: others make the runs, and this process shows how far they are
  bool speaks = true;  // tables, claims, and that it was interrupted
  // With takes = false: what starts those others, and whether there are any. They may be asked again and again.
  std::function<void()> start_others{};
  std::function<bool()> others_are_there{};
  // Several processes meet the same full disk, and one says so: true for the first of those that were started together
  // that asks. Empty: this process says so in any case.
  std::function<bool()> is_first_to_say{};

  // Whether this process says why runs are not made. Asked when it would.
  bool says_why() const { return !is_first_to_say || is_first_to_say(); }
};

// The name that all processes of this launch have in common: of mpirun, a Slurm job, or an array of jobs; else one that
// no other process has.
std::string call_of_this_process();

// Of the launch; 0 without one. One process of a launch speaks.
int rank_in_launch();

}  // namespace syncopate
